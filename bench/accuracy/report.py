"""The ladder as a table: how many prompts of each category have a right answer on each rung."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bench.accuracy import judge
from bench.accuracy.cases import Case
from bench.accuracy.judge import Verdict
from bench.accuracy.ladder import LADDER, SEPARATE_RUNGS, Rung, RungResult, run_rung
from bench.accuracy.texts import RecordedText

COLUMNS: Mapping[str, str] = {
    "own_single": "ours, one call",
    "own_parallel": "ours, several",
    "own_none": "ours, none",
    "simple_python": "BFCL simple",
    "multiple": "BFCL multiple",
    "parallel": "BFCL parallel",
    "irrelevance": "BFCL irrelevance",
}
"""Categories and their titles."""


@dataclass
class Row:
    """One rung of one model."""

    model: str
    rung: Rung
    prompts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """By category, as the fields below."""
    right: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    calls: int = 0
    invalid: int = 0
    reasked: int = 0
    """Answers for which the model was re-asked."""
    output_tokens: int = 0
    cpu_s: float = 0.0

    def add(self, case: Case, verdict: Verdict, result: RungResult) -> None:
        """Adds a prompt."""
        self.prompts[case.category] += 1
        self.right[case.category] += verdict.right
        self.calls += verdict.calls
        self.invalid += verdict.invalid
        self.reasked += sum(one.rung != "asked" for one in result.texts_used) - 1
        self.output_tokens += sum(one.output_tokens for one in result.texts_used)
        self.cpu_s += sum(one.cpu_s for one in result.texts_used)

    @property
    def count(self) -> int:
        """Returns the number of prompts."""
        return sum(self.prompts.values())

    @property
    def all_right(self) -> int:
        """Returns the number of right answers."""
        return sum(self.right.values())


def rows(texts: Iterable[RecordedText], limit: int = 0) -> list[Row]:
    """Returns a row for each model and rung, over prompts with texts for all rungs; `limit`: their maximum, 0: all."""
    by_model: dict[str, dict[str, dict[str, RecordedText]]] = defaultdict(lambda: defaultdict(dict))
    for text in texts:
        by_model[text.model][text.id][text.rung] = text
    cases, out = judge.cases(), []
    for model, by_id in by_model.items():
        known = {id: texts for id, texts in by_id.items() if id in cases}
        for rung in (*LADDER, *SEPARATE_RUNGS):
            also = {"raw", "constrained"} if rung in LADDER else set()
            complete_prompts = [
                (cases[id], texts) for id, texts in known.items() if also.union(rung.used(texts)) <= texts.keys()
            ]
            row = Row(model, rung)
            for case, texts_by_rung in complete_prompts[: limit or None]:
                result = run_rung(rung, case, texts_by_rung)
                row.add(case, judge.judge_calls(case, result.calls, result.text), result)
            if complete_prompts:
                out.append(row)
    return out


def markdown(rows: Iterable[Row]) -> str:
    """Returns the tables of docs/accuracy.md; consecutive rows with equal results become one."""
    by_model: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_model[row.model].append(row)
    return "\n".join(line for model, model_rows in by_model.items() for line in _table(model, model_rows))


def published(rows: Iterable[Row]) -> list[Row]:
    """Returns the rows that docs/accuracy.md has."""
    return [row for row in rows if row.rung.published]


def _table(model: str, rows: list[Row]) -> list[str]:
    columns = [c for c in COLUMNS if rows[0].prompts[c]]
    heads = [f"{COLUMNS[c]} ({rows[0].prompts[c]})" for c in columns]
    heads += [f"all ({rows[0].count})", "calls", "invalid", "re-asked", "tokens", "CPU s"]
    return [
        f"| {model} | {' | '.join(heads)} |",
        f"|---|{'---:|' * len(heads)}",
        *_lines(rows, columns),
        "",
    ]


def _lines(rows: list[Row], columns: Iterable[str]) -> Iterator[str]:
    cells = {row.rung.title: _cells(row, columns, has_all_prompts=row.count == rows[0].count) for row in rows}
    for each, titles in itertools.groupby(cells, key=lambda title: cells[title]):
        first, *others = titles
        yield f"| {f'{first} … {others[-1]}' if others else first} | {' | '.join(each)} |"


def _cells(row: Row, columns: Iterable[str], *, has_all_prompts: bool) -> list[str]:
    cells = [str(row.right[c]) if row.prompts[c] else "" for c in columns]
    cells += [str(row.all_right) if has_all_prompts else "", str(row.calls), str(row.invalid), str(row.reasked or "")]
    each = row.count or 1
    return [*cells, f"{row.output_tokens / each:.0f}", f"{row.cpu_s / each:.1f}"]
