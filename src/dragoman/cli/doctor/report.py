"""Formats the findings: one row each, wrapped at the width of the terminal, with fixes after an arrow."""

from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Final

from dragoman.cli._terminal import printable
from dragoman.cli.doctor.finding import Finding

if TYPE_CHECKING:
    from dragoman.cli.doctor.metrics_client import Calls

_HEADS: Final = ("model", "calls", "valid at first", "repaired", "re-asked", "failed", "unchecked")
_MODELS: Final = 20
"""Maximum number of rows of the table."""
_NAME_CHARS: Final = 32
_COLOURS: Final = {"ok": "32", "no": "1;31", "note": "33"}


def format_report(groups: Iterable[Sequence[Finding]], width: int = 100, *, colour: bool = False) -> str:
    """Returns the report: the groups, separated by empty lines, and the summary."""
    nonempty = [group for group in groups if group]
    column_chars = max(len(finding.what) for group in nonempty for finding in group)
    blocks = [
        "\n".join(line for finding in group for line in rows(finding, column_chars, width, colour))
        for group in nonempty
    ]
    return "\n\n".join([*blocks, _sum([finding for group in nonempty for finding in group])])


def rows(finding: Finding, column_chars: int, width: int = 100, colour: bool = False) -> list[str]:
    """Returns the lines of one finding.

    Args:
        finding: The finding.
        column_chars: Width of the first column.
        width: Width of a line, in characters.
        colour: Whether to write ANSI colours.
    """
    head, margin = f"{finding.what.ljust(column_chars)}  {finding.verdict.ljust(4)}  ", " " * (column_chars + 8)
    first, *more = _wrap(finding.text, width, head, margin).split("\n")
    if colour:
        painted = f"\x1b[{_COLOURS[finding.verdict]}m{finding.verdict.ljust(4)}\x1b[0m"
        first = f"{finding.what.ljust(column_chars)}  {painted}  {first[len(head) :]}"
    lines = [first, *more]
    for line in finding.lines:
        lines += _wrap(line, width, margin, margin + "  ").split("\n")
    if finding.fix:
        fix = _wrap(finding.fix, width, f"{margin}→ ", f"{margin}  ").split("\n")
        lines += [f"\x1b[1m{line}\x1b[0m" for line in fix] if colour else fix
    return lines + _table(finding.models)


def _wrap(text: str, width: int, first: str, others: str) -> str:
    return fill(
        printable(text),
        max(width, len(others) + 20),
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _sum(findings: Sequence[Finding]) -> str:
    """Returns the summary."""
    failures = [finding.what for finding in findings if finding.verdict == "no"]
    if not failures:
        return "Everything that these settings use works."
    return f"{len(failures)} problem{'s' * (len(failures) > 1)} to fix: {', '.join(dict.fromkeys(failures))}."


def _table(models: "Sequence[Calls]") -> list[str]:
    """Returns the table of tool calls by model."""
    if not models:
        return []
    cells = [_HEADS, *map(_cells, models[:_MODELS])]
    name_chars, *widths = (max(map(len, column)) for column in zip(*cells, strict=True))
    lines = [
        "  ".join([name.ljust(name_chars), *(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))])
        for name, *cells in cells
    ]
    more = [f"and {len(models) - _MODELS} more, in /metrics"] if len(models) > _MODELS else []
    return ["", *(f"  {line}" for line in [*lines, *more])]


def _cells(counts: "Calls") -> tuple[str, ...]:
    name = counts.model if counts.model.isprintable() else repr(counts.model)
    name = name if len(name) <= _NAME_CHARS else f"{name[: _NAME_CHARS - 1]}…"
    share = "-" if counts.share is None else f"{counts.share:.1%}".replace("%", " %")
    return (
        name,
        str(counts.calls),
        share,
        str(counts.repaired),
        str(counts.reasked),
        str(counts.failed),
        str(counts.unchecked),
    )
