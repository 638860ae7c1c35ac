"""Figures of benchmarks, printed as a table or written as JSON."""

import json
import os
import platform
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number."""

    name: str
    """Measured operation and its conditions: `hermes call, 10 KB in 4-character deltas`."""
    value: float
    """Median over the rounds; less is better."""
    unit: str
    best: float | None = None
    """Minimum over the rounds."""
    ratio: float | None = None
    """Value divided by the reference's, both measured in turn in the same run, so that noise affects both."""
    reference: str = ""
    goal: float | None = None
    """Upper limit of the value."""

    @property
    def verdict(self) -> Literal["ok", "over", ""]:
        """Whether the value meets its goal; empty without a goal."""
        if self.goal is None:
            return ""
        return "ok" if self.value <= self.goal else "over"


HEAD = ("figure", "median", "best", "unit", "× ref", "reference", "goal", "")


def table(sections: Iterable[tuple[str, Iterable[Figure]]]) -> str:
    """Returns all figures as text, a line for each below the name of its benchmark."""
    rows: list[tuple[str, ...]] = [HEAD]
    for name, figures in sections:
        rows.append((f"[{name}]", *("",) * (len(HEAD) - 1)))
        rows += [_row(f) for f in figures]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    return "\n".join(_line(row, widths) for row in rows)


def _row(f: Figure) -> tuple[str, ...]:
    numbers = [_number(x) for x in (f.value, f.best)]
    return (f.name, *numbers, f.unit, _number(f.ratio), f.reference, _number(f.goal), f.verdict)


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    right = {1, 2, 4, 6}
    cells = (x.rjust(w) if i in right else x.ljust(w) for i, (x, w) in enumerate(zip(row, widths, strict=True)))
    return "  ".join(cells).rstrip()


def _number(x: float | None) -> str:
    if x is None:
        return ""
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}"


def machine() -> str:
    """Returns a line that names Python, the system and its load."""
    load = "" if sys.platform == "win32" else f", load {os.getloadavg()[0]:.1f}"
    system = f"{platform.system()} {platform.machine()}"
    return f"Python {platform.python_version()}, {system}, {os.cpu_count()} cores{load}, {time.strftime('%Y-%m-%d')}"


def save(path: Path, sections: Iterable[tuple[str, Iterable[Figure]]]) -> None:
    """Writes all figures as JSON, to compare runs."""
    figures = [{"benchmark": name, **asdict(f), "verdict": f.verdict} for name, many in sections for f in many]
    path.write_text(json.dumps({"machine": machine(), "figures": figures}, indent=1) + "\n")
