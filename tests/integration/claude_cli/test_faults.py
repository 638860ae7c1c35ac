"""Failures of the claude CLI: clients get an error of their API, and no process is left running.

A fake replays recorded output of the real program (tests/data/claude_cli) and adds faults.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import psutil
import pytest

from dragoman.backends.claude_cli.backend import ClaudeCliBackend
from dragoman.backends.claude_cli.config import ClaudeCliConfig
from dragoman.backends.claude_cli.process import Process
from dragoman.gateway.gateway import Gateway
from support.claude_cli import fake
from support.fake_upstream import FRONTS, RESPONSES, ends_as_failed
from support.gateway import CHAT, DEADLINE_S, MESSAGES, ask, exists, http_request, running, shape_of, until
from support.http_client import http_client
from support.paths import DATA
from support.sampling import sample
from support.scripted_backend import eventually, serving

TRACES: Final = DATA / "claude_cli"
SAID: Final = "Hello to you too."
PARAMETERS: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Final[dict[str, Any]] = {
    CHAT: [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}],
    MESSAGES: [{"name": "weather", "input_schema": PARAMETERS}],
    RESPONSES: [{"type": "function", "name": "weather", "parameters": PARAMETERS}],
}
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
each_front = pytest.mark.parametrize("path", FRONTS)


@dataclass
class FakeClaudeGateway:
    """A gateway in front of the fake."""

    command: Path
    url: str
    backend: ClaudeCliBackend

    async def ask(
        self, trace: str, *faults: dict[str, Any], path: str = MESSAGES, stream: bool = False
    ) -> httpx2.Response:
        """The response to a client for a recorded trace with these faults."""
        fake.plan(self.command, TRACES / f"{trace}.jsonl", *faults)
        return await self.send_request(path, stream)

    async def send_request(
        self, path: str = MESSAGES, stream: bool = False, text: str = "Hello", **more: Any
    ) -> httpx2.Response:
        said: dict[str, Any] = {"input": text}
        if path != RESPONSES:
            said = {"messages": [{"role": "user", "content": text}], "max_tokens": 99}
        body = {"model": "opus", "stream": stream, "tools": TOOLS[path], **said, **more}
        async with http_client(self.url) as client:
            answer = await client.post(path, json=body)
        await eventually(lambda: not self.backend.health()["active"])
        return answer

    def pids(self) -> set[int]:
        """The ids of all processes of the fake so far, and of their children."""
        return {pid for line in fake.log(self.command) for pid in (line["pid"], line.get("child", line["pid"]))}

    def running(self) -> list[int]:
        """The ids of the processes that still exist."""
        return [pid for pid in self.pids() if exists(pid)]


@contextlib.asynccontextmanager
async def fake_claude(folder: Path, **settings: Any) -> AsyncIterator[FakeClaudeGateway]:
    """Starts a gateway with the fake; at the end, asserts that no process is left running."""
    before = children()
    command = fake.installed(folder)
    given: dict[str, Any] = {"tool_mode": "native", "warm_processes": 0, "stall_timeout_s": DEADLINE_S, **settings}
    config = ClaudeCliConfig(enabled=True, command=str(command), **given)
    backend = ClaudeCliBackend(config, {"PATH": os.defpath, "HOME": str(folder)})
    async with serving(Gateway([backend])) as (_, url):
        made = FakeClaudeGateway(command, url, backend)
        yield made
    assert not [line for line in fake.log(command) if "bug" in line]
    assert children() == before
    await eventually(lambda: not made.running())  # no process here waits for an orphan


def children() -> set[int]:
    """The ids of all child processes of this process, including zombies."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


def text_of(path: str, answer: httpx2.Response) -> str:
    """The text of a response that is not streamed."""
    body = answer.json()
    match path:
        case "/v1/chat/completions":
            return str(body["choices"][0]["message"]["content"])
        case "/v1/messages":
            return "".join(block.get("text", "") for block in body["content"])
        case _:
            return "".join(part["text"] for item in body["output"] for part in item.get("content", ()))


OPENAI: Final = {400: "invalid_request_error", 413: "invalid_request_error", 429: "rate_limit_error"}
"""Any other status is a `server_error`."""
REJECTIONS: Final[dict[str, tuple[int, int, str, str]]] = {
    # trace: status for OpenAI's APIs; status, type for Anthropic's; pattern of the message
    "too_long": (400, 400, "invalid_request_error", "too long|context length"),
    "too_large": (413, 413, "request_too_large", "too large"),
    "invalid": (400, 400, "invalid_request_error", "at least one block"),
    "credit": (502, 502, "api_error", "Credit balance is too low"),
    "key_wrong": (502, 502, "api_error", "claude auth login"),
    "token_wrong": (502, 502, "api_error", "claude auth login"),
    "token_revoked": (502, 502, "api_error", "claude auth login"),
    "no_login": (502, 502, "api_error", "claude auth login"),
    "forbidden": (502, 502, "api_error", "claude auth login"),
    "no_model": (502, 502, "api_error", "selected model"),
    "limit_key": (429, 429, "rate_limit_error", "rate limit"),
    "limit_key_long": (429, 429, "rate_limit_error", "too many requests"),
    "limit_subscriber": (429, 429, "rate_limit_error", "rate limit"),
    "limit_five_hours": (429, 429, "rate_limit_error", "5-hour limit"),
    "limit_week": (429, 429, "rate_limit_error", "weekly limit"),
    "failed": (502, 502, "api_error", "Internal server error"),
    "failed_proxy": (502, 502, "api_error", "502"),
    "overloaded": (503, 529, "overloaded_error", "Overloaded"),
    "overloaded_always": (503, 529, "overloaded_error", "Overloaded"),
    "error_first": (503, 529, "overloaded_error", "Overloaded"),
    "no_events": (502, 502, "api_error", "without receiving any events"),
}
MIN_RETRY_AFTER_S: Final = {"limit_key_long": 45, "limit_five_hours": 10**9, "limit_week": 10**9}
"""The minimum of `retry-after`, in seconds."""
BROKEN: Final = {
    "cut": "lost",
    "reset": "lost",
    "ended_early": "lost",
    "not_streamed": "lost",
    "cut_in_text": "lost",
    "cut_in_thoughts": "lost",
    "error_in_stream": "Overloaded",
}
"""Traces of streams that broke after they had begun, and a word of the error message."""


@each_front
@pytest.mark.parametrize("traces", [[*REJECTIONS][::2], [*REJECTIONS][1::2]], ids=["some", "others"])
async def test_claude_error_is_mapped_to_error_of_each_api(tmp_path: Path, path: str, traces: Sequence[str]) -> None:
    async with fake_claude(tmp_path) as here:
        for trace in sorted(traces, key=lambda trace: MIN_RETRY_AFTER_S.get(trace, 0)):  # the last one stops requests
            status, theirs, kind, words = REJECTIONS[trace]
            answer = await here.ask(trace, path=path, stream=trace in traces[::2])
            error = shape_of(path, answer.json())
            expected = (theirs, kind) if path == MESSAGES else (status, OPENAI.get(status, "server_error"))
            assert (answer.status_code, error["type"]) == expected, trace
            assert re.search(words, error["message"]), trace
            assert int(answer.headers.get("retry-after", 0)) >= MIN_RETRY_AFTER_S.get(trace, 0), trace


@streamed
@each_front
async def test_broken_stream_is_an_error(tmp_path: Path, path: str, stream: bool) -> None:
    """The CLI ends its message as if it were complete."""
    async with fake_claude(tmp_path) as here:
        for trace, words in BROKEN.items():
            answer = await here.ask(trace, path=path, stream=stream)
            assert words in answer.text, trace
            if stream:
                assert ends_as_failed(path, answer.text), trace
            else:
                assert answer.status_code in (502, 503, 529), trace
                shape_of(path, answer.json())


@streamed
@pytest.mark.parametrize("trace", ["cut_in_call", "cut_after_call"])
async def test_broken_stream_emits_no_call(tmp_path: Path, trace: str, stream: bool) -> None:
    async with fake_claude(tmp_path) as here:
        answer = await here.ask(trace, stream=stream)
    if stream:
        assert ends_as_failed(MESSAGES, answer.text)
        assert 'tool_use"' not in answer.text.rpartition("content_block_start")[0]
        assert "message_stop" not in answer.text
    else:
        assert answer.status_code == 502


@streamed
@each_front
async def test_response_after_internal_retry_is_complete_and_not_repeated(
    tmp_path: Path, path: str, stream: bool
) -> None:
    async with fake_claude(tmp_path) as here:
        for trace in ("cut_at_start", "overloaded_twice", "failed_once", "limit_key_once", "limit_near"):
            answer = await here.ask(trace, path=path, stream=stream)
            assert answer.status_code == 200, trace
            assert stream or answer.text.count(SAID) == 1, trace
            assert not stream or not ends_as_failed(path, answer.text), trace
            assert stream or text_of(path, answer) == SAID, trace


SHORT_STALL: Final = {"stall_timeout_s": 0.3}
"""Only for traces that end in a stall: on a busy machine, the start alone takes longer."""


FAULT_LINES: Final = 7
"""The number of lines at which the fake fails in `make test`; in `make test-all`, it fails at every line."""


def ends(trace: str) -> int:
    """The index of the line with which the response ends."""
    lines = fake.said(TRACES / f"{trace}.jsonl")
    return next(n for n, line in enumerate(lines) if "message_stop" in fake.words(line))


@pytest.mark.parametrize(
    ("trace", "do", "how"),
    [
        ("plain", "exit", 0),
        ("plain", "kill", signal.SIGKILL),
        ("plain", "kill", signal.SIGSEGV),
        ("plain", "half", 1),
        ("plain", "hang", None),
        ("thinking", "exit", 3),
        ("calls", "exit", 3),
        ("calls", "hang", None),
    ],
)
async def test_failure_at_any_line_is_reported(tmp_path: Path, trace: str, do: str, how: object) -> None:
    """A failure before the end of the response is reported at once; a later one is ignored."""
    count = ends(trace) + 1 if do == "hang" else len(fake.said(TRACES / f"{trace}.jsonl"))
    async with fake_claude(tmp_path, **(SHORT_STALL if do == "hang" else {})) as here:
        for at in {*sample(range(count), FAULT_LINES, f"{trace} {do} {how}"), ends(trace)}:
            stream = bool(at % 2)
            answer = await here.ask(trace, {"at": at, "do": do, "with": how}, stream=stream)
            if at > ends(trace):
                assert answer.status_code == 200, at
                assert not stream or not ends_as_failed(MESSAGES, answer.text), at
            elif answer.status_code == 200:
                assert stream, at
                assert ends_as_failed(MESSAGES, answer.text), at
            else:
                error = shape_of(MESSAGES, answer.json())
                assert answer.status_code == (504 if do == "hang" else 529), at
                assert re.search("sent nothing|ended before", error["message"]), at


@each_front
async def test_crash_in_mid_response_is_reported_in_each_api(tmp_path: Path, path: str) -> None:
    async with fake_claude(tmp_path) as here:
        fault = {"at": ends("plain"), "do": "exit", "with": 3}
        noisy = {"at": 0, "do": "complain", "with": "out of memory\n"}
        broken = await here.ask("plain", noisy, fault, path=path, stream=True)
        whole = await here.ask("plain", noisy, fault, path=path)
        good = await here.ask("plain", path=path)
    assert ends_as_failed(path, broken.text)
    assert "exit status 3: out of memory" in shape_of(path, whole.json())["message"]
    assert text_of(path, good) == SAID


async def test_failure_in_text_mode_is_reported(tmp_path: Path) -> None:
    """The tools are described in the prompt."""
    async with fake_claude(tmp_path, tool_mode="text") as here:
        assert text_of(MESSAGES, await here.ask("plain")) == SAID
        for at in sample(range(ends("plain") + 1), FAULT_LINES, "text"):
            answer = await here.ask("plain", {"at": at, "do": "exit", "with": 3}, stream=True)
            assert answer.status_code == 529 or ends_as_failed(MESSAGES, answer.text), at
        broken = await here.ask("cut")
        assert broken.status_code == 502
        refused = await here.ask("plain", {"at": "init", "do": "change", "with": {"tools": ["Bash"]}})
        assert "refused" in shape_of(MESSAGES, refused.json())["message"]


@pytest.mark.parametrize("do", ["exit", "hang"])
async def test_failure_during_re_ask_is_reported(tmp_path: Path, do: str) -> None:
    """The re-ask is for a required call."""
    async with fake_claude(tmp_path, **(SHORT_STALL if do == "hang" else {})) as here:
        fake.plan(here.command, TRACES / "plain.jsonl", {"at": "result", "do": do, "with": 3})
        answer = await here.send_request(tool_choice={"type": "any"})
        assert answer.status_code == (504 if do == "hang" else 529)


ESCAPES: Final = ["\x1b[2K\r", "\x1b[31;1m", "\x1b]0;claude\x07"]
NOISE: Final = [
    *(
        "",
        " ",
        "Loading…".encode().decode("latin-1"),
        "{",
        "[]",
        "null",
        "0",
        '"text"',
        "{}",
        '{"type": 1}',
        '{"type": null}',
    ),
    *('{"type": "assistant"}', "\xff\xfe\x00"),
    *ESCAPES,
]
OTHER_EVENTS: Final = [
    {"type": "stream_event", "event": {"type": "novelty", "index": 0}},
    {"type": "stream_event", "event": {"type": "message_stop"}, "parent_tool_use_id": "toolu_9"},
]
UNKNOWN: Final = [
    {"type": "novelty", "event": {"type": "message_stop"}},
    {"type": "system", "subtype": "novelty", "tools": ["Bash"]},
    {"type": "control_request", "request_id": "r", "request": {"subtype": "can_use_tool", "tool_name": "Bash"}},
    {"type": "control_request", "request_id": "r", "request": {"subtype": "hook_callback"}},
    {"type": "control_cancel_request", "request_id": "r"},
    {"type": "keep_alive"},
]


@streamed
async def test_noise_and_unknown_lines_are_ignored(tmp_path: Path, stream: bool) -> None:
    """Noise, and lines that a later version may write, are inserted before each line."""
    async with fake_claude(tmp_path) as here:
        for trace in ("plain", "calls"):
            plain = await here.ask(trace, stream=stream)
            count = len(fake.said(TRACES / f"{trace}.jsonl"))
            noise = [{"at": n, "do": "noise", "with": "\n".join(NOISE)} for n in range(count)]
            also = [{"at": n, "do": "also", "with": UNKNOWN} for n in range(count)]
            also += [{"at": "content_block_delta", "do": "also", "with": OTHER_EVENTS}]
            for faults in (noise, also):
                assert comparable(await here.ask(trace, *faults, stream=stream)) == comparable(plain)


def comparable(answer: httpx2.Response) -> str:
    """The response text without ids and pings."""
    assert answer.status_code == 200
    return re.sub(r"msg_\w+|: ping\n+|event: ping\n.*\n+", "", answer.text)


@pytest.mark.parametrize("spoilt", ["\x1b[32m{}\x1b[0m", "\x1b[2K\r{}", "{}\r", "  {}", "\xef\xbb\xbf{}"])
async def test_decorated_line_is_read_or_rejected(tmp_path: Path, spoilt: str) -> None:
    """Text is never lost without an error."""
    async with fake_claude(tmp_path) as here:
        answer = await here.ask("plain", {"at": "content_block_delta", "do": "spoil", "with": spoilt})
    assert text_of(MESSAGES, answer) == SAID if answer.status_code == 200 else shape_of(MESSAGES, answer.json())


@pytest.mark.parametrize("spoilt", ['{}"', "{}{}", "\x00{}", '{"type": "stream_event", {}', "\xff{}"])
async def test_malformed_line_is_an_error(tmp_path: Path, spoilt: str) -> None:
    async with fake_claude(tmp_path) as here:
        answer = await here.ask("plain", {"at": "content_block_delta", "do": "spoil", "with": spoilt})
    assert answer.status_code >= 500
    shape_of(MESSAGES, answer.json())


async def test_invalid_utf8_is_replaced(tmp_path: Path) -> None:
    event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "?"}}
    line = json.dumps({"type": "stream_event", "event": event, "parent_tool_use_id": None})
    async with fake_claude(tmp_path) as here:
        fault = {"at": "content_block_delta", "do": "noise", "with": line.replace("?", "\xff\xfe")}
        answer = await here.ask("plain", fault)
    assert text_of(MESSAGES, answer) == "\ufffd\ufffd" + SAID


async def test_line_of_20_mb_is_read(tmp_path: Path) -> None:
    async with fake_claude(tmp_path) as here:
        answer = await here.ask("plain", {"at": "content_block_delta", "do": "large", "with": 20_000_000})
        assert text_of(MESSAGES, answer) == SAID


async def test_large_stderr_output_does_not_block(tmp_path: Path) -> None:
    async with fake_claude(tmp_path) as here:
        for words in ("it is too hot here\n" * 100_000, "no end of the line " * 100_000):
            answer = await here.ask("plain", {"at": 0, "do": "complain", "with": words})
            assert text_of(MESSAGES, answer) == SAID


async def test_second_result_line_is_not_awaited(tmp_path: Path) -> None:
    """A result instead of a response ends it; a result after the response is not awaited."""
    result = {"type": "result", "subtype": "success", "is_error": False, "result": "", "num_turns": 0}
    async with fake_claude(tmp_path) as here:
        before = await here.ask("plain", {"at": "message_start", "do": "also", "with": [result, result]})
        behind = await here.ask("plain", {"at": "result", "do": "also", "with": [result]})
    assert before.status_code >= 500
    assert "without an answer" in shape_of(MESSAGES, before.json())["message"]
    assert text_of(MESSAGES, behind) == SAID


@pytest.mark.parametrize(
    "members",
    [
        {"tools": ["Bash"]},
        {"tools": ["mcp__other__read"]},
        {"tools": ["mcp__t__weather", "mcp__t__shell"]},
        {"tools": None},
        {"mcp_servers": [{"name": "t", "status": "connected"}, {"name": "files", "status": "connected"}]},
        {"mcp_servers": None},
    ],
    ids=["own", "other-server", "not-offered", "no-list", "server", "no-servers"],
)
async def test_process_with_unexpected_tools_is_rejected(tmp_path: Path, members: dict[str, object]) -> None:
    async with fake_claude(tmp_path) as here:
        for path in FRONTS:
            answer = await here.ask("plain", {"at": "init", "do": "change", "with": members}, path=path, stream=True)
            assert answer.status_code in (503, 529)
            assert "refused" in shape_of(path, answer.json())["message"]
            assert SAID[:5] not in answer.text


async def test_process_without_init_line_is_rejected(tmp_path: Path) -> None:
    async with fake_claude(tmp_path) as here:
        answer = await here.ask("plain", {"at": "init", "do": "drop"})
    assert answer.status_code >= 500
    assert SAID[:5] not in answer.text


async def test_process_that_ignores_shutdown_is_killed(tmp_path: Path) -> None:
    async with fake_claude(tmp_path) as here:
        answer = await here.ask("plain", {"at": 0, "do": "stay"})
        assert text_of(MESSAGES, answer) == SAID


@pytest.mark.parametrize("at", ["init", "message_stop"])
async def test_child_of_ended_process_is_terminated(tmp_path: Path, at: str) -> None:
    """The child inherits standard output, which therefore stays open after the program ends."""
    async with fake_claude(tmp_path) as here:
        answer = await here.ask("plain", {"at": at, "do": "child"}, {"at": "message_stop", "do": "exit", "with": 3})
        assert answer.status_code == 529
        assert any("child" in line for line in fake.log(here.command))
        whole = await here.ask("plain", {"at": at, "do": "child"})
        assert text_of(MESSAGES, whole) == SAID


async def test_process_that_stalls_after_response_is_not_awaited(tmp_path: Path) -> None:
    async with fake_claude(tmp_path) as here:
        for trace in ("plain", "calls"):
            answer = await here.ask(trace, {"at": "message_stop", "do": "deaf"})
            assert answer.status_code == 200, trace


async def test_process_that_closes_stdout_is_reported(tmp_path: Path) -> None:
    async with fake_claude(tmp_path, stall_timeout_s=1.0) as here:
        answer = await here.ask("plain", {"at": "message_stop", "do": "shut"})
    assert answer.status_code in (504, 529)


@streamed
async def test_process_that_does_not_read_stdin_times_out(tmp_path: Path, stream: bool) -> None:
    """A pipe holds 64 KB, so the request cannot be written completely."""
    async with fake_claude(tmp_path, stall_timeout_s=1.0) as here:
        fake.plan(here.command, TRACES / "plain.jsonl", {"at": "tools/list", "do": "deaf"})
        answer = await here.send_request(stream=stream, text="much " * 100_000)
    assert answer.status_code == 504


async def test_dead_warm_process_is_not_used(tmp_path: Path) -> None:
    async with fake_claude(tmp_path, warm_processes=1) as here:
        first = await here.ask("plain")
        await eventually(
            lambda: here.backend.health()["warm"] and not here.backend.health()["active"] and here.running()
        )
        (waiting,) = here.running()
        os.kill(waiting, signal.SIGKILL)
        await eventually(lambda: not psutil.pid_exists(waiting))
        second = await here.send_request()
    assert text_of(MESSAGES, first) == text_of(MESSAGES, second) == SAID


async def test_client_disconnect_terminates_process(tmp_path: Path) -> None:
    async with fake_claude(tmp_path) as here:
        fake.plan(here.command, TRACES / "hang.jsonl")
        host, _, port = here.url.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(http_request(MESSAGES, json.dumps(ask(MESSAGES, model="opus", stream=True)).encode()))
        await reader.readuntil(b"content_block_delta")
        writer.close()
        await eventually(lambda: not here.backend.health()["processes"])
        assert here.pids()
        assert not here.running()


@pytest.mark.parametrize("faults", [[{"at": 0, "do": "stay"}], [{"at": 0, "do": "child"}]], ids=["stays", "child"])
def test_processes_end_after_gateway_is_killed(tmp_path: Path, faults: Sequence[dict[str, Any]]) -> None:
    command = fake.installed(tmp_path)
    fake.plan(command, TRACES / "hang.jsonl", *faults)
    settings = {"claude_cli.enabled": "true", "claude_cli.command": command, "claude_cli.tool_mode": "native"}
    with running(tmp_path, settings=settings) as there, there.client() as client:
        body = ask(MESSAGES, model="opus", stream=True)
        with client.stream("POST", MESSAGES, json=body) as answer:
            assert next(text for text in answer.iter_text() if "content_block_delta" in text)
            there.stop(signal.SIGKILL)
        pids = {pid for line in fake.log(command) for pid in (line["pid"], line.get("child", line["pid"]))}
        assert pids
        until(lambda: not [pid for pid in pids if exists(pid)], "the end of what it started")


def only_warm_process_runs(here: FakeClaudeGateway) -> bool:
    """Returns whether the warm process is the only one; the process of the previous response has ended."""
    state = here.backend.health()
    return state["warm"] == state["processes"] == len(here.running()) == 1


async def test_warm_process_whose_death_is_unnoticed_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This includes a death that has not been noticed yet."""
    async with fake_claude(tmp_path, warm_processes=1) as here:
        await here.ask("plain")
        await eventually(lambda: only_warm_process_runs(here))
        (waiting,) = here.running()
        monkeypatch.setattr(Process, "is_running", True)
        os.kill(waiting, signal.SIGKILL)
        cold_before = here.backend.health()["cold_starts"]
        answer = await here.send_request(CHAT)
        assert text_of(CHAT, answer) == SAID
        assert here.backend.health()["cold_starts"] == cold_before + 1  # type: ignore[operator]


async def test_dead_warm_process_is_removed(tmp_path: Path) -> None:
    async with fake_claude(tmp_path, warm_processes=1) as here:
        await here.ask("plain")
        await eventually(lambda: only_warm_process_runs(here))
        (waiting,) = here.running()
        os.kill(waiting, signal.SIGKILL)
        await eventually(lambda: not here.backend.health()["processes"])
        assert here.backend.health()["warm"] == 0


async def test_alternating_models_reuse_warm_processes(tmp_path: Path) -> None:
    async with fake_claude(tmp_path, warm_processes=1) as here:
        fake.plan(here.command, TRACES / "plain.jsonl")
        for model in ("opus", "haiku") * 3:
            await here.send_request(model=model)
            await eventually(lambda: here.backend.health()["warm"])
        assert here.backend.health()["cold_starts"] == 4  # each for opus, only the first for haiku
        assert len(here.pids()) <= 8
