"""Builds what the page shows of the context of one captured exchange."""

from heapq import nlargest
from typing import Final, NamedTuple, TypeAlias

from dragoman.catalog import tokenizers
from dragoman.console.context_use.captured import CapturedRequest
from dragoman.console.context_use.counts import explain_count, group_parts, part_ends, part_view, total_count
from dragoman.console.context_use.parts import RequestPart, request_parts
from dragoman.console.context_use.trims import budget_of, preview_trims
from dragoman.console.context_use.turns import Captures, SessionTurns, turn_facts
from dragoman.console.context_use.views import ContextUse
from dragoman.core.token_estimate import TokenEstimator

MAX_PARTS: Final = 1000
MAX_LARGEST: Final = 10
_Span: TypeAlias = tuple[RequestPart, int, int]
"""A part, the tokens before it, and those to its end."""


class BackendFacts(NamedTuple):
    """What the running gateway knows of the backend of an exchange."""

    context_window: int | None = None
    """Of the model; None: not known."""
    can_count: bool = False
    """Whether it may count the tokens of a request."""
    trim_setting: str = ""
    """Key of the setting of prompt trimming; "": it has none."""
    tokens_per_s: float = 0.0
    """Speed at which its model reads a prompt; 0: not known."""


UNKNOWN: Final = BackendFacts()


def context_use(
    id: str,
    captured: CapturedRequest,
    captures: Captures,
    sessions: SessionTurns,
    facts: BackendFacts = UNKNOWN,
    exact: int | None = None,
) -> ContextUse:
    """Returns the context of an exchange. Takes milliseconds for each megabyte of the captures of a session.

    Args:
        id: The id of the exchange.
        captured: The exchange.
        captures: All captures.
        sessions: Finds the turns of its session.
        facts: What is known of its backend.
        exact: The tokens that the backend counted when asked; None: it was not asked, or cannot count.
    """
    request = captured.sent
    vocabulary = tokenizers.find(request.model)
    parts = request_parts(request, vocabulary)
    total = total_count(parts, captured, exact)
    ends = part_ends(parts, total)
    cached = None if captured.usage.is_estimated else captured.usage.cached_tokens
    spans = list(zip(parts, [0, *ends], ends, strict=False))
    listed = [part_view(*span, cached) for span in _bounded(spans)]
    largest = nlargest(MAX_LARGEST, (span for span in spans if span[0].kind != "frame"), key=_size)
    family = _family(vocabulary)
    session = sessions.find(captures, turn_facts(id, captured, parts), parts)
    budget = budget_of(captured.settings, facts.tokens_per_s)
    return ContextUse(
        id=id,
        is_captured=True,
        model=request.model,
        upstream=captured.backend,
        counting=total.counting,
        tokenizer=family,
        explanation=explain_count(total, family, captured.backend),
        can_count=facts.can_count,
        tokens=total.tokens,
        estimated_tokens=total.estimated,
        usage=captured.usage,
        context_window=facts.context_window,
        groups=group_parts(parts, ends),
        parts=listed,
        omitted_parts=len(parts) - len(listed),
        omitted_tokens=total.tokens - sum(part.tokens for part in listed),
        largest=[part_view(*span, cached) for span in largest],
        session=session.id,
        turns_by=session.turns_by,
        turns=session.turns,
        has_all_turns=session.has_all,
        trims=preview_trims(captured, vocabulary, total.scale, budget),
        trim_setting=facts.trim_setting,
        budget_tokens=budget.tokens or None,
    )


def _bounded(spans: list[_Span]) -> list[_Span]:
    """Returns all parts, or of too many the first and the last ones."""
    if len(spans) <= MAX_PARTS:
        return spans
    return [*spans[: MAX_PARTS // 2], *spans[-MAX_PARTS // 2 :]]


def _size(span: _Span) -> int:
    return span[2] - span[1]


def _family(vocabulary: TokenEstimator) -> str:
    """Returns the name of the tokenizer; "": it is the general estimate."""
    return next((name for name, each in tokenizers.estimators().items() if each is vocabulary), "")
