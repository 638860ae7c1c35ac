"""Compares two captures of one exchange, stage by stage.

Differences that depend on time or on the network are ignored: milliseconds, pings and comments of a stream, and the
boundaries of its chunks if the same events result.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, Final, NamedTuple

from dragoman import dialects
from dragoman.server.capture.files import chunk_from_json
from dragoman.server.capture.load import LoadedCapture
from dragoman.server.capture.replay_backend import KINDS
from dragoman.wire.response_headers import REQUEST_ID, attempt_headers

_JOINED: Final = ("TextDelta", "ReasoningDelta", "RefusalDelta", "ToolCallDelta")
_COMMENT: Final = re.compile(r"^:[^\n]*\n\n", re.MULTILINE)
_VARYING_HEADERS: Final = frozenset(
    {"x-dragoman-warnings", "content-length", "server-timing", REQUEST_ID, *attempt_headers("", "", 0)}
)
"""Headers with times, what was known when the first byte was sent, which other chunks change, and who answered."""


class StageDiff(NamedTuple):
    """One stage in both captures."""

    name: str
    difference: tuple[str, ...]
    """The lines of the difference; empty if both are the same."""


def compare(captured: LoadedCapture, replayed: LoadedCapture, *, rechunked: bool = False) -> Iterator[StageDiff]:
    """Yields all stages, in their order.

    Args:
        captured: the original capture.
        replayed: the capture of the replay.
        rechunked: whether the replay had the model's text in other chunks.
    """
    yield StageDiff("values", _documents(captured, replayed, "values.json"))
    for number in range(1, max(captured.backend_call_count, replayed.backend_call_count) + 1):
        yield StageDiff(f"request {number}", _documents(captured, replayed, f"{number}/values.json"))
        is_known = captured.json(f"{number}/backend.json").get("kind") in KINDS  # of others only events are replayed
        for count in range(1, max(captured.output_count(number), replayed.output_count(number)) + 1 if is_known else 1):
            label = f"sent {number}" if count == 1 else f"sent {number}, {count}"
            yield StageDiff(label, _sent(captured, replayed, number, count))
        yield StageDiff(f"events {number}", _events(captured, replayed, f"{number}/events.jsonl", rechunked))
    if "events.jsonl" in captured.files or "events.jsonl" in replayed.files:
        yield StageDiff("events", _events(captured, replayed, "events.jsonl", rechunked))
    if captured.json("summary.json").get("log", {}).get("status") != 499:  # the client left before the end
        yield StageDiff("reply", _replies(captured, replayed, rechunked))


def _sent(captured: LoadedCapture, replayed: LoadedCapture, number: int, count: int) -> tuple[str, ...]:
    prompt = f"{number}/prompt-{count}.txt"
    difference_text = difference(_text(captured, prompt), _text(replayed, prompt))
    return difference_text or _documents(captured, replayed, f"{number}/sent-{count}.json")


def _documents(captured: LoadedCapture, replayed: LoadedCapture, name: str) -> tuple[str, ...]:
    return difference(_pretty(captured, name), _pretty(replayed, name))


def _pretty(capture: LoadedCapture, name: str) -> list[str]:
    text = "\n".join(_text(capture, name))
    try:
        return json.dumps(json.loads(text), indent=1, ensure_ascii=False).splitlines() if text else []
    except ValueError:
        return text.splitlines()


def _text(capture: LoadedCapture, name: str) -> list[str]:
    return capture.files.get(name, b"").decode("utf-8", "replace").splitlines()


def _events(captured: LoadedCapture, replayed: LoadedCapture, name: str, rechunked: bool) -> tuple[str, ...]:
    one, other = (
        [json.dumps(e, ensure_ascii=False) for e in join_events(c.lines(name), rechunked)] for c in (captured, replayed)
    )
    return difference(one, other)


def join_events(events: Sequence[Mapping[str, Any]], rechunked: bool = False) -> list[dict[str, Any]]:
    """Returns the events without times, with adjacent texts joined.

    Args:
        events: the events as captured.
        rechunked: whether to drop what depends on the chunks.
    """
    bare = [{k: v for k, v in event.items() if k != "ms"} for event in events]
    comparable = [event for event in bare if not (rechunked and event["event"] == "UsageUpdate")]
    out: list[dict[str, Any]] = []
    for (kind, *_), run in groupby(comparable, key=lambda e: (e["event"], e.get("index"), e.get("signature"))):
        run_events = list(run)
        if kind in _JOINED:
            out.append({**run_events[0], "text": "".join(e.get("text", "") for e in run_events)})
        else:
            out += run_events
    return out


def _replies(captured: LoadedCapture, replayed: LoadedCapture, rechunked: bool) -> tuple[str, ...]:
    one, other = (reply_lines(c) for c in (captured, replayed))
    if rechunked:  # the content of the bytes has been compared, as events
        one, other = one[:1], other[:1]
    return difference(one, other)


def reply_lines(capture: LoadedCapture) -> list[str]:
    """Returns the status and the bytes of the response as lines, without keep-alive data."""
    lines = capture.lines("reply.jsonl")
    heads = [line for line in lines if "status" in line]
    text = b"".join(chunk_from_json(line) for line in lines if "status" not in line).decode("utf-8", "replace")
    pings = {dialects.get(name).ping.decode() for name in dialects.names()}
    for ping in pings:
        text = text.replace(ping, "")
    reply = [
        f"{head['status']} { ({k: v for k, v in head['headers'].items() if k not in _VARYING_HEADERS}) }"
        for head in heads
    ]
    return [*reply, *_COMMENT.sub("", text).splitlines()]


def difference(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    """Returns the lines that only one of the two has, with `-` for the first and `+` for the second."""
    file_names = 2  # lines at the beginning of a diff
    lines = islice(difflib.unified_diff(one, other, n=0, lineterm=""), file_names, None)
    return tuple(line for line in lines if not line.startswith("@@"))
