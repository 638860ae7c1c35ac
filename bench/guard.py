"""CPU time that the guard adds to a valid call, to a repaired call, and to text without calls.

The reference is `json.loads` of the same arguments, or the same events without a guard.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from bench.figures import Figure
from bench.samples import arguments, deltas, prose
from bench.timing import Timing, compare
from dragoman import dialects
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from dragoman.core.messages import Message, Request, Text, Tool, ToolCall, ToolResult
from dragoman.guard.arguments import Arguments
from dragoman.guard.guard import ToolCallGuard
from dragoman.guard.policy import GuardPolicy
from dragoman.guard.validation.compiled_schema import CompiledSchema, compile_schema

SIZE: Final = 2000
STEP: Final = 4
GOAL_US: Final = 50.0
"""For a valid call of 2 KB."""

_TEXT: Final = {"type": "string", "minLength": 1}
FILE: Final = {"type": "object", "properties": {"path": _TEXT, "content": _TEXT}, "required": ["path", "content"]}
ROWS: Final = {
    "type": "object",
    "properties": {
        "rows": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"n": {"type": "integer", "minimum": 0}, "text": _TEXT, "done": {"type": "boolean"}},
                "required": ["n", "text"],
                "additionalProperties": False,
            },
        }
    },
}
TRIP: Final = {
    "type": "object",
    "$defs": {
        "place": {
            "type": "object",
            "properties": {
                "name": {"anyOf": [{"type": "null"}, _TEXT]},
                "code": {"type": "string", "pattern": "^[A-Z]{3}$"},
                "kind": {"enum": ["city", "country", "airport"]},
                "from": {"type": "string", "format": "date-time"},
                "near": {"type": "array", "items": {"$ref": "#/$defs/place"}},
            },
            "required": ["name"],
            "additionalProperties": False,
        }
    },
    "properties": {"stops": {"type": "array", "items": {"$ref": "#/$defs/place"}}},
}
_STOP: Final = {"name": "Bern", "code": "BRN", "kind": "city", "from": "2026-11-22T09:30:00Z"}
CALLS: Final[dict[str, tuple[Any, str]]] = {
    "a text": (FILE, arguments(SIZE - 150)),
    "40 objects": (ROWS, json.dumps({"rows": [{"n": i, "text": "some words", "done": i % 2 == 0} for i in range(40)]})),
    "a recursive schema": (TRIP, json.dumps({"stops": [{**_STOP, "near": [_STOP]}] * 10})),
}


def measure(quick: bool) -> Iterator[Figure]:
    """Yields figures of the check alone, of the guard around a call, and of text."""
    rounds, calls = (2, 2) if quick else (15, 200)
    for name, (schema, text) in CALLS.items():
        compiled = compile_schema(json.dumps(schema))
        timing = compare(partial(_check, compiled, text), partial(json.loads, text), rounds, calls=calls)
        yield _figure(f"check of a valid call, {len(text) / 1000:.1f} KB: {name}", timing, goal=GOAL_US)
    for name, (schema, text) in CALLS.items():
        yield _valid_call(name, schema, text, rounds, calls)
        yield _guarded_writing(name, schema, text, rounds, calls)
    yield _call_after_results(rounds, max(1, calls // 10))
    yield _repair(rounds, calls)
    yield _text_delta(rounds, 10 if quick else 2000)
    text = json.dumps(TRIP)
    timing = compare(partial(CompiledSchema, text), partial(json.loads, text), rounds, calls=max(1, calls // 10))
    yield _figure(f"schema of {len(text) / 1000:.1f} KB made ready, once", timing)


def _check(schema: CompiledSchema, text: str) -> bool | None:
    return Arguments(text).valid(schema)


def _valid_call(name: str, schema: Any, text: str, rounds: int, calls: int) -> Figure:
    request, events = _request(schema), _events([text])
    timing = compare(partial(guard_events, request, events), partial(json.loads, text), rounds, calls=calls)
    return _figure(f"guard around a valid call: {name}", timing, goal=GOAL_US)


def _call_after_results(rounds: int, calls: int) -> Figure:
    """A call after 40 others, with results of 5 KB each: the guard searches them for the origin of its values."""
    read = [ToolCall(f"c{n}", "tool", json.dumps({"path": f"src/part_{n}.py"})) for n in range(40)]
    line = 'src/part_{n}.py:{line_number}: the tool has a path, and returns tool(path, "r") or {{}}\n'
    results = ["".join(line.format(n=n, line_number=line_number) for line_number in range(70)) for n in range(40)]
    pairs = zip(read, results, strict=True)
    turns = (
        (Message("assistant", (call,)), Message("tool", (ToolResult(call.id, (Text(text),)),))) for call, text in pairs
    )
    messages = (Message("user", (Text("Read them."),)), *(message for turn in turns for message in turn))
    text = json.dumps({"path": "src/other/values.py", "content": "x"})
    request, events = Request("m", messages, _request(FILE).tools, stream=True), _events([text])
    timing = compare(partial(guard_events, request, events), partial(json.loads, text), rounds, calls=calls)
    chars = sum(map(len, results))
    return _figure(f"guard around a valid call after {chars // 1000} KB of results", timing, goal=1000)


def _guarded_writing(name: str, schema: Any, text: str, rounds: int, calls: int) -> Figure:
    """A call in small deltas, which the guard buffers: writing it at once is cheaper than without a guard."""
    request, events = _request(schema), _events(deltas(text, STEP))
    guard = partial(_write_events, request, partial(guard_events, request, events))
    timing = compare(guard, partial(_write_events, request, lambda: events), rounds, calls=max(1, calls // 10))
    value, best = timing.median / 1000, timing.best / 1000
    name = f"call in pieces of {STEP}, guarded and written: {name}"
    return Figure(name, value, "µs", best, timing.ratio, "written only", value / timing.ratio + GOAL_US)


def _repair(rounds: int, calls: int) -> Figure:
    text = json.dumps({"rows": [{"n": str(i), "text": "some words"} for i in range(4)]})
    events = _events([text])
    timing = compare(partial(guard_events, _request(ROWS), events), partial(json.loads, text), rounds, calls=calls)
    return _figure("guard around a call of 4 objects with 4 errors, repaired", timing)


def _text_delta(rounds: int, count: int) -> Figure:
    events = [TextDelta(piece) for piece in deltas(prose(count * STEP), STEP)]
    timing = compare(partial(guard_events, _request(FILE), events), partial(_copy_events, events), rounds)
    value, best = timing.median / len(events) / 1000, timing.best / len(events) / 1000
    return Figure(f"delta of {STEP} characters of text", value, "µs/delta", best, timing.ratio, "same events, copied")


def guard_events(request: Request, events: Sequence[AnyEvent]) -> list[AnyEvent]:
    """Returns the events after the guard."""
    guard = ToolCallGuard(request, GuardPolicy())
    return [*(each for event in events for each in guard.feed([event])), *guard.close()]


def _copy_events(events: Sequence[AnyEvent]) -> list[AnyEvent]:
    return [event for event in events]


def _write_events(request: Request, read_events: Callable[[], Sequence[AnyEvent]]) -> bytes:
    return b"".join(map(dialects.get("openai_chat").writer(request).feed, read_events()))


def _request(schema: Any) -> Request:
    return Request("m", (), (Tool("tool", parameters=json.dumps(schema)),), stream=True)


def _events(pieces: Sequence[str]) -> list[AnyEvent]:
    call: list[AnyEvent] = [ToolCallDelta(0, piece) for piece in pieces]
    return [Start("1", "m", 7), ToolCallStart(0, "1", "tool"), *call, ToolCallEnd(0), Finish("tool_calls")]


def _figure(name: str, timing: Timing, goal: float | None = None) -> Figure:
    return Figure(name, timing.median / 1000, "µs", timing.best / 1000, timing.ratio, "json.loads", goal)
