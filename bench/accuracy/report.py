"""The ladder as a table: of the prompts of each category, how many are answered right on each rung."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.accuracy import judge
from bench.accuracy.cases import Case
from bench.accuracy.judge import Verdict
from bench.accuracy.ladder import LADDER, Rung, climb
from bench.accuracy.texts import Written

COLUMNS: Mapping[str, str] = {
    "own_single": "ours, one call",
    "own_parallel": "ours, several",
    "own_none": "ours, none",
    "simple_python": "BFCL simple",
    "multiple": "BFCL multiple",
    "parallel": "BFCL parallel",
    "irrelevance": "BFCL irrelevance",
}
"""Categories, and what they are called for people."""


@dataclass
class Row:
    """One rung of one model."""

    model: str
    rung: Rung
    asked: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """By category, as all that follows."""
    right: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    calls: int = 0
    invalid: int = 0
    again: int = 0
    """Replies that were asked for again."""
    input_tokens: int = 0
    output_tokens: int = 0
    cpu_s: float = 0.0
    cut_off: int = 0
    """Replies that hit the limit."""

    def add(self, case: Case, verdict: Verdict, spent: Sequence[Written]) -> None:
        """One prompt more."""
        self.asked[case.category] += 1
        self.right[case.category] += verdict.right
        self.calls += verdict.calls
        self.invalid += verdict.invalid
        self.again += len(spent) - 1
        self.input_tokens += sum(one.input_tokens for one in spent)
        self.output_tokens += sum(one.output_tokens for one in spent)
        self.cpu_s += sum(one.cpu_s for one in spent)
        self.cut_off += spent[-1].finish == "length"

    @property
    def count(self) -> int:
        """All prompts."""
        return sum(self.asked.values())

    @property
    def all_right(self) -> int:
        """Of them, answered right."""
        return sum(self.right.values())


def rows(texts: Iterable[Written]) -> list[Row]:
    """One for each model and rung, over the prompts that have been asked on all rungs."""
    by_model: dict[str, dict[str, dict[str, Written]]] = defaultdict(lambda: defaultdict(dict))
    for text in texts:
        by_model[text.model][text.id][text.rung] = text
    cases, out = judge.cases(), []
    for model, by_id in by_model.items():
        whole = {id: texts for id, texts in by_id.items() if id in cases and {"raw", "constrained"} <= texts.keys()}
        for rung in LADDER:
            row = Row(model, rung)
            for id, texts_of in whole.items():
                answer = climb(rung, cases[id], texts_of)
                row.add(cases[id], judge.judged(cases[id], answer.calls), answer.spent)
            out.append(row)
    return out


def markdown(rows: Iterable[Row]) -> str:
    """For docs/accuracy.md."""
    lines = []
    by_model: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_model[row.model].append(row)
    for model, its in by_model.items():
        asked = its[0].asked
        columns = [c for c in COLUMNS if asked[c]]
        heads = [f"{COLUMNS[c]} ({asked[c]})" for c in columns]
        lines += [
            f"| {model} | {' | '.join(heads)} | all ({its[0].count}) | calls | invalid | tokens out | CPU s |",
            f"|---|{'---:|' * (len(columns) + 5)}",
            *(_line(row, columns) for row in its),
            "",
        ]
    return "\n".join(lines)


def _line(row: Row, columns: Iterable[str]) -> str:
    cells = [*(row.right[c] for c in columns), row.all_right, row.calls, row.invalid]
    each = row.count or 1
    costs = (f"{row.output_tokens / each:.0f}", f"{row.cpu_s / each:.1f}")
    return f"| {row.rung.title} | {' | '.join(map(str, cells))} | {' | '.join(costs)} |"
