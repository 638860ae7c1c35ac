"""Collects events into one whole reply; all non-streamed replies are built here.

The events of a reader need a Start before and a Finish after them:

    reader = ReplyReader(formats.get("hermes"), tools, new_id=new_id)
    events = [*reader.feed(text), *reader.close("stop")]
    reply = collect([Start("1", "some-model", 0), *events, Finish("stop")])
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from dragoman.core.complete_calls import call_as_text, is_text_of_call
from dragoman.core.errors import DragomanError
from dragoman.core.events import (
    NO_CHANGE,
    STREAM_HINT,
    TEXT_BREAK,
    AnyEvent,
    BlockChange,
    Detail,
    EventOrder,
    EventOrderError,
    Failure,
    Finish,
    Notice,
    ReasoningDelta,
    RefusalDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
    UsageUpdate,
    VendorBlock,
    VendorBlockStart,
)
from dragoman.core.messages import (
    ExtraFields,
    FinishReason,
    Part,
    Reasoning,
    Refusal,
    Reply,
    Text,
    ToolCall,
    UnknownPart,
    Usage,
)
from dragoman.core.response_details import TEXT_DETAILS, is_for, join_chunks


class Collector:
    """Collects events one by one; `reply` returns the reply so far."""

    def __init__(self, dialect: str = "", *, keep_broken: bool = False, late_ids: bool = False) -> None:
        """Creates a collector.

        Args:
            dialect: Ignore content that only APIs other than this one have; empty: collect all.
            keep_broken: Keep an incomplete call as a call, for a stream that has begun to show it; else it is text.
            late_ids: Use the id that the model wrote after the arguments, if the client has not seen another one.
        """
        self._order = EventOrder(dialect)
        self._keeps_broken, self._takes_late_ids = keep_broken, late_ids
        self._start = Start(id="", model="", created=0)
        self._parts: list[Part] = []
        self._text: list[str] = []
        self._call: ToolCallStart | None = None
        self._broken: Text | None = None
        """The text of the last incomplete call."""
        self._dialect = dialect
        self._of_text: dict[str, list[str]] = {}
        """Details of the open text, or, if none is open, of the next one."""
        self._of_next: dict[str, list[str]] = {}
        """Details of the text after the open one, which is complete."""
        self._details: dict[str, list[str]] = {}
        self._proof = ("", "")
        """Signature and encrypted reasoning of the open reasoning block."""
        self._finish = Finish("stop")
        self.usage = Usage()
        self.warnings: list[Notice] = []
        self.error: DragomanError | None = None
        """The error that ended the response, if any."""

    def feed(self, event: AnyEvent) -> BlockChange:
        """Adds an event and returns the blocks that it opens and closes.

        Raises:
            EventOrderError: The event is not allowed at this point: a bug in the code that sent it.
        """
        step = self._order.feed(event)
        if step is not NO_CHANGE and step.closes:
            self._close(step.closes.kind)
        if type(event) is TextDelta or type(event) is ToolCallDelta or type(event) is RefusalDelta:
            self._text.append(event.text)
        elif type(event) is UsageUpdate:
            self.usage = event.usage
        elif type(event) is Detail:
            if is_for(event.dialect, self._dialect) and event.name != TEXT_BREAK:
                self._detail(event)
        elif type(event) is Start:
            self._start = event
            self.usage = Usage(input_tokens=event.input_tokens)
        elif type(event) is Finish:
            self._finish = event
        elif type(event) is Notice:
            self.warnings.append(event)
        else:
            self._feed(event, step)
        return step

    def _feed(self, event: AnyEvent, step: BlockChange) -> None:
        """Adds a reasoning, vendor block, call or failure."""
        match event:
            case ReasoningDelta(text, signature, redacted):
                self._text.append(text)
                if signature or redacted:
                    self._proof = (signature, redacted)
            case VendorBlock() | VendorBlockStart():
                self._vendor(event, opens=step.opens is not None)
            case ToolCallStart():
                self._call = event
            case ToolCallEnd():
                if self._takes_late_ids and self._call:
                    self._call = event.named(self._call)
                self._close("tool_call")
            case ToolCallIncomplete(_, raw):
                self._close("tool_call" if self._keeps_broken else "broken", raw)
            case Failure(error):
                self.error = error

    def _vendor(self, event: VendorBlock | VendorBlockStart, *, opens: bool) -> None:
        part = UnknownPart(event.type, msgspec.Raw(event.json.encode()), dialect=event.dialect)
        if opens:
            self._parts.append(part)
        elif self._dialect in ("", event.dialect) and event.json:
            self._parts[-1] = part

    def _detail(self, event: Detail) -> None:
        if event.name not in TEXT_DETAILS:
            self._details.setdefault(event.name, []).append(event.json)
            return
        last = self._parts[-1] if self._parts else None
        if self._order.block is None and isinstance(last, Text):  # only the end follows
            old = last.extra.get(event.name)
            pieces = ([bytes(old).decode()] if old else []) + [event.json]
            self._parts[-1] = Text(last.text, {**last.extra, event.name: join_chunks(pieces)})
        else:
            texts = self._of_next if self._order.is_full_text else self._of_text
            texts.setdefault(event.name, []).append(event.json)

    def _close_text(self) -> ExtraFields:
        """Returns the details of the text that ends."""
        details = {name: join_chunks(pieces) for name, pieces in self._of_text.items()}
        self._of_text, self._of_next = self._of_next, {}
        return details

    @property
    def is_text(self) -> bool:
        """Whether a text block is open."""
        return self._order.is_text

    @property
    def phase(self) -> Literal["new", "open", "ended"]:
        """Phase of the stream."""
        return self._order.phase

    def reply(self) -> Reply:
        """Returns the whole reply; an incomplete call is text, unless `keep_broken`."""
        return Reply(
            id=self._start.id,
            model=self._start.model,
            created=self._start.created,
            parts=tuple(self._parts),
            finish_reason=finish_reason(self._finish, self._order, broken_are_text=not self._keeps_broken),
            stop_sequence=self._finish.stop_sequence,
            usage=self.usage,
            details={name: join_chunks(pieces) for name, pieces in self._details.items()} if self._details else {},
        )

    def _close(self, kind: str, raw: str = "") -> None:
        text = "".join(self._text)
        self._text.clear()
        if kind == "broken" and self._call is not None:
            self._broken = Text(call_as_text(self._call.name, text, raw))
            self._parts.append(self._broken)
        elif kind == "tool_call" and self._call is not None:
            self._parts.append(ToolCall(self._call.id, self._call.name, text))
        elif kind == "reasoning":
            self._parts.append(Reasoning(text, *self._proof))
            self._proof = ("", "")
        elif kind != "vendor":
            if self._broken and self._parts[-1] is self._broken and is_text_of_call(self._broken.text, text):
                self._parts.pop()  # the reader has emitted it as text
            extra = self._close_text() if self._of_text or self._of_next else {}
            self._parts.append(Refusal(text, extra) if kind == "refusal" else Text(text, extra))


def finish_reason(finish: Finish, order: EventOrder, *, broken_are_text: bool = False) -> FinishReason:
    """Returns the finish reason to report: "length" for an incomplete call; "tool_calls" in place of "stop" for calls.

    A client must not run an incomplete call, and "length" is the one reason that all clients honour. If the call has
    become text (`broken_are_text`), there is nothing to run, and the model's reason is kept.
    """
    calls = order.calls - order.incomplete if broken_are_text else order.calls
    if order.incomplete and not broken_are_text:
        return "length"
    if calls and finish.reason in ("stop", "stop_sequence"):
        return "tool_calls"
    if finish.reason == "tool_calls" and not calls:
        return "stop"
    return finish.reason


def collect(events: Iterable[AnyEvent], api: str = "") -> Reply:
    """Joins the events of a complete stream to the whole reply.

        reply = collect([Start("1", "my-model", 0), *reader.feed(text), *reader.close(), Finish("stop")])

    Args:
        events: All events of one response in order, from `Start` to `Finish`.
        api: Leaves out details that only another API has; empty: keeps all.

    Returns:
        The reply.

    Raises:
        DragomanError: The error that ended the stream.
        EventOrderError: Start or Finish is missing, or the events are out of order.
    """
    collector = Collector(api)
    for event in events:
        collector.feed(event)
    if collector.error is not None:
        raise collector.error
    if collector.phase != "ended":
        raise EventOrderError(f"expected Finish at the end, got none: {STREAM_HINT}")
    return collector.reply()


def complete_calls(events: Iterable[AnyEvent]) -> list[ToolCall]:
    """Returns the complete calls among these events, which need not be a whole response."""
    calls: list[ToolCall] = []
    start, arguments = ToolCallStart(0, "", ""), ""
    for event in events:
        match event:
            case ToolCallStart():
                start, arguments = event, ""
            case ToolCallDelta(_, text):
                arguments += text
            case ToolCallEnd():
                calls.append(ToolCall(start.id, start.name, arguments))
            case _:
                pass
    return calls
