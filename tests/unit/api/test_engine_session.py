"""A client's request answered by an engine that is only a loop over pieces of text."""

import json
from typing import Any

import msgspec
import pytest

import dragoman
from dragoman import dialects, formats
from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import ConfigError, RequestError, UsageError

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("get_weather", "get_warnings")
]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
CHATML = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def asked(**more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS, "stream": True, **more}


def answer(body: Any, format: str = "hermes", **settings: Any) -> dragoman.EngineSession:
    return dragoman.EngineSession(body, format, created=7, id="1", **settings)


def run(
    made: dragoman.EngineSession, text: str, finish: Any = "stop", prompt: str = CHATML, api: str = "openai_chat"
) -> tuple[dragoman.types.Reply, int]:
    """What a client reads of the bytes, and how many characters the engine wrote for it."""
    made.complete_prompt(prompt)
    out, written = b"", 0
    for piece in text:
        out += made.feed(piece)
        written += 1
        if made.finished:
            break
    out += made.close(finish, dragoman.types.Usage(11, written))
    reader = dialects.get(api).reader(made.request, ExchangeContext("1", 0, iter("abc").__next__))
    return dragoman.collect([*reader.feed(out), *reader.close()]), written


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", dialects.names())
def test_a_call_by_each_api(api: str, stream: bool) -> None:
    chat = dialects.get("openai_chat").read_request(json.dumps(asked()).encode())
    request = msgspec.structs.replace(chat, stream=stream, stream_usage=True, dialect=api)
    made = answer(request, api=api)
    reply, _ = run(made, f"Let me look.\n{CALL}", api=api)
    text, call = reply.parts
    assert isinstance(text, dragoman.types.Text)
    assert isinstance(call, dragoman.ToolCall)
    assert (text.text.strip(), call.name, json.loads(call.arguments)) == (
        "Let me look.",
        "get_weather",
        {"city": "Paris"},
    )
    assert (reply.finish_reason, reply.usage.input_tokens) == ("tool_calls", 11)
    assert made.reply.parts[-1] == call


def test_the_conversation_for_a_template() -> None:
    system, user = answer(asked()).messages
    assert (system["role"], user) == ("system", {"role": "user", "content": "Hi"})
    assert "get_warnings" in system["content"]


def test_thoughts_that_the_prompt_has_opened() -> None:
    reply, _ = run(answer(asked()), f"Hm.</think>{CALL}", prompt=f"{CHATML}<think>\n")
    assert [type(part) for part in reply.parts] == [dragoman.types.Reasoning, dragoman.ToolCall]


@pytest.mark.parametrize(
    ("choice", "prompt", "begins", "goes_on"),
    [
        ("required", "", '<tool_call>\n{"name": "', 'get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'),
        (
            {"type": "function", "function": {"name": "get_weather"}},
            "<think>\n",
            '</think><tool_call>\n{"name": "get_weather", "arguments":',
            ' {"city": "Paris"}}\n</tool_call>',
        ),
    ],
    ids=["of any tool", "of one, behind thoughts"],
)
def test_a_call_that_must_come_is_begun_in_the_prompt(choice: Any, prompt: str, begins: str, goes_on: str) -> None:
    made = answer(asked(tool_choice=choice))
    assert made.complete_prompt(CHATML + prompt) == CHATML + prompt + begins
    reply, _ = run(made, goes_on, prompt=CHATML + prompt)
    (call,) = reply.parts
    assert isinstance(call, dragoman.ToolCall)
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})


@pytest.mark.parametrize("name", formats.names())
def test_every_format_goes_on_from_what_is_begun(name: str) -> None:
    """Of several tools, and of one behind open thoughts; as the format itself writes the call."""
    format = formats.get(name)
    opened = next(iter(format.reasoning_tags), "")
    whole = format.write_calls([dragoman.ToolCall("", "get_weather", '{"city": "Paris"}')])
    for choice, before in (("required", ""), ({"type": "function", "function": {"name": "get_weather"}}, opened)):
        made = answer(asked(tool_choice=choice), name)
        begun = made.complete_prompt(before).removeprefix(before)
        text = format.reasoning_tags.get(before, "") + whole
        assert begun
        assert text.startswith(begun)
        made.feed(text.removeprefix(begun))
        made.close()
        (call,) = made.reply.parts
        assert isinstance(call, dragoman.ToolCall)
        assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})


def test_nothing_is_begun_where_nothing_must_come() -> None:
    for choice in ("auto", "none"):
        assert answer(asked(tool_choice=choice)).complete_prompt(CHATML) == CHATML


def test_no_call_where_none_may_be() -> None:
    reply, _ = run(answer(asked(tool_choice="none")), CALL)
    (text,) = reply.parts
    assert text == dragoman.types.Text(CALL)


def test_one_call_at_most_ends_the_generation() -> None:
    reply, written = run(answer(asked(parallel_tool_calls=False)), CALL + CALL)
    assert (len(reply.parts), reply.finish_reason) == (1, "tool_calls")
    assert written <= len(CALL)


def test_a_stop_string_ends_it_but_not_within_a_call() -> None:
    reply, written = run(answer(asked(stop=["Paris"])), f"{CALL}\nIn Paris it rains.")
    call, text = reply.parts
    assert isinstance(call, dragoman.ToolCall)
    assert isinstance(text, dragoman.types.Text)
    assert (text.text.strip(), written) == ("In", len(f"{CALL}\nIn Paris"))


def test_an_invented_result_ends_it() -> None:
    made = answer(asked())
    reply, written = run(made, f"{CALL}\n<tool_response>\nrain\n</tool_response>")
    assert (len(reply.parts), reply.finish_reason) == (1, "tool_calls")
    assert written < len(CALL) + 20
    assert [warning.code for warning in made.warnings] == ["hallucinated_tool_result"]


def test_a_call_that_a_limit_cuts_off_is_not_passed_for_whole() -> None:
    reply, _ = run(answer(asked()), CALL[:60], "length")
    assert reply.finish_reason == "length"


def test_the_first_bytes_come_when_they_are_asked_for() -> None:
    assert b'"role":"assistant"' in answer(asked()).feed("")


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("stream", [True, False])
def test_an_engine_that_broke(stream: bool, begun: bool) -> None:
    made = answer(asked(stream=stream))
    if begun:
        made.feed("Hel")
    said = made.fail("out of memory")
    assert made.finished
    assert b"out of memory" in said
    assert said.endswith(b"data: [DONE]\n\n") == (stream and begun)


def test_what_it_cannot_be_made_of() -> None:
    with pytest.raises(ConfigError, match="unknown format"):
        answer(asked(), "hermess")
    with pytest.raises(RequestError, match=r"at \$.messages"):
        answer(asked(messages=1))
    with pytest.raises(ConfigError, match="unknown"):
        answer(asked(), api="openai")
    closed = answer(asked())
    closed.close()
    with pytest.raises(UsageError):
        closed.close()
    tokens: Any = [1, 2]
    with pytest.raises(UsageError, match="tokenize=False"):
        closed.complete_prompt(tokens)
