"""Tables of `dragoman report`: their columns, for each width of the terminal, and the formats of numbers."""

import pytest

from dragoman.cli.report.rows import RowSet
from dragoman.cli.report.tables import format_ms, format_rows, format_tokens, format_usd
from dragoman.records.reports.grouping import Grouping
from dragoman.records.reports.totals import ExchangeTotals

TOTALS = ExchangeTotals(
    *(1200, 12, 1212, 34_500_000, 17_000_000, 120_000, 5_000, 12.5),
    outcomes={"valid": 900, "repaired": 20, "unchecked": 5, "invalid": 30},
    first_ms={70: 1200},
    total_ms={90: 1200},
)
BY = ("model", "upstream", "format", "agent")
ROWS = [{"model": name, "upstream": "local", "format": "", "agent": "codex", **TOTALS.as_row()} for name in ("a", "bb")]
ROW_SET = RowSet(Grouping(BY), ROWS, [], {})


def tables(width: int | None = None) -> list[list[str]]:
    return [table.splitlines() for table in format_rows(ROW_SET, 0, width).split("\n\n")]


def test_labels_without_values_are_left_out() -> None:
    for _, head, *_ in tables():
        assert head.split()[:3] == ["MODEL", "UPSTREAM", "AGENT"]
        assert "FORMAT" not in head


def test_outcomes_that_do_not_occur_are_left_out() -> None:
    calls, _ = tables()
    assert calls[1].split()[3:] == ["CALLS", "VALID", "REPAIRED", "RE-ASKED", "UNCHECKED", "FAILED", "FAILED", "%"]


@pytest.mark.parametrize("width", [80, 90, 100, 120, 140])
def test_tables_fit_the_terminal(width: int) -> None:
    for _, *lines in tables(width):
        assert max(map(len, lines)) <= width
        assert len(lines) == 3
    assert tables(200) == tables()


def test_columns_are_aligned() -> None:
    for _, head, *lines in tables():
        for line in lines:
            assert len(line) == len(head)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_tokens(0), "0"),
        (format_tokens(950), "950"),
        (format_tokens(12_345), "12.3k"),
        (format_tokens(4_560_000), "4.56M"),
        (format_tokens(2.5e12), "2,500G"),
        (format_ms(340), "340 ms"),
        (format_ms(1_230), "1.23 s"),
        (format_ms(95_400), "95.4 s"),
        (format_ms(720_000), "12 min"),
        (format_usd(0.0123), "0.0123"),
        (format_usd(1234.5), "1,234.50"),
    ],
)
def test_numbers(text: str, expected: str) -> None:
    assert text == expected
