"""Token counts of the parts of a request: estimates, scaled to what a backend counted or reported."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from dragoman.console.context_use.captured import CapturedRequest
from dragoman.console.context_use.parts import RequestPart
from dragoman.console.context_use.views import ContextGroup, ContextPart, Counting

_TRUNCATED_SHARE: Final = 0.6
"""Estimates are at most 21 % too high (docs/tokens.md), so a count below this share of one has another reason."""
_SMALL_TOKENS: Final = 500


class TotalCount(NamedTuple):
    """The tokens of a whole request."""

    tokens: int
    counting: Counting
    estimated: int

    @property
    def scale(self) -> float:
        """By what the estimates of parts are multiplied."""
        return self.tokens / self.estimated if self.estimated else 1.0


def total_count(parts: Iterable[RequestPart], captured: CapturedRequest, exact: int | None = None) -> TotalCount:
    """Returns the tokens of the whole request, from the best source.

    Args:
        parts: The parts of the request as it was sent.
        captured: The exchange.
        exact: What the backend counted when asked; None: it was not asked, or cannot count.
    """
    estimated, usage = sum(part.tokens for part in parts), captured.usage
    if exact is not None:
        return TotalCount(exact, "exact", estimated)
    if usage.input_tokens and not usage.is_estimated:
        return TotalCount(usage.input_tokens, "reported", estimated)
    return TotalCount(estimated, "estimated", estimated)


def scaled_parts(parts: Sequence[RequestPart], total: TotalCount, cached_tokens: int | None) -> list[ContextPart]:
    """Returns the parts with tokens that add up to the total.

    Args:
        parts: The parts in the order of the prompt, with estimates.
        total: The tokens of the whole request.
        cached_tokens: Length of the prefix that was read from the cache; None: not known.
    """
    scaled: list[ContextPart] = []
    before, end = 0, 0
    for part in parts:
        before += part.tokens
        begin, end = end, round(before * total.scale)
        cached = None if cached_tokens is None else max(0, min(end, cached_tokens) - begin)
        scaled.append(
            ContextPart(
                kind=part.kind,
                name=part.name,
                excerpt=part.excerpt,
                link=part.link,
                message=part.message,
                tokens=end - begin,
                chars=part.chars,
                cached_tokens=cached,
            )
        )
    return scaled


def group_parts(parts: Iterable[ContextPart]) -> list[ContextGroup]:
    """Returns the sums by kind, the largest first."""
    sums: dict[str, ContextGroup] = {}
    for part in parts:
        known = sums.get(part.kind)
        tokens, count = (known.tokens, known.count) if known else (0, 0)
        sums[part.kind] = ContextGroup(kind=part.kind, tokens=tokens + part.tokens, count=count + 1)
    return sorted(sums.values(), key=lambda group: -group.tokens)


def explain_count(total: TotalCount, tokenizer: str, upstream: str) -> str:
    """Returns how the tokens were counted, in sentences for people.

    Args:
        total: The tokens of the whole request.
        tokenizer: The family of the estimates; "": the general estimate.
        upstream: The name of the backend.
    """
    family = f"for the tokenizer {tokenizer}" if tokenizer else "for any tokenizer, as that of the model is not known"
    if total.counting == "estimated":
        return f"No count of the upstream is known: all tokens are estimates {family}."
    verb = "counted" if total.counting == "exact" else "reported"
    text = (
        f"{upstream} {verb} {total.tokens:,} input tokens. The parts are estimates {family}, "
        f"multiplied by {total.scale:.2f} to add up to that."
    )
    if total.scale < _TRUNCATED_SHARE and total.estimated > _SMALL_TOKENS:
        text += " That is far fewer than estimated: the server may have truncated the prompt, or not counted all of it."
    return text
