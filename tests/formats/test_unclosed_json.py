"""JSON that is unclosed at the end of its call, in every format with JSON arguments."""

import itertools
import json

import pytest

from dragoman import formats
from dragoman.core.events import AnyEvent, ToolCallDelta, ToolCallEnd, ToolCallIncomplete
from dragoman.core.messages import Tool, ToolCall
from dragoman.parsing.reader_options import READER_REPAIRS, ReaderOptions
from dragoman.parsing.reply_reader import ReplyReader

TOOL = Tool("get_weather", "", '{"type": "object"}')
ARGUMENTS = ('{"city": "Paris"}', '{"at": {"h": [1, 2]}, "city": "Paris"}', '{"city": "Paris", "days": 3}')
NO_CLOSER = ("functionary_v2", "functionary_v32", "granite_20b_fc", "llama3_json", "mistral", "rwkv7")
"""Formats without a closer: a call ends with the reply."""
IDS_AFTER_ARGUMENTS = ("apriel", "mistral_v3")
"""Formats that write the id after the arguments, so the arguments are not at the end."""
NO_REPAIR = ("deepseek_v3",)
ENDS_IN_BRACKET = ("command_r", "granite", "phi4_mini", "xlam")
"""Formats whose closer contains no word, so it is text within a string."""
NAMES = [
    name
    for name in formats.names()
    if formats.get(name).arguments == "JSON" and name not in (*NO_CLOSER, *IDS_AFTER_ARGUMENTS, *NO_REPAIR, "auto")
]


def read(name: str, text: str, size: int, mends: frozenset[str] = READER_REPAIRS) -> list[AnyEvent]:
    numbers = itertools.count()
    reader = ReplyReader(
        formats.get(name), [TOOL], new_id=lambda: str(next(numbers)), options=ReaderOptions(enabled_repairs=mends)
    )
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return [*(event for piece in pieces for event in reader.feed(piece)), *reader.close()]


def calls(events: list[AnyEvent]) -> list[tuple[str, bool]]:
    """Returns the arguments of each call, and whether it is complete."""
    found, arguments = [], ""
    for event in events:
        match event:
            case ToolCallDelta(_, text):
                arguments += text
            case ToolCallEnd() | ToolCallIncomplete():
                found.append((arguments, isinstance(event, ToolCallEnd)))
                arguments = ""
            case _:
                pass
    return found


def cuts(name: str, arguments: str) -> list[tuple[str, bool]]:
    """Returns the call without some closing brackets and quotes, and whether a string is open."""
    text = formats.get(name).write_calls([ToolCall("call00001", TOOL.name, arguments)])
    end = text.index(arguments) + len(arguments)
    while text[end : end + 1] == "}":
        end += 1
    found = []
    for last in range(end - 1, 0, -1):
        if text[last] not in '}"':
            break
        found.append((text[:last] + text[end:], text[last] == '"'))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_call_without_closing_brackets_is_completed(name: str) -> None:
    for arguments in ARGUMENTS:
        for text, in_string in cuts(name, arguments):
            for size in (1, 7, len(text)):
                found = calls(read(name, text, size))
                if in_string and name in ENDS_IN_BRACKET:
                    assert [whole for _, whole in found] == [False]
                else:
                    assert [json.loads(each) for each, _ in found] == [json.loads(arguments)], text


@pytest.mark.parametrize("name", NAMES)
def test_unclosed_call_is_not_completed_if_repair_is_disabled(name: str) -> None:
    text, _ = cuts(name, ARGUMENTS[0])[-1]
    assert not any(whole for _, whole in calls(read(name, text, 5, READER_REPAIRS - {"unclosed_object"})))


@pytest.mark.parametrize("end", ["", ",", ":", '"days"', '"days":', "1, 2}", "}}", "]"])
def test_possibly_unfinished_arguments_are_not_completed(end: str) -> None:
    text = f'<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "Paris{end}\n</tool_call>'
    if end in ("", "1, 2}"):
        text = text.replace("Paris", 'Paris", ')
    found = calls(read("hermes", text, 3))
    assert not any(whole for _, whole in found), found


def test_unclosed_calls_are_read_in_linear_time() -> None:
    one = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris</tool_call>\n'
    assert len(read("hermes", one * 3000, 50_000)) >= 3000
