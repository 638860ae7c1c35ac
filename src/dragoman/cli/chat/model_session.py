"""The model that is chatted with: found as `dragoman run` and `dragoman ask` find theirs, and changed by `/model`.

Without options: a gateway that runs at the configured port, else the servers of the settings, else a model server that
runs on this machine, else an embedded model, which is started here.
"""

import argparse
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from msgspec.structs import replace

from dragoman import compose
from dragoman import config as settings
from dragoman.backends.embedded import weights
from dragoman.catalog import models as model_catalog
from dragoman.cli._common import check_claude_login, get_weights, require_extras
from dragoman.cli._terminal import ProgressLine
from dragoman.cli.ask.select_backend import gateway_server, select_backend, upstream_only
from dragoman.cli.chat.background_loop import BackgroundLoop
from dragoman.cli.run.select_model import find_running_gateway, with_local_servers
from dragoman.compose import embedded_weights
from dragoman.core.errors import BackendUnavailableError, ConfigError, DragomanError, UnknownModelError, nearest, quote
from dragoman.core.messages import Request
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.routing.router import alias_targets

_STARTING: Final = "starting"


class Source(NamedTuple):
    """Where a model is."""

    config: settings.Config
    """Its backends are the only ones."""
    embedded: bool
    """The embedded model is one of them."""
    model: str
    """Empty: the first one."""
    title: str
    """For the user; empty: the backend's own name."""


class ModelSession:
    """A gateway in this process, in front of the model's server or with the embedded model itself."""

    def __init__(
        self,
        loop: BackgroundLoop,
        args: argparse.Namespace,
        config: settings.Config,
        origin: dict[str, str],
        line: ProgressLine,
    ) -> None:
        """Args:
        loop: Runs the gateway.
        args: The arguments of the command that name a server.
        config: The settings.
        origin: Where each setting that is not at its default comes from, by its key.
        line: Shows what the user waits for.
        """
        self._loop, self._args, self._line = loop, args, line
        self._config, self._origin = config, origin
        self._gateway: Gateway | None = None
        self._source: Source | None = None
        self.model = ""
        """Name of the model."""

    @property
    def config(self) -> settings.Config:
        """The settings, with all servers and MCP servers."""
        return self._config

    @property
    def gateway(self) -> Gateway:
        """The gateway, after `open`."""
        assert self._gateway is not None
        return self._gateway

    @property
    def title(self) -> str:
        """Where the model is, for the user."""
        assert self._source is not None
        if self._source.title:
            return self._source.title
        backend, _ = self.gateway.routes(Request(self.model, ()))[0]
        state = backend.health()
        return str(state.get("url", state["backend"]))

    def open(self, model: str) -> None:
        """Starts the gateway with this model; empty: the one that suits best.

        Raises:
            DragomanError: There is no such model, or its backend does not start; the message says what to do.
        """
        with self._line.showing("looking for a model"):
            source = self._loop.run(_select(self._config, self._origin, self._args, model), self._line.redraw)
        self._start(source)

    def close(self) -> None:
        """Ends the gateway, and the engine of an embedded model."""
        if self._gateway is not None:
            gateway, self._gateway = self._gateway, None
            self._loop.run(gateway.close())

    def models(self) -> list[str]:
        """Returns the names of the models that can be selected now, each once."""
        listed = [model.id for model in self.gateway.models()]
        names = [name for name in listed if name.partition("/")[2] not in listed]  # without SERVER/ before each
        if self._is_free:
            names += [each.name for each in model_catalog.models() if weights.is_downloaded(each)]
        return list(dict.fromkeys(name for name in [self.model, *names] if name.isprintable()))

    def switch(self, model: str) -> None:
        """Changes the model; the conversation can be continued with it.

        Raises:
            DragomanError: There is no such model, or its backend does not start; the model stays as it is.
        """
        if model == self.model:
            return
        try:
            self._loop.run(self.gateway.routes_or_refresh(Request(model, ())))
        except UnknownModelError:
            if not self._is_free:
                raise
        else:
            self.model = model
            return
        previous, source = self.model, self._source
        with self._line.showing("looking for the model"):
            selected = self._loop.run(_select(self._config, self._origin, self._args, model), self._line.redraw)
        self.close()  # first, as two embedded models may not fit into memory
        try:
            self._start(selected)
        except BaseException:
            assert source is not None
            self._start(source._replace(model=previous))
            raise

    @property
    def _is_free(self) -> bool:
        """Whether no option names the server."""
        return not (self._args.upstream or self._args.claude_cli or self._args.gateway)

    def _start(self, source: Source) -> None:
        require_extras("server", *(("embedded",) if source.embedded else ()), doing="chatting")
        with self._line.showing(_STARTING):
            self._loop.run(check_claude_login(source.config, self._line.print), self._line.redraw)
            backends = compose.build_backends(
                source.config, embedded=source.embedded, probe=False, report=self._line.update, get_weights=get_weights
            )
            gateway = Gateway(backends, policy=source.config.guard)
            try:
                self._loop.run(gateway.start(), self._line.redraw)
                model = source.model or _first_model(gateway)
                self._loop.run(gateway.routes_or_refresh(Request(model, ())))
            except BaseException:
                self._loop.run(gateway.close())
                raise
        self._gateway, self._source, self.model = gateway, source, model


def _first_model(gateway: Gateway) -> str:
    models = gateway.models()
    if not models:
        urls = [str(state["url"]) for state in gateway.health() if "url" in state]
        raise BackendUnavailableError(
            f"nothing answers at {' and '.join(urls)}, or no model is loaded there; "
            f"run: dragoman doctor{f' --upstream {urls[0]}' if len(urls) == 1 else ''}"
        )
    return models[0].id


async def _select(config: settings.Config, origin: dict[str, str], args: argparse.Namespace, model: str) -> Source:
    """Returns where the model is; empty: one that suits best. Raises: ConfigError: there is none."""
    target = alias_targets(config.model_aliases.get(model, model))[0]
    if args.gateway or args.upstream or args.claude_cli:
        config, embedded = select_backend(config, origin, args, target)
        return Source(config, embedded, target, "")
    offers = await find_running_gateway(config)
    if offers and (not model or model in [offer.model for offer in offers]):
        server = gateway_server(config, offers[0].url)
        return Source(upstream_only(config, {"gateway": server}), False, model, offers[0].title)
    if compose.has_upstreams(config):
        selected, embedded = select_backend(config, origin, args, target)
        if embedded or not embedded_weights.is_embedded_model(target, config.embedded) or _lists(selected, target):
            return Source(selected, embedded, target, "")
    elif not (embedded_weights.is_embedded_model(target, config.embedded) or "embedded.model" in origin):
        found = await with_local_servers(config)
        names = [name for server in found.upstreams.values() for name in server.models]
        if (not model and names) or target in names:
            return Source(found, False, target, "")
        if model:
            raise _unknown(model, [*names, *(offer.model for offer in offers)])
    return _embedded(config, origin, target)


def _lists(config: settings.Config, model: str) -> bool:
    return any(model in server.models for server in config.upstreams.values())


def _unknown(model: str, names: Sequence[str]) -> ConfigError:
    """Returns the error for a model that neither a server nor the catalogue has."""
    known = [each for row in model_catalog.models() for each in (row.name, *row.aliases)]
    hint = nearest(model, [*names, *known])
    listed = f"; the servers of this machine have {', '.join(names)}" if names else ""
    advice = "; `dragoman pull --list` lists embedded models, --upstream URL names a server"
    return ConfigError(f"unknown model {quote(model)}{hint or listed + advice}")


def _embedded(config: settings.Config, origin: dict[str, str], model: str) -> Source:
    """Returns the embedded model, alone, with the context window of its catalogue row."""
    name = model or config.embedded.model or _best_downloaded()
    overrides: dict[str, object] = {"max_concurrency": 1}
    with suppress(DragomanError):  # a file, or a model of the Hub
        overrides["context_window"] = model_catalog.get(name or model_catalog.default().name).context_window
    overrides = {key: value for key, value in overrides.items() if f"embedded.{key}" not in origin}
    own = replace(config.embedded, enabled=True, model=name, **overrides)
    served = embedded_weights.embedded_model_name(own)
    alone = replace(upstream_only(config, {}), embedded=own)
    small = "" if name else "; for trying things out: dragoman pull --list has larger ones"
    return Source(alone, True, served, f"embedded, on this machine{small}")


def _best_downloaded() -> str:
    """Returns the largest downloaded model that suits agents; "" if there is none: the default model."""
    suitable = [each for each in model_catalog.models() if each.agents and weights.is_downloaded(each)]
    return max(suitable, key=lambda each: each.size_bytes).name if suitable else ""
