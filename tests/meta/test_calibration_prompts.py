"""The prompts of the calibration are not those of the benchmark with a few other words."""

import re
from collections.abc import Iterator

import pytest
from bench.accuracy.cases import fresh, own

from dragoman.backends.embedded.questions.calibration import prompts
from dragoman.core.messages import Message, part_text

REPEATED_SHARE = 0.5
"""Share of the words of two prompts from which one nearly repeats the other."""
BENCHMARK = [*fresh(), *own()]


def words(message: Message) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", part_text(message.parts[0]).lower()))


def common_share(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other)


def near_repeats() -> Iterator[tuple[str, str]]:
    for prompt in prompts("m"):
        message = prompt.request.messages[-1]
        for case in BENCHMARK:
            if common_share(words(message), words(case.messages[-1])) >= REPEATED_SHARE:
                yield part_text(message.parts[0]), part_text(case.messages[-1].parts[0])


def test_no_prompt_nearly_repeats_one_of_the_benchmark() -> None:
    assert len(BENCHMARK) > 150
    assert list(near_repeats()) == []


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [("a b c", "a b c", 1.0), ("a b c", "a b d", 0.5), ("a b", "c d", 0.0)],
)
def test_share_of_common_words(one: str, other: str, share: float) -> None:
    assert common_share(frozenset(one.split()), frozenset(other.split())) == share
