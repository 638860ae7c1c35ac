"""Selects the backend and the model for a run: by flags, by settings, or from what runs on this machine."""

import asyncio
import os
import shlex
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from dragoman import agents, compose
from dragoman import config as settings
from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.http.config import HttpConfig
from dragoman.catalog import models as model_catalog
from dragoman.catalog import servers
from dragoman.cli._common import gateway_key, listed_models, print_status
from dragoman.cli.run.context_window import embedded_context_window, reported_context_window
from dragoman.cli.run.preface import ANY_TIME_S, FIRST_RESPONSE_S, check_key, is_local, reading_speed
from dragoman.compose import embedded_weights
from dragoman.core.errors import BackendUnavailableError, ConfigError, nearest, quote
from dragoman.gateway.routing.router import alias_targets
from dragoman.prompting.prompt_budget import budget_for

NEARBY: Final = "nearby"
"""Name of a server that was found and whose provider is unknown."""
_LISTED_AT_MOST: Final = 12
_OUTPUT_TOKENS: Final = 8192
"""Maximum length of a response: agents reserve it, and a file that is written in one call is rarely longer."""
_UNKNOWN_S: Final = 2.0
"""Time to get the list of models of a gateway or a server."""


class ModelOption(NamedTuple):
    """A model that can be selected."""

    model: str
    server: str = ""
    """The server's name in the settings; empty: the embedded model, `claude`, or a running gateway."""
    url: str = ""
    """The URL of a running gateway."""
    title: str = ""
    """Where the model is, for the user."""
    line: str = ""
    """The flags that select it."""


class SelectedModel(NamedTuple):
    """The selected model."""

    config: settings.Config
    origin: dict[str, str]
    offer: ModelOption
    context_window: int
    has_reasoning: bool
    tokens_per_s: float = 0.0
    """Speed at which a server on this machine reads prompts; 0: not measured."""

    @property
    def output_tokens(self) -> int:
        """Maximum length of a response: a quarter of the context."""
        return min(_OUTPUT_TOKENS, self.context_window // 4)


class RunOptions(NamedTuple):
    """The arguments of the command."""

    agent: str
    """The agent as it is typed; empty: none was named."""
    args: tuple[str, ...]
    """The arguments after `--`."""
    model: str
    named: bool
    """Whether flags name the backend."""
    new: bool
    """Start a new gateway, even if one is running."""
    context_window: int
    prompt_trim: str
    ask: Callable[[Sequence[ModelOption]], ModelOption] | None
    """Lets the user choose at a terminal; None: there is no terminal."""
    check: bool = False
    """Nothing is started, so nothing is measured."""


async def select_model(config: settings.Config, origin: dict[str, str], options: RunOptions) -> SelectedModel:
    """Selects the backend and the model.

    Raises: ConfigError: the choice is ambiguous, or nothing is available; the message has the commands to run.
    """
    offers = [] if options.named or options.new else await find_running_gateway(config)
    if not (options.model or "embedded.model" in origin):
        offers = _without_unsuitable(offers, config)
    if offers and (not options.model or options.model in [offer.model for offer in offers]):
        return await _selected(config, origin, _pick(offers, options), options)
    if config.upstreams or config.claude_cli.enabled:
        return await _configured(config, origin, options)
    if embedded_weights.is_embedded_model(options.model, config.embedded) or "embedded.model" in origin:
        return await _selected(*_with_embedded(config, origin, options.model, options), options)
    discovered = await with_local_servers(config)
    if discovered.upstreams:
        offers = [
            ModelOption(model, name, "", server.url, _flags(model, server))
            for name, server in discovered.upstreams.items()
            for model in _printable_names(server.models)
        ]
        if not offers:
            urls = " and ".join(server.url for server in discovered.upstreams.values())
            raise ConfigError(
                f"no model is loaded at {urls}, or none by a name that can be typed; "
                "load one there, or choose one with --model NAME"
            )
        return await _selected(discovered, origin, _pick(offers, options), options)
    if options.model:
        model_catalog.get(options.model)  # raises for an unknown model
    return await _selected(*_with_embedded(config, origin, _best_installed(), options), options)


async def select_from_running(config: settings.Config, origin: dict[str, str], options: RunOptions) -> SelectedModel:
    """Selects a model of the gateway that is already running, whether or not it suits agents.

    Raises: ConfigError: no gateway is running, or the choice is ambiguous.
    """
    offers = await find_running_gateway(config)
    if not offers:
        raise ConfigError(f"no gateway answers at port {config.server.port}; start one: dragoman serve")
    return await _selected(config, origin, _pick(offers, options), options)


async def find_running_gateway(config: settings.Config) -> list[ModelOption]:
    """Returns the models of a gateway at the port of the settings, or none; the key is sent to no other program."""
    from dragoman.backends.probe.connect import open_connection
    from dragoman.backends.probe.server_info import ServerInfo
    from dragoman.cli.doctor.gateway_client import gateway_url

    if not config.server.port:
        return []
    where = gateway_url(config.server)
    gateway = _gateway(config, where)
    async with open_connection(msgspec.structs.replace(gateway, api_key=""), os.environ) as connection:
        if not await ServerInfo(connection, where).is_provider(servers.get("dragoman")):
            return []
    async with open_connection(gateway, os.environ) as connection:
        models = _distinct(_printable_names(await ServerInfo(connection, where).models()))
    return [ModelOption(model, "", where, f"the gateway at {where}", _flags(model)) for model in models]


def _gateway(config: settings.Config, where: str) -> HttpConfig:
    return HttpConfig(url=f"{where}/v1", api_key=gateway_key(config.server), connect_timeout_s=_UNKNOWN_S)


def _without_unsuitable(offers: list[ModelOption], config: settings.Config) -> list[ModelOption]:
    """Returns the options without embedded models that are unsuitable for agents, and prints which were skipped."""
    unfit = {name for each in model_catalog.models() if not each.agents for name in (each.name, *each.aliases)}
    passed = [offer for offer in offers if _target(config, offer.model).rpartition("/")[2] in unfit]
    if passed:
        names = ", ".join(offer.model for offer in passed)
        print_status(f"skipped {names} of {passed[0].title}: unsuitable for agents; select it with --model NAME")
    return [offer for offer in offers if offer not in passed]


def _target(config: settings.Config, model: str) -> str:
    """Returns the first target of an alias; any other name is returned unchanged."""
    return alias_targets(config.model_aliases.get(model, model))[0]


def _flags(model: str, server: HttpConfig | None = None) -> str:
    """Returns the options that select a model, of this server if it is not one of the settings."""
    if server is None:
        return shlex.join(["--model", model])
    api = ("--upstream-api", server.api) if server.api != HttpConfig(url="").api else ()
    key = ("--api-key-env", server.api_key_env) if server.api_key_env else ()
    return shlex.join(["--upstream", server.url, *api, *key, "--model", model])


def _printable_names(models: Sequence[str]) -> list[str]:
    """Returns the names without control characters, which could control a terminal and do not fit into variables."""
    return [name for name in models if name.isprintable()]


def _distinct(models: Sequence[str]) -> list[str]:
    """Returns each model once, without its aliases."""
    plain_names = {name for name in models if "/" not in name}
    others = {alias for each in model_catalog.models() if each.name in plain_names for alias in each.aliases}
    return [name for name in models if name not in others and name.partition("/")[2] not in plain_names]


async def _configured(config: settings.Config, origin: dict[str, str], options: RunOptions) -> SelectedModel:
    """Selects by settings or flags."""
    offers, silent = list[ModelOption](), list[str]()
    listed = await asyncio.gather(*(listed_models(server) for server in config.upstreams.values()))
    for (name, server), models in zip(config.upstreams.items(), listed, strict=True):
        if models is None:
            silent.append(server.url)
        named = server if options.named else None
        offers += [
            ModelOption(model, name, "", server.url, _flags(model, named)) for model in _printable_names(models or ())
        ]
    if config.claude_cli.enabled:
        from dragoman.backends.claude_cli.models import list_models as claudes

        offers += [
            ModelOption(m.aliases[0], "", "", "claude", _flags(m.aliases[0])) for m in claudes(config.claude_cli.models)
        ]
    if compose.serves_embedded(config, origin):
        name = embedded_weights.embedded_model_name(config.embedded)
        offers.append(ModelOption(name, "", "", "this machine", _flags(name)))
    elif (
        not options.named
        and embedded_weights.is_embedded_model(options.model, config.embedded)
        and options.model not in [o.model for o in offers]
    ):
        return await _selected(*_with_embedded(config, origin, options.model, options), options)
    if not offers and silent:
        raise BackendUnavailableError(f"nothing answers at {' and '.join(silent)}; is the server running?")
    if options.model and (alias := config.model_aliases.get(options.model)):
        first = alias_targets(alias)[0]
        target = next(
            (offer for offer in offers if first in (offer.model, f"{offer.server}/{offer.model}")), ModelOption("")
        )
        return await _selected(config, origin, target._replace(model=options.model), options, requested=target.model)
    return await _selected(config, origin, _pick(offers, options, config), options)


async def with_local_servers(config: settings.Config) -> settings.Config:
    """Returns the settings with the servers that run on this machine, and their models."""
    from dragoman.backends.probe.discover import discover_servers

    discovered = dict[str, HttpConfig]()
    for each in await discover_servers(os.environ):
        name = each.provider.name if each.provider else NEARBY
        name = name if name not in discovered else f"{name}{len(discovered)}"
        if each.provider != servers.get("dragoman"):
            discovered[name] = HttpConfig(
                url=each.url, provider=each.provider.name if each.provider else "", models=each.models
            )
    return msgspec.structs.replace(config, upstreams=discovered)


def _best_installed() -> str:
    """Returns a downloaded model that suits agents.

    Raises: ConfigError: there is none; the message says what to run.
    """
    suitable = [each for each in model_catalog.models() if each.agents]
    if downloaded := [each for each in suitable if weights.is_downloaded(each)]:
        return max(downloaded, key=lambda each: each.size_bytes).name
    size = weights.format_size(suitable[0].size_bytes)
    raise ConfigError(
        "no model to run on: no server of one answers on this machine, and there are no weights of one that is fit for "
        f"agents. Start a server (docs/backends.md), name one with --upstream URL, or fetch a model ({size}):\n"
        f"  dragoman pull {suitable[0].name}"
    )


def _with_embedded(
    config: settings.Config, origin: dict[str, str], model: str, options: RunOptions
) -> tuple[settings.Config, dict[str, str], ModelOption]:
    """Returns the settings for the embedded model, with the context that an agent needs, and for one conversation."""
    profile = model_catalog.find(model)
    overrides: dict[str, object] = {"context_window": profile.context_window} if profile else {}
    overrides |= {
        "max_concurrency": 1,
        "prompt_trim": "tools",
        **({"model": profile.name if profile else model} if model else {}),
    }
    if tools := agents.get(options.agent or agents.ANY).tools:
        fixed = options.prompt_trim or "embedded.prompt_trim" in origin
        overrides |= {"first_response_target_s": ANY_TIME_S if fixed else FIRST_RESPONSE_S, "tools": tools}
    overrides = {
        name: value for name, value in overrides.items() if name == "model" or f"embedded.{name}" not in origin
    }
    overrides |= {"context_window": options.context_window} if options.context_window else {}
    overrides |= {"prompt_trim": options.prompt_trim} if options.prompt_trim else {}
    config = msgspec.structs.replace(
        config, embedded=msgspec.structs.replace(config.embedded, enabled=True, **overrides)
    )
    name = embedded_weights.embedded_model_name(config.embedded)
    origin = origin | {f"embedded.{key}": "run" for key in overrides}
    return config, origin, ModelOption(name, "", "", "this machine", _flags(name))


def _pick(offers: Sequence[ModelOption], options: RunOptions, config: settings.Config | None = None) -> ModelOption:
    """Returns the option that is named, or the only one.

    Raises: ConfigError: the choice is ambiguous.
    """
    if options.model:
        for offer in offers:
            if options.model in (offer.model, f"{offer.server}/{offer.model}"):
                return offer._replace(model=options.model)
        if config and config.claude_cli.enabled:
            from dragoman.backends.claude_cli.models import resolve_model

            if resolve_model(options.model):
                return ModelOption(options.model, "", "", "claude")
        listed = f"there are\n{_lines(offers, options)}" if offers else "none is listed"
        raise ConfigError(f"no model {quote(options.model)}{_similar(options.model, offers)}; {listed}")
    if not offers:
        raise ConfigError("no model is listed, or none by a name that can be typed; choose one with --model NAME")
    if len(offers) == 1:
        return offers[0]
    if options.ask:
        return options.ask(offers)
    raise ConfigError(f"there are {len(offers)} models; choose one with one of these lines\n{_lines(offers, options)}")


def _similar(model: str, offers: Sequence[ModelOption]) -> str:
    return nearest(model, [offer.model for offer in offers])


def _lines(offers: Sequence[ModelOption], options: RunOptions) -> str:
    agent, args = (
        f"{options.agent} " if options.agent else "",
        f" -- {shlex.join(options.args)}" if options.args else "",
    )
    lines = [f"  dragoman run {agent}{offer.line}{args}" for offer in offers[:_LISTED_AT_MOST]]
    return "\n".join(lines + (["  …"] if len(offers) > _LISTED_AT_MOST else []))


async def _selected(
    config: settings.Config,
    origin: dict[str, str],
    offer: ModelOption,
    options: RunOptions,
    requested: str | None = None,
) -> SelectedModel:
    """Returns the selected model with what is known of it; `requested` is its own name."""
    model, speed = offer.model if requested is None else requested, 0.0
    if offer.url:
        window = await reported_context_window(_gateway(config, offer.url), model)
    elif offer.server:
        own = model.removeprefix(f"{offer.server}/")
        config = _with_options(config, offer.server, options)
        window = await reported_context_window(config.upstreams[offer.server], own)
        if not options.check:
            config, speed = await _with_prompt_limit(config, origin, offer.server, own, options)
    elif compose.serves_embedded(config, origin) and model == embedded_weights.embedded_model_name(config.embedded):
        config = _with_options(config, "", options)
        window = embedded_context_window(config.embedded)
    else:
        window = (0, True)
    return SelectedModel(config, origin, offer, options.context_window or window[0], window[1], speed)


def _with_options(config: settings.Config, name: str, options: RunOptions) -> settings.Config:
    """Returns the settings with the command's trimming and context window for this server; "": the embedded model."""
    backend: HttpConfig | EmbeddedConfig = config.upstreams[name] if name else config.embedded
    trim, window = options.prompt_trim or backend.prompt_trim, options.context_window or backend.context_window
    backend = msgspec.structs.replace(backend, prompt_trim=trim, context_window=window)
    if isinstance(backend, EmbeddedConfig):
        return msgspec.structs.replace(config, embedded=backend)
    return msgspec.structs.replace(config, upstreams={**config.upstreams, name: backend})


async def _with_prompt_limit(
    config: settings.Config, origin: dict[str, str], name: str, model: str, options: RunOptions
) -> tuple[settings.Config, float]:
    """Returns the settings with a prompt limit that the model reads in time, and its speed.

    Raises:
        ConfigError: the server does not accept the key.
        BackendUnavailableError: nothing listens there.
    """
    server = config.upstreams[name]
    others = alias_targets(config.model_aliases.get(options.model, options.model))[1:]
    await check_key(server, required=not others)
    agent = agents.get(options.agent) if options.agent else None
    if not (is_local(server) and agent and agent.prompt_tokens):
        return config, 0.0
    speed = await reading_speed(server, model)
    set_by_user = options.prompt_trim or any(
        f"upstreams.{name}.{each}" in origin for each in ("prompt_trim", "prompt_tokens")
    )
    if not speed or set_by_user or agent.prompt_tokens / speed <= FIRST_RESPONSE_S:
        return config, speed
    budget = budget_for(FIRST_RESPONSE_S, speed, agent.tools)
    server = msgspec.structs.replace(server, prompt_tokens=budget.tokens, tools=server.tools or budget.tools)
    return msgspec.structs.replace(config, upstreams={**config.upstreams, name: server}), speed
