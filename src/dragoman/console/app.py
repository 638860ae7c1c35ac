"""The console as an ASGI application: its pages' files, sign-in, and the API of each page."""

from functools import partial
from pathlib import Path
from typing import Final, cast

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from dragoman import __version__, dialects
from dragoman.console.api import CaptureState, ConsoleState
from dragoman.console.context_use import routes as context_use
from dragoman.console.exchange import routes as exchange
from dragoman.console.playground import routes as playground
from dragoman.console.reports import routes as reports
from dragoman.console.responses import error_response, json_response, read_json
from dragoman.console.security import API, ASSETS, KEY, LOGIN, ConsoleGuard
from dragoman.console.services import ConsoleServices
from dragoman.console.sessions import COOKIE, LIFETIME_S, Sessions
from dragoman.console.traffic import routes as traffic
from dragoman.console.upstreams import routes as upstreams
from dragoman.core.errors import (
    AuthError,
    BackendUnavailableError,
    DragomanError,
    ForbiddenError,
    NotFoundError,
    RequestError,
    RequestTooLargeError,
)
from dragoman.server import paths
from dragoman.server.client_watch import Asgi

STATIC: Final = Path(__file__).parent / "static"
"""The built page (folder `console/` of the repository)."""
_SMALL_BYTES: Final = 64 * 1024
_AREAS: Final = (
    traffic.routes,
    exchange.routes,
    context_use.routes,
    upstreams.routes,
    reports.routes,
    playground.routes,
)
_STATUSES: Final = (
    (AuthError, 401, "unauthorized"),
    (ForbiddenError, 403, "forbidden"),
    (NotFoundError, 404, "not_found"),
    (RequestTooLargeError, 413, "too_large"),
    (BackendUnavailableError, 503, "unavailable"),
)
"""Status and code of each kind of error; of another one 400."""


def console_app(services: ConsoleServices, sessions: Sessions) -> Asgi:
    """Returns the application that serves the paths below `/console`.

    Args:
        services: what the pages show.
        sessions: signs and verifies the sessions of browsers.
    """
    api: list[BaseRoute] = [
        Route("/state", partial(_state, services)),
        Route("/capture", partial(_switch_capture, services), methods=["PUT"]),
    ]
    for area in _AREAS:
        api += area(services)
    pages = Starlette(
        routes=[
            Route(LOGIN, partial(_sign_in, services, sessions), methods=["POST"]),
            Route(f"{paths.CONSOLE}/logout", _sign_out, methods=["POST"]),
            Mount(API, routes=[*api, Route("/{path:path}", _unknown)]),
            *_assets(),
            Route(paths.CONSOLE, _page),
            Route(f"{paths.CONSOLE}/{{path:path}}", _page),
        ],
        exception_handlers={DragomanError: _on_error, HTTPException: _on_http_error, Exception: _on_bug},
    )
    return cast(Asgi, ConsoleGuard(pages, services.app, sessions))  # outside, so that errors have its headers too


def _assets() -> list[BaseRoute]:
    """Returns the route of the files of the page, if it is built."""
    return [Mount(ASSETS, app=StaticFiles(directory=STATIC / "assets"))] if STATIC.is_dir() else []


async def _page(request: Request) -> Response:
    """Answers with the page, which has no data in it, for each of its addresses."""
    index = STATIC / "index.html"
    if not index.is_file():
        message = "expected the built page in this installation, got none; `make console` in the repository builds it"
        return error_response(503, "not_built", message)
    return FileResponse(index, media_type="text/html; charset=utf-8")


async def _unknown(request: Request) -> Response:
    return error_response(404, "not_found", "nothing is served here; docs/console.md has the paths of the console")


async def _state(services: ConsoleServices, request: Request) -> Response:
    """Answers with what the page needs at its start."""
    snapshot, key = services.app.snapshot, request.scope.get(KEY)
    models = snapshot.gateway.models()
    state = ConsoleState(
        version=__version__,
        capture=services.captures.state(),
        has_keys=snapshot.keys.is_on,
        key="" if key is None else key.name,
        has_records=services.config.records.enabled,
        models=[model.id for model in models],
        apis=[dialects.get(name).path for name in dialects.names()],
        workers=snapshot.config.workers,
    )
    return json_response(state)


class _Switch(msgspec.Struct, forbid_unknown_fields=True):
    on: bool


async def _switch_capture(services: ConsoleServices, request: Request) -> Response:
    """Begins or ends to capture exchanges in memory."""
    switch = await read_json(request, _Switch, _SMALL_BYTES)
    services.captures.switch(switch.on)
    state: CaptureState = services.captures.state()
    return json_response(state)


class _SignIn(msgspec.Struct, forbid_unknown_fields=True):
    key: str


async def _sign_in(services: ConsoleServices, sessions: Sessions, request: Request) -> Response:
    """Begins the session of an API key."""
    secret, keys = (await read_json(request, _SignIn, _SMALL_BYTES)).key, services.app.snapshot.keys
    if not keys.is_on:
        raise RequestError("expected a sign-in to a gateway with API keys; this one has none, and needs none")
    try:
        key = keys.authenticate({"x-api-key": secret})
    except (AuthError, UnicodeEncodeError):
        raise AuthError("expected an API key of this gateway, got one that it does not know") from None
    if not key.is_admin:
        raise ForbiddenError(f"expected an API key with admin = true, got {key.name} - at keys.{key.name}.admin")
    response = json_response({"key": key.name})
    response.set_cookie(
        COOKIE,
        sessions.begin(secret),
        max_age=LIFETIME_S,
        path=paths.CONSOLE,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


async def _sign_out(request: Request) -> Response:
    response = json_response({})
    response.delete_cookie(COOKIE, path=paths.CONSOLE, httponly=True, samesite="strict")
    return response


async def _on_error(request: Request, error: Exception) -> Response:
    status, code = next(((s, c) for kind, s, c in _STATUSES if isinstance(error, kind)), (400, "invalid_request"))
    return error_response(status, code, str(error))


async def _on_bug(request: Request, error: Exception) -> Response:
    return error_response(500, "bug", "internal error; the log of the gateway has it")


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_response(error.status_code, "http_error", error.detail)
