"""A sentence and then calls in code fences, with nothing after them: calls; with text after them: text."""

import itertools
from collections.abc import Sequence

import pytest

from dragoman import formats
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta, Warning
from dragoman.core.reader import ReplyReader
from dragoman.core.values import Message, Text, ToolCall, ToolResult
from dragoman.guard.policy import Policy
from test_guard import TOOLS, Asked, answered, calls, codes, words

CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
FENCE = f"```json\n{CALL}\n```"
FORMATS = ("auto", "deepseek_v3", "glm", "hermes", "mistral", "qwen3_xml")
MADE = {
    "words and a fence": (f"Sure!\n{FENCE}", 1),
    "an empty line between": (f"Sure!\n\n{FENCE}\n\n", 1),
    "no language": (f"Sure!\n```\n{CALL}\n```", 1),
    "a fence that nothing closes": (f"Sure!\n```json\n{CALL}", 1),
    "two fences": (f"Sure!\n{FENCE}\n{FENCE.replace('Paris', 'Rome')}", 2),
    "brackets that are missing": (f"Sure!\n```json\n{CALL[:-2]}\n```", 1),
}
TEXT = {
    "words after it": f"Sure!\n{FENCE}\nThat is how.",
    "within a line": f"Sure! {FENCE}",
    "another tool": 'Sure!\n```json\n{"name": "pong", "arguments": {}}\n```',
    "code": 'Look:\n```python\nprint({"name": "get_weather"})\n```',
    "JSON that is no call": 'Look:\n```json\n{"city": "Paris"}\n```',
}


def read(text: str, format: str = "hermes", size: int = 4, reason: str = "stop") -> list[AnyEvent]:
    ids = itertools.count()
    reader = ReplyReader(formats.get(format), TOOLS, new_id=lambda: str(next(ids)), lenient=True)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    events = [event for piece in pieces for event in reader.feed(piece)]
    return [Start("", "", 0), *events, *reader.close("length" if reason == "length" else "stop"), Finish("stop")]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("title", MADE)
def test_it_is_a_call(title: str, format: str) -> None:
    text, count = MADE[title]
    for size in (1, 5, len(text)):
        events = read(text, format, size)
        assert (len(calls(events)), words(events)) == (count, "Sure!")
        assert "fenced_call" in codes(events)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("title", TEXT)
def test_it_is_text(title: str, format: str) -> None:
    text = TEXT[title]
    for size in (1, 5, len(text)):
        events = read(text, format, size)
        assert (calls(events), words(events)) == ([], text)
        assert ("call_in_code" in codes(events)) == (title == "words after it")


def test_what_a_limit_cut_tells_nothing() -> None:
    text = f"Sure!\n{FENCE}"
    assert (calls(events := read(text, reason="length")), words(events)) == ([], text)


def conversation(said: str) -> tuple[Message, ...]:
    call = Message("assistant", (ToolCall("c", "ping", "{}"),))
    return (Message("user", (Text("?"),)), call, Message("tool", (ToolResult("c", (Text(said),)),)))


@pytest.mark.parametrize(
    "messages", [(Message("user", (Text(f"Explain {CALL}"),)),), conversation(f"Write {CALL}"), conversation(FENCE)]
)
async def test_a_copy_of_what_the_model_was_shown_is_text(messages: Sequence[Message]) -> None:
    events = await answered(Asked(read(f"Sure!\n{FENCE}")), messages=tuple(messages))
    assert (calls(events), CALL in words(events)) == ([], True)
    assert "call_in_code" in codes(events)


async def test_one_that_does_not_fit_its_schema_is_text() -> None:
    wrong = FENCE.replace('"city"', '"town"')
    events = await answered(Asked(read(f"Sure!\n{wrong}")))
    assert (calls(events), wrong in words(events), "call_in_code" in codes(events)) == ([], True, True)


async def test_one_that_can_be_repaired_is_a_call() -> None:
    text = FENCE.replace('"Paris"', '"Paris", "days": "3"')
    events = await answered(Asked(read(f"Sure!\n{text}")), Policy())
    ((name, _),) = calls(events)
    assert (name, words(events), "mended_call" in codes(events)) == ("get_weather", "Sure!", True)


def test_text_before_it_streams() -> None:
    events = read("One two three four five six seven.\n" + FENCE)
    first = next(n for n, event in enumerate(events) if isinstance(event, Warning))
    assert sum(isinstance(event, TextDelta) for event in events[:first]) > 3


def test_work_is_linear_in_the_fences() -> None:
    text = "Sure!\n" + f"{FENCE}\n" * 2000 + "So."
    assert words(read(text, size=1000)) == text
