"""Two captures of one exchange, stage by stage: the same, or how they differ.

What time and chance of the wire make of an answer is no difference: milliseconds, pings and comments of a stream, and
where its pieces were cut, as far as the same came of them.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from dragoman import dialects
from dragoman.server.capture.files import piece_of
from dragoman.server.capture.load import Captured
from dragoman.server.capture.replay_backend import KINDS

LINES: Final = 12
"""Of a difference, as many are shown."""
_JOINED: Final = ("TextDelta", "ReasoningDelta", "RefusalDelta", "ToolCallDelta")
_COMMENT: Final = re.compile(r"^:[^\n]*\n\n", re.MULTILINE)
_VARYING: Final = ("x-dragoman-warnings", "content-length", "server-timing")
"""Headers that say what was known when the first byte left, which another cut changes, and times."""


class Stage(NamedTuple):
    """One, in both captures."""

    name: str
    difference: tuple[str, ...]
    """Lines of it; none where both are the same."""


def compare(was: Captured, now: Captured, *, recut: bool = False) -> Iterator[Stage]:
    """All stages, in the order of the line. `recut`: the model's words came in other pieces the second time."""
    yield Stage("values", _documents(was, now, "values.json"))
    for number in range(1, max(was.asked, now.asked) + 1):
        yield Stage(f"asked {number}", _documents(was, now, f"{number}/values.json"))
        is_known = was.json(f"{number}/backend.json").get("kind") in KINDS  # of others only the events are replayed
        for count in range(1, max(was.heard(number), now.heard(number)) + 1 if is_known else 1):
            label = f"sent {number}" if count == 1 else f"sent {number}, {count}"
            yield Stage(label, _sent(was, now, number, count))
        yield Stage(f"events {number}", _events(was, now, f"{number}/events.jsonl", recut))
    if "events.jsonl" in was.files or "events.jsonl" in now.files:
        yield Stage("events", _events(was, now, "events.jsonl", recut))
    if was.json("summary.json").get("log", {}).get("status") != 499:  # which had what was written until it left
        yield Stage("reply", _replies(was, now, recut))


def _sent(was: Captured, now: Captured, number: int, count: int) -> tuple[str, ...]:
    prompt = f"{number}/prompt-{count}.txt"
    words = difference(_text(was, prompt), _text(now, prompt))
    return words or _documents(was, now, f"{number}/sent-{count}.json")


def _documents(was: Captured, now: Captured, name: str) -> tuple[str, ...]:
    return difference(_pretty(was, name), _pretty(now, name))


def _pretty(of: Captured, name: str) -> list[str]:
    text = "\n".join(_text(of, name))
    try:
        return json.dumps(json.loads(text), indent=1, ensure_ascii=False).splitlines() if text else []
    except ValueError:
        return text.splitlines()


def _text(of: Captured, name: str) -> list[str]:
    return of.files.get(name, b"").decode("utf-8", "replace").splitlines()


def _events(was: Captured, now: Captured, name: str, recut: bool) -> tuple[str, ...]:
    one, other = ([json.dumps(e, ensure_ascii=False) for e in joined(c.lines(name), recut)] for c in (was, now))
    return difference(one, other)


def joined(events: Sequence[Mapping[str, Any]], recut: bool = False) -> list[dict[str, Any]]:
    """Events without their times, texts that follow one another as one; `recut`: without what cuts may change."""
    bare = [{k: v for k, v in event.items() if k != "ms"} for event in events]
    kept = [event for event in bare if not (recut and event["event"] == "UsageUpdate")]
    out: list[dict[str, Any]] = []
    for (kind, *_), run in groupby(kept, key=lambda e: (e["event"], e.get("index"), e.get("signature"))):
        same = list(run)
        if kind in _JOINED:
            out.append({**same[0], "text": "".join(e.get("text", "") for e in same)})
        else:
            out += same
    return out


def _replies(was: Captured, now: Captured, recut: bool) -> tuple[str, ...]:
    one, other = (reply(c) for c in (was, now))
    if recut:  # what the bytes say has been compared, as events
        one, other = one[:1], other[:1]
    return difference(one, other)


def reply(of: Captured) -> list[str]:
    """The status, and the bytes that a client gets, as lines; without what keeps a silent stream open."""
    lines = of.lines("reply.jsonl")
    heads = [line for line in lines if "status" in line]
    text = b"".join(piece_of(line) for line in lines if "status" not in line).decode("utf-8", "replace")
    pings = {dialects.get(name).ping.decode() for name in dialects.names()}
    for ping in pings:
        text = text.replace(ping, "")
    told = [f"{head['status']} { ({k: v for k, v in head['headers'].items() if k not in _VARYING}) }" for head in heads]
    return [*told, *_COMMENT.sub("", text).splitlines()]


def difference(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    """Lines that only one of them has, `-` then and `+` now; the first of them where there are many."""
    if list(one) == list(other):
        return ()
    lines = [line for line in difflib.unified_diff(one, other, n=0, lineterm="") if line[:2] not in ("--", "++", "@@")]
    lines = [line for line in lines if not line.startswith("@@")]
    more = [f"… {len(lines) - LINES} lines more"] if len(lines) > LINES else []
    return (*lines[:LINES], *more)
