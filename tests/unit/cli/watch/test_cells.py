"""The cells of `dragoman watch`, for narrow and wide terminals."""

from typing import Any

import pytest
from rich.cells import cell_len

from dragoman.cli.watch.cells import calls_cell, cells, columns, model_cell, tokens_cell
from dragoman.cli.watch.table import line_text
from dragoman.console.api import RowCall, TrafficRow


def row(state: Any = "done", **fields: Any) -> TrafficRow:
    return TrafficRow(id="req_1", began_s=1_000.0, state=state, **fields)


def calls(*outcomes: str) -> list[RowCall]:
    return [RowCall(tool="t", outcome=outcome) for outcome in outcomes]


@pytest.mark.parametrize("width", [30, 40, 60, 79, 80, 100, 140, 300])
def test_columns_fill_the_line(width: int) -> None:
    layout = columns(width)
    assert sum(column.width for column in layout) + len(layout) - 1 == max(width, 33)
    titles = ["TIME", *["AGENT"][: width > 40], "MODEL", *["TOKENS", "FIRST"][: 2 * (width > 60)], "TOTAL", "CALLS"]
    assert [column.title for column in layout] == titles
    text = line_text(cells(row(agent="日本語" * 20, model="模型" * 60), layout, 0), layout, width)
    assert cell_len(text) == width


def test_outcomes_are_in_words_if_there_is_room() -> None:
    mixed = row(
        calls=[RowCall(tool="t", outcome="valid", count=2), *calls("repaired", "reasked", "invalid", "unknown")]
    )
    assert calls_cell(mixed, 44) == "✓ 2, repaired 1, re-asked 1, ✗ 2"
    assert calls_cell(mixed, 12) == "✓2 ~1 ↻1 ✗2"
    assert calls_cell(row(calls=calls("recovered", "unchecked")), 8) == "←1 ?1"
    assert calls_cell(row("failed", error="UpstreamError: status 500"), 44) == "✗ UpstreamError"
    assert calls_cell(row("failed", status=499), 44) == "✗ status 499"
    assert calls_cell(row("running"), 44) == "…"


def test_model_and_upstream() -> None:
    one = row(model="opus", upstream="lmstudio", upstream_model="qwen3-8b", tool_mode="prompt")
    assert model_cell(one, 60) == "opus → lmstudio:qwen3-8b (prompt)"
    assert model_cell(one, 24) == "opus→lmstudio (prompt)"
    assert model_cell(one, 18) == "qwen3-8b→lmstudio"
    assert model_cell(one, 14) == "qwen3-…→lmstud"
    assert model_cell(row(model="m"), 20) == "m"
    assert model_cell(row(), 20) == "-"


def test_tokens_and_times() -> None:
    assert tokens_cell(row()) == tokens_cell(row("running", input_tokens=0)) == "-"
    assert tokens_cell(row(input_tokens=12_345, output_tokens=321)) == "12.3k→321"
    texts = cells(row("running", first_ms=340), columns(80), 1_012.0)
    assert texts[4:6] == ["340 ms", "12.0 s"]


def test_text_of_others_cannot_control_the_terminal() -> None:
    evil = "\x1b]0;pwned\x07\x9b31m\u202e\nline"
    layout = columns(200)
    text = line_text(cells(row(agent=evil, model=evil, upstream=evil, error=evil), layout, 0), layout, 200)
    assert text.isprintable()
