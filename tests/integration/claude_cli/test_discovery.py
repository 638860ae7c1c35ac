"""Discovery of the claude program: path, version, tool mode, and errors for programs that cannot be used."""

import asyncio
import os
from pathlib import Path

import pytest

from dragoman.backends.claude_cli import discovery
from dragoman.backends.claude_cli.config import ClaudeCliConfig
from dragoman.core.errors import ConfigError
from support.gateway import exists, until


def program(folder: Path, script: str, name: str = "claude") -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


async def find(path: Path | str, mode: str = "auto", **environ: str) -> discovery.ClaudeInstall:
    environ = {"PATH": os.defpath, **environ}
    return await discovery.find_claude(ClaudeCliConfig(command=str(path), tool_mode=mode), environ)


async def rejection(path: Path | str, mode: str = "auto") -> str:
    with pytest.raises(ConfigError) as error:
        await find(path, mode)
    return error.value.message


@pytest.mark.parametrize(
    ("said", "mode", "used"),
    [
        ("2.1.329 (Claude Code)", "auto", "native"),
        ("2.1.329 (Claude Code)", "native", "native"),
        ("2.1.329 (Claude Code)", "text", "text"),
        ("2.1.152 (Claude Code)", "auto", "native"),
        ("2.1.151 (Claude Code)", "auto", "text"),
        ("2.1.76 (Claude Code)", "text", "text"),
        ("3.0.0 (Claude Code)", "auto", "native"),
        ("2.2.0-beta.1 (Claude Code)", "auto", "native"),
    ],
)
async def test_version_selects_tool_mode(tmp_path: Path, said: str, mode: str, used: str) -> None:
    it = await find(program(tmp_path, f'echo "{said}"'), mode)
    assert it.mode == used
    assert said.startswith(it.name)


async def test_program_is_found_in_path(tmp_path: Path) -> None:
    path = program(tmp_path, "echo 2.1.329")
    assert (await find("claude", PATH=f"/nowhere:{tmp_path}:{os.defpath}")).path == str(path)


@pytest.mark.parametrize(
    ("script", "mode", "told"),
    [
        ("echo 2.1.75", "auto", ["claude 2.1.75 is too old", "2.1.76", "run: claude update"]),
        ("echo 1.0.128", "text", ["claude 1.0.128 is too old", "run: claude update"]),
        ("echo 2.1.151", "native", ["too old for tool mode native", "2.1.152", "claude update", "tool mode text"]),
        ("echo 2.1.329", "fast", ["unknown mode 'fast'", "claude_cli.tool_mode"]),
        ("echo hello", "auto", ["says 'hello'", "not a version of claude"]),
        ("echo 1.2", "auto", ["not a version of claude"]),
        ("exit 0", "auto", ["says ''", "not a version of claude"]),
        ("echo 2.1.329; echo no room left >&2; exit 3", "auto", ["status 3", "no room left"]),
        ("printf '\\377\\376'", "auto", ["not a version of claude"]),
    ],
)
async def test_unusable_program_is_rejected(tmp_path: Path, script: str, mode: str, told: list[str]) -> None:
    message = await rejection(program(tmp_path, script), mode)
    for words in told:
        assert words in message


async def test_missing_program_is_reported_with_install_command() -> None:
    message = await rejection("claude-that-is-not-there")
    assert "there is no program 'claude-that-is-not-there'" in message
    assert "npm install -g @anthropic-ai/claude-code" in message


async def test_invalid_executable_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "claude"
    path.write_bytes(b"\x7fELF, not")
    path.chmod(0o755)
    assert f"cannot start {path}" in await rejection(path)


@pytest.mark.parametrize("stub", ["Error: claude native binary not installed.", "#!/bin/sh\nexit 1\n"])
async def test_npm_stub_error_names_install_step(tmp_path: Path, stub: str) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "install.cjs").touch()
    path = tmp_path / "bin" / "claude.exe"
    path.write_text(stub)
    path.chmod(0o755)
    assert f"did not run; run: node {tmp_path / 'install.cjs'} - at" in await rejection(path)


async def test_hanging_program_is_terminated_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_DEADLINE_S", 3.0)
    path = program(tmp_path, f"sleep 1000 & echo $! $$ > {tmp_path}/pids; wait")
    assert "printed nothing within 3 s" in await rejection(path)
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 2
    for pid in map(int, pids):
        await asyncio.to_thread(until, lambda pid=pid: not exists(pid))


async def test_program_environment_contains_no_secrets(tmp_path: Path) -> None:
    path = program(tmp_path, f"env > {tmp_path}/seen; echo 2.1.329")
    await find(path, HOME="/home/ada", MY_SECRET="s")
    seen = (tmp_path / "seen").read_text()
    assert "HOME=/home/ada" in seen
    assert "MY_SECRET" not in seen
