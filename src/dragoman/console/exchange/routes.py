"""Paths of one exchange: its view, also while it runs, and what can be done with it."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dragoman.console.exchange.capture_work import CaptureWork, WorkOrder
from dragoman.console.exchange.conversation import ReadFile
from dragoman.console.exchange.exchange_view import exchange_view, find_row, view_of
from dragoman.console.exchange.live_view import live_views
from dragoman.console.exchange.remedy_facts import fit_view
from dragoman.console.exchange.sent_request import send_request
from dragoman.console.exchange.views import ReplayResult
from dragoman.console.responses import event_stream, json_response, read_json
from dragoman.console.services import ConsoleServices
from dragoman.core.errors import NotFoundError, RequestError
from dragoman.server.capture.load import LoadedCapture

_SMALL_BYTES: Final = 4096
_TEXT: Final = "text/plain; charset=utf-8"


def routes(services: ConsoleServices) -> list[BaseRoute]:
    """Returns the routes.

    Args:
        services: the services of the console.
    """
    work = CaptureWork()
    return [
        Route("/exchanges/{id}", partial(_view, services, work)),
        Route("/exchanges/{id}/stream", partial(_stream, services, work)),
        Route("/exchanges/{id}/replay", partial(_replay, services, work), methods=["POST"]),
        Route("/exchanges/{id}/case", partial(_case, services, work), methods=["POST"]),
        Route("/exchanges/{id}/code", partial(_code, services, work)),
        Route("/exchanges/{id}/bundle", partial(_bundle, services, work)),
        Route("/exchanges/{id}/body", partial(_body, services)),
        Route("/send", partial(send_request, services), methods=["POST"]),
    ]


async def _view(services: ConsoleServices, work: CaptureWork, request: Request) -> Response:
    """Answers with the lanes of an exchange."""
    return json_response(await exchange_view(services, work, request.path_params["id"]))


async def _stream(services: ConsoleServices, work: CaptureWork, request: Request) -> Response:
    """Answers with the parts of the view that change, until the exchange ends."""
    id = request.path_params["id"]
    ended = None if services.captures.is_running(id) else await exchange_view(services, work, id)
    return event_stream(services, live_views(services, work, id, ended))


class _ReplayOrder(msgspec.Struct, forbid_unknown_fields=True):
    chunking: Literal["recorded", "whole", "chars", "random"] = "recorded"
    seed: int = 0


async def _replay(services: ConsoleServices, work: CaptureWork, request: Request) -> Response:
    """Replays an exchange, and answers with the stages that differ, and with the new view."""
    order = await read_json(request, _ReplayOrder, _SMALL_BYTES)
    id, capture = await _ended_capture(services, request)
    row = await find_row(services, id, capture)
    work_order = WorkOrder(
        name=capture.name, files=capture.files, operation="replay", chunking=order.chunking, seed=order.seed
    )
    result = await work.run(work_order, partial(services.captures.earlier, id))
    assert result.lanes is not None
    view = view_of(id, row, result.lanes, previous_id=result.previous_id)
    view = await asyncio.to_thread(fit_view, services, view, capture.files.get("body", b""))
    return json_response(ReplayResult(stages=result.stages, view=view))


async def _case(services: ConsoleServices, work: CaptureWork, request: Request) -> Response:
    """Answers with the model's text as a case file of its format."""
    await read_json(request, dict[str, object], _SMALL_BYTES)
    id, capture = await _ended_capture(services, request)
    order = WorkOrder(name=capture.name, files=capture.files, operation="case")
    result = await work.run(order, _nothing_earlier)
    return Response(result.data, media_type=_TEXT, headers=_download(f"{result.name}-{id}.txt"))


async def _code(services: ConsoleServices, work: CaptureWork, request: Request) -> Response:
    """Answers with a program that sends the same request."""
    _, capture = await _capture(services, request)
    language = request.query_params.get("language", "curl")
    gateway = f"{request.url.scheme}://{request.headers.get('host', '')}"
    order = WorkOrder(name=capture.name, files=capture.files, operation="code", language=language, gateway=gateway)
    return Response((await work.run(order, _nothing_earlier)).data, media_type=_TEXT)


async def _bundle(services: ConsoleServices, work: CaptureWork, request: Request) -> Response:
    """Answers with the capture without its content."""
    id, capture = await _ended_capture(services, request)
    order = WorkOrder(name=capture.name, files=capture.files, operation="bundle")
    data = (await work.run(order, _nothing_earlier)).data
    return Response(data, media_type="application/zip", headers=_download(f"{id}.zip"))


async def _body(services: ConsoleServices, request: Request) -> Response:
    """Answers with the body of the request."""
    _, capture = await _capture(services, request)
    return Response(capture.files.get("body", b""), media_type="application/json")


async def _capture(services: ConsoleServices, request: Request) -> tuple[str, LoadedCapture]:
    """Returns id and capture of an exchange.

    Raises:
        NotFoundError: it is not captured.
    """
    id = request.path_params["id"]
    capture = await services.captures.load(id)
    if capture is None:
        raise NotFoundError("expected a captured exchange, got one that is not; switch captures on, and repeat it")
    return id, capture


async def _ended_capture(services: ConsoleServices, request: Request) -> tuple[str, LoadedCapture]:
    """Returns id and capture of an exchange that has ended.

    Raises:
        NotFoundError: it is not captured.
        RequestError: it still runs.
    """
    if services.captures.is_running(request.path_params["id"]):
        raise RequestError("expected an exchange that has ended, got one that still runs; wait for its end")
    return await _capture(services, request)


def _download(name: str) -> dict[str, str]:
    safe = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in name)
    return {"content-disposition": f'attachment; filename="{safe}"'}


def _nothing_earlier() -> tuple[Sequence[str], ReadFile]:
    return (), lambda id, file: None
