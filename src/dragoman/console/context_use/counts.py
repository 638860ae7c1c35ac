"""Token counts of the parts of a request: estimates, scaled to what a backend counted or reported."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from dragoman.console.context_use.captured import CapturedRequest
from dragoman.console.context_use.parts import RequestPart, excerpt
from dragoman.console.context_use.views import ContextGroup, ContextPart, Counting, PartKind

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


def part_ends(parts: Iterable[RequestPart], total: TotalCount) -> list[int]:
    """Returns for each part the tokens from the beginning of the prompt to its end; the last one is the total.

    Args:
        parts: The parts in the order of the prompt, with estimates.
        total: The tokens of the whole request.
    """
    return [round(end * total.scale) for end in accumulate(part.tokens for part in parts)]


def part_view(part: RequestPart, begin: int, end: int, cached_tokens: int | None) -> ContextPart:
    """Returns what the page shows of a part.

    Args:
        part: The part.
        begin: The tokens before it.
        end: The tokens to its end.
        cached_tokens: Length of the prefix that was read from the cache; None: not known.
    """
    return ContextPart(
        kind=part.kind,
        name=part.name,
        excerpt=excerpt(part.text),
        link=part.link,
        message=part.message,
        tokens=end - begin,
        chars=part.chars,
        cached_tokens=None if cached_tokens is None else max(0, min(end, cached_tokens) - begin),
    )


def group_parts(parts: Sequence[RequestPart], ends: Sequence[int]) -> list[ContextGroup]:
    """Returns the sums by kind, the largest first.

    Args:
        parts: The parts in the order of the prompt.
        ends: What `part_ends` returned.
    """
    sums: dict[PartKind, tuple[int, int]] = {}
    begin = 0
    for part, end in zip(parts, ends, strict=True):
        tokens, count = sums.get(part.kind, (0, 0))
        sums[part.kind] = (tokens + end - begin, count + 1)
        begin = end
    groups = [ContextGroup(kind=kind, tokens=tokens, count=count) for kind, (tokens, count) in sums.items()]
    return sorted(groups, key=lambda group: -group.tokens)


def explain_count(total: TotalCount, tokenizer: str, upstream: str) -> str:
    """Returns how the tokens were counted, in sentences for people.

    Args:
        total: The tokens of the whole request.
        tokenizer: The family of the estimates; "": the general estimate.
        upstream: The name of the backend.
    """
    kind = f"estimates for the tokenizer {tokenizer}"
    if not tokenizer:
        kind = "general estimates, as the tokenizer of the model is not known"
    if total.counting == "estimated":
        return f"No count of the upstream is known: all tokens are {kind}."
    verb = "counted" if total.counting == "exact" else "reported"
    text = (
        f"{upstream} {verb} {total.tokens:,} input tokens. The parts are {kind}, multiplied by {total.scale:.2f} to "
        "add up to that."
    )
    if total.scale < _TRUNCATED_SHARE and total.estimated > _SMALL_TOKENS:
        text += " That is far fewer than estimated: the server may have truncated the prompt, or not counted all of it."
    return text
