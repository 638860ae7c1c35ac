"""Events that a client has are dropped from a repeated response."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.events import (
    AnyEvent,
    Finish,
    Notice,
    ReasoningDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.messages import Usage
from dragoman.ray_serve.repeated_events import DivergedError, ReceivedEvents

RESPONSE = [
    ReasoningDelta("hm, the weather"),
    TextDelta("I look it up."),
    ToolCallStart(0, "id", "weather"),
    ToolCallDelta(0, '{"city": "Bern"}'),
    ToolCallEnd(0),
    ToolCallStart(1, "id", "time"),
    ToolCallDelta(1, "{}"),
    ToolCallEnd(1),
    UsageUpdate(Usage(10, 20)),
    Finish("tool_calls"),
]


def pieces(cuts: list[int], id: str) -> list[AnyEvent]:
    """The response with its text in pieces of these lengths."""
    events: list[AnyEvent] = [Start(id, "model", 0), Notice("trimmed", "a")]
    sizes = iter(cuts * 100)
    for event in RESPONSE:
        if isinstance(event, TextDelta | ReasoningDelta):
            rest = event.text
            while rest:
                size = next(sizes)
                events.append(type(event)(rest[:size]))
                rest = rest[size:]
        elif isinstance(event, ToolCallDelta):
            rest = event.text
            while rest:
                size = next(sizes)
                events.append(ToolCallDelta(event.index, rest[:size]))
                rest = rest[size:]
        else:
            events.append(ToolCallStart(event.index, id, event.name) if isinstance(event, ToolCallStart) else event)
    return events


def joined(events: list[AnyEvent]) -> list[tuple[str, int, str]]:
    """The events as text, without ids, and without what is not compared."""
    out: list[tuple[str, int, str]] = []
    for event in events:
        if isinstance(event, Notice | UsageUpdate):
            continue
        kind, index, text = type(event).__name__, getattr(event, "index", 0), getattr(event, "text", "")
        if text and out and out[-1][:2] == (kind, index):
            text = out.pop()[2] + text
        out.append((kind, index, text))
    return out


sizes = st.lists(st.integers(1, 9), min_size=1, max_size=5)


@given(sizes, sizes, st.integers(0, 100))
def test_client_gets_each_event_once(first: list[int], second: list[int], received: int) -> None:
    begun, repeated = pieces(first, "one")[:received], pieces(second, "two")
    known = ReceivedEvents()
    for event in begun:
        known.add([event])
    skipper = known.skipper()
    new = [each for event in repeated for each in skipper.new([event])]
    assert joined([*begun, *new]) == joined(repeated)


def test_other_events_are_an_error() -> None:
    known = ReceivedEvents()
    known.add([Start("one", "model", 0), TextDelta("a"), ToolCallStart(0, "id", "weather")])
    with pytest.raises(DivergedError):
        known.skipper().new([Start("two", "model", 0), TextDelta("abc")])
    with pytest.raises(DivergedError):
        known.skipper().new([Start("two", "model", 0), TextDelta("a"), Finish("stop")])
