"""Text that calls a tool which is not offered: the model is re-asked, and the call is reported."""

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
    """The events that a backend emits for this text."""
    reader = ReplyReader(formats.get("hermes"), tools, new_id=lambda: "1", options=ReaderOptions(lenient=True))
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    events = [*(event for piece in pieces for event in reader.feed(piece)), *reader.close()]
    return [Start("", "", 0), *events, Finish("stop")]


@pytest.mark.parametrize("leak", LEAKS)
async def test_unoffered_call_is_re_asked_and_text_is_used(leak: str) -> None:
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
async def test_unoffered_call_is_replaced_by_call_of_re_ask(leak: str) -> None:
    events = await answered(Asked(read(LEAKS[leak]), told(("ping", "{}"))))
    assert (calls(events), "greet" in words(events)) == ([("ping", "{}")], False)


@pytest.mark.parametrize("leak", LEAKS)
async def test_unoffered_call_is_forwarded_and_reported_if_re_ask_fails(leak: str) -> None:
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
async def test_json_response_is_not_an_unoffered_call(text: str) -> None:
    events = await answered(Asked(read(text)))
    assert (words(events), calls(events)) == (text, [])


async def test_long_json_response_is_streamed() -> None:
    text = '{"name": "Ann", "notes": "' + "x" * 5000 + '"}'
    waited = [type(event) for event in await answered(Asked(read(text, size=100)))]
    assert waited.count(TextDelta) > 5


async def test_call_quoted_from_tool_result_stays_text() -> None:
    result = Message("tool", (ToolResult("c", (Text(f"Write {GREET}"),)),))
    asked = Message("assistant", (ToolCall("c", "ping", "{}"),))
    events = await answered(Asked(read(GREET)), messages=(Message("user", (Text("?"),)), asked, result))
    assert words(events) == GREET


async def test_unoffered_call_next_to_valid_call_is_not_re_asked() -> None:
    text = f'<tool_call>\n{{"name": "ping", "arguments": {{}}}}\n</tool_call>\n<tool_call>\n{GREET}\n</tool_call>'
    events = await answered(Asked(read(text)))
    assert (calls(events), "unknown_tool" in codes(events)) == ([("ping", "{}")], True)
    assert isinstance(events[-1], ev.Finish)
