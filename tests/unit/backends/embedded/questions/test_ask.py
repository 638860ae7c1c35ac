"""Questions with a few answers: what the engine is sent, and how its tokens count for answers."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest

from dragoman.backends.embedded.engine_output import Done, Output, Progress, TokenProbabilities, TokenText, read_outputs
from dragoman.backends.embedded.questions.ask import WeighedAnswers, ask
from dragoman.core.errors import UpstreamError
from dragoman.core.messages import Usage


class TokenEngine:
    """An engine whose next token has these probabilities."""

    def __init__(self, by_token: Mapping[str, float]) -> None:
        self.by_token = by_token
        self.bodies: list[Mapping[str, Any]] = []

    async def complete(self, body: Mapping[str, Any], *, admitted: bool = False) -> AsyncGenerator[Output, None]:
        """Yields one token."""
        self.bodies.append({**body, "admitted": admitted})
        yield Progress(12, 0)
        yield Progress(12, 12)
        if self.by_token:
            yield TokenProbabilities(self.by_token)
        yield TokenText(" Yes")
        yield Done("length", 1, 10)


def answer(by_token: Mapping[str, float], *answers: str) -> WeighedAnswers:
    return asyncio.run(ask(TokenEngine(by_token), {"prompt": "p"}, "?", answers))


def test_probabilities_of_the_answers_sum_to_one() -> None:
    found = answer({" Yes": 0.6, " No": 0.2, " Maybe": 0.1}, " Yes", " No")
    assert found.probabilities == pytest.approx({" Yes": 0.75, " No": 0.25})
    assert found.best == " Yes"
    assert found[1:] == (12, 10, 1)


def test_a_token_counts_for_the_answer_that_it_begins() -> None:
    found = answer({" sever": 0.3, " one": 0.1, " ": 0.4, "": 0.2}, " several calls", " one call")
    assert found.probabilities == pytest.approx({" several calls": 0.75, " one call": 0.25})


def test_only_the_prompt_of_the_response_is_sent() -> None:
    engine = TokenEngine({" Yes": 1.0})
    body = {"prompt": "long", "cache_prompt": True, "prefix_chars": 3, "grammar": "g", "n_predict": 99, "stop": ["x"]}
    asyncio.run(ask(engine, body, " Call?", (" Yes", " No"), admitted=True))
    (sent,) = engine.bodies
    assert {"grammar", "stop"} & sent.keys() == set()
    assert (sent["prompt"], sent["n_predict"], sent["prefix_chars"]) == ("long Call?", 1, 3)
    assert sent["admitted"]
    assert [text for text, _ in sent["logit_bias"]] == [" Yes", " No"]


def test_question_follows_the_last_image() -> None:
    engine = TokenEngine({" Yes": 1.0})
    asyncio.run(ask(engine, {"prompt": ["a", "b"], "media": ["data"]}, "?", (" Yes", " No")))
    assert engine.bodies[0]["prompt"] == ["a", "b?"]
    assert engine.bodies[0]["media"] == ["data"]


def test_an_engine_without_probabilities_is_an_error() -> None:
    with pytest.raises(UpstreamError, match="of ' Yes', ' No', got those of no token"):
        answer({}, " Yes", " No")


def test_probabilities_precede_the_text_of_their_token() -> None:
    outputs = read_outputs({"text": "Yes", "probabilities": {"Yes": 0.5}}, 100)
    assert outputs == [TokenProbabilities({"Yes": 0.5}), TokenText("Yes")]


def test_answers_with_the_same_first_token_are_an_error() -> None:
    with pytest.raises(UpstreamError, match="got those of ' '; answers need different first tokens"):
        answer({" ": 1.0}, " 8", " 9")


def test_tokens_of_the_question_are_not_subtracted_from_cached_ones() -> None:
    asked = WeighedAnswers({"1": 1.0}, input_tokens=1010, cached_tokens=900, output_tokens=1)
    usage = asked.add_cost(Usage(1000, 5, cached_input_tokens=999), 1000)
    assert (usage.input_tokens, usage.cached_input_tokens, usage.output_tokens) == (1010, 899, 6)
