"""`EventOrder` accepts the grammar of events.py and nothing else."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core import events as ev
from dragoman.core.errors import BackendUnavailableError
from dragoman.core.events import Block, BlockChange, EventOrder, EventOrderError
from dragoman.core.messages import Usage

# One letter per event, so the grammar is a regular expression, written here independently of events.py.
LETTERS: dict[str, ev.AnyEvent] = {
    "S": ev.Start("1", "m", 0),
    "r": ev.ReasoningDelta("x"),
    "t": ev.TextDelta("x"),
    "f": ev.RefusalDelta("x"),
    "w": ev.Notice("code", "message"),
    "u": ev.UsageUpdate(Usage()),
    "c": ev.ToolCallStart(0, "id", "name"),
    "d": ev.ToolCallDelta(0, "{"),
    "e": ev.ToolCallEnd(0),
    "i": ev.ToolCallIncomplete(0, "{"),
    "b": ev.VendorBlockStart("d", "search", "{}"),
    "v": ev.VendorBlock("d", "search", "{}"),
    "F": ev.Finish("stop"),
    "X": ev.Failure(BackendUnavailableError("died")),
}
CALL = "c[dwu]*"
PART = "(?:b[wu]*)"
LEGAL = re.compile(rf"X|S([rtfwu]|{PART}?v|{CALL}[ei])*(F|X|{CALL}X|{PART}X)")
PREFIX = re.compile(rf"X?|S([rtfwu]|{PART}?v|{CALL}[ei])*(F|X|(?:{CALL}|{PART})X?)?")


def numbered(word: str) -> list[ev.AnyEvent]:
    """Returns the events of a word, with calls numbered in order."""
    calls, events = -1, []
    for letter in word:
        calls += letter == "c"
        event = LETTERS[letter]
        match event:
            case ev.ToolCallStart(_, id, name):
                event = ev.ToolCallStart(calls, id, name)
            case ev.ToolCallDelta(_, text):
                event = ev.ToolCallDelta(calls, text)
            case ev.ToolCallEnd():
                event = ev.ToolCallEnd(calls)
            case ev.ToolCallIncomplete(_, raw):
                event = ev.ToolCallIncomplete(calls, raw)
        events.append(event)
    return events


def accepted(word: str) -> int:
    """Returns the number of events that are accepted before the first rejected one."""
    order = EventOrder()
    for count, event in enumerate(numbered(word)):
        try:
            order.feed(event)
        except EventOrderError:
            return count
    return len(word)


WORDS = st.text(alphabet="".join(LETTERS), max_size=10) | st.text(alphabet="rtfwucdeibv", max_size=9).map("S{}F".format)


@given(WORDS | st.from_regex(LEGAL, fullmatch=True))
def test_event_order_accepts_exactly_the_grammar(word: str) -> None:
    longest = max(n for n in range(len(word) + 1) if PREFIX.fullmatch(word[:n]))
    assert accepted(word) == longest


@given(st.from_regex(LEGAL, fullmatch=True))
def test_blocks_open_and_close_in_turn(word: str) -> None:
    order, open_block, opened = EventOrder(), None, 0
    for event in numbered(word):
        step = order.feed(event)
        if step.closes:
            assert step.closes == open_block
            open_block = None
        if step.opens:
            assert open_block is None
            assert step.opens.number == opened
            open_block, opened = step.opens, opened + 1
        if step.ends:
            assert step.ends == open_block
            open_block = None
    assert open_block is None
    assert order.phase == "ended"


REFUSED = [
    ("a call of a number that skips one", [ev.ToolCallStart(1, "a", "f")]),
    ("arguments of another call", [ev.ToolCallStart(0, "a", "f"), ev.ToolCallDelta(1, "{")]),
    ("the end of another call", [ev.ToolCallStart(0, "a", "f"), ev.ToolCallEnd(1)]),
    ("Finish inside a call", [ev.ToolCallStart(0, "a", "f"), ev.Finish("length")]),
    ("a call inside a call", [ev.ToolCallStart(0, "a", "f"), ev.ToolCallStart(1, "b", "f")]),
    ("a second Start", [ev.Start("2", "m", 0)]),
    ("anything after the end", [ev.Finish("stop"), ev.Notice("c", "m")]),
    ("an empty text inside a call", [ev.ToolCallStart(0, "a", "f"), ev.TextDelta("")]),
]


@pytest.mark.parametrize("events", [row[1] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_illegal_event_is_rejected(events: list[ev.AnyEvent]) -> None:
    order = EventOrder()
    for event in [ev.Start("1", "m", 0), *events[:-1]]:
        order.feed(event)
    with pytest.raises(EventOrderError):
        order.feed(events[-1])


@pytest.mark.parametrize("event", [ev.TextDelta(""), ev.ReasoningDelta(""), ev.RefusalDelta("")])
def test_empty_delta_opens_no_block(event: ev.AnyEvent) -> None:
    order = EventOrder()
    order.feed(ev.Start("1", "m", 0))
    assert order.feed(event) == BlockChange()
    assert order.feed(ev.TextDelta("x")) == BlockChange(opens=Block("text", 0))
    assert order.feed(event) == BlockChange()


def test_signature_alone_opens_block() -> None:
    order = EventOrder()
    order.feed(ev.Start("1", "m", 0))
    assert order.feed(ev.ReasoningDelta("", "sig")) == BlockChange(opens=Block("reasoning", 0))
