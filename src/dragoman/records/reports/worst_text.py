"""Sentences about what fails significantly more often than the others."""

from collections.abc import Iterator
from typing import Final

from dragoman.records.reports.report import Worst
from dragoman.records.reports.significance import MAX_PROBABILITY, MIN_RATIO, Counts, Outlier

RULE: Final = (
    f"Fisher's exact test against all others together, p < {MAX_PROBABILITY} after Bonferroni's correction, and at "
    f"least {MIN_RATIO} times their share"
)


def format_worst(worst: Worst) -> Iterator[str]:
    """Yields which model and tool fail more than the others, and how that was decided."""
    yield from filter(None, (model_sentence(worst), tool_sentence(worst)))
    yield from other_sentences(worst)


def model_sentence(worst: Worst) -> str:
    """Returns which model fails more than the others; "": none."""
    if worst.model is None:
        return ""
    return f"Worst model: {worst.model.name}: {_failures(worst.model, 'other models')}."


def tool_sentence(worst: Worst) -> str:
    """Returns which tool fails more than the others; "": none."""
    if worst.tool is None:
        return ""
    which = "Its worst tool" if worst.model is not None else "Worst tool"
    return f"{which}: {worst.tool.name}: {_failures(worst.tool, 'other tools')}."


def other_sentences(worst: Worst) -> Iterator[str]:
    """Yields how the worst model and tool were found, or that there is none."""
    if worst.model is None and worst.tool is None:
        if worst.counts.failed and worst.has_others:
            yield f"No model or tool fails significantly more often than the others ({RULE})."
        return
    if worst.unoffered:
        whose = "its" if worst.model else "all"
        yield f"Of {whose} failed calls, {worst.unoffered:,} are of tools that were not offered."
    yield f"({RULE}.)"


def format_share(value: float) -> str:
    """Returns a share in percent."""
    return f"{100 * value:.1f} %"


def _failures(outlier: Outlier[str], others: str) -> str:
    """Returns how often calls failed, and how often those of the others did."""
    return f"{_share(outlier.counts)}; {others}: {_share(outlier.others)}"


def _share(counts: Counts) -> str:
    return f"{counts.failed:,} of {counts.calls:,} calls failed ({format_share(counts.share)})"
