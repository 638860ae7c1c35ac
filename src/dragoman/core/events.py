"""What happens while a model answers, in order.

    Start · (ReasoningDelta | TextDelta | RefusalDelta | VendorBlock | a call)* · (Finish | Failure)
    a call = ToolCallStart(i) · ToolCallDelta(i)* · (ToolCallEnd(i) | ToolCallIncomplete(i))

`Usage`, `Detail` and `Notice` may come anywhere between Start and the end. Calls are numbered from 0 in the order
they begin and never overlap with each other or with text. The joined deltas of a call are at every moment
a prefix of one JSON object, and that whole object once ToolCallEnd has come. A delta without a word in it
opens no block of its own (some servers begin every answer with an empty text). A signature ends its block of
thoughts; redacted thoughts are a block each, and so is whatever only one vendor's API has. Failure may come at any
time, also first; nothing comes after it or after Finish.

`EventOrder` is the one machine that knows this grammar. Every writer asks it, so none can write an illegal stream.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias, assert_never

import msgspec

from dragoman.core.errors import DragomanError, MisuseError
from dragoman.core.messages import FinishReason, JsonText, Usage

BREAK: Final = "text_block"
"""The name of a detail that ends the open text."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One thing that happened."""


class Start(Event, frozen=True):
    """The backend has taken the request."""

    id: str
    """Unique, of `[A-Za-z0-9]`; each dialect puts its own prefix in front."""
    model: str
    created: int
    """Seconds since 1970."""
    input_tokens: int = 0
    """Tokens of the prompt where they are known before the first word; else 0."""
    headers: Mapping[str, str] = {}
    """Of the upstream's response, what goes on to the client."""


class ReasoningDelta(Event, frozen=True):
    """More of the model's thoughts; a signature comes with or after the last of them."""

    text: str
    signature: str = ""
    redacted: str = ""
    """Opaque thoughts, whole, in place of text."""


class TextDelta(Event, frozen=True):
    """More of the answer's text."""

    text: str


class RefusalDelta(Event, frozen=True):
    """More of the words with which the model declines."""

    text: str


class VendorBlock(Event, frozen=True):
    """A part of the answer that only one API has, whole: what a tool that the vendor runs was asked, or found."""

    dialect: str
    """The API that has it."""
    type: str
    json: JsonText
    """As it came."""


class Detail(Event, frozen=True):
    """Something besides text and calls, such as probabilities of tokens or a source; see core/response_details.py."""

    name: str
    json: JsonText
    dialect: str = ""
    """The API that has it; empty: both OpenAI APIs, in the form of Responses."""


class ToolCallStart(Event, frozen=True):
    """A call has begun: its name is complete and names a tool."""

    index: int
    id: str
    name: str


class ToolCallDelta(Event, frozen=True):
    """More of a call's arguments, as JSON text."""

    index: int
    text: str


class ToolCallEnd(Event, frozen=True, repr_omit_defaults=True):
    """The call's arguments are one whole JSON object."""

    index: int
    mended: tuple[str, ...] = ()
    """What was set right in the call, by the names of docs/guard.md, in the order in which it was done."""
    valid: bool | None = None
    """Whether the arguments are of the tool's schema; None: that was not, or could not be, looked at."""
    asked_again: bool = False
    """The model was asked once more for this call, as what it wrote first was none, or not of its schema."""
    id: str = ""
    """The id that the model wrote after the arguments, for calls that are delivered whole."""

    def named(self, start: ToolCallStart) -> ToolCallStart:
        """Returns the start of this call under the model's own id, where it came only here."""
        return msgspec.structs.replace(start, id=self.id) if self.id else start


class ToolCallIncomplete(Event, frozen=True):
    """The call was cut off or its arguments broke: it must not be run. `raw` is all the model wrote of it."""

    index: int
    raw: str


class Notice(Event, frozen=True):
    """Something the caller or operator should know; the answer goes on."""

    code: str
    """One word of the kind `missing_closer`; docs/warnings.md lists them."""
    message: str
    raw: str = ""
    """The span of model text that it is about."""
    detail: str = ""
    """The name of what it is about, where there is one: a field of an API, a type, a server. No user text."""

    @property
    def label(self) -> str:
        """Returns the code with the name, `content_dropped: strict`, as the header, the stream and the log show it.

        ASCII without commas, at most `DETAIL_LIMIT_CHARS` characters after the code.
        """
        return f"{self.code}: {_UNSAFE.sub('_', self.detail)[:DETAIL_LIMIT_CHARS]}" if self.detail else self.code


DETAIL_LIMIT_CHARS: Final = 64
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.:$/@+>() \[\]-]+")


class UsageUpdate(Event, frozen=True):
    """Token counts so far; a later one replaces an earlier one."""

    usage: Usage


class Finish(Event, frozen=True):
    """The answer is complete."""

    reason: FinishReason
    stop_sequence: str = ""
    """Which of the request's stop strings ended it, where reason is "stop_sequence"."""


class Failure(Event, frozen=True, gc=True):
    """The answer ends here because something broke."""

    error: DragomanError


AnyEvent: TypeAlias = (
    Start
    | ReasoningDelta
    | TextDelta
    | RefusalDelta
    | VendorBlock
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

BlockKind: TypeAlias = Literal["reasoning", "text", "refusal", "tool_call", "vendor"]


class Block(NamedTuple):
    """A run of events that belong together; blocks are numbered from 0 and never overlap."""

    kind: BlockKind
    number: int


class BlockChange(NamedTuple):
    """What an event does to the blocks: `closes` happens before it, `opens` before it, `ends` after it."""

    closes: Block | None = None
    opens: Block | None = None
    ends: Block | None = None


class OrderError(MisuseError):
    """An event came where the grammar above has no place for it: a bug in whoever sent it."""


NO_CHANGE: Final = BlockChange()
"""This very value where an event opens and closes none, as most do."""
WHOLE_STREAM: Final = "send Start(id, model, created), then what the reader gives, then Finish(reason)"
"""What to do, for those who forget one end."""


class EventOrder:
    """Follows one stream of events, says which blocks open and close, and refuses what the grammar forbids."""

    __slots__ = ("_dialect", "_signed", "block", "blocks", "calls", "incomplete", "phase")

    def __init__(self, dialect: str = "") -> None:
        """For the writer of this API, which passes over what only another one has."""
        self._dialect = dialect
        self.phase: Literal["new", "open", "ended"] = "new"
        self.block: Block | None = None
        self.blocks = 0
        self.calls = 0
        self.incomplete = 0
        self._signed = False
        """The open block takes no more: its next event begins another."""

    def step(self, event: AnyEvent) -> BlockChange:
        """The blocks that this event opens and closes.

        Raises: OrderError: the event may not come now.
        """
        self._admit(event)
        match event:
            case TextDelta(text):
                return self._run("text", text)
            case ToolCallDelta(index):
                self._expect_call(index, event)
                return NO_CHANGE
            case ReasoningDelta(text, signature, redacted):
                step = self._run("reasoning", text or signature or redacted, apart=bool(redacted))
                self._signed = self._signed or bool(signature or redacted)
                return step
            case VendorBlock(dialect, _, json):
                return self._run("vendor", json, apart=True) if self._dialect in ("", dialect) else NO_CHANGE
            case RefusalDelta(text):
                return self._run("refusal", text)
            case ToolCallStart(index):
                return self._call(index, event)
            case ToolCallEnd(index) | ToolCallIncomplete(index):
                self._expect_call(index, event)
                self.incomplete += isinstance(event, ToolCallIncomplete)
                return BlockChange(ends=self._close())
            case Finish() | Failure():
                self.phase = "ended"
                return BlockChange(closes=self._close())
            case Detail(name):
                self._signed = self._signed or (name == BREAK and self.is_text)
                return NO_CHANGE
            case Start() | Notice() | UsageUpdate():
                return NO_CHANGE
            case _:
                assert_never(event)

    @property
    def is_text(self) -> bool:
        """Whether a text is open that takes more."""
        return self.block is not None and self.block.kind in ("text", "refusal") and not self._signed

    @property
    def is_full_text(self) -> bool:
        """Whether a text is open that takes no more: the next one is another."""
        return self.block is not None and self.block.kind in ("text", "refusal") and self._signed

    def _admit(self, event: AnyEvent) -> None:
        if self.phase == "open" and not isinstance(event, Start):
            if isinstance(event, Finish) and self.block is not None and self.block.kind == "tool_call":
                raise OrderError("Finish inside an open tool call; end it or mark it incomplete first")
            return
        if self.phase == "new" and isinstance(event, Start | Failure):
            self.phase = "open"
            return
        came = type(event).__name__
        if self.phase == "new":
            raise OrderError(f"expected Start first, got {came}: {WHOLE_STREAM}")
        raise OrderError(f"expected nothing after the end, got {came}" if self.phase == "ended" else "a second Start")

    def _run(self, kind: BlockKind, said: str, *, apart: bool = False) -> BlockChange:
        if self.block is not None:
            if self.block.kind == kind and not ((apart or self._signed) and said):
                return NO_CHANGE
            if self.block.kind == "tool_call":
                raise OrderError(f"{kind} inside an open tool call")
        return self._open(kind) if said else NO_CHANGE

    def _call(self, index: int, event: AnyEvent) -> BlockChange:
        if index != self.calls or (self.block is not None and self.block.kind == "tool_call"):
            raise OrderError(f"{type(event).__name__} {index} after {self.calls} calls, block {self.block}")
        self.calls += 1
        return self._open("tool_call")

    def _expect_call(self, index: int, event: AnyEvent) -> None:
        if self.block is None or self.block.kind != "tool_call" or index != self.calls - 1:
            raise OrderError(f"{type(event).__name__} {index} outside its call, block {self.block}")

    def _open(self, kind: BlockKind) -> BlockChange:
        closed, self.block = self.block, Block(kind, self.blocks)
        self.blocks += 1
        self._signed = False
        return BlockChange(closes=closed, opens=self.block)

    def _close(self) -> Block | None:
        closed, self.block = self.block, None
        return closed
