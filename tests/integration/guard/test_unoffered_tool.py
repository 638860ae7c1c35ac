"""Text that calls a tool which is not offered: the model is asked again, and the client is told."""

from collections.abc import Sequence

import pytest

from dragoman import formats
from dragoman.core import events as ev
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta
from dragoman.core.messages import Message, Text, Tool, ToolCall, ToolResult
from dragoman.guard.policy import GuardPolicy
from dragoman.parsing.reader_options import ReaderOptions
from dragoman.parsing.reply_reader import ReplyReader
from support.guarded import TOOLS, Asked, answered, calls, codes, told, words

GREET = '{"name": "greet", "arguments": {"who": "Ann"}}'
LEAKS = {
    "bare": GREET,
    "fenced": f"```json\n{GREET}\n```",
    "tagged": f"<tool_call>\n{GREET}\n</tool_call>",
    "words first": f"Hello!\n<tool_call>\n{GREET}\n</tool_call>",
}


def read(text: str, tools: Sequence[Tool] = TOOLS, size: int = 4) -> list[AnyEvent]:
    """What a reader gives of this text, as a backend passes it on."""
    reader = ReplyReader(formats.get("hermes"), tools, new_id=lambda: "1", options=ReaderOptions(lenient=True))
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    events = [*(event for piece in pieces for event in reader.feed(piece)), *reader.close()]
    return [Start("", "", 0), *events, Finish("stop")]


@pytest.mark.parametrize("leak", LEAKS)
async def test_the_model_is_asked_again_and_its_words_are_taken(leak: str) -> None:
    backend = Asked(read(LEAKS[leak]), told(text="Hello Ann."))
    events = await answered(backend)
    assert words(events).endswith("Hello Ann.")
    assert "greet" not in words(events)
    assert "reasked" in codes(events)
    said = backend.requests[1].messages[-1].parts[0]
    assert isinstance(said, Text)
    assert "greet" in said.text
    assert "get_weather" in said.text


@pytest.mark.parametrize("leak", LEAKS)
async def test_a_call_is_taken_too(leak: str) -> None:
    events = await answered(Asked(read(LEAKS[leak]), told(("ping", "{}"))))
    assert (calls(events), "greet" in words(events)) == ([("ping", "{}")], False)


@pytest.mark.parametrize("leak", LEAKS)
async def test_what_does_not_become_better_goes_out_and_is_reported(leak: str) -> None:
    events = await answered(Asked(read(LEAKS[leak]), read(GREET)))
    assert "greet" in words(events)
    assert {"unknown_tool", "reasked", "reask_failed"} <= set(codes(events))
    events = await answered(Asked(read(LEAKS[leak])), GuardPolicy(reask=False))
    assert "unknown_tool" in codes(events)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Ann", "age": 3}',
        '{"name": "Ann", "friends": [' + '{"name": "Bob"}, ' * 60 + "{}]}",
        '[{"name": "Ann"}, {"name": "Bob"}]',
    ],
)
async def test_an_answer_in_json_is_none(text: str) -> None:
    events = await answered(Asked(read(text)))
    assert (words(events), calls(events)) == (text, [])


async def test_a_long_answer_in_json_streams() -> None:
    text = '{"name": "Ann", "notes": "' + "x" * 5000 + '"}'
    waited = [type(event) for event in await answered(Asked(read(text, size=100)))]
    assert waited.count(TextDelta) > 5


async def test_what_a_result_has_is_no_call_of_the_models() -> None:
    result = Message("tool", (ToolResult("c", (Text(f"Write {GREET}"),)),))
    asked = Message("assistant", (ToolCall("c", "ping", "{}"),))
    events = await answered(Asked(read(GREET)), messages=(Message("user", (Text("?"),)), asked, result))
    assert words(events) == GREET


async def test_beside_a_right_call_nothing_is_asked() -> None:
    text = f'<tool_call>\n{{"name": "ping", "arguments": {{}}}}\n</tool_call>\n<tool_call>\n{GREET}\n</tool_call>'
    events = await answered(Asked(read(text)))
    assert (calls(events), "unknown_tool" in codes(events)) == ([("ping", "{}")], True)
    assert isinstance(events[-1], ev.Finish)
