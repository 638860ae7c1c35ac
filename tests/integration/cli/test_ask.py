"""`dragoman ask`: model output next to the client's events, with and without a terminal."""

import contextlib
import io
import json
import os
import re
import struct
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import offline
from rich.console import Console

from dragoman.api.demo_tools import SUNNY, WEATHER, signature
from dragoman.api.parse import parse
from dragoman.cli import main
from dragoman.cli._terminal import printable
from dragoman.cli.ask import demo_tools as demo
from dragoman.cli.ask.columns import ColumnsView
from dragoman.cli.ask.plain_view import Head, PlainView, Totals, View
from dragoman.cli.ask.raw_text import RawTextReader, difference
from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import BackendUnavailableError, ConfigError
from dragoman.core.events import (
    AnyEvent,
    EventOrder,
    Failure,
    Finish,
    Notice,
    ReasoningDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.identifiers import random_id
from dragoman.core.messages import Request, Text, Tool, ToolCall, Usage
from dragoman.dialects import get
from support.gateway import command, environment, run
from support.scripted_backend import Scripted, in_thread, plain

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


async def answers(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    """Calls the tool first; once there is a tool result, returns text."""
    said = [part for part in request.messages[-1].parts if not isinstance(part, Text)]
    yield Start("", "", 0)
    if said:
        yield TextDelta("It is sunny.")
        yield UsageUpdate(Usage(20, 4))
    else:
        yield ToolCallStart(0, "call_1", request.tools[0].name)
        yield ToolCallDelta(0, '{"city": ')
        yield ToolCallDelta(0, '"Paris"}')
        yield ToolCallEnd(0)
        yield UsageUpdate(Usage(10, 6))
    yield Finish("stop")


async def fails_mid_stream(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield TextDelta("Let me")
    yield Failure(BackendUnavailableError("the engine ended"))


def test_ask_without_terminal_prints_tool_round_trip(tmp_path: Path) -> None:
    with in_thread(answers) as url:
        done = run(tmp_path, "ask", "--gateway", url)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    blocks = done.stdout.split("\n-- ")
    assert blocks[0].splitlines() == [
        f"model: m, of gateway at {url}, tool mode native",
        "asked: What is the weather in Paris?",
        "tools: get_weather(city: string)",
        "choice: required",
    ]
    title, *lines = blocks[1].splitlines()
    assert title == "model's text"
    pieces = [json.loads(line)["choices"][0]["delta"]["tool_calls"][0] for line in lines if line]
    assert "".join(piece["function"]["arguments"] for piece in pieces) == '{"city": "Paris"}'
    assert blocks[2] == (
        'response to the client\nget_weather {"city": "Paris"}\n  (complete, valid)\n  (finish: tool_calls)\n'
    )
    assert blocks[3] == "result of get_weather\nsunny, 22 degrees Celsius\n"
    assert blocks[4].splitlines()[:2] == ["model's text", "It is sunny."]
    assert blocks[5] == "the response is the same text\n  (finish: stop)\n"
    assert re.fullmatch(r"2 turns · 30 tokens in, 10 out · \d+\.\d s, \d+\.\d s to the first token\n", blocks[6])


@pytest.mark.skipif(sys.platform == "win32", reason="the test starts the CLI as on POSIX systems")
def test_ask_uses_installed_claude_cli(tmp_path: Path) -> None:
    """The installed CLI with a dummy login; the model is scripted and calls tools by the CLI's tool names."""
    with in_thread(answers) as url:
        path = os.pathsep.join([str(offline.claude_code().parent), os.defpath])
        login = {"ANTHROPIC_API_KEY": "sk-ant-dummy", "ANTHROPIC_BASE_URL": url, "DRAGOMAN_CLAUDE_CLI_MODELS": "m"}
        done = run(tmp_path, "ask", "--claude-cli", "--model", "m", PATH=path, **login)
    assert done.returncode == 0, done.stderr
    assert "model: m, of claude_cli, tool mode native" in done.stdout
    assert '"type":"tool_use"' in done.stdout, "as claude has it of the model"
    assert 'get_weather {"city": "Paris"}\n  (complete, valid' in done.stdout
    assert "It is sunny." in done.stdout


def test_ask_uses_tool_and_result_from_options(tmp_path: Path) -> None:
    with in_thread(answers) as url:
        args = ("ask", "What is 2 + 3?", "--gateway", url, "--tool", "add(city, b: int = 3)", "--tool-result", "five")
        done = run(tmp_path, *args, "--tool-choice", "add")
    assert "tools: add(city, b: integer)\nchoice: add\n" in done.stdout
    assert "-- result of add\nfive\n" in done.stdout


def test_response_without_tool_call_ends_after_one_turn(tmp_path: Path) -> None:
    with in_thread(plain) as url:
        done = run(tmp_path, "ask", "Hi", "--upstream", url, "--upstream-api", "anthropic_messages", "--model", "n")
    assert done.returncode == 0, done.stderr
    assert "model: n, of upstream" in done.stdout
    assert "choice: auto" in done.stdout
    assert "1 turn · " in done.stdout


def test_ask_without_tools_sends_no_tools(tmp_path: Path) -> None:
    asked: list[Request] = []

    async def noted(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        asked.append(request)
        async for event in plain(backend, request):
            yield event

    with in_thread(noted) as url:
        done = run(tmp_path, "ask", "Hi", "--no-tools", "--gateway", url)
    assert done.returncode == 0, done.stderr
    assert asked[0].tools == ()
    assert "tools: none\n" in done.stdout
    assert done.stdout.count("Hello") == 1
    assert run(tmp_path, "ask", "--no-tools", "--tool", "add(a)", "--gateway", url).returncode == 2


async def calls_forever(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield ToolCallStart(0, random_id(), request.tools[0].name)
    yield ToolCallDelta(0, '{"city": "Paris"}')
    yield ToolCallEnd(0)
    yield Finish("stop")


async def returns_empty_response(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield Finish("stop")


@pytest.mark.parametrize(
    ("play", "fault"), [(calls_forever, "does not use the tool's result"), (returns_empty_response, "is empty")]
)
def test_ask_fails_when_model_does_not_answer(play: Any, fault: str, tmp_path: Path) -> None:
    with in_thread(play) as url:
        done = run(tmp_path, "ask", "And in Rome?", "--gateway", url)
    assert done.returncode == 1
    assert fault in done.stderr
    assert done.stdout.count("-- result of get_weather") == (2 if play is calls_forever else 0)


def test_raw_output_prints_only_model_text(tmp_path: Path) -> None:
    with in_thread(plain) as url:
        done = run(tmp_path, "ask", "Hi", "--raw-output", "--gateway", url)
    assert done.stdout == "Hello"


def test_response_that_fails_mid_stream_is_reported(tmp_path: Path) -> None:
    with in_thread(fails_mid_stream) as url:
        done = run(tmp_path, "ask", "--gateway", url)
    assert done.returncode == 1
    assert "Let me\n" in done.stdout
    assert done.stderr.startswith("dragoman ask: error: ")
    assert "the engine ended" in done.stderr


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (
            ["--upstream", "http://127.0.0.1:9/v1"],
            1,
            "nothing answers at http://127.0.0.1:9, or no model is loaded there",
        ),
        (
            ["--tool-choice", "soon"],
            2,
            "--tool-choice: expected auto, required, none or a tool (get_weather), got 'soon'",
        ),
        (["--tool", "no-such.json"], 2, "--tool: cannot read no-such.json: No such file or directory"),
        (["--model", "no-such-model"], 2, "unknown model 'no-such-model'"),
        (["--upstream-api", "openai_chat"], 2, "name that with --upstream URL"),
        (["--upstream", "http://h", "--claude-cli"], 2, "not allowed with argument"),
        (["--claude-cli"], 2, "there is no program 'claude'; install it: npm install -g @anthropic-ai/claude-code"),
    ],
)
def test_invalid_ask_arguments_are_reported(
    args: list[str],
    status: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "environ", environment(tmp_path))
    assert status == (done(["ask", *args]))
    assert words in capsys.readouterr().err


def done(args: list[str]) -> int:
    """Runs the command in this process and returns its exit status."""
    try:
        return main(args)
    except SystemExit as ended:
        return int(str(ended.code))


async def calls_only_when_reasked(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    if not backend.tokens:
        yield TextDelta("Hello")
    elif len(request.messages) < 4:
        yield ToolCallStart(0, "call_1", request.tools[0].name)
        yield ToolCallDelta(0, '{"city": "Paris"}')
        yield ToolCallEnd(0)
    else:
        yield TextDelta("Sunny.")
    backend.tokens = 1
    yield Finish("stop")


def test_reasked_turn_is_shown(tmp_path: Path) -> None:
    """A call is required and the first response has none, so the model is re-asked."""
    with in_thread(calls_only_when_reasked) as url:
        done = run(tmp_path, "ask", "--gateway", url)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split("-- re-asked; model's text\n")
    assert first.endswith("-- model's text\nHello\n")
    assert second.startswith('{"choices":')
    assert 'get_weather {"city": "Paris"}\n  (complete, valid; re-asked)\n' in second


@pytest.mark.model
@pytest.mark.parametrize("name", ["smollm2", "SmolLM2-135M-Instruct"])
def test_embedded_model_is_found_by_its_other_names(name: str, tmp_path: Path) -> None:
    done = run(tmp_path, "ask", "Hello", "--model", name, "--no-tools")
    assert "model: smollm2-135m, of embedded" in done.stdout, done.stderr


@pytest.mark.model
def test_embedded_model_is_found_by_alias_and_beside_servers(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[model_aliases]\nfast = "smollm2"\n')
    done = run(tmp_path, "ask", "Hello", "--model", "fast", "--no-tools", "--config", str(file))
    assert "model: smollm2-135m, of embedded" in done.stdout, done.stderr
    server = '[upstreams.far]\nurl = "http://127.0.0.1:9/v1"\nmodels = ["m"]\nauto_probe = false\n'
    file.write_text(f'{server}[embedded]\nenabled = true\nmodel = "smollm2-135m"\n')
    done = run(tmp_path, "ask", "Hello", "--model", "smollm2", "--no-tools", "--config", str(file))
    assert "model: smollm2-135m, of embedded" in done.stdout, done.stderr


@pytest.mark.model
def test_raw_output_of_embedded_model_can_be_parsed(tmp_path: Path) -> None:
    """The raw output can be parsed into the same calls."""
    done = run(tmp_path, "ask", "--raw-output")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("<tool_call>\n")
    (call, *_) = (part for part in parse(done.stdout, "hermes").parts if isinstance(part, ToolCall))
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})


# At a terminal


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX pseudo-terminal")
@pytest.mark.parametrize(("columns", "side_by_side"), [(100, True), (60, False)])
def test_columns_are_shown_only_on_wide_terminal(columns: int, side_by_side: bool, tmp_path: Path) -> None:
    with in_thread(answers) as url:
        said = run_at_terminal(tmp_path, columns, "ask", "--gateway", url, NO_COLOR="1")
    shown = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", said)
    assert ("│" in shown) is side_by_side
    assert 'get_weather {"city": "Paris"}' in shown
    assert "finish: tool_calls" in shown
    assert "It is sunny." in shown
    assert not re.search(r"\x1b\[(3|9)\d", said), "no colours are wanted"


def run_at_terminal(home: Path, columns: int, *args: str, **more: str) -> str:
    """Runs the command on a pseudo-terminal (stdin, stdout and stderr) and returns everything it prints."""
    import fcntl
    import termios

    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = {**environment(home), "TERM": "xterm-256color", **more}
    process = subprocess.Popen(command(*args), env=env, cwd=home, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = bytearray()

    def listen() -> None:
        with contextlib.suppress(OSError):  # Linux raises EIO once no process has the other end open
            while piece := os.read(ours, 65536):
                said.extend(piece)

    thread = threading.Thread(target=listen)
    thread.start()
    assert process.wait(60) == 0
    thread.join(60)
    os.close(ours)
    return said.decode()


TOTALS = Totals(1, 1200, 30, 0.01, 1.25, 0.5)
HEAD = Head("m", "embedded", "Why?", ("f(x: string)",), "auto")


def play(page: View, *steps: str | AnyEvent) -> None:
    """Feeds the view: strings are raw model text, events are what the client gets."""
    order = EventOrder()
    page.begin(HEAD)
    page.begin_turn()
    for step in steps:
        if isinstance(step, str):
            page.feed_raw(step)
        else:
            page.feed(step, order.feed(step))
    page.end_turn("stop")
    page.close()
    page.show_totals(TOTALS)


STEPS: list[str | AnyEvent] = [
    Start("", "", 0),
    "<think>Hm",
    ReasoningDelta("Hm"),
    "</think>So:",
    TextDelta("So:"),
    '\n<tool_call>{"name": "f", "arguments": {"x": "日本\x1b[2J"}}',
    ToolCallStart(0, "1", "f"),
    ToolCallDelta(0, '{"x": "日本\x1b[2J"}'),
    ToolCallEnd(0, ("types",), True),
    "</tool_call>",
    Notice("extra_call_dropped", "a second call was dropped"),
    "<tool_call>{",
    ToolCallStart(1, "2", "f"),
    ToolCallDelta(1, "{"),
    ToolCallIncomplete(1, "{"),
    Finish("stop"),
]


def render_columns(width: int, *steps: str | AnyEvent, height: int = 40, color: str | None = None) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, force_terminal=True, color_system=color, highlight=False)  # type: ignore[arg-type]
    play(ColumnsView(console), *steps)
    return out.getvalue()


def rows(shown: str) -> Iterator[tuple[str, str]]:
    """Yields the left and right cell of every row that was not overwritten."""
    for line in re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown).splitlines():
        left, between, right = line.rpartition("\r")[2].partition("│")
        if between:
            yield left.strip(), right.strip()


def test_columns_align_each_event_with_its_model_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.cli.ask.columns._DRAW_EVERY_S", 1e9)  # draw only finished rows
    assert list(rows(render_columns(120, *STEPS))) == [
        ("model's text", "response to the client"),
        ("<think>Hm", "Hm"),
        ("</think>So:", "So:"),
        ('<tool_call>{"name": "f", "arguments": {"x":', 'f {"x": "日本\\x1b[2J"}'),
        ('"日本\\x1b[2J"}}</tool_call>', "✓ complete, valid; repaired: types"),
        ("", "! extra_call_dropped: a second call was dropped"),
        ("<tool_call>{", "f {"),
        ("", "! incomplete: do not run it"),
        ("", "finish: stop"),
    ]


def test_columns_never_exceed_terminal_width() -> None:
    for width in (72, 100, 112, 200):
        shown = render_columns(width, *STEPS)
        lines = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown).splitlines()
        assert max(len(line.rpartition("\r")[2]) for line in lines) <= min(width, 112)


def test_columns_show_long_response_completely() -> None:
    """Its text is many times longer than the screen is high."""
    words = [f"word{n}" for n in range(400)]
    steps = [step for word in words for step in (f"{word} ", TextDelta(f"{word} "))]
    shown = render_columns(80, Start("", "", 0), *steps, Finish("stop"), height=12)
    right = " ".join(right for _, right in rows(shown))
    assert [word for word in words if not re.search(rf"\b{word}\b", right)] == []


def test_columns_use_colour_only_if_terminal_has_colours() -> None:
    assert "\x1b[36m" in render_columns(100, *STEPS, color="standard")
    assert "\x1b[36m" not in render_columns(100, *STEPS)


def test_plain_view_prints_client_events_after_model_text() -> None:
    out = io.StringIO()
    play(PlainView(out), *STEPS)
    assert out.getvalue().endswith(
        "\n-- response to the client\n"
        'Hm\nSo:\nf {"x": "日本\\x1b[2J"}\n  (complete, valid; repaired: types)\n'
        "  (extra_call_dropped: a second call was dropped)\nf {\n  (incomplete: do not run it)\n  (finish: stop)\n"
        "\n-- 1 turn · 1,200 tokens in, 30 out · 1.2 s, 0.5 s to the first token · $0.0100\n"
    )


def test_plain_view_prints_identical_text_once_with_notices() -> None:
    out = io.StringIO()
    page, order = PlainView(out), EventOrder()
    page.begin_turn()
    page.feed_raw("Hi.")
    estimated = Notice("estimated_usage", "no counts")
    for event in (Start("1", "m", 0), TextDelta("Hi."), estimated, Finish("stop")):
        page.feed(event, order.feed(event))
    page.end_turn("stop")
    assert out.getvalue().endswith(
        "Hi.\n\n-- the response is the same text\n  (estimated_usage: no counts)\n  (finish: stop)\n"
    )


def test_control_characters_are_escaped_for_terminal() -> None:
    assert printable("a\x1b[2J\r\u202eb\n") == "a\\x1b[2J\\r\\u202eb\n"


# Raw response text, and tools


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        ({"a": 1, "b": {"c": 2, "d": [1, 2]}}, {"a": 1, "b": {"c": 3, "d": [1, 2]}}, {"b": {"c": 3}}),
        ([{"i": 0, "t": "x"}], [{"i": 0, "t": "y"}], [{"t": "y"}]),
        ([1], [1, 2], [2]),
        ({"a": 1}, {"a": True}, {"a": True}),
        (None, {"a": 1}, {"a": 1}),
        ({"a": 1}, {"a": 1, "b": None}, {"b": None}),
    ],
)
def test_difference_contains_only_changed_fields(old: Any, new: Any, left: Any) -> None:
    assert difference(new, old) == left


def test_raw_text_reader_output_is_independent_of_chunking() -> None:
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": ""},
        {"content": "Hi "},
        {"content": "you"},
        {"tool_calls": [{"index": 0, "id": "1", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
        {},
    ]
    frames = [
        {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": None if delta else "tool_calls"}]}
        for delta in deltas
    ]
    sent = b"".join(b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames) + b"data: [DONE]\n\n"

    def shown(*pieces: bytes) -> str:
        wire = RawTextReader(
            get("openai_chat").reader(Request("m", (), (Tool("f"),)), ExchangeContext("", 0, random_id))
        )
        return "".join(map(wire.feed, pieces))

    whole = shown(sent)
    text, first, second = whole.splitlines()
    assert text == "Hi you"
    assert json.loads(first) == {"choices": [{"delta": deltas[3]}]}
    assert second == '{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{}"}}]}}]}'
    assert shown(*(sent[i : i + 1] for i in range(len(sent)))) == whole


def test_signature_is_parsed_as_tool() -> None:
    (tool,) = demo.parse_tool("add(a: int, b: float = 1, *, c)")
    assert tool.name == "add"
    assert json.loads(tool.parameters) == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "number"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert signature(tool) == "add(a: integer, b: number)"


@pytest.mark.parametrize("text", ["add(", "add(a) + 1", "import os; f()", "(a)", "add(a): pass\nimport os"])
def test_invalid_signature_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a file or a signature like"):
        demo.parse_tool(text)


def test_tools_are_read_from_json_file(tmp_path: Path) -> None:
    file = tmp_path / "tools (mine).json"
    file.write_text('[{"name": "write", "input_schema": {"type": "object"}}]')
    assert [tool.name for tool in demo.parse_tool(str(file))] == ["write"]
    file.write_text("[5]")
    with pytest.raises(ConfigError, match=r"--tool: expected .* in "):
        demo.parse_tool(str(file))


def test_tool_result_defaults_are_used() -> None:
    call = ToolCall("1", WEATHER.name, "{}")
    assert demo.tool_result(call, None) == SUNNY
    assert demo.tool_result(ToolCall("1", "add", "{}"), None) == demo.DONE
    assert demo.tool_result(call, "") == ""
    assert signature(Tool("odd", parameters="[]")) == "odd"
