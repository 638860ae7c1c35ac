"""`--log-level debug`: one line for each step of an exchange; never the content of messages.

req_6b2b… received 317 bytes
req_6b2b… parsed as openai_chat for 'smollm2-135m': 1 message, tools get_weather, streamed
req_6b2b… calls embedded for 'smollm2-135m'
req_6b2b… sends 3512 bytes: completion
req_6b2b… first chunk after 979 ms
req_6b2b… parsed: call get_weather
req_6b2b… received 104 chunks in 7255 ms
req_6b2b… sent: call get_weather
req_6b2b… sent: call complete, valid
req_6b2b… sent: end, tool_calls
"""

import logging
import time
from collections.abc import AsyncGenerator, Iterable, MutableMapping
from contextlib import aclosing
from typing import Any, Final, TypeVar

from dragoman.core.backend import Backend, EventStream
from dragoman.core.errors import DragomanError, loggable_message
from dragoman.core.events import (
    AnyEvent,
    Failure,
    Finish,
    Notice,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
)
from dragoman.core.messages import JsonText, Request
from dragoman.server.observe.observer import CompositeObserver, Send, ServerObserver
from dragoman.vendor_tools.executor import RunTool
from dragoman.vendor_tools.tool import ToolRunResult

log = logging.getLogger("dragoman.steps")

MAX_TOOLS: Final = 8
"""Maximum number of tools in a line."""
NAME_CHARS: Final = 100
"""Maximum length of a name that a client or a model chose."""
T = TypeVar("T")


class DebugLog(ServerObserver):
    """Logs the steps of one exchange."""

    def __init__(self, id: str) -> None:
        self._id, self._began_s = id, time.monotonic()

    def _log(self, text: str) -> None:
        log.debug("%s %s", self._id, text)

    @property
    def _ms(self) -> int:
        return round((time.monotonic() - self._began_s) * 1000)

    def on_body(self, body: bytes) -> None:
        """See `ServerObserver`, also for the methods below."""
        self._log(f"received {len(body)} bytes")

    def on_request(self, request: Request) -> None:
        """Logs the size of the request."""
        count = len(request.messages)
        delivery = "streamed" if request.stream else "whole"
        tools = _tool_names(tool.name for tool in request.tools)
        what = f"{count} message{'s' * (count != 1)}, {tools}, {delivery}"
        self._log(f"parsed as {request.dialect} for {request.model[:NAME_CHARS]!r}: {what}")

    def on_backend_call(self, backend: Backend, request: Request) -> None:
        """Logs the backend and the model."""
        self._log(f"calls {backend.health().get('backend', '')} for {request.model[:NAME_CHARS]!r}")

    async def run_tool(self, kind: str, arguments: JsonText, run: RunTool) -> ToolRunResult:
        """Logs the size and duration of a tool call that the gateway runs."""
        began = self._ms
        result = await run()
        what = result.error or f"{len(result.text)} characters"
        self._log(f"ran {kind} in {self._ms - began} ms: {what}")
        return result

    async def wrap_events(self, events: EventStream) -> EventStream:
        """Logs what is read from the backend."""
        async with aclosing(self._logged("parsed", events)) as logged:
            async for batch in logged:
                yield batch

    async def wrap_client_events(self, events: EventStream) -> EventStream:
        """Logs what is sent to the client."""
        async with aclosing(self._logged("sent", events)) as logged:
            async for batch in logged:
                yield batch

    async def _logged(self, what: str, events: EventStream) -> EventStream:
        try:
            async with aclosing(events):
                async for batch in events:
                    for text in filter(None, map(_event_text, batch)):
                        self._log(f"{what}: {text}")
                    yield batch
        except DragomanError as error:
            self._log(f"{what} nothing: {type(error).__name__}: {loggable_message(error)}")
            raise

    async def wrap_model_output(
        self, target: str, sent: object, pieces: AsyncGenerator[T, None]
    ) -> AsyncGenerator[T, None]:
        """Logs the size and duration of the exchange with the model."""
        size = f"{len(sent)} bytes: " if isinstance(sent, bytes) else ""
        self._log(f"sends {size}{target}")
        count, began_ms = 0, self._ms
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    count += 1
                    if count == 1:
                        self._log(f"first chunk after {self._ms - began_ms} ms")
                    yield piece
        finally:
            self._log(f"received {count} chunk{'s' * (count != 1)} in {self._ms - began_ms} ms")

    def wrap_send(self, send: Send) -> Send:
        """Logs the status of the response."""

        async def send_logged(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._log(f"status {message['status']} after {self._ms} ms")
            await send(message)

        return send_logged


def _tool_names(tools: Iterable[str]) -> str:
    names = [name[:NAME_CHARS] for name in tools]
    more = f" and {len(names) - MAX_TOOLS} more" if len(names) > MAX_TOOLS else ""
    return f"tools {', '.join(names[:MAX_TOOLS])}{more}" if names else "no tools"


def _event_text(event: AnyEvent) -> str:
    """Returns the text for an event, or "" for one that contains the model's text."""
    match event:
        case ToolCallStart(_, _, name):
            return f"call {name[:NAME_CHARS]}"
        case ToolCallEnd(repairs=steps, schema_valid=valid):
            judged = {True: ", valid", False: ", invalid", None: ""}[valid]
            return f"call complete{judged}{f', repaired: {chr(44).join(steps)}' if steps else ''}"
        case ToolCallIncomplete():
            return "call incomplete"
        case Notice():
            return f"warning {event.label}"
        case Finish(reason):
            return f"end, {reason}"
        case Failure(error):
            return f"end, {type(error).__name__}: {loggable_message(error)}"
        case _:
            return ""


def with_debug_log(observer: ServerObserver | None, id: str) -> ServerObserver | None:
    """Returns an observer that also writes the debug log, if that is on; None: nothing observes the exchange.

    Args:
        observer: another observer of the exchange.
        id: the id of the request.
    """
    if not log.isEnabledFor(logging.DEBUG):
        return observer
    return CompositeObserver(observer, DebugLog(id)) if observer else DebugLog(id)
