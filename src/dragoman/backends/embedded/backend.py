"""All models of this machine, loaded on request; no other server is needed.

`local.files` lists them, `local.pool` decides which are in memory, and each runs in a process of its own
(`embedded_model`). The model of the settings is loaded at start.
"""

import asyncio
import dataclasses
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from dragoman.backends.embedded import gguf, weights
from dragoman.backends.embedded.config import EmbeddedConfig, context_window_of
from dragoman.backends.embedded.embedded_model import EmbeddedModel, read_object
from dragoman.backends.embedded.local import memory
from dragoman.backends.embedded.local.files import LocalFiles, LocalModel
from dragoman.backends.embedded.local.model_facts import settings_for
from dragoman.backends.embedded.local.pool import ModelPool
from dragoman.backends.embedded.local.pooled_model import LoadableModel, Progress
from dragoman.backends.embedded.local.stores import FoundFile, parts_of
from dragoman.backends.embedded.media import find_projector, read_projector
from dragoman.backends.text_mode.shared_replies import SharedReplies
from dragoman.catalog import models as catalog
from dragoman.core.backend import Backend, EventStream, ExchangeContext, PromptProgress, ServedModel, UpstreamFacts
from dragoman.core.errors import ConfigError, RequestError, UnknownModelError, nearest, quote
from dragoman.core.messages import Request

log = logging.getLogger("dragoman.embedded")


class EmbeddedBackend(Backend):
    """The models of this machine."""

    name = "embedded"
    answers_in_turn = True

    def __init__(
        self, config: EmbeddedConfig, path: Path, default: EmbeddedModel, report: Callable[[str], None]
    ) -> None:
        """
        Args:
            config: the settings.
            path: the file of the model that they name.
            default: that model.
            report: receives one line for whatever takes long.

        Raises:
            ConfigError: the file is not a usable model.
        """
        self._config, self._report = config, report
        (served,) = default.models()
        shape, size = gguf.shape(path), sum(part.stat().st_size for part in parts_of(path) if part.is_file())
        self._default = LocalModel(served.id, _aliases(served.id), path, size, "settings", shape)
        self._built = {served.id: (path, default)}
        """Models by id, with their files; they remember what they wrote also while they are not loaded."""
        self._shared_replies: SharedReplies | None = None
        self._files = LocalFiles(config, FoundFile(served.id, path, "settings", size_bytes=size))
        self._projectors: dict[str, Path | None] = {served.id: find_projector(path, config)}
        """The usable projectors, by the model's id."""
        self._images = {served.id: default.shows_images(served.id)}
        self._index({})
        self._pool = ModelPool(
            lambda engines: memory.budget_bytes(config.memory_mb, engines),
            config.keep_alive_s,
            config.max_concurrency + config.max_queue,
            fitting=self._fitting,
        )

    @classmethod
    def from_config(cls, config: EmbeddedConfig, path: Path, report: Callable[[str], None]) -> "EmbeddedBackend":
        """Returns the backend of the models of this machine.

        Args:
            config: the settings.
            path: the weights of the model that they name.
            report: receives one line for whatever takes long.

        Raises:
            ConfigError: the file is not a usable model.
        """
        return cls(config, path, EmbeddedModel.from_config(config, path, report), report)

    def share_replies(self, shared: SharedReplies) -> None:
        """Lets replicas render past turns as the models of other replicas wrote them."""
        self._shared_replies = shared
        for _, known in self._built.values():
            known.verbatim_history.store.shared = shared

    async def start(self) -> None:
        """Loads the model of the settings and the pinned ones, and lists the others.

        Raises:
            BackendUnavailableError: an engine did not start.
            ConfigError: a pinned model is unknown or does not fit.
        """
        default = self._pool.load_default(self._spec(self._default))
        await asyncio.gather(default, self.refresh_models())
        pinned = [self._pinned_model(name) for name in self._config.pinned]
        self._pool.pin(model.id for model in pinned)
        for model in pinned:
            await self._pool.load(self._spec(model))

    async def close(self) -> None:
        """Ends all engines; running requests fail."""
        await self._pool.close()

    def models(self) -> Sequence[ServedModel]:
        """Returns the models of this machine, that of the settings first."""
        return self._served

    def other_names(self) -> Mapping[str, str]:
        """Returns the aliases, such as that of the repository; see `Backend`."""
        return self._other_names

    async def refresh_models(self) -> None:
        """Looks for new files."""
        if await asyncio.to_thread(self._files.refresh):
            models = dict(self._files.models)
            await asyncio.to_thread(self._find_projectors, list(models.values()))
            self._index(models)

    async def refresh_local_models(self) -> None:
        """Looks for new files."""
        await self.refresh_models()

    def describe(self, model: str) -> Mapping[str, object]:
        """Returns the model, its settings, and its state; see `Backend`."""
        facts = dict(self._build(self._model(model)).describe(model))
        state = self._pool.states().get(model)
        return facts | ({"loaded": state} if state else {})

    def shows_images(self, model: str) -> bool:
        """Returns whether the model has a projector for images; see `Backend`."""
        return self._images.get(model, False)

    def request_as_shown(self, request: Request) -> Request:
        """Returns the request with the model's earlier output verbatim; see `Backend`."""
        built = self._built.get(request.model)
        return built[1].request_as_shown(request) if built else request

    def health(self) -> Mapping[str, object]:
        """Returns the state of the loaded models, for /health."""
        states = self._pool.states()
        default, own = self._built[self._default.id][1], states.get(self._default.id, {})
        sums = {
            key: sum(int(str(state[key])) for state in states.values()) for key in ("active", "waiting", "restarts")
        }
        loaded = [state for state in states.values() if state["state"] != "waiting"]
        speed = default.health().get("read_tokens_per_s")
        return {
            "backend": self.name,
            "model": self._default.id,
            "ready": bool(own.get("ready")) or not loaded or any(state["ready"] for state in loaded),
            **sums,
            **({"read_tokens_per_s": speed} if speed else {}),
            "models": states,
        }

    async def load_model(self, model: str) -> None:
        """Loads a model, and returns when it is ready; see `Backend`.

        Raises:
            DragomanError: it is loaded already, does not fit, or could not be loaded.
        """
        if self._pool.loaded(model) is not None:
            raise RequestError(f"model {quote(model)} is already loaded", "model")
        await self._pool.load(self._spec(self._model(model)))

    async def unload_model(self, model: str) -> None:
        """Unloads a model after its running requests; see `Backend`.

        Raises:
            RequestError: it is not loaded, or pinned.
        """
        await self._pool.unload(model)

    def upstream_facts(self, model: str) -> UpstreamFacts:
        """Returns what spans tell about the server; see `Backend`."""
        return UpstreamFacts("llama_cpp")

    async def generate(self, request: Request, context: ExchangeContext) -> EventStream:
        """Yields the events of the model's response; loads the model first if necessary.

        Raises:
            DragomanError: before `Start`; later errors are `Failure` events, see `Backend`.
        """
        spec = self._spec(self._model(request.model))
        began_s = time.perf_counter()
        async with self._pool.use(spec, _waiting_progress(context)) as model:
            context.attempts.queue(time.perf_counter() - began_s)
            async with aclosing(model.generate(request, context)) as batches:
                async for batch in batches:
                    yield batch

    async def count_tokens(self, request: Request) -> int | None:
        """Returns the number of prompt tokens; None while the model is not loaded, and for images.

        Raises:
            RequestError: something in the request can be neither shown to the model nor left out.
        """
        model = self._pool.loaded(request.model)
        return await model.count_tokens(request) if model is not None else None

    def forwards(self, path: str, model: str) -> bool:
        """Returns whether the model makes embeddings, or ranks documents, as this path asks for; see `Backend`."""
        local = self._models.get(model)
        if local is None or not local.shape.pooling:
            return False
        return path == ("/v1/rerank" if local.shape.pooling == gguf.RANKS else "/v1/embeddings")

    async def forward(
        self, path: str, body: bytes, headers: Mapping[str, str], began: Callable[[Mapping[str, str]], None]
    ) -> AsyncGenerator[bytes, None]:
        """Yields the response of the model that the body names, which is loaded first; see `EmbeddedModel.forward`.

        Args:
            path: /v1/embeddings or /v1/rerank.
            body: JSON.
            headers: Not used.
            began: Receives the response headers.

        Raises:
            DragomanError: as there; or the model cannot be loaded.
        """
        name = read_object(body).get("model")
        local = self._models.get(name, self._default) if isinstance(name, str) else self._default
        async with (
            self._pool.use(self._spec(local), None) as model,
            aclosing(model.forward(path, body, headers, began)) as pieces,
        ):
            async for piece in pieces:
                yield piece

    # Files

    def _index(self, models: dict[str, LocalModel]) -> None:
        """Takes over a list of models."""
        self._models = {self._default.id: self._default} | models
        if found := models.get(self._default.id):
            aliases = (*self._default.aliases, *found.aliases)
            self._models[found.id] = dataclasses.replace(self._default, aliases=aliases)
        self._served = tuple(
            ServedModel(model.id, context_window_of(model.shape.context_window, self._settings_of(model)))
            for model in self._models.values()
        )
        names = {alias: model.id for model in reversed(self._models.values()) for alias in model.aliases}
        self._other_names = {alias: id for alias, id in names.items() if alias not in self._models}

    def _model(self, id: str) -> LocalModel:
        """
        Raises: UnknownModelError: its file is gone.
        """
        if id not in self._models:
            raise UnknownModelError(id, self._models)
        return self._models[id]

    def _pinned_model(self, name: str) -> LocalModel:
        id = self._other_names.get(name, name)
        if id not in self._models:
            raise ConfigError(
                f"expected a model of this machine, got {quote(name)}{nearest(name, self._models)} - at embedded.pinned"
            )
        return self._models[id]

    def _fitting(self, available: int) -> list[str]:
        """Returns the models that need at most so many bytes, the largest first."""
        needs = {model.id: self._needed_bytes(model) for model in self._models.values()}
        return sorted((id for id, need in needs.items() if need <= available), key=lambda id: -needs[id])

    def _needed_bytes(self, model: LocalModel) -> int:
        projector = self._projectors.get(model.id)
        size = model.size_bytes + (projector.stat().st_size if projector is not None and projector.is_file() else 0)
        return memory.needed_bytes(size, model.shape, self._settings_of(model))

    def _spec(self, model: LocalModel) -> LoadableModel:
        async def build() -> EmbeddedModel:
            return await asyncio.to_thread(self._build, model)

        return LoadableModel(model.id, self._needed_bytes(model), build)

    def _build(self, model: LocalModel) -> EmbeddedModel:
        """Returns the model, whose engine need not run; the same one again while its file is the same.

        Raises: ConfigError: the file is not a usable model.
        """
        path, known = self._built.get(model.id, (None, None))
        if known is None or path != model.path:
            profile = catalog.find(model.id) if model.origin == "pulled" else None
            if model.origin == "pulled":
                weights.find_weights(model.id if profile else model.aliases[0])  # raises if it has changed
            known = EmbeddedModel(model.path, profile, self._settings_of(model), self._report, name=model.id)
            known.verbatim_history.store.shared = self._shared_replies
            self._built[model.id] = (model.path, known)
        return known

    def _settings_of(self, model: LocalModel) -> EmbeddedConfig:
        """Returns the settings for a model; some of them are for the model that they name only."""
        projector = str(self._projectors.get(model.id) or "")
        return settings_for(self._config, model, is_default=model is self._default, projector=projector)

    def _find_projectors(self, models: Sequence[LocalModel]) -> None:
        """Looks for the projectors of new models: one that was pulled with it, or is in a folder of its own."""
        for model in models:
            if model.id in self._projectors:
                continue
            self._projectors[model.id], self._images[model.id] = None, False
            if model.origin not in ("pulled", "lmstudio", "huggingface"):
                continue
            try:
                path = find_projector(model.path, EmbeddedConfig(model=str(model.path)))
                self._images[model.id] = path is not None and read_projector(path).has_vision
            except ConfigError as error:
                log.warning("model %s sees no images: %s", model.id, error)
            else:
                self._projectors[model.id] = path


def _aliases(name: str) -> tuple[str, ...]:
    profile = catalog.find(name)
    return profile.aliases if profile else ()


def _waiting_progress(context: ExchangeContext) -> Progress | None:
    progress = context.progress
    if progress is None:
        return None

    def tell(what: str) -> None:
        progress(PromptProgress(0, 0, waits_for=what))

    return tell
