"""The ladder as a table: how many prompts of each category have a right answer on each rung."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bench.accuracy import judge
from bench.accuracy.cases import Case
from bench.accuracy.judge import Verdict
from bench.accuracy.ladder import BESIDE, LADDER, Answer, Rung, climb
from bench.accuracy.texts import Written
from dragoman.core.events import Notice

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
    asked: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """By category, as the fields below."""
    right: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    calls: int = 0
    invalid: int = 0
    unsaid: int = 0
    """Answers with invalid calls that were not reported."""
    again: int = 0
    """Answers for which the model was re-asked."""
    output_tokens: int = 0
    cpu_s: float = 0.0
    cut_off: int = 0
    """Answers that reached the token limit."""

    def add(self, case: Case, verdict: Verdict, answer: Answer) -> None:
        """Adds a prompt."""
        self.asked[case.category] += 1
        self.right[case.category] += verdict.right
        self.calls += verdict.calls
        self.invalid += verdict.invalid
        self.unsaid += verdict.invalid > 0 and not any(isinstance(e, Notice) for e in answer.events)
        self.again += len(answer.spent) - 1
        self.output_tokens += sum(one.output_tokens for one in answer.spent)
        self.cpu_s += sum(one.cpu_s for one in answer.spent)
        self.cut_off += answer.spent[-1].finish == "length"

    @property
    def count(self) -> int:
        """Returns the number of prompts."""
        return sum(self.asked.values())

    @property
    def all_right(self) -> int:
        """Returns the number of right answers."""
        return sum(self.right.values())


def rows(texts: Iterable[Written], most: int = 0) -> list[Row]:
    """Returns a row for each model and rung, over prompts with texts for all rungs; `most`: their maximum, 0: all."""
    by_model: dict[str, dict[str, dict[str, Written]]] = defaultdict(lambda: defaultdict(dict))
    for text in texts:
        by_model[text.model][text.id][text.rung] = text
    cases, out = judge.cases(), []
    for model, by_id in by_model.items():
        known = {id: texts for id, texts in by_id.items() if id in cases}
        for rung in (*LADDER, *BESIDE):
            needed = {"raw", "constrained"} if rung in LADDER else {rung.text}
            whole = [(cases[id], texts) for id, texts in known.items() if needed <= texts.keys()]
            row = Row(model, rung)
            for case, kept in whole[: most or None]:
                answer = climb(rung, case, kept)
                row.add(case, judge.judged(case, answer.calls), answer)
            if whole:
                out.append(row)
    return out


def markdown(rows: Iterable[Row]) -> str:
    """Returns the tables of docs/accuracy.md."""
    by_model: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_model[row.model].append(row)
    return "\n".join(line for model, its in by_model.items() for line in _table(model, its))


def _table(model: str, rows: list[Row]) -> list[str]:
    columns = [c for c in COLUMNS if rows[0].asked[c]]
    heads = [f"{COLUMNS[c]} ({rows[0].asked[c]})" for c in columns]
    heads += [f"all ({rows[0].count})", "calls", "invalid", "re-asked", "tokens", "CPU s"]
    return [
        f"| {model} | {' | '.join(heads)} |",
        f"|---|{'---:|' * len(heads)}",
        *(_line(row, columns, whole=row.count == rows[0].count) for row in rows),
        "",
    ]


def _line(row: Row, columns: Iterable[str], *, whole: bool) -> str:
    cells = [str(row.right[c]) if row.asked[c] else "" for c in columns]
    cells += [str(row.all_right) if whole else "", str(row.calls), str(row.invalid), str(row.again or "")]
    each = row.count or 1
    cells += [f"{row.output_tokens / each:.0f}", f"{row.cpu_s / each:.1f}"]
    return f"| {row.rung.title} | {' | '.join(cells)} |"
