"""`dragoman doctor`: what works here, what does not, and the line to type; with the real CLI and without one."""

import asyncio
import json
import os
import re
import socket
import subprocess
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest
from bench import offline

from dragoman.backends.claude_cli import login
from dragoman.backends.claude_cli.installed import Installed
from dragoman.backends.claude_cli_config import ClaudeCliConfig
from dragoman.cli.doctor import Finding, span, table
from dragoman.core.events import AnyEvent, Finish, Start, ToolCallDelta, ToolCallEnd, ToolCallStart
from dragoman.core.values import Request, Text
from dragoman.guard.policy import Policy
from dragoman.server.config import ServerConfig
from dragoman.server.counted import Calls, url
from gateway import CHAT, run, running
from scripted import Scripted, Served, in_thread, plain, served
from test_base_install import dragoman

Told = Mapping[str, Mapping[str, str]]


def doctor(home: Path, *args: str, **settings: str) -> tuple[int, Told]:
    """The exit status, and what was told of each thing."""
    done = run(home, "doctor", "--json", *args, **settings)
    told: list[dict[str, str]] = json.loads(done.stdout)
    assert not done.stderr
    return done.returncode, {finding["what"]: finding for finding in told}


def with_claude(**more: str) -> dict[str, str]:
    """Variables with which it is installed, with no network to speak of."""
    path = os.pathsep.join([str(offline.claude_code().parent), os.defpath])
    return {"PATH": path, "HTTPS_PROXY": "http://127.0.0.1:9", **more}


def settings(home: Path, text: str) -> str:
    file = home / "settings.toml"
    file.write_text(text)
    return str(file)


def test_nothing_is_set_up(tmp_path: Path) -> None:
    """Which is in order: the embedded model is served, and fetched first."""
    status, told = doctor(tmp_path, DRAGOMAN_HOME=str(tmp_path))
    assert status == 0
    assert told["weights"]["verdict"] == "note"
    assert "dragoman pull smollm2-135m" in told["weights"]["words"]
    assert told["claude"]["verdict"] == "note"
    assert "npm install -g @anthropic-ai/claude-code" in told["claude"]["words"]
    assert not [finding for finding in told.values() if finding["verdict"] == "no"]


def test_claude_is_wanted_and_not_installed(tmp_path: Path) -> None:
    status, told = doctor(tmp_path, "--claude")
    assert status == 1
    assert told["claude"]["verdict"] == "no"
    assert "install it: npm install -g @anthropic-ai/claude-code" in told["claude"]["words"]
    assert "weights" not in told, "no model of the box is served then"


def test_nobody_is_logged_in(tmp_path: Path) -> None:
    status, told = doctor(tmp_path, "--claude", **with_claude())
    assert status == 1
    assert told["claude"]["verdict"] == "ok"
    assert offline.version("@anthropic-ai/claude-code") in told["claude"]["words"]
    assert "natively" in told["claude"]["words"]
    assert told["claude's login"]["verdict"] == "no"
    assert told["claude's login"]["words"] == "claude is not logged in; run: claude auth login"


def test_serve_says_so_too(tmp_path: Path) -> None:
    """And serves: whoever logs in then is asked."""
    settings = {"claude_cli.enabled": "true", "claude_cli.command": str(offline.claude_code())}
    with running(tmp_path, settings=settings) as gateway:
        assert gateway.line("claude is not logged in; run: claude auth login")
    done = run(tmp_path, "serve", "--claude", "--check")
    assert done.returncode == 2
    assert "install it: npm install -g @anthropic-ai/claude-code" in done.stderr


def test_that_is_no_fault_where_claude_is_not_wanted(tmp_path: Path) -> None:
    status, told = doctor(tmp_path, **with_claude())
    assert status == 0
    assert "dragoman serve --claude" in told["claude"]["words"]
    assert told["claude's login"]["verdict"] == "note"


def test_a_key_is_a_login_and_is_not_shown(tmp_path: Path) -> None:
    file = settings(tmp_path, "[claude_cli]\nenabled = true")
    status, told = doctor(tmp_path, "--config", file, **with_claude(ANTHROPIC_API_KEY="sk-ant-hidden"))
    assert status == 0
    assert told["claude's login"] == {
        "what": "claude's login",
        "verdict": "ok",
        "words": "api_key, ANTHROPIC_API_KEY",
    }
    assert "hidden" not in json.dumps(told)


def test_what_the_processes_do_not_get_is_no_login(tmp_path: Path) -> None:
    """Asked is with the variables that they have, and no others."""
    status, told = doctor(tmp_path, "--claude", **with_claude(CLAUDE_CODE_USE_BEDROCK="1"))
    assert status == 1
    assert told["claude's login"]["verdict"] == "no"


async def test_a_version_that_cannot_tell_is_not_asked(tmp_path: Path) -> None:
    """It would take the words for a prompt."""
    nowhere = Installed(str(tmp_path / "not there"), (2, 1, 39), "text")
    assert await login.asked(nowhere, ClaudeCliConfig(), {}) == login.Login(None)


@pytest.mark.parametrize("said", [b"", b"Not logged in", b"[]", b'{"other": 1}', b"\xff", b'{"loggedIn": "yes"}'])
def test_an_answer_that_is_none(said: bytes) -> None:
    assert login.read(said) == login.Login(None)


def test_an_answer_of_a_subscription() -> None:
    """And nothing of whose it is."""
    said: dict[str, Any] = {"loggedIn": True, "authMethod": "claude.ai", "email": "a@b.c", "subscriptionType": "max"}
    assert login.read(json.dumps(said).encode()) == login.Login(True, "claude.ai, max")


def test_servers_that_answer_and_do_not(tmp_path: Path) -> None:
    with in_thread(plain) as url:
        file = settings(
            tmp_path,
            f'[servers.near]\nurl = "{url}/v1"\n[servers.gone]\nurl = "http://127.0.0.1:9/v1"\n'
            f'[servers.keyed]\nurl = "{url}/v1"\nkey_env = "NOT_SET"\n',
        )
        status, told = doctor(tmp_path, "--config", file)
    assert status == 1
    assert told["server near"]["verdict"] == "ok"
    assert url in told["server near"]["words"]
    assert told["server gone"]["verdict"] == told["server keyed"]["verdict"] == "no"
    assert "is the server running?" in told["server gone"]["words"]
    assert "NOT_SET" in told["server keyed"]["words"]


def test_settings_that_are_wrong(tmp_path: Path) -> None:
    status, told = doctor(tmp_path, "--config", settings(tmp_path, "[server]\nprot = 1"))
    assert status == 1
    assert told["settings"]["verdict"] == "no"
    assert "did you mean 'server.port'?" in told["settings"]["words"]


def test_for_people(tmp_path: Path) -> None:
    done = run(tmp_path, "doctor", "--claude")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].split()[:2] == ["dragoman", "ok"]
    assert lines[1].split()[:2] == ["settings", "ok"]
    assert max(map(len, lines)) <= 100 or str(tmp_path) in done.stdout


def test_without_the_extras() -> None:
    """The base install can say what is missing."""
    done = dragoman("doctor")
    assert done.returncode == 1
    assert "pip install 'dragoman[server,embedded]'" in " ".join(done.stdout.split())


# What a running gateway has counted


def schema(name: str) -> dict[str, object]:
    parameters = {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


async def writes(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    """A model that writes as arguments what the user says, however often it is asked."""
    said = [part.text for message in request.messages for part in message.parts if isinstance(part, Text)]
    yield Start("", "", 0)
    yield ToolCallStart(0, "call_1", "forecast")
    yield ToolCallDelta(0, said[0])
    yield ToolCallEnd(0)
    yield Finish("stop")


async def diagnosed(home: Path, s: Served, *args: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """`dragoman doctor`, told where the gateway is; this one must go on meanwhile."""
    port = s.url.rpartition(":")[2]
    return await asyncio.to_thread(run, home, "doctor", *args, DRAGOMAN_SERVER_PORT=port, **environ)


async def asked(s: Served, *said: str, **headers: str) -> None:
    async with s.client() as client:
        for words in said:
            messages = [{"role": "user", "content": words}]
            body = {"model": "m", "messages": messages, "tools": [schema("forecast")]}
            assert (await client.post(CHAT, json=body, headers=headers)).status_code == 200


async def test_it_tells_what_became_of_calls(tmp_path: Path) -> None:
    async with served(writes, policy=Policy()) as s:
        await asked(s, '{"days": 1}', '{"days": 2}', '{"days": "3"}', '{"day": 4}')
        done = await diagnosed(tmp_path, s, "--json")
        people = await diagnosed(tmp_path, s)
    told = {finding["what"]: finding for finding in json.loads(done.stdout)}
    assert told["gateway"]["verdict"] == "ok"
    assert s.url in told["gateway"]["words"]
    assert "4 requests, 0 failed, 0 being answered" in told["gateway"]["words"]
    assert told["calls"]["words"] == "4 tool calls since then"
    assert told["calls"]["models"] == [
        {"model": "m", "calls": 4, "valid": 2, "mended": 1, "asked_again": 0, "failed": 1, "unchecked": 0}
    ]
    assert "models" not in told["gateway"]
    *_, heads, row = people.stdout.rstrip("\n").splitlines()
    assert re.split("  +", heads.strip()) == [
        *("model", "calls", "valid at first", "mended", "asked again", "failed", "unchecked"),
    ]
    assert re.split("  +", row.strip()) == ["m", "4", "50.0 %", "1", "0", "1", "0"]
    assert len(row) == len(heads) <= 100


async def test_a_gateway_with_a_key(tmp_path: Path) -> None:
    """It is asked with the one of the settings, and with that only."""
    async with served(writes, policy=Policy(), keys=("secret-key", "other-key")) as s:
        await asked(s, '{"days": 1}', authorization="Bearer secret-key")
        known = await diagnosed(tmp_path, s, DRAGOMAN_SERVER_KEYS="other-key")
        wrong = await diagnosed(tmp_path, s, DRAGOMAN_SERVER_KEYS="wrong-key")
    assert "1 tool call since then" in known.stdout
    assert "takes other keys than server.keys" in " ".join(wrong.stdout.split())
    assert "-key" not in known.stdout + wrong.stdout + known.stderr + wrong.stderr


async def test_a_gateway_that_counts_nothing(tmp_path: Path) -> None:
    async with served(plain, metrics=False) as s:
        done = await diagnosed(tmp_path, s)
    assert "has no /metrics: server.metrics is off there" in " ".join(done.stdout.split())
    assert done.returncode == 0


async def test_a_gateway_without_calls(tmp_path: Path) -> None:
    async with served(plain) as s:
        done = await diagnosed(tmp_path, s)
    assert done.stdout.rstrip("\n").splitlines()[-1].split() == ["calls", "ok", "no", "tool", "calls", "since", "then"]


async def test_something_else_on_its_port_is_told_no_key(tmp_path: Path) -> None:
    heard = bytearray()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
        port = str(other.sockets[0].getsockname()[1])
        settings = {"DRAGOMAN_SERVER_PORT": port, "DRAGOMAN_SERVER_KEYS": "secret-key"}
        done = await asyncio.to_thread(lambda: run(tmp_path, "doctor", **settings))
    assert f"what answers at http://127.0.0.1:{port} is no gateway" in " ".join(done.stdout.split())
    assert heard.startswith(b"GET / ")
    assert b"secret" not in heard


def test_no_gateway_runs(tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound and not listening: nobody answers
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
        status, told = doctor(tmp_path, DRAGOMAN_SERVER_PORT=port)
    assert status == 0
    assert told["gateway"]["words"] == f"no gateway answers at http://127.0.0.1:{port}; `dragoman serve` starts one"
    assert told["gateway"]["verdict"] == "note"
    assert "calls" not in told


@pytest.mark.parametrize(
    ("host", "where"),
    [
        ("127.0.0.1", "http://127.0.0.1:1"),
        ("0.0.0.0", "http://127.0.0.1:1"),
        ("::", "http://[::1]:1"),
        ("::1", "http://[::1]:1"),
        ("box.lan", "http://box.lan:1"),
    ],
)
def test_where_it_is_looked_for(host: str, where: str) -> None:
    assert url(ServerConfig(host=host, port=1)) == where


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7300, "2 h"), (90_000, "25 h"), (2e5, "2 days")],
)
def test_how_long_it_is_up(seconds: float, told: str) -> None:
    assert span(seconds) == told


def test_a_long_table_is_cut() -> None:
    models = tuple(Calls(f"lan/{'x' * 60}{n}\x1b[2J", 9, 0, 0, 0, 0, 9) for n in range(25))
    lines = table([Finding("calls", "ok", "225 calls since then", models)]).splitlines()
    assert lines[-1].strip() == "and 5 more, in /metrics"
    assert all(line.isprintable() and len(line) <= 100 for line in lines)
    assert lines[3].split()[1:] == ["9", "-", "0", "0", "0", "9"]
