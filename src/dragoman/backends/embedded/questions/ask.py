"""Asks a question that has a few possible answers: one token is generated, and the probability of each answer read.

The prompt of the question is that of the response plus a suffix, so the engine reads only the suffix: the conversation
is cached, and stays cached for the response, which begins with the same prompt.
"""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple

import msgspec

from dragoman.backends.embedded.continued import CompletesPrompts, extended
from dragoman.backends.embedded.engine_output import Done, Progress, TokenProbabilities
from dragoman.core.errors import UpstreamError
from dragoman.core.messages import Usage

_BIAS: Final = 100.0
"""Added to the logits of all answers: no other token is left, and the ratio of their probabilities is unchanged."""
_PROMPT_FIELDS: Final = ("prompt", "media", "prefix_chars", "cache_prompt")


class WeighedAnswers(NamedTuple):
    """The answers to a question with their probabilities, and the cost."""

    probabilities: Mapping[str, float]
    """By answer; their sum is 1."""
    input_tokens: int
    """Tokens of the prompt, with the question."""
    cached_tokens: int
    """Of these, those that the engine had already read."""
    output_tokens: int

    @property
    def best(self) -> str:
        """Returns the likeliest answer."""
        return max(self.probabilities, key=self.probabilities.__getitem__)

    def add_cost(self, usage: Usage, prompt_tokens: int) -> Usage:
        """Returns the usage of a response with that of a question before it.

        The prompt counts once, although the engine gets it twice: the question reads it, and the response finds it
        cached.

        Args:
            usage: the usage of the response.
            prompt_tokens: tokens of the prompt of its first completion.
        """
        read = min(self.input_tokens, prompt_tokens) - self.cached_tokens
        return msgspec.structs.replace(
            usage,
            input_tokens=usage.input_tokens + max(self.input_tokens - prompt_tokens, 0),
            cached_input_tokens=max(usage.cached_input_tokens - max(read, 0), 0),
            output_tokens=usage.output_tokens + self.output_tokens,
        )


async def ask(
    engine: CompletesPrompts, body: Mapping[str, Any], question: str, answers: Sequence[str], *, admitted: bool = False
) -> WeighedAnswers:
    """Returns the probability of each answer, after one completion of one token.

    It waits for a slot of the engine as every completion does; cancelling it stops the engine.

    Args:
        engine: the engine, a `LlamaProcess`.
        body: the engine's request for the response, `PreparedPrompt.body`; of it only the prompt is used.
        question: text that follows the prompt; "": the first token of the response itself is asked for.
        answers: the possible answers, of which no two may begin with the same token; a leading space counts.
        admitted: whether it belongs to a response that has begun, which a full queue must not reject.

    Raises:
        QueueFullError: all slots and the queue are taken.
        DragomanError: it could not begin, was rejected, or broke off.
    """
    sent = {name: body[name] for name in _PROMPT_FIELDS if name in body}
    sent |= {
        "prompt": extended(body["prompt"], question),
        "n_predict": 1,
        "n_probs": _tokens_read(answers),
        "post_sampling_probs": True,
        "logit_bias": [[answer, _BIAS] for answer in answers],
        "temperature": 1.0,
        "samplers": ["temperature"],
    }
    found: Mapping[str, float] = {}
    total = cached = written = 0
    async with aclosing(engine.complete(sent, admitted=admitted)) as outputs:
        async for output in outputs:
            match output:
                case Progress(tokens):
                    total = tokens
                case TokenProbabilities(by_text):
                    found = found or by_text
                case Done(_, written, cached):
                    pass
    return WeighedAnswers(_by_answer(found, answers), total, cached, written)


def _tokens_read(answers: Sequence[str]) -> int:
    """Returns how many tokens to read: every token of an answer is made likely, not only its first."""
    return sum(map(len, answers))


def _by_answer(by_token: Mapping[str, float], answers: Sequence[str]) -> Mapping[str, float]:
    """Returns the share of each answer, by the tokens with which it begins.

    Raises: UpstreamError: the engine reported no probability of an answer.
    """
    sums = dict.fromkeys(answers, 0.0)
    for token, probability in by_token.items():
        owners = [answer for answer in answers if token and answer.startswith(token)]
        if len(owners) == 1:
            sums[owners[0]] += probability
    total = sum(sums.values())
    if not total:
        expected = ", ".join(map(repr, answers))
        raise UpstreamError(
            f"expected the probabilities of {expected}, got those of {', '.join(map(repr, by_token)) or 'no token'}; "
            "answers need different first tokens"
        )
    return {answer: share / total for answer, share in sums.items()}
