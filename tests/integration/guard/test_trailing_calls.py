"""Plain JSON calls after a sentence are calls if they end the response, and text if more text follows."""

import itertools
from collections.abc import Sequence

import pytest

from dragoman import formats
from dragoman.core.events import AnyEvent, Finish, Notice, Start, TextDelta
from dragoman.core.messages import Message, Text, ToolCall, ToolResult
from dragoman.guard.policy import GuardPolicy
from dragoman.parsing.reader_options import ReaderOptions
from dragoman.parsing.reply_reader import ReplyReader
from support.check_each import check_each
from support.guarded import TOOLS, Asked, answered, calls, codes, words

TYPE = '{"type": "function", '
CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
FENCE = f"```json\n{CALL}\n```"
OTHER = CALL.replace("Paris", "Rome")
NAMES = formats.names()
FEW = ("auto", "deepseek_v3", "glm", "harmony", "hermes", "llama3_json", "mistral", "qwen3_xml")
CALL_TEXTS = {
    "words and a fence": (f"Sure!\n{FENCE}", 1),
    "an empty line between": (f"Sure!\n\n{FENCE}\n\n", 1),
    "Windows' line ends": (f"Sure!\n\n{FENCE}\n\n".replace("\n", "\r\n"), 1),
    "no language": (f"Sure!\n```\n{CALL}\n```", 1),
    "a fence that nothing closes": (f"Sure!\n```json\n{CALL}", 1),
    "two fences": (f"Sure!\n{FENCE}\n{FENCE.replace('Paris', 'Rome')}", 2),
    "brackets that are missing": (f"Sure!\n```json\n{CALL[:-2]}\n```", 1),
    "an array in a fence": (f"Sure!\n```json\n[{CALL},\n{OTHER}]\n```", 2),
    "two objects in a fence": (f"Sure!\n```json\n{CALL}\n{OTHER}\n```", 2),
    "a type before the name": (f"Sure!\n```json\n{CALL.replace('{', TYPE, 1)}\n```", 1),
    "bare": (f"Sure!\n{CALL}", 1),
    "bare, an empty line between": (f"Sure!\n\n{CALL}\n\n", 1),
    "bare, Windows' line ends": (f"Sure!\r\n\r\n{CALL}\r\n", 1),
    "bare, over lines": ("Sure!\n" + CALL.replace(", ", ",\n  ").replace("{", "{\n  "), 1),
    "two bare objects": (f"Sure!\n{CALL}\n{OTHER}", 2),
    "a bare array": (f"Sure!\n[{CALL}, {OTHER}]", 2),
    "a bare array over lines": (f"Sure!\n[\n  {CALL},\n  {OTHER}\n]\n", 2),
    "bare, a brace that is missing": (f"Sure!\n{CALL[:-1]}", 1),
    "bare, a brace too many": (f"Sure!\n{CALL}}}", 1),
    "bare, with a type": (f"Sure!\n{CALL.replace('{', TYPE, 1)}", 1),
    "bare, then a fence": (f"Sure!\n{CALL}\n{FENCE.replace('Paris', 'Rome')}", 2),
}
TEXT = {
    "words after it": f"Sure!\n{FENCE}\nThat is how.",
    "words after a bare object": f"Sure!\n{CALL}\nThat is how.",
    "within a line": f"Sure! {FENCE}",
    "bare, within a line": f"Sure! {CALL}",
    "another tool": 'Sure!\n```json\n{"name": "pong", "arguments": {}}\n```',
    "bare, another tool": 'Sure!\n{"name": "pong", "arguments": {}}',
    "code": 'Look:\n```python\nprint({"name": "get_weather"})\n```',
    "bare, in code": f"Look:\n```text\nWrite\n{CALL}\n```",
    "JSON that is no call": 'Look:\n```json\n{"city": "Paris"}\n```',
    "bare JSON that is no call": 'Look:\n{"city": "Paris"}',
    "JSON that names a tool": 'Look:\n{"name": "get_weather", "kind": "tool", "arguments": {}}',
    "such JSON in a fence": 'Look:\n```json\n{"name": "get_weather", "kind": "tool"}\n```',
    "an open string": 'Look:\n{"name": "get_weather", "arguments": {"city": "Paris',
}
WARNED = ("words after it", "words after a bare object")
FRAMING = {
    "harmony": ("<|channel|>final<|message|>", "<|return|>"),
    "beam": ("<|channel|>final<|message|>", "<|end|>"),
    "muse_glimmer": (" to=user<|message|>", "<|eot|>"),
    "inkling": ("<|content_text|>", "<|end_message|><|content_model_end_sampling|>"),
    "solar": ("<|content|>", "<|flush|>"),
    "functionary_v2": ("<|from|>assistant\n<|recipient|>all\n<|content|>", "<|stop|>"),
    "functionary_v32": ("all\n", ""),
    "kimi_k3": ("<|open|>response<|sep|>", "<|close|>response<|sep|><|close|>message<|sep|>"),
    "cohere": ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    "granite": ("<response>", "</response>"),
    "hermes": ("", "</tool_call>"),
    "glm": ("", "</tool_call>"),
}
"""Markup before and after a response, or after a call whose opening tag the model omitted."""


def read(text: str, format: str = "hermes", size: int = 4, reason: str = "stop") -> list[AnyEvent]:
    ids = itertools.count()
    reader = ReplyReader(formats.get(format), TOOLS, new_id=lambda: str(next(ids)), options=ReaderOptions(lenient=True))
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    events = [event for piece in pieces for event in reader.feed(piece)]
    return [Start("", "", 0), *events, *reader.close("length" if reason == "length" else "stop"), Finish("stop")]


def test_trailing_json_call_is_recognized_in_every_format(subtests: pytest.Subtests) -> None:
    def check(format: str) -> None:
        for text, code in ((f"Sure!\n{FENCE}", "fenced_call"), (f"Sure!\n\n{CALL}\n", "trailing_call")):
            events = read(text, format)
            assert (len(calls(events)), words(events)) == (1, "Sure!")
            assert code in codes(events)

    check_each(subtests, NAMES, check)


def test_trailing_json_call_is_recognized(subtests: pytest.Subtests) -> None:
    def check(case: tuple[str, str]) -> None:
        title, format = case
        text, count = CALL_TEXTS[title]
        for size in (1, 5, len(text)):
            events = read(text, format, size)
            assert (len(calls(events)), words(events)) == (count, "Sure!")
            assert {"fenced_call", "trailing_call"} & {*codes(events)}

    check_each(subtests, itertools.product(CALL_TEXTS, FEW), check)


def test_json_that_is_not_a_trailing_call_stays_text(subtests: pytest.Subtests) -> None:
    def check(case: tuple[str, str]) -> None:
        title, format = case
        text = TEXT[title]
        for size in (1, 5, len(text)):
            events = read(text, format, size)
            assert (calls(events), words(events)) == ([], text)
            assert title not in WARNED or {"call_in_unclosed_code", "call_in_text"} & {*codes(events)}

    check_each(subtests, itertools.product(TEXT, FEW), check)


WRITTEN = {"a fence": FENCE, "bare": CALL}


def test_end_markup_after_trailing_call_is_accepted(subtests: pytest.Subtests) -> None:
    def check(case: tuple[str, str]) -> None:
        title, format = case
        call, (before, behind) = WRITTEN[title], FRAMING[format]
        for text in (f"{before}Sure!\n{call}{behind}", f"{before}Sure!\n{call}\n{behind}\n"):
            for size in (1, len(text)):
                events = read(text, format, size)
                assert (len(calls(events)), words(events).strip()) == (1, "Sure!")
        text = f"{before}Sure!\n{call}\nThat is how.{behind}"
        events = read(text, format)
        assert (calls(events), words(events).removesuffix(behind)) == ([], f"Sure!\n{call}\nThat is how.")

    check_each(subtests, itertools.product(WRITTEN, FRAMING), check)


def test_trailing_call_cut_by_token_limit_stays_text() -> None:
    for text in (f"Sure!\n{FENCE}", f"Sure!\n{CALL}"):
        assert (calls(events := read(text, reason="length")), words(events)) == ([], text)


def conversation(said: str) -> tuple[Message, ...]:
    call = Message("assistant", (ToolCall("c", "ping", "{}"),))
    return (Message("user", (Text("?"),)), call, Message("tool", (ToolResult("c", (Text(said),)),)))


@pytest.mark.parametrize(
    "messages", [(Message("user", (Text(f"Explain {CALL}"),)),), conversation(f"Write {CALL}"), conversation(FENCE)]
)
async def test_trailing_call_quoted_from_conversation_stays_text(messages: Sequence[Message]) -> None:
    events = await answered(Asked(read(f"Sure!\n{FENCE}")), messages=tuple(messages))
    assert (calls(events), CALL in words(events)) == ([], True)
    assert "call_in_unclosed_code" in codes(events)


async def test_invalid_trailing_call_stays_text() -> None:
    wrong = FENCE.replace('"city"', '"town"')
    events = await answered(Asked(read(f"Sure!\n{wrong}")))
    assert (calls(events), wrong in words(events), "call_in_unclosed_code" in codes(events)) == ([], True, True)


async def test_repairable_trailing_call_is_repaired() -> None:
    text = FENCE.replace('"Paris"', '"Paris", "days": "3"')
    events = await answered(Asked(read(f"Sure!\n{text}")), GuardPolicy())
    ((name, _),) = calls(events)
    assert (name, words(events), "call_repaired" in codes(events)) == ("get_weather", "Sure!", True)


def test_text_before_trailing_call_is_streamed() -> None:
    events = read("One two three four five six seven.\n" + FENCE)
    first = next(n for n, event in enumerate(events) if isinstance(event, Notice))
    assert sum(isinstance(event, TextDelta) for event in events[:first]) > 3


def test_reading_many_fences_takes_linear_time() -> None:
    for call in (FENCE, CALL, CALL[:40], "{", "[{", f"[{CALL}"):
        text = "Sure!\n" + f"{call}\n" * 2000 + "So."
        assert words(read(text, size=1000)) == text
