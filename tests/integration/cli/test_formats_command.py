"""`dragoman formats`: the table, one format in full, and both as JSON."""

import json
import os
import subprocess
import sys

import pytest

import dragoman
from dragoman import formats
from dragoman.cli import main
from dragoman.cli.formats.facts import CALLS, TOOL, collect_facts, format_facts, format_table
from support.format_cases import all_cases
from support.paths import ROOT

PAGE = ROOT / "docs" / "formats.md"


def test_formats_table_has_row_for_every_format() -> None:
    lines = format_table().splitlines()
    assert [line.split()[0] for line in lines] == ["FORMAT", *formats.names()]
    assert all(formats.get(name).model_families in line for name, line in zip(formats.names(), lines[1:], strict=True))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_formats_table_fits_terminal_width(width: int) -> None:
    lines = format_table(width).splitlines()
    assert len(lines) == len(formats.names()) + 1
    assert max(map(len, lines)) <= width


def test_formats_table_for_narrow_terminal_keeps_model_families() -> None:
    assert format_table(80).splitlines()[0].split() == ["FORMAT", "ARGUMENTS", "IDS", "GRAMMAR", "WRITTEN", "BY"]
    assert "Qwen3-Coder, Qwen3.5 and later, " in format_table(80)
    assert format_table(400).splitlines()[0].split() == format_table().splitlines()[0].split()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX pseudo-terminal")
def test_formats_table_is_truncated_on_terminal_not_in_pipe() -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "dragoman", "formats"]
    process = subprocess.Popen(command, stdout=theirs, stdin=theirs, env={**os.environ, "COLUMNS": "70"})
    os.close(theirs)
    shown = b""
    while not shown.count(b"\n") > len(formats.names()):
        shown += os.read(ours, 65536)
    assert process.wait(timeout=60) == 0
    os.close(ours)
    assert max(map(len, shown.decode().splitlines())) <= 70
    piped = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert piped.stdout == format_table() + "\n"


@pytest.mark.parametrize("name", formats.names())
def test_format_facts_match_parser(name: str) -> None:
    """Two calls in the format's notation, and whether their ids are the model's."""
    known = collect_facts(formats.get(name))
    calls = [
        part
        for part in dragoman.parse(known.calls, name, [TOOL], new_id=lambda: "made").parts
        if isinstance(part, dragoman.ToolCall)
    ]
    assert [(call.name, call.arguments) for call in calls] == [(call.name, call.arguments) for call in CALLS]
    assert (calls[0].id == formats.get(name).numbered(CALLS[0], 0).id) == (known.ids == "model's")
    assert known.constrained == (dragoman.build_constraint(name, [TOOL], dragoman.ToolChoice("required")) is not None)
    shown = format_facts(formats.get(name))
    assert all(line in shown for line in (known.source, *known.call.splitlines(), *known.result.splitlines()))


def test_reasoning_markers_match_format_cases() -> None:
    """A format has reasoning markers exactly if one of its test cases has reasoning."""
    thinking = {case.format for case in all_cases() if any(line.startswith("reasoning") for line in case.expected)}
    assert {name for name in formats.names() if collect_facts(formats.get(name)).reasoning} == thinking


def test_formats_json_contains_all_formats_or_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["formats", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(formats.names())
    assert main(["formats", "qwen", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row in rows
    assert (row["name"], row["ids"], row["arguments"], row["constrained"]) == ("hermes", "ours", "JSON", True)


def test_format_facts_report_origin_of_call_ids() -> None:
    """Kimi's ids contain a dot and a colon, which no API accepts; those of Mistral v3 follow the arguments."""
    some = ("cohere", "cohere_cofl", "solar", "kimi_k2", "mistral_v3", "hermes", "glm")
    whose = [collect_facts(formats.get(name)).ids for name in some]
    assert whose == ["model's"] * 3 + ["replaced"] * 2 + ["ours"] * 2


def test_mistyped_format_is_rejected_with_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["formats", "hermez"]) == 2
    assert "did you mean 'hermes'?" in capsys.readouterr().err


def test_formats_command_accepts_model_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["formats", "Qwen/Qwen3-Coder-30B-A3B-Instruct"]) == 0
    shown = capsys.readouterr()
    assert shown.out == format_facts(formats.get("qwen3_xml")) + "\n"
    assert shown.err.startswith("dragoman: format qwen3_xml: models of the name 'Qwen/Qwen3-Coder-30B-A3B-Instruct'")
    assert main(["formats", "my-tune"]) == 2
    assert "unknown format 'my-tune'" in capsys.readouterr().err


def test_format_repr_contains_name() -> None:
    assert repr(dragoman.detect_format("Qwen3-8B")).startswith("FormatMatch(format=<Format hermes>, by='model', ")


def test_formats_page_describes_every_format() -> None:
    page = PAGE.read_text()
    assert all(f"\n### {name}\n" in page for name in formats.names())
    assert "| 50 of 50 |" in page
