"""Control characters from servers, models and files never reach the terminal unescaped."""

import asyncio
import io
import json
import logging
import os
import sys
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest
from rich.console import Console

from dragoman import cli
from dragoman.agents import LaunchPlan
from dragoman.cli import _log_format
from dragoman.cli._common import print_status
from dragoman.cli._terminal import ProgressLine
from dragoman.cli.ask.columns import ColumnsView
from dragoman.cli.run import output
from dragoman.cli.run.select_model import ModelOption
from dragoman.core.events import BlockChange, Notice
from support.capturing import TOOLS, keeping, kept, says
from support.fake_upstream import END, HEAD, Server, ask, piece, server, whole
from support.gateway import CHAT, run

STEERS: Final = "\x1b]0;OWNED\x07\x1b[31m\x9b2J"
SHOWN: Final = r"\x1b]0;OWNED\x07\x1b[31m\x9b2J"
MODEL: Final = f"m{STEERS}"
LISTED: Final = json.dumps({"data": [{"id": MODEL}, {"id": f"n{STEERS}"}]})
CALL: Final = {"index": 0, "id": "c", "function": {"name": f"f{STEERS}", "arguments": json.dumps({"city": STEERS})}}


async def hostile(server: Server, writer: Any) -> None:
    """Lists models, calls a tool, and rejects its result; each response contains control characters."""
    line, _, body = server.asked[-1]
    if line.startswith("GET"):
        await whole(200, LISTED)(server, writer)
    elif len(json.loads(body)["messages"]) > 1:
        await whole(400, json.dumps({"error": {"message": f"bad {STEERS}"}}))(server, writer)
    else:
        writer.write(HEAD + piece({"tool_calls": [CALL]}) + piece({}, "tool_calls") + END)


async def told(home: Path, *args: str) -> str:
    """Returns stdout and stderr of the command."""
    done = await asyncio.to_thread(run, home, *args, PYTHONPATH=os.pathsep.join(sys.path))
    return done.stdout + done.stderr


def is_terminal_safe(said: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in said)


async def test_ask_escapes_control_characters(tmp_path: Path) -> None:
    async with server(hostile) as far:
        said = await told(tmp_path, "ask", "--upstream", f"{far.url}/v1", "--model", MODEL)
    assert is_terminal_safe(said)
    for line in (f"model: m{SHOWN}", f"-- result of f{SHOWN}", f"bad {SHOWN}"):
        assert line in said


async def test_doctor_escapes_control_characters(tmp_path: Path) -> None:
    async with server(hostile) as far:
        said = await told(tmp_path, "doctor", "--upstream", f"{far.url}/v1")
    assert is_terminal_safe(said)
    assert SHOWN in said


async def test_probe_escapes_control_characters(tmp_path: Path) -> None:
    async with server(whole(400, json.dumps({"error": {"message": f"bad {STEERS}"}}))) as far:
        said = await told(tmp_path, "probe", far.url, "--model", MODEL)
    assert is_terminal_safe(said)
    assert f"bad {SHOWN}" in said


async def test_run_does_not_offer_model_with_control_characters(tmp_path: Path) -> None:
    async with server(hostile) as far:
        said = await told(tmp_path, "run", "--upstream", f"{far.url}/v1", "--", "true")
    assert is_terminal_safe(said)
    assert "OWNED" not in said


def test_dry_run_escapes_control_characters() -> None:
    launch = LaunchPlan(("agent", MODEL), {"OPENAI_MODEL": MODEL}, {"file": MODEL})
    said = output.format_launch(launch, Path("folder"), {})
    assert is_terminal_safe(said)
    assert said.count(SHOWN) == 3


def test_status_line_escapes_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_status(f"Agent on {MODEL}")
    assert capsys.readouterr().err == f"dragoman: Agent on m{SHOWN}\n"


async def test_model_prompt_escapes_control_characters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("1\n"))
    output.ask_for_model([ModelOption(MODEL, "far", "", "far")])
    assert is_terminal_safe(capsys.readouterr().err)


async def test_replay_of_foreign_bundle_escapes_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with keeping(tmp_path / "kept", says("<tool_call>"), tool_mode="parse", call_format="hermes") as url:
        await ask(url, CHAT, True, tools=TOOLS)
        [folder] = await kept(tmp_path / "kept")
    summary = json.loads((folder / "summary.json").read_text())
    summary["dragoman"] = STEERS
    summary["log"] |= {"path": STEERS, "error": STEERS}
    (folder / "summary.json").write_text(json.dumps(summary))
    with zipfile.ZipFile(tmp_path / "foreign.zip", "w") as packed:
        for path in folder.rglob("*"):
            packed.write(path, path.relative_to(folder))
    capsys.readouterr()
    await asyncio.to_thread(cli.main, ["replay", str(tmp_path / "foreign.zip"), "--explain"])
    said = capsys.readouterr()
    assert is_terminal_safe(said.out + said.err)
    assert said.out.count(SHOWN) >= 3


def test_columns_view_escapes_control_characters() -> None:
    out = io.StringIO()
    page = ColumnsView(Console(file=out, width=200, force_terminal=False))
    page.feed(Notice("odd", f"it says {STEERS}"), BlockChange())
    page.close()
    page.show_result(f"f{STEERS}", "{}", "")
    assert is_terminal_safe(out.getvalue())
    assert out.getvalue().count(SHOWN) == 2


def test_progress_line_escapes_control_characters() -> None:
    out = io.StringIO()
    out.isatty = lambda: True  # type: ignore[method-assign]
    ProgressLine(out).print(f"asking {STEERS}")
    assert is_terminal_safe(out.getvalue().removeprefix("\r\x1b[K"))


def test_text_log_escapes_control_characters() -> None:
    formatter = _log_format.formatter("text")
    record = logging.makeLogRecord({"msg": f"asks {STEERS}", "levelname": "INFO", "name": "a"})
    assert is_terminal_safe(formatter.format(record))
