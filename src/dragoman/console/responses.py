"""Responses and request bodies of the console's API."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final, TypeAlias, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from dragoman.console.api import ApiError, ErrorBody
from dragoman.console.services import ConsoleServices
from dragoman.core.errors import BackendUnavailableError, RequestError, RequestTooLargeError

MAX_STREAMS: Final = 32
"""Maximum number of open streams of one gateway process."""
PING_S: Final = 10.0
"""Time between pings of an idle stream."""
_CLOSING_S: Final = 0.2
"""How often a stream looks whether the gateway is about to stop."""
_PING: Final = b": ping\n\n"
Event: TypeAlias = tuple[str, object]
"""Name and value of a server-sent event."""
T = TypeVar("T")


def json_response(value: object, status: int = 200) -> Response:
    """Returns a value as a JSON response.

    Args:
        value: a struct, or values for JSON.
        status: the HTTP status.
    """
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def error_response(status: int, code: str, message: str) -> Response:
    """Returns an error.

    Args:
        status: the HTTP status.
        code: what kind of error it is, for programs.
        message: what was expected, what was got, and what to do.
    """
    return json_response(ErrorBody(error=ApiError(code=code, message=message)), status)


async def read_json(request: Request, shape: type[T], max_bytes: int) -> T:
    """Returns the body of a request.

    Args:
        request: the request.
        shape: the type of the value.
        max_bytes: the maximum size of the body.

    Raises:
        RequestError: the body is not JSON of this shape.
        RequestTooLargeError: the body is too large.
    """
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > max_bytes:
            raise RequestTooLargeError(f"expected a body of at most {max_bytes} bytes, got more")
    try:
        return msgspec.json.decode(bytes(data), type=shape)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"expected a JSON body as docs/console.md has it, got another one: {error}") from None


def event_stream(services: ConsoleServices, events: AsyncGenerator[Event, None]) -> Response:
    """Returns a response with server-sent events, which ends when the gateway is about to stop.

    Args:
        services: the services of the console.
        events: yields names of events and their values for JSON.

    Raises:
        BackendUnavailableError: too many streams are open.
    """
    if services.open_streams >= MAX_STREAMS:
        message = f"expected at most {MAX_STREAMS} open streams of the console, got another one; close other pages"
        raise BackendUnavailableError(message, retry_after_s=5)
    headers = {"x-accel-buffering": "no"}
    return StreamingResponse(_encoded(services, events), media_type="text/event-stream", headers=headers)


async def _encoded(services: ConsoleServices, events: AsyncGenerator[Event, None]) -> AsyncIterator[bytes]:
    """Yields events as bytes, and pings while there are none."""
    services.open_streams += 1
    try:
        yield _PING
        async with aclosing(_until_draining(services, events)) as running:
            async for event in running:
                yield _PING if event is None else encode_event(*event)
    finally:
        services.open_streams -= 1


async def _until_draining(
    services: ConsoleServices, events: AsyncGenerator[Event, None]
) -> AsyncGenerator[Event | None, None]:
    """Yields the events until the gateway is about to stop, and None whenever there was none for `PING_S`."""
    idle_s = 0.0
    waiting = asyncio.ensure_future(anext(events, None))
    try:
        while not services.app.is_draining:
            done, _ = await asyncio.wait([waiting], timeout=_CLOSING_S)
            idle_s = 0.0 if done else idle_s + _CLOSING_S
            if done and waiting.result() is None:
                return
            if done:
                yield waiting.result()
                waiting = asyncio.ensure_future(anext(events, None))
            elif idle_s >= PING_S:
                idle_s = 0.0
                yield None
    finally:
        waiting.cancel()
        await asyncio.wait([waiting])
        await events.aclose()


def encode_event(name: str, value: object) -> bytes:
    """Returns a server-sent event; JSON has no line ends, so a value cannot end it early.

    Args:
        name: the name of the event.
        value: a struct, or values for JSON.
    """
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(value))
