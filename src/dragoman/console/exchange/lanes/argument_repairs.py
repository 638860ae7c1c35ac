"""The arguments of a call as the model wrote them, with what the repair of their JSON changed."""

import difflib
from collections.abc import Iterator, Sequence
from typing import Final

from dragoman.console.exchange.views import ExchangeNote, Segment, segments

_MAX_CHARS: Final = 4_000
"""Longer differences are shown as one."""


def argument_segments(raw: str, arguments: str, link: str, notes: Sequence[ExchangeNote]) -> tuple[Segment, ...]:
    """Returns the text of arguments, of which the parts that became something else have the kind `repair`.

    Args:
        raw: The text as the model wrote it.
        arguments: The JSON that was read from it; "" if there is none.
        link: The link of the call.
        notes: The notes about the call, which the first segment gets.
    """
    if not arguments or raw == arguments or raw.strip() == arguments or not _is_json_like(raw):
        return segments(raw, "arguments", link, notes)
    made = list(_pieces(raw, arguments, link))
    first = made[0]
    return (*segments(first.text, first.kind, link, (*notes, *first.notes)), *made[1:])


def _is_json_like(raw: str) -> bool:
    """Whether the arguments are an object; those of other notations differ from JSON everywhere."""
    return raw.strip()[:1] in ("{", "[", '"', "`")


def _pieces(raw: str, arguments: str, link: str) -> Iterator[Segment]:
    start = _common(raw, arguments)
    end = _common(raw[start:][::-1], arguments[start:][::-1])
    stop, other = len(raw) - end, len(arguments) - end
    yield from segments(raw[:start], "arguments", link)
    yield from _changed(raw[start:stop], arguments[start:other], link)
    yield from segments(raw[stop:], "arguments", link)


def _changed(old: str, new: str, link: str) -> Iterator[Segment]:
    if max(len(old), len(new)) > _MAX_CHARS:
        yield from _repair(old, new, link)
        return
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from segments(old[a:b], "arguments", link)
        else:
            yield from _repair(old[a:b], new[c:d], link)


def _repair(old: str, new: str, link: str) -> tuple[Segment, ...]:
    what = f"read as {new[:200]!r}" if old and new else f"added {new[:200]!r}" if new else "dropped"
    note = ExchangeNote(code="json_repaired", message=what, rule="repair of a call's JSON")
    return segments(old, "repair", link, [note])


def _common(one: str, other: str) -> int:
    """Returns the length of the common beginning."""
    size = min(len(one), len(other))
    return next((at for at in range(size) if one[at] != other[at]), size)
