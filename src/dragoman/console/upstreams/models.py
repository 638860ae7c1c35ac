"""The models of this machine, of upstreams, and of the catalogue; loading and unloading."""

from collections.abc import Mapping
from typing import Any, Final

from dragoman import extras
from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.local import memory
from dragoman.backends.embedded.local.describe import describe, fact_lines, model_row
from dragoman.backends.embedded.local.files import LocalModel
from dragoman.backends.embedded.local.find_model import find_model, unknown_model
from dragoman.backends.embedded.local.measurements import load_measurement
from dragoman.backends.embedded.local.model_facts import (
    FormatFacts,
    LocalModelFinder,
    LocalModels,
    needed_bytes,
    read_formats,
)
from dragoman.catalog import models as catalog
from dragoman.console.upstreams.probes import named_values
from dragoman.console.upstreams.state import kind_of
from dragoman.console.upstreams.views import (
    CatalogueModelView,
    LoadResult,
    LoadState,
    LocalModelView,
    MemoryView,
    ModelDetail,
    ModelsView,
    PullView,
    ServedModelView,
)
from dragoman.core.backend import Backend
from dragoman.core.messages import Request
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.routing.router import backend_name

MAX_SERVED: Final = 1000
_OWN_FIELDS: Final = frozenset(
    ("backend", "model", "state", "ready", "active", "waiting", "restarts", "expires_s", "memory_mb", "prefixes")
)
"""Fields of a model's state that have a place of their own."""
_STATES: Final[Mapping[str, LoadState]] = {
    "waiting": "waiting",
    "loading": "loading",
    "ready": "ready",
    "restarting": "loading",
    "unloading": "unloading",
}
_NOT_SERVED: Final = (
    "This gateway runs no models. To run one: `dragoman serve --model NAME`, or set embedded.model in the settings."
)


def embedded_backend(gateway: Gateway) -> Backend | None:
    """Returns the backend that runs models of this machine, or None."""
    return next((backend for backend in gateway.backends if kind_of(backend) == "embedded"), None)


def model_states(gateway: Gateway) -> dict[str, Mapping[str, Any]]:
    """Returns the state of each model that is loaded or waits for memory, by name."""
    backend = embedded_backend(gateway)
    states = {} if backend is None else backend.health().get("models", {})
    return dict(states) if isinstance(states, Mapping) else {}


def models_view(gateway: Gateway, finder: LocalModelFinder, pulls: list[PullView]) -> ModelsView:
    """Returns all models. Reads folders, and the headers of files that have changed.

    Args:
        gateway: the gateway.
        finder: finds the models of this machine.
        pulls: the running downloads.
    """
    config, states = finder.config, model_states(gateway)
    local = finder.find()
    formats = read_formats(local.models.values())
    served = [(model, backend_name(backend)) for backend in gateway.backends for model in backend.models()]
    can_load = embedded_backend(gateway) is not None
    return ModelsView(
        local=[
            local_view(model, local, config, formats.get(model.id), states.get(model.id, {}))
            for model in local.models.values()
        ],
        served=[
            ServedModelView(
                id=model.id,
                display_name=model.display_name or model.id,
                upstream=name,
                context_window=model.context_window,
                aliases=list(model.aliases),
            )
            for model, name in served[:MAX_SERVED]
        ],
        served_count=len(served),
        catalogue=[_catalogue_view(model) for model in catalog.models()],
        memory=_memory(config, states),
        can_load=can_load,
        note="" if can_load else _NOT_SERVED,
        pulls=pulls,
    )


def local_view(
    model: LocalModel,
    local: LocalModels,
    config: EmbeddedConfig,
    format: FormatFacts | None,
    state: Mapping[str, Any],
) -> LocalModelView:
    """Returns a model of this machine.

    Args:
        model: the model.
        local: all models of this machine.
        config: the settings of embedded models.
        format: its call format; None: it writes no text.
        state: its state in the gateway; empty: it is not loaded.
    """
    own = local.settings_of(model, config)
    row = model_row(model, own, format)
    expires_s = state.get("expires_s")
    return LocalModelView(
        name=model.id,
        aliases=row["aliases"],
        kind=row["kind"],
        origin=model.origin,
        path=row["path"],
        size_bytes=model.size_bytes,
        context_window=row["context_window"],
        trained_context=row["trained_context"],
        call_format=row["call_format"] or "",
        vision=row["vision"],
        audio=row["audio"],
        memory_bytes=needed_bytes(model, own),
        is_default=model.id == local.default,
        is_pinned=not {model.id, *model.aliases}.isdisjoint(config.pinned),
        state=_STATES.get(str(state.get("state", "")), ""),
        active=int(state.get("active", 0)),
        waiting=int(state.get("waiting", 0)),
        restarts=int(state.get("restarts", 0)),
        expires_s=expires_s if isinstance(expires_s, int) else None,
        facts=named_values(
            {name: value for name, value in state.items() if name not in _OWN_FIELDS} | _prefixes(state)
        ),
    )


def _prefixes(state: Mapping[str, Any]) -> dict[str, str]:
    """Returns the number and size of saved prompt prefixes, if there are any."""
    prefixes = state.get("prefixes") or {}
    return {"saved prefixes": f"{prefixes['files']} ({prefixes['mb']} MB)"} if prefixes.get("files") else {}


def _catalogue_view(model: catalog.ModelProfile) -> CatalogueModelView:
    return CatalogueModelView(
        name=model.name,
        aliases=list(model.aliases),
        is_default=model.default,
        size_bytes=model.size_bytes,
        licence=model.licence,
        is_downloaded=weights.is_downloaded(model),
        description=model.description,
        note=model.note,
    )


def _memory(config: EmbeddedConfig, states: Mapping[str, Mapping[str, Any]]) -> MemoryView:
    used = sum(int(state.get("memory_mb", 0)) for state in states.values()) * memory.MB
    free = None
    if not extras.missing_extras("embedded"):
        import psutil

        free = int(psutil.virtual_memory().available)
    return MemoryView(
        total_bytes=memory.total_bytes() or None,
        free_bytes=free,
        limit_bytes=config.memory_mb * memory.MB or None,
        used_bytes=used,
    )


def model_detail(gateway: Gateway, finder: LocalModelFinder, name: str) -> ModelDetail:
    """Returns everything about one model of this machine. Reads the header of its file.

    Args:
        gateway: the gateway.
        finder: finds the models of this machine.
        name: its name, alias or path.

    Raises:
        ConfigError: it is unknown.
    """
    config, local = finder.config, finder.find()
    model = find_model(local, name)
    if model is None:
        raise unknown_model(local, name)
    own, format = local.settings_of(model, config), read_formats([model]).get(model.id)
    state = model_states(gateway).get(model.id, {})
    row = {**describe(model, own, format), "default": model.id == local.default, "state": state.get("state")}
    facts = fact_lines(row, own, format, load_measurement(model))
    view = local_view(model, local, config, format, state)
    return ModelDetail(model=view, facts=named_values(dict(facts)))


async def change_load(gateway: Gateway, model: str, *, loads: bool) -> LoadResult:
    """Loads or unloads a model, and returns its state then.

    Args:
        gateway: the gateway.
        model: a name by which it is requested.
        loads: whether to load it; else it is unloaded.

    Raises:
        DragomanError: it is unknown, loaded or unloaded already, pinned, does not fit, or its server runs it.
    """
    routes = await gateway.routes_or_refresh(Request(model, ()))
    backend, request = routes[0]
    await (backend.load_model(request.model) if loads else backend.unload_model(request.model))
    if loads:
        return LoadResult(model=request.model, state="ready", message=f"{request.model} is loaded.")
    state = model_states(gateway).get(request.model, {})
    if active := int(state.get("active", 0)):  # not the state: that of another process is reported with a delay
        message = f"{request.model} is unloaded after its running requests: {active}."
        return LoadResult(model=request.model, state="unloading", message=message)
    return LoadResult(model=request.model, state="", message=f"{request.model} is unloaded.")
