"""`dragoman doctor`: what works here, what does not, and the line to type; with the real CLI and without one."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from bench import offline

from dragoman.backends.claude_cli import login
from dragoman.backends.claude_cli.installed import Installed
from dragoman.backends.claude_cli_config import ClaudeCliConfig
from gateway import run, running
from scripted import in_thread, plain
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
