"""Compares a request with the previous one of the same conversation: what was added, and what breaks prompt caches.

Prompt caches keep the beginning of a prompt: a request that is the previous one plus an addition at the end reads all
of that from the cache. Anything else loses everything after the first difference.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from msgspec.structs import replace

from dragoman.console.exchange.lanes.request_parts import BodyPart, ParsedRequest
from dragoman.console.exchange.views import MAX_BLOCKS, Change, ExchangeNote, LaneBlock, Segment, clean, gap_block

_AROUND_CHARS: Final = 24
_MAX_NAMES: Final = 5
_LOSS: Final = "prompt caches lose everything after that"
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d|\d{1,2}:\d\d|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b"
    r"|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.? \d|\b\d{1,2}/\d{1,2}/\d{2,4}\b"
)
_ID: Final = re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{9,}|\b(?=[a-z_-]*\d)[0-9a-f]{8,}\b|\b\w+_[A-Za-z0-9]{12,}\b")
_WORD: Final = re.compile(r"[\w:./-]*\Z")


class RequestDiff(NamedTuple):
    """A request compared with the previous one."""

    blocks: tuple[LaneBlock, ...]
    """All parts of the request, and those that were removed, with what became of them."""
    cache_note: str
    """What broke the prompt cache, in words; empty: nothing."""


class _Pair(NamedTuple):
    change: Change
    old: BodyPart | None
    new: BodyPart | None


def request_blocks(parsed: ParsedRequest, previous: ParsedRequest | None = None) -> RequestDiff:
    """Returns the blocks of a request.

    Args:
        parsed: The request.
        previous: The previous request of the conversation; None: it is not known.
    """
    if previous is None:
        return RequestDiff(tuple(_blocks([_Pair("", None, part) for part in parsed.all])), "")
    pairs = [
        *_by_key(previous.settings, parsed.settings),
        *_by_key(previous.tools, parsed.tools),
        *_by_position(previous.system, parsed.system),
        *_aligned(previous.messages, parsed.messages),
    ]
    return RequestDiff(tuple(_blocks(pairs)), _cache_note(pairs, previous, parsed))


def _blocks(pairs: Sequence[_Pair]) -> Iterator[LaneBlock]:
    """Yields the blocks of the parts; of too many, those in the middle are left out, so that they cost nothing."""
    hidden = max(0, len(pairs) - MAX_BLOCKS)
    first = MAX_BLOCKS // 2
    yield from map(_compared, pairs[:first])
    if hidden:
        yield gap_block(f"{hidden:,} parts")
    yield from map(_compared, pairs[first + hidden :])


def common_messages(one: ParsedRequest, other: ParsedRequest) -> int:
    """Returns the number of messages at the beginning that both requests have."""
    pairs = zip(one.messages, other.messages, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].canonical == pair[1].canonical, pairs))


def _block(part: BodyPart, change: Change = "", notes: Sequence[ExchangeNote] = ()) -> LaneBlock:
    parts = part.segments
    if notes:
        first = parts[0] if parts else Segment(text="", kind="text")
        parts = (replace(first, notes=(*first.notes, *notes)), *parts[1:])
    link = part.key if part.kind in ("tool", "message") else part.kind
    return LaneBlock(title=part.title, segments=parts, link=link, change=change)


def _compared(pair: _Pair) -> LaneBlock:
    if pair.new is None:
        assert pair.old is not None
        return replace(_block(pair.old, "removed"), link="")
    if pair.change != "changed" or pair.old is None:
        return _block(pair.new, pair.change)
    note = ExchangeNote(code="changed", message=f"changed {first_difference(pair.old.text, pair.new.text)}")
    return _block(pair.new, "changed", [note])


def _by_key(old: Sequence[BodyPart], new: Sequence[BodyPart]) -> Iterator[_Pair]:
    """Pairs the parts of the same name."""
    known = {part.key: part for part in old}
    for part in new:
        before = known.pop(part.key, None)
        yield _Pair("added" if before is None else _change(before, part), before, part)
    for part in known.values():
        yield _Pair("removed", part, None)


def _by_position(old: Sequence[BodyPart], new: Sequence[BodyPart]) -> Iterator[_Pair]:
    for before, after in zip(old, new, strict=False):
        yield _Pair(_change(before, after), before, after)
    yield from (_Pair("added", None, part) for part in new[len(old) :])
    yield from (_Pair("removed", part, None) for part in old[len(new) :])


def _change(old: BodyPart, new: BodyPart) -> Change:
    return "same" if old.canonical == new.canonical else "changed"


def _aligned(old: Sequence[BodyPart], new: Sequence[BodyPart]) -> Iterator[_Pair]:
    """Pairs the messages: the same ones first, of the others those at the same place."""
    one, other = [part.canonical for part in old], [part.canonical for part in new]
    if one == other[: len(one)]:  # the most frequent case: only additions
        yield from _by_position(old, new)
        return
    first = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    yield from _by_position(old[:first], new[:first])
    a = b = first
    for c, d in _matches(one[first:], other[first:]):
        yield from _by_position(old[a : first + c], new[b : first + d])
        yield _Pair("same", old[first + c], new[first + d])
        a, b = first + c + 1, first + d + 1
    yield from _by_position(old[a:], new[b:])


def _matches(old: Sequence[bytes], new: Sequence[bytes]) -> list[tuple[int, int]]:
    """Returns the positions of equal messages, in order: the longest sequence, in n log n steps.

    Of messages with the same content, the first of one request belongs to the first of the other one, and so on.
    """
    places = {key: n for n, key in enumerate(_counted(old))}
    ends: list[int] = []
    last: list[tuple[int, int]] = []
    """For each length the pair with the lowest position at which a sequence of that length ends."""
    before: dict[tuple[int, int], tuple[int, int] | None] = {}
    for n, key in enumerate(_counted(new)):
        if (place := places.get(key)) is None:
            continue
        length = bisect_left(ends, place)
        before[place, n] = last[length - 1] if length else None
        ends[length : length + 1], last[length : length + 1] = [place], [(place, n)]
    found = []
    pair = last[-1] if last else None
    while pair is not None:
        found.append(pair)
        pair = before[pair]
    return found[::-1]


def _counted(contents: Sequence[bytes]) -> Iterator[tuple[bytes, int]]:
    """Yields each content with the number of the same ones before it."""
    counts: Counter[bytes] = Counter()
    for content in contents:
        yield content, counts[content]
        counts[content] += 1


def _cache_note(pairs: Sequence[_Pair], previous: ParsedRequest, parsed: ParsedRequest) -> str:
    """Returns what comes first of all that is not an addition at the end."""
    if note := _model_note(previous, parsed) or _tools_note(previous.tools, parsed.tools):
        return f"{note}: {_LOSS}"
    rest = [pair for pair in pairs if (pair.new or pair.old).kind not in ("settings", "tool", "tools")]  # type: ignore[union-attr]
    is_continued = [pair.change for pair in rest]
    remaining = list(takewhile("same".__eq__, is_continued))
    if all(change == "added" for change in is_continued[len(remaining) :]):
        return ""
    return f"{_pair_note(rest[len(remaining)])}: {_LOSS}"


def _model_note(previous: ParsedRequest, parsed: ParsedRequest) -> str:
    old, new = (
        next((each.value.get("model") for each in one.settings if each.key == "settings"), "")
        for one in (previous, parsed)
    )
    return "" if old == new else f"the model changed from {old} to {new}, and each model has a cache of its own"


def _tools_note(old: Sequence[BodyPart], new: Sequence[BodyPart]) -> str:
    before, after = ({part.key: part for part in parts} for parts in (old, new))
    added = [_name(key) for key in after if key not in before]
    removed = [_name(key) for key in before if key not in after]
    if added or removed:
        happened = [f"{_listed(added)} added"] * bool(added) + [f"{_listed(removed)} removed"] * bool(removed)
        return f"the tools changed: {', '.join(happened)}"
    for part in new:
        if part.canonical != before[part.key].canonical:
            difference = first_difference(before[part.key].text, part.text)
            return f"the tools changed: the definition of {_name(part.key)} differs {difference}"
    if list(before) != list(after):
        moved = next(_name(b) for a, b in zip(before, after, strict=True) if a != b)
        return f"the tools changed their order: {moved} is at another place"
    return ""


def _name(key: str) -> str:
    return key.partition(":")[2] or key


def _listed(names: Sequence[str]) -> str:
    more = [f"{len(names) - _MAX_NAMES} more"] * (len(names) > _MAX_NAMES)
    parts = [*names[:_MAX_NAMES], *more]
    return f"{', '.join(parts)} {'was' if len(parts) == 1 else 'were'}"


def _pair_note(pair: _Pair) -> str:
    part = pair.new or pair.old
    assert part is not None
    what = "the system prompt" if part.is_system else f"message {part.title}"
    if pair.old is not None and pair.new is not None:
        return f"{what} changed {first_difference(pair.old.text, pair.new.text)}"
    return f"{what} was {'removed' if pair.new is None else 'inserted before others'}"


def first_difference(old: str, new: str) -> str:
    """Returns where two texts differ first, and what is there: `at character 812: a date (…)`."""
    if old == new:
        return "in a part that is not parts here"
    at = _common_prefix(old, new)
    start = at - len(_WORD.search(new[max(0, at - _AROUND_CHARS) : at])[0])  # type: ignore[index]
    before, after = _excerpt(old, start), _excerpt(new, start)
    kind = next(
        (name for name, what in (("a date or time", _TIME), ("an id", _ID)) if _is_both(what, before, after)), ""
    )
    described = f"{kind}, " if kind else ""
    return f"at character {at:,}: {described}{before!r} became {after!r}"


def _is_both(what: re.Pattern[str], before: str, after: str) -> bool:
    return bool(what.search(before) and what.search(after))


def _excerpt(text: str, start: int) -> str:
    more = "…" * (start + _AROUND_CHARS < len(text))
    return clean(text[start : start + _AROUND_CHARS]) + more


def _common_prefix(one: str, other: str) -> int:
    """Returns the length of the common beginning, by halving, as comparing slices is fast."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
