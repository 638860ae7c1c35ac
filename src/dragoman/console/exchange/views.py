"""The structs of the exchange page.

Segments and blocks of several lanes with the same `link` belong together: `call:0`, `text:0`, `reasoning:0`,
`tool:get_weather`, `message:3`.
"""

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from dragoman.console.api import TrafficRow

MAX_SEGMENT_CHARS: Final = 100_000
"""Longer texts are shortened in the middle, visibly."""
MAX_LANE_CHARS: Final = 1_000_000
"""Maximum number of characters of a lane; the rest is left out, visibly."""
MAX_BLOCKS: Final = 1_000
"""Maximum number of blocks of a lane."""

LaneName: TypeAlias = Literal["client", "sent", "model", "reply"]
Change: TypeAlias = Literal["", "added", "changed", "removed", "same"]
Reason: TypeAlias = Literal["first", "retry", "failover", "reask", "tools", "continued"]


class ExchangeNote(Struct, frozen=True):
    """What happened to a part of an exchange, why, and what changes it."""

    code: str
    """The code of a warning, `error`, `left_out`, or one of `--explain`."""
    message: str
    rule: str = ""
    """The rule of the reader or guard that applied, in words."""
    meaning: str = ""
    """What the code means in general."""
    remedy: str = ""
    """What to change."""
    settings: tuple[str, ...] = ()
    """The keys of the settings that change it."""


class Segment(Struct, frozen=True):
    """A piece of text of one kind."""

    text: str
    kind: str
    """`text`, `reasoning`, `markup`, `name`, `arguments`, `repair`, `broken`, `dropped`, `unread`, `json`, `role` or
    `plain`.
    """
    link: str = ""
    notes: tuple[ExchangeNote, ...] = ()


class LaneBlock(Struct, frozen=True):
    """A part of a lane: a message, a tool, a request to a model, an event."""

    title: str
    segments: tuple[Segment, ...] = ()
    link: str = ""
    change: Change = ""
    """Compared with the previous request of the conversation."""
    ms: int | None = None
    """Milliseconds since the request arrived."""
    number: int = 0
    """The backend call, from 1; 0: none."""


class Lane(Struct, frozen=True):
    """One of the four stages of an exchange."""

    name: LaneName
    title: str
    summary: str
    blocks: tuple[LaneBlock, ...]


class SentCall(Struct, frozen=True):
    """One call of a backend."""

    number: int
    backend: str
    model: str
    mode: str
    format: str
    why: Reason
    error: str = ""


class Remedy(Struct, frozen=True):
    """Something that can be changed."""

    text: str
    toml: str = ""
    """What to write into the settings file; empty: nothing, as settings cannot change it."""
    path: str = ""
    """The settings file."""
    is_new_file: bool = False
    """Whether the file does not exist yet, so that it is read at the next start."""


class Diagnosis(Struct, frozen=True):
    """What happened in an exchange, and the remedies, the best one first."""

    cause: str
    remedies: tuple[Remedy, ...] = ()


class ExchangeView(Struct, frozen=True):
    """All that the page of an exchange has."""

    id: str
    """The `x-request-id`."""
    row: TrafficRow
    """The exchange as the list has it."""
    is_captured: bool
    is_running: bool
    lanes: tuple[Lane, ...] = ()
    notes: tuple[ExchangeNote, ...] = ()
    previous_id: str = ""
    """The previous request of the conversation, if it is captured."""
    cache_note: str = ""
    """What broke the prompt cache, in words; empty: nothing, or it is not known."""
    sent_calls: tuple[SentCall, ...] = ()
    diagnosis: Diagnosis | None = None
    """What went wrong, and what to change; None: nothing that needs an explanation."""


class ReplayStage(Struct, frozen=True):
    """A stage of a replay."""

    name: str
    same: bool
    diff: str
    """Lines of the capture with `-`, of the replay with `+`."""


class ReplayResult(Struct, frozen=True):
    """A replay compared with its capture."""

    stages: tuple[ReplayStage, ...]
    view: ExchangeView


def number(count: int, noun: str) -> str:
    """Returns a number with its noun, in the plural unless it is one."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def clean(text: str) -> str:
    """Returns the text with halves of surrogate pairs, which JSON cannot contain, as U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def segments(text: str, kind: str, link: str = "", notes: Sequence[ExchangeNote] = ()) -> tuple[Segment, ...]:
    """Returns the text as a segment, shortened in the middle if it is long; nothing for no text without notes.

    Args:
        text: The text.
        kind: See `Segment`.
        link: See `Segment`.
        notes: See `Segment`.
    """
    if not text and not notes:
        return ()
    if len(text) <= MAX_SEGMENT_CHARS:
        return (Segment(text=clean(text), kind=kind, link=link, notes=tuple(notes)),)
    half = MAX_SEGMENT_CHARS // 2
    rest = len(text) - 2 * half
    return (
        Segment(text=clean(text[:half]), kind=kind, link=link, notes=tuple(notes)),
        Segment(text="…", kind="plain", link=link, notes=(left_out(f"{rest:,} characters"),)),
        Segment(text=clean(text[-half:]), kind=kind, link=link),
    )


def left_out(what: str) -> ExchangeNote:
    """Returns the note about something that is not shown."""
    return ExchangeNote(
        code="left_out",
        message=f"{what} are left out here",
        remedy="Download the body, or the bundle of this exchange: both are complete.",
    )


def lane(name: LaneName, title: str, summary: str, blocks: Sequence[LaneBlock]) -> Lane:
    """Returns a lane of bounded size.

    Args:
        name: Which lane.
        title: Its title.
        summary: Its content in one line.
        blocks: Its blocks; of too many, those in the middle are left out.
    """
    sizes = [sum(len(segment.text) for segment in block.segments) for block in blocks]
    first = _count_within(sizes, MAX_BLOCKS // 2 + 1)
    last = min(_count_within(sizes[::-1], MAX_BLOCKS // 2 + 1), len(blocks) - first)
    if hidden := len(blocks) - first - last:
        gap = gap_block(f"{hidden:,} parts with {sum(sizes[first : first + hidden]):,} characters")
        blocks = [*blocks[:first], gap, *blocks[len(blocks) - last :]]
    return Lane(name=name, title=title, summary=summary, blocks=tuple(blocks))


def gap_block(what: str) -> LaneBlock:
    """Returns a block in the place of others that are left out; `what` describes them."""
    return LaneBlock(title="…", segments=(Segment(text="…", kind="plain", notes=(left_out(what),)),))


def _count_within(sizes: Sequence[int], most: int) -> int:
    """Returns how many of at most so many blocks of these sizes take half of a lane."""
    total = 0
    for count, size in enumerate(sizes[:most]):
        total += size
        if total > MAX_LANE_CHARS // 2:
            return count
    return min(len(sizes), most)
