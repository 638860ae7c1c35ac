"""The arguments of a call as the model wrote them, with what the repair of their JSON changed."""

from collections.abc import Iterator, Sequence
from typing import Final

from dragoman.console.exchange.views import ExchangeNote, Segment, segments

_MAX_CHARS: Final = 4_000
"""Longer differences are shown as one."""
_WINDOW: Final = 24
"""Characters of both texts in which the end of a difference is searched."""
_EQUAL_CHARS: Final = 2
"""Characters that must be equal after a difference, unless it is a single character."""


def argument_segments(raw: str, arguments: str, link: str, notes: Sequence[ExchangeNote]) -> tuple[Segment, ...]:
    """Returns the text of arguments, of which the parts that became something else have the kind `repair`.

    Args:
        raw: The text as the model wrote it.
        arguments: The JSON that was read from it; "": it could not be read.
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
    """Yields what is equal and what differs, in time linear in the texts: each repair is searched in a window.

    A repair is local: quotes, commas, brackets, names of constants. Texts without anything in common within a window
    differ to their end.
    """
    if max(len(old), len(new)) > _MAX_CHARS:
        yield from _repair(old, new, link)
        return
    a = b = 0
    while a < len(old) or b < len(new):
        size = _common(old[a:], new[b:]) if old[a : a + 1] == new[b : b + 1] else 0
        yield from segments(old[a : a + size], "arguments", link)
        a, b = a + size, b + size
        skipped, made = _next_equal(old[a : a + _WINDOW], new[b : b + _WINDOW]) or (len(old) - a, len(new) - b)
        if skipped or made:
            yield from _repair(old[a : a + skipped], new[b : b + made], link)
        a, b = a + skipped, b + made


def _next_equal(old: str, new: str) -> tuple[int, int] | None:
    """Returns how many characters of each text to skip so that the rest begins alike; None: no such place."""
    if old[1:2] and old[1:2] == new[1:2]:  # one character instead of another one
        return 1, 1
    for skipped in range(1, len(old) + len(new)):
        for a in range(max(0, skipped - len(new)), min(skipped, len(old)) + 1):
            both = old[a : a + _EQUAL_CHARS]
            if both and both == new[skipped - a : skipped - a + _EQUAL_CHARS]:
                return a, skipped - a
    return None


def _repair(old: str, new: str, link: str) -> tuple[Segment, ...]:
    what = f"read as {new[:200]!r}" if old and new else f"added {new[:200]!r}" if new else "dropped"
    note = ExchangeNote(code="json_repaired", message=what, rule="repair of a call's JSON")
    return segments(old, "repair", link, [note])


def _common(one: str, other: str) -> int:
    """Returns the length of the common beginning."""
    size = min(len(one), len(other))
    return next((at for at in range(size) if one[at] != other[at]), size)
