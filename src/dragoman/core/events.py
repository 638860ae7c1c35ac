"""Events of a model response, in order.

    Start · (ReasoningDelta | TextDelta | RefusalDelta | part | call)* · (Finish | Failure)
    call = ToolCallStart(i) · ToolCallDelta(i)* · (ToolCallEnd(i) | ToolCallIncomplete(i))
    part = VendorBlock | VendorBlockStart · VendorBlock

`UsageUpdate`, `Detail` and `Notice` may appear anywhere between Start and the end. Calls are numbered from 0 in the
order in which they begin. They never overlap with each other or with text. The joined deltas of a call are a prefix of
one JSON object at every moment, and the whole object when ToolCallEnd arrives. A delta with empty text does not open
a block (some servers begin every response with an empty text). A signature ends its block of reasoning. Each redacted
reasoning and each vendor-specific part is a block of its own. Failure may appear at any time, also first. No event
follows Finish or Failure.

`EventOrder` validates this grammar. Every writer uses it, so no writer can produce an invalid stream.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from dragoman.core.errors import DragomanError, UsageError
from dragoman.core.messages import FinishReason, JsonText, Usage

TEXT_BREAK: Final = "text_block"
"""Name of a `Detail` that ends the open text block."""


# Where speed matters, code compares `type(event) is TextDelta`: isinstance, and a pattern that does not match, cost ten
# times as much for msgspec's types, because their metaclass is not `type`.


class Event(msgspec.Struct, frozen=True, gc=False):
    """Base class of all events."""


class Start(Event, frozen=True):
    """The backend has accepted the request."""

    id: str
    """Unique, of `[A-Za-z0-9]`; each dialect adds its own prefix."""
    model: str
    created: int
    """Seconds since 1970."""
    input_tokens: int = 0
    """Tokens of the prompt if they are known before the first text; else 0."""
    headers: Mapping[str, str] = {}
    """Headers of the upstream response that are forwarded to the client."""


class ReasoningDelta(Event, frozen=True):
    """More reasoning of the model; a signature arrives with the last of it or after it."""

    text: str
    signature: str = ""
    redacted: str = ""
    """Encrypted reasoning, whole, in place of `text`."""


class TextDelta(Event, frozen=True):
    """More text of the response."""

    text: str


class RefusalDelta(Event, frozen=True):
    """More text of a refusal."""

    text: str


class VendorBlock(Event, frozen=True):
    """A part of the response that only one API has, whole: a call of a tool that the vendor runs, or its result."""

    dialect: str
    """The API that defines it."""
    type: str
    json: JsonText
    """As received."""
    steps: tuple[str, ...] = ()
    """Last part of the names of events about its end, such as `completed`, in APIs that have them."""


class VendorBlockStart(Event, frozen=True):
    """A part that only one API has begins. The `VendorBlock` that follows is the same part, complete."""

    dialect: str
    type: str
    json: JsonText
    """The part so far."""
    steps: tuple[str, ...] = ()
    """Last part of the names of events about its beginning, such as `in_progress`."""
    arguments: JsonText = ""
    """Arguments of a call that are not in the part yet, in APIs that send them in events of their own."""


class Detail(Event, frozen=True):
    """Data other than text and calls, such as token probabilities or a source; see core/response_details.py."""

    name: str
    json: JsonText
    dialect: str = ""
    """The API that defines it; empty: both OpenAI APIs, in the form of Responses."""


class ToolCallStart(Event, frozen=True):
    """A call begins: its name is complete and is the name of a tool."""

    index: int
    id: str
    name: str


class ToolCallDelta(Event, frozen=True):
    """More of a call's arguments, as JSON text."""

    index: int
    text: str


class ToolCallEnd(Event, frozen=True, repr_omit_defaults=True):
    """The call is complete: its arguments are one whole JSON object."""

    index: int
    repairs: tuple[str, ...] = ()
    """Names of the repairs that were applied to the call (docs/guard.md), in order."""
    schema_valid: bool | None = None
    """Whether the arguments match the tool's schema; None: they were not, or could not be, checked."""
    reasked: bool = False
    """The model was re-asked for this call because its first attempt was unreadable or did not match the schema."""
    id: str = ""
    """The id that the model wrote after the arguments, for calls that are delivered whole."""

    def named(self, start: ToolCallStart) -> ToolCallStart:
        """Returns `start` with the model's own id if the id arrived only with this event."""
        return msgspec.structs.replace(start, id=self.id) if self.id else start


class ToolCallIncomplete(Event, frozen=True):
    """The call was cut off or its arguments are invalid: it must not be run. `raw` is the model's text of it."""

    index: int
    raw: str


class Notice(Event, frozen=True):
    """Something the caller or operator should know; the response continues."""

    code: str
    """One word such as `missing_closing_tag`; docs/warnings.md lists them."""
    message: str
    raw: str = ""
    """The span of model text that the notice is about."""
    detail: str = ""
    """Name of the subject, if there is one: an API field, a type, a server. Never user text."""

    @property
    def label(self) -> str:
        """Returns the code with the detail, `content_dropped: strict`, as the header, the stream and the log show it.

        ASCII without commas, at most `DETAIL_LIMIT_CHARS` characters after the code.
        """
        return f"{self.code}: {_UNSAFE.sub('_', self.detail)[:DETAIL_LIMIT_CHARS]}" if self.detail else self.code


DETAIL_LIMIT_CHARS: Final = 64
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.:$/@+>() \[\]-]+")


class UsageUpdate(Event, frozen=True):
    """Token counts so far; a later event replaces an earlier one."""

    usage: Usage


class Finish(Event, frozen=True):
    """The response is complete."""

    reason: FinishReason
    stop_sequence: str = ""
    """The stop string of the request that ended it, if `reason` is "stop_sequence"."""


class Failure(Event, frozen=True, gc=True):
    """The response ends here because of an error."""

    error: DragomanError


AnyEvent: TypeAlias = (
    Start
    | ReasoningDelta
    | TextDelta
    | RefusalDelta
    | VendorBlock
    | VendorBlockStart
    | Detail
    | ToolCallStart
    | ToolCallDelta
    | ToolCallEnd
    | ToolCallIncomplete
    | Notice
    | UsageUpdate
    | Finish
    | Failure
)

EventType: TypeAlias = type[AnyEvent]
ALL_EVENTS: Final[frozenset[EventType]] = frozenset(get_args(AnyEvent))
CALL_EVENTS: Final[frozenset[EventType]] = frozenset((ToolCallStart, ToolCallDelta, ToolCallEnd, ToolCallIncomplete))

BlockKind: TypeAlias = Literal["reasoning", "text", "refusal", "tool_call", "vendor"]


class Block(msgspec.Struct, frozen=True, gc=False):
    """A run of consecutive events of one kind; blocks are numbered from 0 and never overlap."""

    kind: BlockKind
    number: int


class BlockChange(NamedTuple):
    """Blocks that an event closes and opens: `closes` and then `opens` apply before the event, `ends` after it."""

    closes: Block | None = None
    opens: Block | None = None
    ends: Block | None = None


class EventOrderError(UsageError):
    """An event violates the grammar above: a bug in the code that sent it."""


NO_CHANGE: Final = BlockChange()
"""The one value that is returned for events that change no block, as most do (compare with `is`)."""
STREAM_HINT: Final = "send Start(id, model, created), then what the reader gives, then Finish(reason)"
"""Advice in errors about a missing Start or Finish."""


_OUTSIDE_BLOCKS: Final = (UsageUpdate, Notice, Detail)
"""Events that change no block, except for the detail `TEXT_BREAK`."""


class EventOrder:
    """Validates one stream of events and reports which blocks open and close."""

    __slots__ = ("_awaits_end", "_dialect", "_signed", "block", "blocks", "calls", "incomplete", "phase")

    def __init__(self, dialect: str = "") -> None:
        """Creates a validator; vendor blocks of APIs other than `dialect` are ignored (empty: none are ignored)."""
        self._dialect = dialect
        self.phase: Literal["new", "open", "ended"] = "new"
        self.block: Block | None = None
        self.blocks = 0
        self.calls = 0
        self.incomplete = 0
        self._signed = False
        """The open block is complete: the next event of its kind opens another block."""
        self._awaits_end = False
        """The open block is a part that its VendorBlock is yet to complete."""

    def feed(self, event: AnyEvent) -> BlockChange:
        """Validates the event and returns the blocks that it opens and closes.

        Raises:
            EventOrderError: The event is not allowed at this point of the stream.
        """
        block, kind = self.block, type(event)
        if block is not None and not self._signed:  # the two most frequent cases
            if kind is TextDelta and block.kind == "text":
                return NO_CHANGE
            if type(event) is ToolCallDelta and block.kind == "tool_call" and event.index == self.calls - 1:
                return NO_CHANGE
        if self.phase == "open" and kind in _OUTSIDE_BLOCKS and (type(event) is not Detail or event.name != TEXT_BREAK):
            return NO_CHANGE
        return self._feed(event)

    def _feed(self, event: AnyEvent) -> BlockChange:
        if self.phase != "open" or type(event) is Start or type(event) is Finish:
            self._admit(event)
        if type(event) is TextDelta:
            return self._run("text", event.text)
        if type(event) is Start:
            return NO_CHANGE
        if type(event) is Finish or type(event) is Failure:
            self.phase = "ended"
            return BlockChange(closes=self._close())
        match event:
            case ToolCallDelta(index):
                self._expect_call(index, event)
                return NO_CHANGE
            case ReasoningDelta(text, signature, redacted):
                step = self._run("reasoning", text or signature or redacted, new_block=bool(redacted))
                self._signed = self._signed or bool(signature or redacted)
                return step
            case VendorBlock(dialect, _, json) | VendorBlockStart(dialect, _, json):
                return self._vendor(event, json) if self._dialect in ("", dialect) else NO_CHANGE
            case RefusalDelta(text):
                return self._run("refusal", text)
            case ToolCallStart(index):
                return self._call(index, event)
            case ToolCallEnd(index) | ToolCallIncomplete(index):
                self._expect_call(index, event)
                self.incomplete += isinstance(event, ToolCallIncomplete)
                return BlockChange(ends=self._close())
            case Detail(name):
                self._signed = self._signed or (name == TEXT_BREAK and self.is_text)
                return NO_CHANGE
            case _:
                return NO_CHANGE

    @property
    def is_text(self) -> bool:
        """Whether a text or refusal block is open that accepts more text."""
        return self.block is not None and self.block.kind in ("text", "refusal") and not self._signed

    @property
    def is_full_text(self) -> bool:
        """Whether the open text or refusal block is complete: the next text opens another block."""
        return self.block is not None and self.block.kind in ("text", "refusal") and self._signed

    def _admit(self, event: AnyEvent) -> None:
        if self.phase == "open" and type(event) is not Start:
            if type(event) is Finish and self.block is not None and self.block.kind == "tool_call":
                raise EventOrderError("Finish inside an open tool call; end it or mark it incomplete first")
            if isinstance(event, Finish) and self._awaits_end:
                raise EventOrderError("Finish inside an open part; send its VendorBlock first")
            return
        if self.phase == "new" and isinstance(event, Start | Failure):
            self.phase = "open"
            return
        event_type = type(event).__name__
        if self.phase == "new":
            raise EventOrderError(f"expected Start first, got {event_type}: {STREAM_HINT}")
        raise EventOrderError(
            f"expected nothing after the end, got {event_type}" if self.phase == "ended" else "a second Start"
        )

    def _run(self, kind: BlockKind, text: str, *, new_block: bool = False) -> BlockChange:
        if self.block is not None:
            if self.block.kind == kind and not ((new_block or self._signed) and text):
                return NO_CHANGE
            if self.block.kind == "tool_call":
                raise EventOrderError(f"{kind} inside an open tool call")
        return self._open(kind) if text else NO_CHANGE

    def _vendor(self, event: VendorBlock | VendorBlockStart, json: JsonText) -> BlockChange:
        if self._awaits_end and isinstance(event, VendorBlock):
            self._awaits_end = False
            return NO_CHANGE
        step = self._run("vendor", json, new_block=True)
        self._awaits_end = step.opens is not None and isinstance(event, VendorBlockStart)
        return step

    def _call(self, index: int, event: AnyEvent) -> BlockChange:
        if index != self.calls or (self.block is not None and self.block.kind == "tool_call"):
            raise EventOrderError(f"{type(event).__name__} {index} after {self.calls} calls, block {self.block}")
        self.calls += 1
        return self._open("tool_call")

    def _expect_call(self, index: int, event: AnyEvent) -> None:
        if self.block is None or self.block.kind != "tool_call" or index != self.calls - 1:
            raise EventOrderError(f"{type(event).__name__} {index} outside its call, block {self.block}")

    def _open(self, kind: BlockKind) -> BlockChange:
        if self._awaits_end:
            raise EventOrderError(f"expected the VendorBlock of the open part, got {kind}")
        closed, self.block = self.block, Block(kind, self.blocks)
        self.blocks += 1
        self._signed = False
        return BlockChange(closes=closed, opens=self.block)

    def _close(self) -> Block | None:
        closed, self.block = self.block, None
        return closed
