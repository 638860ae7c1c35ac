"""Paths of upstreams, models and settings."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import cache, partial
from typing import Final, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dragoman.backends.embedded.local.model_facts import LocalModelFinder
from dragoman.backends.http.backend import HttpBackend
from dragoman.console.api import ApiError, ErrorBody
from dragoman.console.responses import Event, event_stream, json_response, read_json
from dragoman.console.services import ConsoleServices
from dragoman.console.upstreams.failures import recent_failures
from dragoman.console.upstreams.models import change_load, model_detail, models_view
from dragoman.console.upstreams.probes import Probes
from dragoman.console.upstreams.pulls import Pulls
from dragoman.console.upstreams.settings import list_settings
from dragoman.console.upstreams.state import upstream_view, with_probes
from dragoman.console.upstreams.views import PullStop, UpstreamList, UpstreamView
from dragoman.core.backend import Backend
from dragoman.core.errors import BackendUnavailableError, DragomanError, NotFoundError, RequestError, nearest, quote
from dragoman.gateway.routing.router import backend_name

log = logging.getLogger("dragoman.console")

_MAX_BODY_BYTES: Final = 16 * 1024
_Finder: TypeAlias = Callable[[], LocalModelFinder]


class _NamedModel(msgspec.Struct, forbid_unknown_fields=True):
    model: str = ""


def routes(services: ConsoleServices) -> list[BaseRoute]:
    """Returns the routes.

    Args:
        services: the services of the console.
    """
    pulls = Pulls(partial(_refresh_models, services))
    find = cache(partial(LocalModelFinder, services.config.embedded))
    return [
        Route("/upstreams", partial(_upstreams, services)),
        Route("/upstreams/{name}/probe", partial(_probe, services, Probes()), methods=["POST"]),
        Route("/models", partial(_models, services, find, pulls)),
        Route("/models/facts", partial(_model_facts, services, find)),
        Route("/models/load", partial(_load, services, loads=True), methods=["POST"]),
        Route("/models/unload", partial(_load, services, loads=False), methods=["POST"]),
        Route("/models/pull", partial(_pull, services, pulls), methods=["POST"]),
        Route("/models/pull/stop", partial(_stop_pull, pulls), methods=["POST"]),
        Route("/settings", partial(_settings, services)),
    ]


async def _refresh_models(services: ConsoleServices) -> None:
    """Serves the models that are new on this machine."""
    await services.app.snapshot.gateway.refresh_local_models()


async def _upstreams(services: ConsoleServices, request: Request) -> Response:
    """Answers with all backends."""
    gateway, recent = services.app.snapshot.gateway, list(services.feed.recent)
    try:
        failures = await asyncio.to_thread(recent_failures, services.config, recent, time.time())
    except BackendUnavailableError as error:
        log.warning("failures of upstreams are not shown: %s", error)
        failures = {}
    views = [upstream_view(each, services.config, failures.get(backend_name(each), [])) for each in gateway.backends]
    upstreams = await asyncio.to_thread(_with_probes, views, gateway.backends)
    answer = UpstreamList(
        upstreams=upstreams,
        has_records=services.config.records.enabled,
        process=os.getpid(),
        workers=services.app.snapshot.config.workers,
    )
    return json_response(answer)


def _with_probes(views: list[UpstreamView], backends: Sequence[Backend]) -> list[UpstreamView]:
    return [with_probes(view, each) for view, each in zip(views, backends, strict=True)]


async def _probe(services: ConsoleServices, probes: Probes, request: Request) -> Response:
    """Answers with the checks of a probe as they begin, and its result."""
    name, model = request.path_params["name"], (await read_json(request, _NamedModel, _MAX_BODY_BYTES)).model
    backends = {backend_name(each): each for each in services.app.snapshot.gateway.backends}
    backend = backends.get(name)
    if backend is None:
        raise NotFoundError(f"expected the name of an upstream, got {quote(name)}{nearest(name, list(backends))}")
    if not isinstance(backend, HttpBackend):
        raise RequestError(f"expected an upstream server, got {quote(name)}, which is not one and needs no probe")
    return event_stream(services, _until_error(probes.run(backend, model)))


async def _until_error(events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """Yields the events; an error is the last event."""
    try:
        async for event in events:
            yield event
    except DragomanError as error:
        yield "error", ErrorBody(error=ApiError(code="failed", message=str(error)))
    except Exception:
        log.exception("bug: an action of the console failed")
        yield "error", ErrorBody(error=ApiError(code="bug", message="internal error; the log of the gateway has it"))
    finally:
        await events.aclose()


async def _models(services: ConsoleServices, find: _Finder, pulls: Pulls, request: Request) -> Response:
    """Answers with all models."""
    gateway = services.app.snapshot.gateway
    finder = await asyncio.to_thread(find)
    return json_response(await asyncio.to_thread(models_view, gateway, finder, pulls.views()))


async def _model_facts(services: ConsoleServices, find: _Finder, request: Request) -> Response:
    """Answers with everything about one model of this machine."""
    gateway, name = services.app.snapshot.gateway, request.query_params.get("name", "")
    if not name:
        raise RequestError("expected the name of a model of this machine, got none - at name")
    finder = await asyncio.to_thread(find)
    return json_response(await asyncio.to_thread(model_detail, gateway, finder, name))


async def _load(services: ConsoleServices, request: Request, *, loads: bool) -> Response:
    """Loads or unloads a model, and answers when that is done."""
    model = (await read_json(request, _NamedModel, _MAX_BODY_BYTES)).model
    if not model:
        raise RequestError("expected the name of a model, got none - at model")
    return json_response(await change_load(services.app.snapshot.gateway, model, loads=loads))


async def _pull(services: ConsoleServices, pulls: Pulls, request: Request) -> Response:
    """Answers with the progress of a download, and its result."""
    model = (await read_json(request, _NamedModel, _MAX_BODY_BYTES)).model.strip()
    return event_stream(services, _until_error(pulls.begin(model, services.config.embedded)))


async def _stop_pull(pulls: Pulls, request: Request) -> Response:
    """Stops a download."""
    model = (await read_json(request, _NamedModel, _MAX_BODY_BYTES)).model.strip()
    return json_response(PullStop(model=model, stopped=pulls.stop(model)))


async def _settings(services: ConsoleServices, request: Request) -> Response:
    """Answers with the settings and their origin."""
    return json_response(await asyncio.to_thread(list_settings, services.config, services.source))
