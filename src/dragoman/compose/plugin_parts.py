"""What installed packages add to the gateway: backends, and hooks."""

import os
from collections.abc import Callable
from functools import partial

from dragoman import config as settings
from dragoman.core.backend import Backend
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.hooks.config import HooksConfig


def plugin_backends(config: settings.Config) -> list[Backend]:
    """Returns the backends of installed packages that the settings name, in the order of the settings file.

    Raises: ConfigError: no package offers one of them, or it could not be built.
    """
    if not config.backends:
        return []
    from dragoman.backends.plugin_backend import build_plugin_backend

    return [build_plugin_backend(name, table, os.environ) for name, table in config.backends.items()]


def check_plugins(config: settings.Config) -> None:
    """Builds the backends and hooks that the settings name, as a start would.

    Raises: ConfigError: one of them is not installed, or cannot be built.
    """
    plugin_backends(config)
    gateway_type(config.hooks)


def gateway_type(config: HooksConfig) -> Callable[..., Gateway]:
    """Returns what builds a gateway: one that calls the enabled hooks, or `Gateway` itself if there are none.

    Raises: ConfigError: a hook is not installed, or cannot be loaded.
    """
    if not config.enabled and not config.settings:
        return Gateway
    from dragoman.gateway.hooks.hook import load_hooks
    from dragoman.gateway.hooks.hook_runner import HookRunner
    from dragoman.gateway.hooks.hooked_gateway import HookedGateway

    return partial(HookedGateway, HookRunner(load_hooks(config), config.timeout_s, fail_closed=config.fail_closed))
