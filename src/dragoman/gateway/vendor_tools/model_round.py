"""One response of the model among the rounds of a response to the client: its events, and the calls for the gateway."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import collect
from dragoman.core.events import (
    AnyEvent,
    Finish,
    ReasoningDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
    UsageUpdate,
    VendorBlock,
)
from dragoman.core.messages import Message, Part, ToolCall, Usage
from dragoman.vendor_tools.tool import VendorTool, VendorToolCall

_BETWEEN: Final = "\n\n"
"""Text between the texts of two rounds, where nothing else separates them."""


class ResponseState(Protocol):
    """What a round reads and changes of the response to the client."""

    context: ExchangeContext
    client_calls: int
    """Number of calls that the client has to run."""
    has_text: bool
    is_separated: bool
    """Whether the client sees something between the last round and the present one."""

    def tool_of(self, name: str) -> VendorTool | None:
        """Returns the tool that a call names; None: it is the client's."""

    def priced(self, usage: Usage) -> Usage:
        """Returns the usage of a round with its cost, if that is known."""

    def total_usage(self, usage: Usage) -> Usage:
        """Returns the usage of all rounds, given that of the present one."""


class ModelRound:
    """One response of the model: its events for the client, and the calls for the gateway."""

    def __init__(self, response: ResponseState, *, is_first: bool) -> None:
        self._response, self._is_first = response, is_first
        self._events: list[AnyEvent] = []
        """All events as they arrived."""
        self._open: VendorTool | None = None
        """The tool of the open call, which the client does not see."""
        self._arguments: list[str] = []
        self._has_text = False
        self._separator = ""
        """Text that is inserted before the first text."""
        self._index = 0
        """Index of the open call for the client."""
        self.calls: list[VendorToolCall] = []
        self.call_ids: list[str] = []
        """The backend's ids of these calls."""
        self.has_client_calls = False
        self.prompt_tokens = 0
        """Tokens of the prompt, if the backend reported them at the start."""
        self.usage: Usage | None = None
        """Of this round, as the backend reported it last."""
        self.finish: Finish | None = None

    def feed(self, batch: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events for the client."""
        self._events += batch
        if self._has_text and len(batch) == 1 and type(batch[0]) is TextDelta:
            return batch  # the most frequent case
        out: list[AnyEvent] = []
        for event in batch:
            out += self._feed(event)
        return out

    def _feed(self, event: AnyEvent) -> Sequence[AnyEvent]:
        match event:
            case Start(input_tokens=tokens):
                self.prompt_tokens = tokens
                return [event] if self._is_first else []
            case TextDelta():
                return self._text(event)
            case UsageUpdate(usage):
                self.usage = usage
                return [UsageUpdate(self._response.total_usage(self._response.priced(usage)))]
            case ToolCallStart() | ToolCallDelta() | ToolCallEnd() | ToolCallIncomplete():
                return self._call(event)
            case Finish():
                self.finish = event
                return []
            case _:
                return [event]

    def _text(self, event: TextDelta) -> Sequence[AnyEvent]:
        if not event.text or self._has_text:
            return [event]
        response, self._has_text = self._response, True
        joins = response.has_text and not response.is_separated and not self._is_first
        response.has_text = True
        self._separator = _BETWEEN if joins else ""
        return [TextDelta(_BETWEEN), event] if joins else [event]

    def _call(self, event: ToolCallStart | ToolCallDelta | ToolCallEnd | ToolCallIncomplete) -> Sequence[AnyEvent]:
        response = self._response
        if isinstance(event, ToolCallStart):
            self._open = response.tool_of(event.name)
            if self._open is None:
                self.has_client_calls = True
                self._index = response.client_calls
                response.client_calls += 1
            else:
                self._arguments.clear()
                self.call_ids.append(event.id)
                return []
        if self._open is None:
            return [event if event.index == self._index else replace(event, index=self._index)]
        if isinstance(event, ToolCallDelta):
            self._arguments.append(event.text)
        elif isinstance(event, ToolCallEnd):
            self.call_ids[-1] = event.id or self.call_ids[-1]
            self.calls.append(VendorToolCall(response.context.new_id(), self._open, "".join(self._arguments) or "{}"))
        else:
            self.call_ids.pop()
        return []

    def calls_to_run(self, needs_approval: Callable[[VendorToolCall], bool]) -> list[VendorToolCall]:
        """Returns the calls that the gateway runs.

        If the response ends after this round, a call that the client does not see is not run: its result would be in no
        later request, so the model makes the call again.
        """
        ends = self.has_client_calls or any(map(needs_approval, self.calls))
        return [call for call in self.calls if not (ends and call.tool.is_internal)]

    def parts(self) -> tuple[Part, ...]:
        """Returns the parts of the response, calls included."""
        return collect(self._events).parts

    def last_text(self, *, across_blocks: bool) -> str:
        """Returns the text for the client; that after the last other part, unless `across_blocks`."""
        texts: list[str] = []
        for event in self._events:
            if isinstance(event, TextDelta):
                texts.append(event.text)
            elif not across_blocks and isinstance(event, ReasoningDelta | ToolCallStart | VendorBlock):
                texts.clear()
        return self._separator + "".join(texts) if across_blocks else "".join(texts)

    def message_for_model(self, earlier: Sequence[Message]) -> Message:
        """Returns the response as a message after these; a call whose id occurs in them gets another id.

        Servers that number the calls of each response from 0 repeat their ids.
        """
        used = {part.id for message in earlier for part in message.parts if isinstance(part, ToolCall)}
        for number, call in enumerate(self.calls):
            if self.call_ids[number] in used:
                self.call_ids[number] = call.id
            used.add(self.call_ids[number])
        ids = iter(self.call_ids)
        return Message("assistant", tuple(_with_id(part, ids) for part in self.parts()))


def _with_id(part: Part, ids: Iterator[str]) -> Part:
    return replace(part, id=next(ids)) if isinstance(part, ToolCall) else part
