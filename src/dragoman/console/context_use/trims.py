"""What each tier of prompt trimming would remove of a request."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dragoman.console.context_use.captured import CapturedRequest
from dragoman.console.context_use.parts import RequestPart, request_parts
from dragoman.console.context_use.views import PartKind, TrimmedPart, TrimPreview
from dragoman.core.messages import Request
from dragoman.core.token_estimate import TokenEstimator
from dragoman.prompting import trim
from dragoman.prompting.prompt_budget import Budget, budget_for, fit_request, head_tokens

MAX_PARTS: Final = 50
_FEWER_TOOLS: Final = "max, fewer tools"
_MEANINGS: Final[Mapping[str, str]] = {
    "off": "nothing is trimmed",
    "tools": "of each tool's description the first sentence, and short descriptions of parameters",
    "aggressive": "like tools, without descriptions of parameters, and with a shorter system prompt without examples",
    "max": "like aggressive, with required parameters only, and a system prompt of facts and project instructions",
    _FEWER_TOOLS: "like max, without the tools for which the budget has no room",
}
_SUMS: Final[Mapping[PartKind, str]] = {"tool": "", "system": "system prompt", "schema": "schema of the response"}
"""Parts that are compared together, by kind; of other kinds, `_CONVERSATION`."""
_CONVERSATION: Final = "conversation"


class _Sum(NamedTuple):
    kind: PartKind
    link: str
    tokens: int


def preview_trims(
    captured: CapturedRequest, vocabulary: TokenEstimator, scale: float, budget: Budget
) -> list[TrimPreview]:
    """Returns what each tier would remove, the mildest first.

    Args:
        captured: The exchange.
        vocabulary: Estimates the tokens.
        scale: By what estimates are multiplied.
        budget: The limit of tools and system prompt; of 0 tokens if there is none.
    """
    request, tier = captured.request, str(captured.settings.get("prompt_trim", ""))
    before = _sums(request_parts(request, vocabulary))
    trimmed = [(name, trim.trim_request(request, name, vocabulary).request) for name in trim.NAMES]
    if budget.tokens and tier in trim.NAMES:
        fitted = fit_request(request, tier, budget, vocabulary).trimmed
        if fitted.omitted_tools:
            trimmed.append((_FEWER_TOOLS, fitted.request))
    sent_tools = len(captured.sent.tools)
    applied = _FEWER_TOOLS if captured.tier == "max" and sent_tools < len(request.tools) else captured.tier
    previews = []
    for name, each in trimmed:
        after = before if each is request else _sums(request_parts(each, vocabulary))
        preview = TrimPreview(
            level=name,
            meaning=_MEANINGS[name],
            tokens_before=_scaled(_total(before), scale),
            tokens_after=_scaled(_total(after), scale),
            parts=_changes(before, after, scale),
            is_used=name == tier,
            is_applied=name == applied,
            is_within_budget=_is_within(each, vocabulary, budget),
        )
        previews.append(preview)
    return previews


def _is_within(request: Request, vocabulary: TokenEstimator, budget: Budget) -> bool | None:
    return head_tokens(request, vocabulary) <= budget.tokens if budget.tokens else None


def _sums(parts: Sequence[RequestPart]) -> dict[str, _Sum]:
    """Returns the tokens of each tool, and of the other parts together by what they are."""
    sums: dict[str, _Sum] = {}
    for part in parts:
        name = _SUMS.get(part.kind, _CONVERSATION) or part.name
        kind: PartKind = part.kind if part.kind in _SUMS else "other"
        known = sums.get(name)
        sums[name] = _Sum(kind, part.link if kind == "tool" else "", part.tokens + (known.tokens if known else 0))
    return sums


def _changes(before: Mapping[str, _Sum], after: Mapping[str, _Sum], scale: float) -> list[TrimmedPart]:
    changes = []
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        facts = old or new
        counts = (old.tokens if old else 0, new.tokens if new else 0)
        if facts is not None and counts[0] != counts[1]:
            changes.append(
                TrimmedPart(
                    kind=facts.kind,
                    name=name,
                    link=facts.link,
                    tokens_before=_scaled(counts[0], scale),
                    tokens_after=_scaled(counts[1], scale),
                )
            )
    changes.sort(key=lambda change: change.tokens_after - change.tokens_before)
    return changes[:MAX_PARTS]


def _total(sums: Mapping[str, _Sum]) -> int:
    return sum(each.tokens for each in sums.values())


def _scaled(tokens: int, scale: float) -> int:
    return round(tokens * scale)


def budget_of(settings: Mapping[str, object], speed: float) -> Budget:
    """Returns the budget of a backend for tools and system prompt; of 0 tokens if it has none.

    Args:
        settings: The settings of the backend, as they are captured.
        speed: Speed at which its model reads a prompt, in tokens per second; 0: not known.
    """
    named = settings.get("tools")
    tools = tuple(str(each) for each in named) if isinstance(named, list | tuple) else ()
    target_s, tokens = settings.get("first_response_target_s"), settings.get("prompt_tokens")
    if isinstance(target_s, int | float) and target_s > 0:
        return budget_for(target_s, speed, tools)
    return Budget(tokens if isinstance(tokens, int) else 0, tools)
