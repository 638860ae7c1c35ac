"""How a reply opens: the marker of the model's format counts as a call."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from dragoman import formats
from dragoman.backends.embedded.engine_output import Done, Output, TokenProbabilities
from dragoman.backends.embedded.questions.call_decision import ask_if_possible, call_probability, openings
from dragoman.parsing.format import Format

HERMES = formats.get("hermes")


class OpeningEngine:
    """An engine whose model needs a call, and opens its reply with these tokens if they are among the answers."""

    def __init__(self, by_token: Mapping[str, float]) -> None:
        self.by_token = by_token
        self.asked: list[list[str]] = []

    async def complete(self, body: Mapping[str, Any], *, admitted: bool = False) -> AsyncGenerator[Output, None]:
        """Yields the probabilities of the answers."""
        answers = [text for text, _ in body["logit_bias"]]
        self.asked.append(answers)
        yield TokenProbabilities(
            {"1": 1.0} if "1" in answers else {t: p for t, p in self.by_token.items() if t in answers}
        )
        yield Done("length", 1, 0)


def probability(by_token: Mapping[str, float], format: Format | None = HERMES) -> float:
    return asyncio.run(call_probability(OpeningEngine(by_token), {"prompt": "p"}, format)).value


def test_marker_of_the_format_opens_a_call() -> None:
    assert probability({"<tool_call>": 0.6, "```": 0.1, "{": 0.1, "The": 0.2}) == pytest.approx(0.8)


def test_marker_of_another_format_is_not_weighed() -> None:
    by_token = {"<tool_call>": 0.6, "[TOOL_CALLS]": 0.3, "The": 0.1}
    assert probability(by_token, formats.get("mistral")) == pytest.approx(0.75)


def test_same_openings_are_weighed_for_a_response() -> None:
    engine = OpeningEngine({"<tool_call>": 0.6, "The": 0.4})
    found, _ = asyncio.run(ask_if_possible(engine, {"prompt": "p"}, HERMES))
    assert found is not None
    assert found.value == pytest.approx(0.6)
    assert engine.asked[0] == [*openings(HERMES)]


def test_opening_does_not_count_without_a_format() -> None:
    engine = OpeningEngine({"The": 1.0})
    assert asyncio.run(call_probability(engine, {"prompt": "p"}, None)).value == 1
    assert len(engine.asked) == 1


@pytest.mark.parametrize("marker", ["```tool_code", '{"name', "Tool: "])
def test_marker_with_the_first_token_of_an_opening_is_left_out(marker: str) -> None:
    format = replace(HERMES, calls={marker: lambda text: None}, markup=None)
    assert marker not in openings(format)
    assert openings(format) == openings(replace(HERMES, calls={}, markup=None))


@pytest.mark.parametrize("name", formats.names())
def test_no_two_openings_begin_alike(name: str) -> None:
    found = openings(formats.get(name))
    markers = [each for each in found if found.index(each) == 0 and each != "```"]
    assert all(other[0] != marker[0] for marker in markers for other in found if other != marker)
