"""The claude CLI that fails, in every way that it was seen to or could: an error that each API knows, and nothing left.

A stand-in plays what the real one said (tests/data/claude_cli), and does wrong on top of it.
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
class Place:
    """A gateway before the stand-in."""

    command: Path
    url: str
    backend: ClaudeCliBackend

    async def ask(
        self, trace: str, *faults: dict[str, Any], path: str = MESSAGES, stream: bool = False
    ) -> httpx2.Response:
        """What a client gets for this."""
        fake.plan(self.command, TRACES / f"{trace}.jsonl", *faults)
        return await self.once_more(path, stream)

    async def once_more(
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
        """Of all processes of the stand-in so far, and of those that they left behind."""
        return {pid for line in fake.log(self.command) for pid in (line["pid"], line.get("child", line["pid"]))}

    def running(self) -> list[int]:
        """Those that are there still."""
        return [pid for pid in self.pids() if exists(pid)]


@contextlib.asynccontextmanager
async def place(folder: Path, **settings: Any) -> AsyncIterator[Place]:
    """At its end nothing is left of any process."""
    before = children()
    command = fake.installed(folder)
    given: dict[str, Any] = {"tool_mode": "native", "warm_processes": 0, "stall_timeout_s": DEADLINE_S, **settings}
    config = ClaudeCliConfig(enabled=True, command=str(command), **given)
    backend = ClaudeCliBackend(config, {"PATH": os.defpath, "HOME": str(folder)})
    async with serving(Gateway([backend])) as (_, url):
        made = Place(command, url, backend)
        yield made
    assert not [line for line in fake.log(command) if "bug" in line]
    assert children() == before
    await eventually(lambda: not made.running())  # an orphan has nobody here to wait for it


def children() -> set[int]:
    """Processes of this one that are there, those that nobody has waited for among them."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


def text_of(path: str, answer: httpx2.Response) -> str:
    """The words of a whole answer."""
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
REFUSED: Final[dict[str, tuple[int, int, str, str]]] = {
    # trace: status for OpenAI's APIs; status, type for Anthropic's; words
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
WAITS_S: Final = {"limit_key_long": 45, "limit_five_hours": 10**9, "limit_week": 10**9}
"""At least so long the client is told to wait."""
BROKEN: Final = {
    "cut": "lost",
    "reset": "lost",
    "ended_early": "lost",
    "not_streamed": "lost",
    "cut_in_text": "lost",
    "cut_in_thoughts": "lost",
    "error_in_stream": "Overloaded",
}
"""Streams that broke when something of the answer was out, and a word of what is told of it."""


@each_front
@pytest.mark.parametrize("traces", [[*REFUSED][::2], [*REFUSED][1::2]], ids=["some", "others"])
async def test_what_is_refused_is_an_error_of_each_api(tmp_path: Path, path: str, traces: Sequence[str]) -> None:
    async with place(tmp_path) as here:
        for trace in traces:
            status, theirs, kind, words = REFUSED[trace]
            answer = await here.ask(trace, path=path, stream=trace in traces[::2])
            error = shape_of(path, answer.json())
            expected = (theirs, kind) if path == MESSAGES else (status, OPENAI.get(status, "server_error"))
            assert (answer.status_code, error["type"]) == expected, trace
            assert re.search(words, error["message"]), trace
            assert int(answer.headers.get("retry-after", 0)) >= WAITS_S.get(trace, 0), trace


@streamed
@each_front
async def test_a_stream_that_broke_is_no_answer(tmp_path: Path, path: str, stream: bool) -> None:
    """The CLI ends its message as if it were whole."""
    async with place(tmp_path) as here:
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
async def test_no_call_comes_of_a_stream_that_broke(tmp_path: Path, trace: str, stream: bool) -> None:
    async with place(tmp_path) as here:
        answer = await here.ask(trace, stream=stream)
    if stream:
        assert ends_as_failed(MESSAGES, answer.text)
        assert 'tool_use"' not in answer.text.rpartition("content_block_start")[0]
        assert "message_stop" not in answer.text
    else:
        assert answer.status_code == 502


@streamed
@each_front
async def test_an_answer_after_trying_again_is_whole_and_alone(tmp_path: Path, path: str, stream: bool) -> None:
    async with place(tmp_path) as here:
        for trace in ("cut_at_start", "overloaded_twice", "failed_once", "limit_key_once", "limit_near"):
            answer = await here.ask(trace, path=path, stream=stream)
            assert answer.status_code == 200, trace
            assert stream or answer.text.count(SAID) == 1, trace
            assert not stream or not ends_as_failed(path, answer.text), trace
            assert stream or text_of(path, answer) == SAID, trace


SHORT: Final = {"stall_timeout_s": 0.3}
"""Only for what ends in silence: on a busy machine the start alone takes longer."""


LINES: Final = 7
"""At so many lines it fails in `make test`, at each of them in `make test-all`."""


def ends(trace: str) -> int:
    """The number of the line with which an answer is over."""
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
async def test_it_may_fail_at_every_line(tmp_path: Path, trace: str, do: str, how: object) -> None:
    """Before the end of the answer that is an error, told at once; behind it, nobody's business."""
    count = ends(trace) + 1 if do == "hang" else len(fake.said(TRACES / f"{trace}.jsonl"))
    async with place(tmp_path, **(SHORT if do == "hang" else {})) as here:
        for at in {*sample(range(count), LINES, f"{trace} {do} {how}"), ends(trace)}:
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
                assert re.search("said nothing|ended before", error["message"]), at


@each_front
async def test_a_crash_in_mid_answer_is_told_by_each_api(tmp_path: Path, path: str) -> None:
    async with place(tmp_path) as here:
        fault = {"at": ends("plain"), "do": "exit", "with": 3}
        noisy = {"at": 0, "do": "complain", "with": "out of memory\n"}
        broken = await here.ask("plain", noisy, fault, path=path, stream=True)
        whole = await here.ask("plain", noisy, fault, path=path)
        good = await here.ask("plain", path=path)
    assert ends_as_failed(path, broken.text)
    assert "exit status 3: out of memory" in shape_of(path, whole.json())["message"]
    assert text_of(path, good) == SAID


async def test_it_may_fail_in_words_too(tmp_path: Path) -> None:
    """Where it is asked for calls in a prompt."""
    async with place(tmp_path, tool_mode="text") as here:
        assert text_of(MESSAGES, await here.ask("plain")) == SAID
        for at in sample(range(ends("plain") + 1), LINES, "text"):
            answer = await here.ask("plain", {"at": at, "do": "exit", "with": 3}, stream=True)
            assert answer.status_code == 529 or ends_as_failed(MESSAGES, answer.text), at
        broken = await here.ask("cut")
        assert broken.status_code == 502
        refused = await here.ask("plain", {"at": "init", "do": "change", "with": {"tools": ["Bash"]}})
        assert "refused" in shape_of(MESSAGES, refused.json())["message"]


@pytest.mark.parametrize("do", ["exit", "hang"])
async def test_it_may_fail_when_it_is_asked_again(tmp_path: Path, do: str) -> None:
    """For a call that must be."""
    async with place(tmp_path, **(SHORT if do == "hang" else {})) as here:
        fake.plan(here.command, TRACES / "plain.jsonl", {"at": "result", "do": do, "with": 3})
        answer = await here.once_more(tool_choice={"type": "any"})
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
ANOTHERS: Final = [
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
async def test_lines_that_are_none_of_its_answer_change_nothing(tmp_path: Path, stream: bool) -> None:
    """Noise and what a later version may say, before each of its lines."""
    async with place(tmp_path) as here:
        for trace in ("plain", "calls"):
            plain = await here.ask(trace, stream=stream)
            count = len(fake.said(TRACES / f"{trace}.jsonl"))
            noise = [{"at": n, "do": "noise", "with": "\n".join(NOISE)} for n in range(count)]
            also = [{"at": n, "do": "also", "with": UNKNOWN} for n in range(count)]
            also += [{"at": "content_block_delta", "do": "also", "with": ANOTHERS}]
            for faults in (noise, also):
                assert alike(await here.ask(trace, *faults, stream=stream)) == alike(plain)


def alike(answer: httpx2.Response) -> str:
    """What two answers of the same have in common."""
    assert answer.status_code == 200
    return re.sub(r"msg_\w+|: ping\n+|event: ping\n.*\n+", "", answer.text)


@pytest.mark.parametrize("spoilt", ["\x1b[32m{}\x1b[0m", "\x1b[2K\r{}", "{}\r", "  {}", "\xef\xbb\xbf{}"])
async def test_a_line_in_other_clothes_is_read_or_refused(tmp_path: Path, spoilt: str) -> None:
    """A word of the answer is never lost without a word of it."""
    async with place(tmp_path) as here:
        answer = await here.ask("plain", {"at": "content_block_delta", "do": "spoil", "with": spoilt})
    assert text_of(MESSAGES, answer) == SAID if answer.status_code == 200 else shape_of(MESSAGES, answer.json())


@pytest.mark.parametrize("spoilt", ['{}"', "{}{}", "\x00{}", '{"type": "stream_event", {}', "\xff{}"])
async def test_a_broken_line_of_the_answer_is_an_error(tmp_path: Path, spoilt: str) -> None:
    async with place(tmp_path) as here:
        answer = await here.ask("plain", {"at": "content_block_delta", "do": "spoil", "with": spoilt})
    assert answer.status_code >= 500
    shape_of(MESSAGES, answer.json())


async def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "?"}}
    line = json.dumps({"type": "stream_event", "event": event, "parent_tool_use_id": None})
    async with place(tmp_path) as here:
        fault = {"at": "content_block_delta", "do": "noise", "with": line.replace("?", "\xff\xfe")}
        answer = await here.ask("plain", fault)
    assert text_of(MESSAGES, answer) == "\ufffd\ufffd" + SAID


async def test_a_line_of_twenty_megabytes(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        answer = await here.ask("plain", {"at": "content_block_delta", "do": "large", "with": 20_000_000})
        assert text_of(MESSAGES, answer) == SAID


async def test_many_complaints(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        for words in ("it is too hot here\n" * 100_000, "no end of the line " * 100_000):
            answer = await here.ask("plain", {"at": 0, "do": "complain", "with": words})
            assert text_of(MESSAGES, answer) == SAID


async def test_two_results(tmp_path: Path) -> None:
    """One in place of the answer ends it; one behind it is not waited for."""
    result = {"type": "result", "subtype": "success", "is_error": False, "result": "", "num_turns": 0}
    async with place(tmp_path) as here:
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
async def test_one_with_tools_of_its_own_is_not_asked(tmp_path: Path, members: dict[str, object]) -> None:
    async with place(tmp_path) as here:
        for path in FRONTS:
            answer = await here.ask("plain", {"at": "init", "do": "change", "with": members}, path=path, stream=True)
            assert answer.status_code in (503, 529)
            assert "refused" in shape_of(path, answer.json())["message"]
            assert SAID[:5] not in answer.text


async def test_one_that_does_not_say_what_it_has_is_not_heard(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        answer = await here.ask("plain", {"at": "init", "do": "drop"})
    assert answer.status_code >= 500
    assert SAID[:5] not in answer.text


async def test_one_that_does_not_heed_is_made_to(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        answer = await here.ask("plain", {"at": 0, "do": "stay"})
        assert text_of(MESSAGES, answer) == SAID


@pytest.mark.parametrize("at", ["init", "message_stop"])
async def test_what_it_leaves_behind_is_ended_too(tmp_path: Path, at: str) -> None:
    """Its child has its standard output, so that is not over when it is."""
    async with place(tmp_path) as here:
        answer = await here.ask("plain", {"at": at, "do": "child"}, {"at": "message_stop", "do": "exit", "with": 3})
        assert answer.status_code == 529
        assert any("child" in line for line in fake.log(here.command))
        whole = await here.ask("plain", {"at": at, "do": "child"})
        assert text_of(MESSAGES, whole) == SAID


async def test_one_that_falls_silent_behind_its_answer_is_not_waited_for(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        for trace in ("plain", "calls"):
            answer = await here.ask(trace, {"at": "message_stop", "do": "deaf"})
            assert answer.status_code == 200, trace


async def test_one_that_closes_its_mouth_is_not_waited_for(tmp_path: Path) -> None:
    async with place(tmp_path, stall_timeout_s=1.0) as here:
        answer = await here.ask("plain", {"at": "message_stop", "do": "shut"})
    assert answer.status_code in (504, 529)


@streamed
async def test_one_that_takes_nothing_in_is_not_waited_for(tmp_path: Path, stream: bool) -> None:
    """A pipe holds 64 KB: what is to be said does not get out."""
    async with place(tmp_path, stall_timeout_s=1.0) as here:
        fake.plan(here.command, TRACES / "plain.jsonl", {"at": "tools/list", "do": "deaf"})
        answer = await here.once_more(stream=stream, text="much " * 100_000)
    assert answer.status_code == 504


async def test_one_that_died_while_it_waited_is_not_asked(tmp_path: Path) -> None:
    async with place(tmp_path, warm_processes=1) as here:
        first = await here.ask("plain")
        await eventually(
            lambda: here.backend.health()["warm"] and not here.backend.health()["active"] and here.running()
        )
        (waiting,) = here.running()
        os.kill(waiting, signal.SIGKILL)
        await eventually(lambda: not psutil.pid_exists(waiting))
        second = await here.once_more()
    assert text_of(MESSAGES, first) == text_of(MESSAGES, second) == SAID


async def test_who_leaves_ends_it(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
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
def test_it_does_not_outlive_a_gateway_that_was_killed(tmp_path: Path, faults: Sequence[dict[str, Any]]) -> None:
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


def only_waits(here: Place) -> bool:
    """The process that waits is the only one; that of the answer before has ended."""
    state = here.backend.health()
    return state["warm"] == state["processes"] == len(here.running()) == 1


async def test_one_that_died_while_it_waited_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nobody has noticed yet."""
    async with place(tmp_path, warm_processes=1) as here:
        await here.ask("plain")
        await eventually(lambda: only_waits(here))
        (waiting,) = here.running()
        monkeypatch.setattr(Process, "is_running", True)
        os.kill(waiting, signal.SIGKILL)
        cold_before = here.backend.health()["cold_starts"]
        answer = await here.once_more(CHAT)
        assert text_of(CHAT, answer) == SAID
        assert here.backend.health()["cold_starts"] == cold_before + 1  # type: ignore[operator]


async def test_one_that_dies_while_it_waits_is_tidied_up(tmp_path: Path) -> None:
    async with place(tmp_path, warm_processes=1) as here:
        await here.ask("plain")
        await eventually(lambda: only_waits(here))
        (waiting,) = here.running()
        os.kill(waiting, signal.SIGKILL)
        await eventually(lambda: not here.backend.health()["processes"])
        assert here.backend.health()["warm"] == 0


async def test_two_models_in_turn_do_not_end_each_other_s(tmp_path: Path) -> None:
    async with place(tmp_path, warm_processes=1) as here:
        fake.plan(here.command, TRACES / "plain.jsonl")
        for model in ("opus", "haiku") * 3:
            await here.once_more(model=model)
            await eventually(lambda: here.backend.health()["warm"])
        assert here.backend.health()["cold_starts"] == 4  # each of opus, of haiku the first alone
        assert len(here.pids()) <= 8
