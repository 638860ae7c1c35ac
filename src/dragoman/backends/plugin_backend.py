"""Backends of other packages, built by their entry point; whatever they raise becomes an error of the backend.

[backends.mine]                     [project.entry-points."dragoman.backends"]
plugin = "pipe"                     pipe = "my_package:build"
command = "cat"
                                    def build(name, settings, environ): return MyBackend(settings["command"])
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final, TypeVar

from dragoman import plugins
from dragoman.core.backend import Backend, EventStream, ExchangeContext, ServedModel
from dragoman.core.errors import BackendUnavailableError, ConfigError, DragomanError, one_of, quote
from dragoman.core.events import Event, EventOrder, EventOrderError, Failure
from dragoman.core.messages import Request
from dragoman.plugins import describe_failure, failure_place

log = logging.getLogger("dragoman.backends.plugin")

T = TypeVar("T")
PLUGIN: Final = "plugin"
"""The key of a backend's table that names the entry point."""


def build_plugin_backend(name: str, table: Mapping[str, object], environ: Mapping[str, str]) -> Backend:
    """Returns the backend that an entry point builds from its settings.

    Args:
        name: The backend's name in the settings.
        table: Its settings, with the name of the entry point in `plugin`.
        environ: The environment variables.

    Raises:
        ConfigError: No package offers the entry point, or it failed.
    """
    where = f"at backends.{name}"
    chosen = table.get(PLUGIN)
    if not isinstance(chosen, str) or not chosen:
        raise ConfigError(f"expected the name of an entry point of dragoman.backends - {where}.{PLUGIN}")
    plugin = plugins.find(plugins.BACKENDS, chosen)
    if plugin is None:
        known = one_of(chosen, plugins.installed(plugins.BACKENDS), "installed: ")
        raise ConfigError(f"no installed package offers the backend {quote(chosen)}{known} - {where}.{PLUGIN}")
    try:
        factory = plugin.load()
    except ConfigError as error:
        raise ConfigError(f"{error.message} - {where}.{PLUGIN}") from error
    if not callable(factory):
        raise ConfigError(f"{plugin} cannot be called; expected a function that returns a Backend - {where}.{PLUGIN}")
    own = {key: value for key, value in table.items() if key != PLUGIN}
    try:
        backend = factory(name, own, environ)
    except DragomanError as error:
        raise ConfigError(f"{error.message} - {where}") from error
    except Exception as error:
        raise ConfigError(f"{plugin} could not build a backend: {describe_failure(error)} - {where}") from error
    if not isinstance(backend, Backend):
        raise ConfigError(f"{plugin} returned no Backend, but {type(backend).__name__} - {where}.{PLUGIN}")
    return PluginBackend(name, backend, str(plugin))


def _check_order(batch: Sequence[object], order: EventOrder) -> None:
    """
    Raises:
        EventOrderError: An event is in the wrong place.
        TypeError: An object is not an event.
    """
    for event in batch:
        if not isinstance(event, Event):
            raise TypeError(f"expected an event, got {type(event).__name__}")
        order.feed(event)  # type: ignore[arg-type]


class PluginBackend(Backend):
    """A backend of another package. Its exceptions become errors of a backend, so that the next one can be asked.

    Responses are never passed through unparsed, and untranslated paths are not served.
    """

    def __init__(self, name: str, inner: Backend, plugin: str) -> None:
        """
        Args:
            name: Its name in the settings.
            inner: The backend.
            plugin: The entry point and its package, for messages.
        """
        self.name = self._name = name
        self._inner, self._plugin = inner, plugin
        self._models: tuple[ServedModel, ...] = ()
        self._failed = set[str]()
        """Methods whose failure was logged."""

    def models(self) -> Sequence[ServedModel]:
        """Returns the models of the backend, each also as `NAME/model`; none if it fails."""
        none: Sequence[ServedModel] = ()
        listed = tuple(map(self._named, self._try("models", self._inner.models, none)))
        if listed != self._models:
            self._models = listed
        return self._models

    def _named(self, model: ServedModel) -> ServedModel:
        alias = f"{self._name}/{model.id}"
        return model if alias in model.aliases else replace(model, aliases=(*model.aliases, alias))

    async def generate(self, request: Request, context: ExchangeContext) -> EventStream:
        """Generates the events of the backend; see `Backend`."""
        order = EventOrder()
        try:
            async with aclosing(self._inner.generate(request, context)) as batches:
                async for batch in batches:
                    _check_order(batch, order)
                    if batch:
                        yield batch
        except EventOrderError as error:
            log.error("%s: %s returned events in a wrong order: %s", self._name, self._plugin, error)
            failure = BackendUnavailableError(f"the backend {quote(self._name)} failed: wrong order of events")
        except DragomanError:
            raise
        except Exception as error:  # noqa: BLE001 it is logged
            failure = self._failure("generate", error)
        else:
            return
        if order.phase == "new":
            raise failure
        yield [Failure(failure)]

    def health(self) -> Mapping[str, object]:
        """Returns the name and what the backend reports."""
        none: Mapping[str, object] = {}
        reported = self._try("health", self._inner.health, none)
        return {**reported, "backend": self._name, "ready": bool(reported.get("ready"))}

    async def start(self) -> None:
        """Starts the backend.

        Raises:
            ConfigError: It failed.
        """
        try:
            await self._inner.start()
        except DragomanError:
            raise
        except Exception as error:
            described = describe_failure(error)
            raise ConfigError(f"{self._plugin} could not be started: {described} - at backends.{self._name}") from error

    async def close(self) -> None:
        """Closes the backend."""
        await self._inner.close()

    async def refresh_models(self) -> None:
        """Updates the list of models; a failure is logged."""
        try:
            await self._inner.refresh_models()
        except Exception as error:  # noqa: BLE001 it is logged
            self._failure("refresh_models", error)

    def resolve_model_name(self, name: str) -> str | None:
        """Returns the backend's own name of a model; None if it fails."""
        return self._try("resolve_model_name", lambda: self._inner.resolve_model_name(name), None)

    async def count_tokens(self, request: Request) -> int | None:
        """Returns the number of tokens; None if it is not known."""
        try:
            return await self._inner.count_tokens(request)
        except DragomanError:
            raise
        except Exception as error:  # noqa: BLE001 it is logged
            self._failure("count_tokens", error)
            return None

    def shows_images(self, model: str) -> bool:
        """Returns whether the model is shown images."""
        return self._try("shows_images", lambda: self._inner.shows_images(model), True)

    def describe(self, model: str) -> Mapping[str, object]:
        """Returns what a replay needs to know about the backend."""
        return self._try("describe", lambda: self._inner.describe(model), {})

    def request_as_shown(self, request: Request) -> Request:
        """Returns the request with the remembered text of the model."""
        return self._try("request_as_shown", lambda: self._inner.request_as_shown(request), request)

    def secret_values(self) -> Sequence[str]:
        """Returns values that must be redacted from captures."""
        return self._try("secret_values", self._inner.secret_values, ())

    def _try(self, method: str, call: Callable[[], T], otherwise: T) -> T:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 it is logged
            self._failure(method, error)
            return otherwise

    def _failure(self, method: str, error: BaseException) -> BackendUnavailableError:
        """Logs a failure, those that repeat only once, and returns its error; neither quotes the exception."""
        if method == "generate" or method not in self._failed:
            self._failed.add(method)
            place = failure_place(error)
            log.error("%s: %s of %s failed: %s at %s", self._name, method, self._plugin, type(error).__name__, place)
        return BackendUnavailableError(f"the backend {quote(self._name)} failed: {type(error).__name__}")
