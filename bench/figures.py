"""What a benchmark gives, and the table and JSON that it is shown in."""

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
    """What, under which conditions: `hermes call, 10 KB in 4-character deltas`."""
    value: float
    """Median over the rounds; less is better."""
    unit: str
    best: float | None = None
    """The quietest round."""
    ratio: float | None = None
    """How many times the reference's own value, the two measured in turn in the same run: what noise hurts least."""
    reference: str = ""
    goal: float | None = None
    """The value should be at most this."""

    @property
    def verdict(self) -> Literal["ok", "over", ""]:
        """How the value stands to its goal."""
        if self.goal is None:
            return ""
        return "ok" if self.value <= self.goal else "over"


HEAD = ("figure", "median", "best", "unit", "× ref", "reference", "goal", "")


def table(sections: Iterable[tuple[str, Iterable[Figure]]]) -> str:
    """All figures as text, one line each under the name of its benchmark."""
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
    """What the figures were measured on, in one line."""
    load = "" if sys.platform == "win32" else f", load {os.getloadavg()[0]:.1f}"
    system = f"{platform.system()} {platform.machine()}"
    return f"Python {platform.python_version()}, {system}, {os.cpu_count()} cores{load}, {time.strftime('%Y-%m-%d')}"


def save(path: Path, sections: Iterable[tuple[str, Iterable[Figure]]]) -> None:
    """Write all figures as JSON, for comparing runs."""
    figures = [{"benchmark": name, **asdict(f), "verdict": f.verdict} for name, many in sections for f in many]
    path.write_text(json.dumps({"machine": machine(), "figures": figures}, indent=1) + "\n")
