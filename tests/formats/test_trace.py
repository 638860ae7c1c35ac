"""Traces of read replies: the spans cover all of the text without gaps, and match the events."""

import json
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dragoman
from dragoman import formats
from dragoman.cli import main
from dragoman.core import events as ev
from dragoman.parsing.trace import Kind, ReadTracer
from support.check_each import check_each
from support.format_cases import TOOLS, Case, all_cases, cases_by_format, title
from support.paths import ROOT
from support.sampling import sample

OFFERED = [dragoman.Tool("get_weather"), dragoman.Tool("ping")]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def spans(case: Case) -> tuple[dragoman.types.Span, ...]:
    return dragoman.explain(
        case.text,
        case.format,
        None if case.options.get("tools") == "any" else TOOLS,
        finish_reason=case.reason,
        prompt_suffix=case.options.get("tail", "").replace("\\n", "\n"),
        lenient="lenient" in case.options,
    )


def check_coverage(found: tuple[dragoman.types.Span, ...], text: str) -> None:
    assert "".join(span.raw for span in found) == text
    assert all(one.end == next.start for one, next in pairwise(found))
    assert all(span.raw == text[span.start : span.end] and span.kind in get_args(Kind) for span in found)


def told(found: tuple[dragoman.types.Span, ...]) -> list[tuple[str, str]]:
    return [(span.kind, span.raw) for span in found]


def note_lines(found: tuple[dragoman.types.Span, ...]) -> list[str]:
    return [f"{remark.code} at {remark.at}: {remark.message}" for span in found for remark in span.notes]


@pytest.mark.parametrize("name", cases_by_format())
def test_spans_cover_text_and_match_events(name: str, subtests: pytest.Subtests) -> None:
    def check(case: Case) -> None:
        found, events = spans(case), case.events
        check_coverage(found, case.text)
        said = "".join(e.text for e in events if isinstance(e, ev.TextDelta))
        assert "".join(span.raw for span in found if span.kind == "text" or span.also_text) == said
        thought = "".join(e.text for e in events if isinstance(e, ev.ReasoningDelta))
        assert "".join(span.raw for span in found if span.kind == "reasoning") == thought
        for kind, event in (("end", ev.ToolCallEnd), ("incomplete", ev.ToolCallIncomplete)):
            assert [s.index for s in found if s.kind == kind] == [e.index for e in events if isinstance(e, event)]
        codes = [r.code for span in found for r in span.notes if r.code not in ("no_call", "other_reading")]
        assert sorted(codes) == sorted(e.code for e in events if isinstance(e, ev.Notice))

    check_each(subtests, sample(cases_by_format()[name], 10, name), check, title)


@given(
    case=st.sampled_from(all_cases()),
    at=st.floats(0, 1),
    size=st.integers(0, 8),
    junk=st.text('<>/{}[]",:\\ \n`tool_cal', max_size=6),
    reason=st.sampled_from(["stop", "length"]),
)
def test_spans_cover_damaged_text(case: Case, at: float, size: int, junk: str, reason: str) -> None:
    start = int(at * len(case.text))
    text = case.text[:start] + junk + case.text[start + size :]
    check_coverage(spans(Case(case.format, "", text, [], {**case.options, "reason": reason})), text)


def test_each_span_kind_is_documented() -> None:
    page = (ROOT / "docs" / "library.md").read_text()
    assert all(f"`{kind}`" in page for kind in get_args(Kind))


def test_explain_returns_spans_of_call() -> None:
    found = dragoman.explain(f"<think>Hm.</think>\nSo.\n{CALL}\nDone.", "auto", OFFERED, new_id=lambda: "1")
    assert told(found) == [
        ("framing", "<think>"),
        ("reasoning", "Hm."),
        ("framing", "</think>\n"),
        ("text", "So."),
        ("call", '\n<tool_call>\n{"name": "get_weather", "arguments": '),
        ("arguments", '{"city": "Paris"}'),
        ("end", "}\n</tool_call>"),
        ("text", "\nDone."),
    ]
    assert {(s.index, s.name, s.id, s.format) for s in found[4:7]} == {(0, "get_weather", "call_1", "hermes")}


def test_auto_reports_format_of_each_call() -> None:
    text = CALL + "<tool_call>ping</tool_call>"
    found = dragoman.explain(text, "auto", OFFERED)
    assert [(s.index, s.format) for s in found if s.kind == "call"] == [(0, "hermes"), (1, "glm")]


EXPLANATIONS: list[tuple[str, str, list[str]]] = [
    (
        CALL.replace("get_weather", "set_weather"),
        "hermes",
        [
            "unknown_tool at 34: the model called 'set_weather', which is not an offered tool; did you mean"
            " 'get_weather'? offered: 'get_weather', 'ping'"
        ],
    ),
    (
        CALL.replace('"Paris"', "Paris"),
        "hermes",
        [
            "malformed_arguments at 58: expected a value at 58, got 'Paris}}\\n</tool_call>'",
            "stray_closing_tag at 66: dropped </tool_call> that closes nothing",
        ],
    ),
    (
        '<tool_call>{"name" "ping"}</tool_call>',
        "auto",
        ["no_call at 18: expected ':' at 19, got '\"ping\"}</tool_call>'"],
    ),
    ('<tool_call>{"arguments": {}}', "auto", ["no_call at 28: the object has no name (at 28)"]),
    (
        "[TOOL_CALLS]ping and more",
        "mistral",
        ["no_call at 12: expected the head of a call at 12, got 'ping and more'"],
    ),
    (
        CALL,
        "mistral",
        [
            "other_reading at 0: format 'auto', format 'hermes', format 'ernie45' and 7 more would find a call of"
            " 'get_weather' here"
        ],
    ),
    (
        '{"name": "ping", "arguments": {}}',
        "hermes",
        ["other_reading at 0: lenient reading, format 'llama3_json', format 'xlam' would find a call of 'ping' here"],
    ),
    (
        "<fn>ping</fn>",
        "auto",
        ["no_call at 4: 'ping' is named here, but nothing that is known to open a call stands before it"],
    ),
    (
        "<think>I could ping",
        "auto",
        ["no_call at 15: 'ping' is named here, but reasoning is not searched for calls"],
    ),
]


@pytest.mark.parametrize(("text", "format", "told"), EXPLANATIONS)
def test_missing_call_is_explained(text: str, format: str, told: list[str]) -> None:
    assert note_lines(dragoman.explain(text, format, OFFERED)) == told


def test_long_tool_list_is_not_reported() -> None:
    many = [dragoman.Tool(f"tool_{i}") for i in range(50)]
    (remark,) = note_lines(dragoman.explain(CALL, "hermes", many))
    assert remark.endswith("which is not an offered tool")


def test_plain_text_has_no_notes() -> None:
    assert told(dragoman.explain("Hello.", "auto", OFFERED)) == [("text", "Hello.")]
    assert note_lines(dragoman.explain("Hello.", "auto")) == []
    assert dragoman.explain("", "auto") == ()


def test_text_after_end_of_reply_is_unread() -> None:
    found = dragoman.explain(f"{CALL}<tool_response>sunny</tool_response>", "hermes", OFFERED)
    assert told(found)[-2:] == [("dropped", "<tool_response>"), ("unread", "sunny</tool_response>")]


def test_positions_are_relative_to_reply() -> None:
    """The text of `prompt_suffix` does not count, although a call may begin there."""
    found = dragoman.explain("Hm.</think>Yes.", "deepseek_v3", prompt_suffix="<think>")
    assert [(s.start, s.kind, s.raw) for s in found] == [
        (0, "reasoning", "Hm."),
        (3, "framing", "</think>"),
        (11, "text", "Yes."),
    ]
    opened, text = '<tool_call>{"name": "ping", "arguments": ', '{"n": x}}'
    first, broken, last = dragoman.explain(text, "hermes", OFFERED, prompt_suffix=opened)
    assert (first.kind, first.raw, first.index, first.name) == ("arguments", '{"n": ', 0, "ping")
    assert note_lines((broken,)) == ["malformed_arguments at 6: expected a value at 6, got 'x}}'"]
    assert last.raw == "x}}"
    (text_span,) = dragoman.explain("{}}</tool_call>", "deepseek_v3", OFFERED, prompt_suffix=opened)
    assert text_span.notes == (), "what other readers find begins in the prompt"


def test_notes_of_many_failed_calls_take_linear_time() -> None:
    """Quadratic work would exceed the test's time limit."""
    tracer = ReadTracer(text := '<tool_call>{"x": 1}</tool_call>\n' * 20_000, formats.get("hermes"))
    reader = dragoman.ToolCallReader(tracer.format)
    assert len(tracer.spans([*reader.feed(text), *reader.close()])[0].notes) == 20_000


def test_explain_command_escapes_terminal_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "reply.txt").write_text(r'<tool_call>{"name": "\u001b[31mf", "arguments": {}}</tool_call>')
    assert main(["parse", "--explain", str(tmp_path / "reply.txt")]) == 0
    assert r"= \x1b[31mf as " in capsys.readouterr().out


def test_explain_command_prints_spans_and_notes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "reply.txt").write_text(f"Naïve.\x1b[31m\n{CALL}" + CALL.replace("get_weather", "set_weather"))
    (tmp_path / "tools.json").write_text('[{"name": "get_weather", "input_schema": {}}]')
    command = ["parse", "--explain", "--tools", str(tmp_path / "tools.json"), str(tmp_path / "reply.txt")]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "0-11        text               Naïve.\\x1b[31m\n" in out
    assert "= get_weather as call_" in out
    assert "! unknown_tool at" in out
    monkeypatch.setenv("COLUMNS", "300")
    assert main(command) == 0
    wide = capsys.readouterr().out
    assert ", read by hermes\n" in wide
    assert "offered tool; did you mean 'get_weather'?\n" in wide
    assert "\n1 whole call\nto change that: " in wide
    assert " ".join(out.split()).endswith(wide.splitlines()[-1])
    assert main([*command, "--stream"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "".join(line["raw"] for line in lines) == (tmp_path / "reply.txt").read_text()
    assert [remark["code"] for line in lines for remark in line["notes"]] == ["unknown_tool", "stray_closing_tag"]
