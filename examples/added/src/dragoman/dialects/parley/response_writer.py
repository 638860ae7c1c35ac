"""Replies of Parley, streamed and whole, and its errors."""

from typing import Final, assert_never

import msgspec

from dragoman.core import events
from dragoman.core.collect import finish_reason
from dragoman.core.errors import DragomanError, RequestError
from dragoman.core.events import AnyEvent, EventOrder, Finish
from dragoman.core.messages import FinishReason, Refusal, Reply, Request, Text, ToolCall, Usage
from dragoman.wire import sse

NAME: Final = "parley"
_DONE: Final[dict[FinishReason, str]] = {"tool_calls": "do", "length": "cut", "pause": "cut"}

_encode = msgspec.json.Encoder().encode


class ParleyResponseWriter:
    """One streamed reply."""

    def __init__(self, request: Request) -> None:
        self._order = EventOrder(NAME)
        self._usage = Usage()

    def feed(self, event: AnyEvent) -> bytes:
        """The bytes that this event adds.

        Raises: EventOrderError: a bug in whoever sent it.
        """
        self._order.feed(event)
        match event:
            case events.TextDelta(text) | events.RefusalDelta(text):
                return _said({"say": text}) if text else b""
            case events.ToolCallStart(_, id, name):
                return _said({"do": {"id": id, "tool": name}})
            case events.ToolCallDelta(_, text):
                return _said({"with": text}) if text else b""
            case events.UsageUpdate(usage):
                self._usage = usage
                return b""
            case Finish():
                return _said({"done": _done(finish_reason(event, self._order)), "tokens": _tokens(self._usage)})
            case events.Failure(error):
                return _said({"done": "wrong", **_wrong(error)})
            case events.Start() | events.ReasoningDelta() | events.VendorBlock() | events.Notice():
                return b""
            case events.ToolCallEnd() | events.ToolCallIncomplete():
                return b""
            case _:
                assert_never(event)


def write_reply(reply: Reply, request: Request) -> bytes:
    """The body of a whole reply."""
    said = "".join(part.text for part in reply.parts if isinstance(part, Text | Refusal))
    calls = [part for part in reply.parts if isinstance(part, ToolCall)]
    body: dict[str, object] = {"say": said} if said else {}
    if calls and reply.finish_reason != "length":  # one that was cut off is no JSON
        body["do"] = [{"id": c.id, "tool": c.name, "with": msgspec.Raw(c.arguments.encode())} for c in calls]
    return _encode({**body, "done": _done(reply.finish_reason), "tokens": _tokens(reply.usage)})


def write_error(error: DragomanError) -> bytes:
    """The body of an error."""
    return _encode(_wrong(error))


def status(error: DragomanError) -> int:
    """Its status."""
    return error.status_hint


def _wrong(error: DragomanError) -> dict[str, object]:
    return {"wrong": error.message, **({"at": error.path} if isinstance(error, RequestError) and error.path else {})}


def _said(fields: dict[str, object]) -> bytes:
    return sse.encode(_encode(fields))


def _done(reason: FinishReason) -> str:
    return _DONE.get(reason, "say")


def _tokens(usage: Usage) -> list[int]:
    return [usage.input_tokens, usage.output_tokens]
