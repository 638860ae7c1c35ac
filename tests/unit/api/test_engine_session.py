"""A client's request served by an engine that only yields pieces of text."""

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


def request_body(**more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS, "stream": True, **more}


def new_session(body: Any, format: str = "hermes", **settings: Any) -> dragoman.EngineSession:
    return dragoman.EngineSession(body, format, created=7, id="1", **settings)


def run(
    made: dragoman.EngineSession, text: str, finish: Any = "stop", prompt: str = CHATML, api: str = "openai_chat"
) -> tuple[dragoman.types.Reply, int]:
    """Returns the reply that a client reads, and the number of characters that the engine wrote."""
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
def test_call_is_returned_in_each_api(api: str, stream: bool) -> None:
    chat = dialects.get("openai_chat").read_request(json.dumps(request_body()).encode())
    request = msgspec.structs.replace(chat, stream=stream, stream_usage=True, dialect=api)
    made = new_session(request, api=api)
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


def test_messages_contain_tools_for_chat_template() -> None:
    system, user = new_session(request_body()).messages
    assert (system["role"], user) == ("system", {"role": "user", "content": "Hi"})
    assert "get_warnings" in system["content"]


def test_reasoning_opened_by_prompt_is_read() -> None:
    reply, _ = run(new_session(request_body()), f"Hm.</think>{CALL}", prompt=f"{CHATML}<think>\n")
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
def test_required_call_is_started_in_prompt(choice: Any, prompt: str, begins: str, goes_on: str) -> None:
    made = new_session(request_body(tool_choice=choice))
    assert made.complete_prompt(CHATML + prompt) == CHATML + prompt + begins
    reply, _ = run(made, goes_on, prompt=CHATML + prompt)
    (call,) = reply.parts
    assert isinstance(call, dragoman.ToolCall)
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})


@pytest.mark.parametrize("name", formats.names())
def test_every_format_continues_started_call(name: str) -> None:
    """For a choice of several tools, and for one tool after open reasoning."""
    format = formats.get(name)
    opened = next(iter(format.reasoning_tags), "")
    whole = format.write_calls([dragoman.ToolCall("", "get_weather", '{"city": "Paris"}')])
    for choice, before in (("required", ""), ({"type": "function", "function": {"name": "get_weather"}}, opened)):
        made = new_session(request_body(tool_choice=choice), name)
        begun = made.complete_prompt(before).removeprefix(before)
        text = format.reasoning_tags.get(before, "") + whole
        assert begun
        assert text.startswith(begun)
        made.feed(text.removeprefix(begun))
        made.close()
        (call,) = made.reply.parts
        assert isinstance(call, dragoman.ToolCall)
        assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})


def test_optional_call_is_not_started_in_prompt() -> None:
    for choice in ("auto", "none"):
        assert new_session(request_body(tool_choice=choice)).complete_prompt(CHATML) == CHATML


def test_call_with_tool_choice_none_is_text() -> None:
    reply, _ = run(new_session(request_body(tool_choice="none")), CALL)
    (text,) = reply.parts
    assert text == dragoman.types.Text(CALL)


def test_second_call_ends_generation_without_parallel_calls() -> None:
    reply, written = run(new_session(request_body(parallel_tool_calls=False)), CALL + CALL)
    assert (len(reply.parts), reply.finish_reason) == (1, "tool_calls")
    assert written <= len(CALL)


def test_stop_string_ends_generation_but_not_within_call() -> None:
    reply, written = run(new_session(request_body(stop=["Paris"])), f"{CALL}\nIn Paris it rains.")
    call, text = reply.parts
    assert isinstance(call, dragoman.ToolCall)
    assert isinstance(text, dragoman.types.Text)
    assert (text.text.strip(), written) == ("In", len(f"{CALL}\nIn Paris"))


def test_hallucinated_result_ends_generation() -> None:
    made = new_session(request_body())
    reply, written = run(made, f"{CALL}\n<tool_response>\nrain\n</tool_response>")
    assert (len(reply.parts), reply.finish_reason) == (1, "tool_calls")
    assert written < len(CALL) + 20
    assert [warning.code for warning in made.warnings] == ["hallucinated_tool_result"]


def test_truncated_call_has_finish_reason_length() -> None:
    reply, _ = run(new_session(request_body()), CALL[:60], "length")
    assert reply.finish_reason == "length"


def test_first_bytes_are_returned_for_empty_feed() -> None:
    assert b'"role":"assistant"' in new_session(request_body()).feed("")


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("stream", [True, False])
def test_engine_failure_is_reported_to_client(stream: bool, begun: bool) -> None:
    made = new_session(request_body(stream=stream))
    if begun:
        made.feed("Hel")
    said = made.fail("out of memory")
    assert made.finished
    assert b"out of memory" in said
    assert said.endswith(b"data: [DONE]\n\n") == (stream and begun)


def test_invalid_session_input_is_rejected() -> None:
    with pytest.raises(ConfigError, match="unknown format"):
        new_session(request_body(), "hermess")
    with pytest.raises(RequestError, match=r"at \$.messages"):
        new_session(request_body(messages=1))
    with pytest.raises(ConfigError, match="unknown"):
        new_session(request_body(), api="openai")
    closed = new_session(request_body())
    closed.close()
    with pytest.raises(UsageError):
        closed.close()
    tokens: Any = [1, 2]
    with pytest.raises(UsageError, match="tokenize=False"):
        closed.complete_prompt(tokens)
