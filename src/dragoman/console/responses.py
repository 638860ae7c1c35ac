"""Responses and request bodies of the console's API."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final, TypeAlias, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from dragoman.console.api import ApiError, ErrorBody
from dragoman.console.services import ConsoleServices
from dragoman.core.errors import BackendUnavailableError, RequestError, RequestTooLargeError
from dragoman.server.keys.ring import KeyRing

BODY_TIMEOUT: Final = "dragoman.body_timeout_s"
"""Name of the seconds to receive a body in the ASGI scope of each request."""
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
    data, timeout_s = bytearray(), request.scope[BODY_TIMEOUT]
    try:
        async with asyncio.timeout(timeout_s):
            async for piece in request.stream():
                data += piece
                if len(data) > max_bytes:
                    raise RequestTooLargeError(f"expected a body of at most {max_bytes} bytes, got more")
    except (TimeoutError, ClientDisconnect):
        raise RequestError(f"expected the whole body within {timeout_s:g} s, got {len(data)} bytes") from None
    try:
        return msgspec.json.decode(bytes(data), type=shape)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"expected a JSON body as docs/console.md has it, got another one: {error}") from None


def event_stream(services: ConsoleServices, events: AsyncGenerator[Event, None]) -> Response:
    """Returns a response with server-sent events; it ends when the gateway is about to stop or has other API keys.

    Args:
        services: the services of the console.
        events: yields names of events and their values for JSON.
    """
    return _EventStream(services, events)


class _EventStream(StreamingResponse):
    """Counts itself, so that there are at most `MAX_STREAMS`."""

    def __init__(self, services: ConsoleServices, events: AsyncGenerator[Event, None]) -> None:
        encoded = _encoded(services, events)
        super().__init__(encoded, media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self._services, self._events = services, events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the stream.

        Raises:
            BackendUnavailableError: too many streams are open.
        """
        services = self._services
        if services.app.page_streams >= MAX_STREAMS:
            await self._events.aclose()
            message = f"expected at most {MAX_STREAMS} open streams of the console, got another one; close other pages"
            raise BackendUnavailableError(message, retry_after_s=5)
        services.app.page_streams += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            services.app.page_streams -= 1


async def _encoded(services: ConsoleServices, events: AsyncGenerator[Event, None]) -> AsyncIterator[bytes]:
    """Yields events as bytes, and pings while there are none."""
    yield _PING
    async with aclosing(_while_allowed(services, events)) as running:
        async for event in running:
            yield _PING if event is None else encode_event(*event)


async def _while_allowed(
    services: ConsoleServices, events: AsyncGenerator[Event, None]
) -> AsyncGenerator[Event | None, None]:
    """Yields the events, and None whenever there was none for `PING_S`.

    It ends when the gateway is about to stop, or its API keys are others: the page's own may have been revoked, and
    its next request is verified again.
    """
    idle_s, keys = 0.0, _keys_version(services)
    waiting = asyncio.ensure_future(anext(events, None))
    try:
        while not services.app.is_draining and _keys_version(services) == keys:
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


def _keys_version(services: ConsoleServices) -> tuple[KeyRing, int]:
    """Returns what changes with the API keys, by a reload of the settings or in the keys file."""
    keys = services.app.snapshot.keys
    return keys, keys.version()


def encode_event(name: str, value: object) -> bytes:
    """Returns a server-sent event; JSON has no line ends, so a value cannot end it early.

    Args:
        name: the name of the event.
        value: a struct, or values for JSON.
    """
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(value))
