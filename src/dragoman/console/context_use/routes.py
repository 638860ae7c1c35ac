"""Path of the context of one exchange."""

import asyncio
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dragoman import dialects
from dragoman.backends.http.backend import HttpBackend
from dragoman.config import Config
from dragoman.console.context_use.captured import read_request
from dragoman.console.context_use.context import UNKNOWN, BackendFacts, context_use
from dragoman.console.context_use.turns import NO_CAPTURES, SessionTurns
from dragoman.console.context_use.views import ContextUse
from dragoman.console.responses import json_response
from dragoman.console.services import ConsoleServices
from dragoman.core.backend import Backend
from dragoman.core.errors import RequestError, quote
from dragoman.gateway.routing.router import backend_name


def routes(services: ConsoleServices) -> list[BaseRoute]:
    """Returns the routes.

    Args:
        services: the services of the console.
    """
    return [Route("/exchanges/{id}/context", partial(_context, services, SessionTurns(), asyncio.Lock()))]


async def _context(services: ConsoleServices, sessions: SessionTurns, lock: asyncio.Lock, request: Request) -> Response:
    """Answers with the context of an exchange; one at a time, so that pages take one thread of the gateway at most."""
    id, counting = request.path_params["id"], request.query_params.get("count", "")
    if counting not in ("", "exact"):
        raise RequestError(f"expected the count `exact`, or none, got {quote(counting)} - at count")
    capture = await services.captures.load(id)
    captured = None if capture is None else await asyncio.to_thread(read_request, capture)
    captures = services.app.snapshot.captures
    if captures is None:
        sessions.clear()
    if captured is None:
        return json_response(ContextUse(id=id, is_captured=capture is not None))
    gateway = services.app.snapshot.gateway
    backend = next((each for each in gateway.backends if backend_name(each) == captured.backend), None)
    exact = await backend.count_tokens(captured.request) if backend is not None and counting else None
    facts = UNKNOWN if backend is None else backend_facts(backend, captured.request.model, services.config)
    arguments = (id, captured, captures or NO_CAPTURES, sessions, facts, exact)
    async with lock:
        use = await asyncio.to_thread(context_use, *arguments)
    return json_response(use)


def backend_facts(backend: Backend, model: str, config: Config) -> BackendFacts:
    """Returns what the gateway knows of a backend and its model.

    Args:
        backend: the backend.
        model: its own name of the model.
        config: the settings.
    """
    health, name = backend.health(), backend_name(backend)
    served = next((each for each in backend.models() if each.id == model), None)
    speed = health.get("read_tokens_per_s")
    is_server = isinstance(backend, HttpBackend)
    can_count = type(backend).count_tokens is not Backend.count_tokens
    if is_server:
        settings = config.upstreams.get(name)
        can_count = settings is not None and dialects.get(settings.api).token_counting is not None
    setting = f"upstreams.{name}.prompt_trim" if is_server else "embedded.prompt_trim" if "models" in health else ""
    return BackendFacts(
        context_window=served.context_window if served else None,
        can_count=can_count,
        trim_setting=setting,
        tokens_per_s=float(speed) if isinstance(speed, int | float) else 0.0,
    )
