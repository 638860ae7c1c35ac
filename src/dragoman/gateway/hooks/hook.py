"""A hook: the functions of another package that the gateway calls, and how they are found.

class Audit:                                            or a module with such functions; any of them may be left out
    def __init__(self, settings): ...                   the table [hooks.settings.audit]
    def on_request(self, request): ...                  None, or the request to use instead; may raise DragomanError
    async def on_tool_call(self, call, request): ...    None, or the reason why the call is refused
    def on_response(self, reply, request): ...
    def on_error(self, error, exchange_id): ...
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from dragoman import plugins
from dragoman.core.errors import ConfigError, one_of, quote
from dragoman.gateway.hooks.config import HooksConfig

HookFunction: TypeAlias = Callable[..., object]
"""A function of a hook, plain or `async`."""
STEPS: Final = ("on_request", "on_tool_call", "on_response", "on_error")


class Hook(NamedTuple):
    """The functions of one entry point."""

    name: str
    functions: Mapping[str, HookFunction]
    """By step, one of `STEPS`."""


def load_hooks(config: HooksConfig) -> list[Hook]:
    """Returns the enabled hooks, in the order of their names.

    Raises:
        ConfigError: A hook is not installed, cannot be loaded, or has no function that would be called.
    """
    unused = sorted(config.settings.keys() - set(config.enabled))
    if unused:
        raise ConfigError(
            f"expected settings of enabled hooks only, got those of {quote(unused[0])} - at hooks.settings"
        )
    return [_load(name, config.settings.get(name, {})) for name in sorted(set(config.enabled))]


def _load(name: str, settings: Mapping[str, object]) -> Hook:
    plugin = plugins.find(plugins.HOOKS, name)
    if plugin is None:
        known = one_of(name, plugins.installed(plugins.HOOKS), "installed: ")
        raise ConfigError(f"no installed package offers the hook {quote(name)}{known} - at hooks.enabled")
    try:
        value: Any = plugin.load()
    except ConfigError as error:
        raise ConfigError(f"{error.message} - at hooks.enabled") from error
    if inspect.isclass(value):
        factory: Any = value
        try:
            value = factory(dict(settings))
        except ConfigError as error:
            raise ConfigError(f"{plugin}: {error.message} - at hooks.settings.{name}") from error
        except Exception as error:
            described = plugins.describe_failure(error)
            raise ConfigError(f"{plugin} could not be started: {described} - at hooks.settings.{name}") from error
    elif settings:
        raise ConfigError(f"{plugin} is not a class, so it has no settings - at hooks.settings.{name}")
    functions = {step: found for step in STEPS if callable(found := getattr(value, step, None))}
    if not functions:
        raise ConfigError(f"{plugin} has no function to call; expected one of {', '.join(STEPS)} - at hooks.enabled")
    return Hook(name, functions)
