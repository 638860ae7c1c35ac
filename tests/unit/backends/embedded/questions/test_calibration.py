"""The calibration of when a model answers in words: prompts, and the choice of the threshold."""

from collections import Counter

import pytest
from bench.accuracy import judge

from dragoman.backends.embedded.questions.calibration import choose_threshold, prompts
from dragoman.core.messages import part_text

LOW, HIGH = [0.01 * n for n in range(1, 31)], [0.4 + 0.01 * n for n in range(30)]


def test_prompts_of_both_kinds() -> None:
    counts = Counter(prompt.has_tool for prompt in prompts("m"))
    assert min(counts[True], counts[False]) >= 30


def test_no_prompt_is_one_of_the_benchmark() -> None:
    benchmark = {part_text(case.messages[-1].parts[0]) for case in judge.cases().values()}
    assert len(benchmark) > 900, "own, fresh and the leaderboard's"
    assert not benchmark & {part_text(prompt.request.messages[-1].parts[0]) for prompt in prompts("m")}


@pytest.mark.parametrize(
    ("fitting", "unfitting", "threshold"),
    [
        (HIGH, LOW, 0.36),
        ([0.02, *HIGH[1:]], LOW, 0.35),
        ([0.02, 0.03, *HIGH[2:]], LOW, 0.0),
        (HIGH, [0.2] * 9 + [0.9] * 21, 0.0),
        (HIGH, [0.2] * 10 + [0.9] * 20, 0.3),
        (LOW, HIGH, 0.0),
    ],
    ids=["apart", "one lost", "two would be lost", "finds too few", "finds a third", "reversed"],
)
def test_threshold(fitting: list[float], unfitting: list[float], threshold: float) -> None:
    assert choose_threshold(fitting, unfitting) == pytest.approx(threshold, abs=0.011)
