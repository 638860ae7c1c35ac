"""JSON that is open where its call ends, in every format whose arguments are JSON."""

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
"""Formats in which nothing stands behind a call: its end is the reply's."""
IDS_BEHIND = ("apriel", "mistral_v3")
"""Formats that write the id behind the arguments, so that a cut does not stand at the end."""
NO_REPAIR = ("deepseek_v3",)
ENDS_IN_BRACKET = ("command_r", "granite", "phi4_mini", "xlam")
"""Formats whose closer has no word in it, so that in a string it is text."""
NAMES = [
    name
    for name in formats.names()
    if formats.get(name).arguments == "JSON" and name not in (*NO_CLOSER, *IDS_BEHIND, *NO_REPAIR, "auto")
]


def read(name: str, text: str, size: int, mends: frozenset[str] = READER_REPAIRS) -> list[AnyEvent]:
    numbers = itertools.count()
    reader = ReplyReader(
        formats.get(name), [TOOL], new_id=lambda: str(next(numbers)), options=ReaderOptions(enabled_repairs=mends)
    )
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return [*(event for piece in pieces for event in reader.feed(piece)), *reader.close()]


def calls(events: list[AnyEvent]) -> list[tuple[str, bool]]:
    """The arguments of each call, and whether it is whole."""
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
    """The call without some of the brackets and quotes at its end, and whether a string is open."""
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
def test_call_without_its_last_brackets_is_completed(name: str) -> None:
    for arguments in ARGUMENTS:
        for text, in_string in cuts(name, arguments):
            for size in (1, 7, len(text)):
                found = calls(read(name, text, size))
                if in_string and name in ENDS_IN_BRACKET:
                    assert [whole for _, whole in found] == [False]
                else:
                    assert [json.loads(each) for each, _ in found] == [json.loads(arguments)], text


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_completed_where_that_is_switched_off(name: str) -> None:
    text, _ = cuts(name, ARGUMENTS[0])[-1]
    assert not any(whole for _, whole in calls(read(name, text, 5, READER_REPAIRS - {"unclosed_object"})))


@pytest.mark.parametrize("end", ["", ",", ":", '"days"', '"days":', "1, 2}", "}}", "]"])
def test_what_may_have_gone_on_is_not_completed(end: str) -> None:
    text = f'<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "Paris{end}\n</tool_call>'
    if end in ("", "1, 2}"):
        text = text.replace("Paris", 'Paris", ')
    found = calls(read("hermes", text, 3))
    assert not any(whole for _, whole in found), found


def test_work_is_linear_where_each_call_lacks_its_quote() -> None:
    one = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris</tool_call>\n'
    assert len(read("hermes", one * 3000, 50_000)) >= 3000
