"""What each tier of prompt trimming would remove of a request."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from dragoman.console.context_use.captured import CapturedRequest
from dragoman.console.context_use.views import PartKind, TrimmedPart, TrimPreview
from dragoman.core.messages import SYSTEM_ROLES, Message, Request, known_tools
from dragoman.core.token_estimate import MESSAGE_TOKENS, TOOLS_TOKENS, TokenEstimator
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
_SYSTEM: Final = "system prompt"
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
        budget: The limit of tools and system prompt; of 0 tokens: no limit is known.
    """
    request, tier = captured.request, str(captured.settings.get("prompt_trim", ""))
    counter = _Counter(vocabulary)
    before = counter.sums(request)
    trimmed = [(name, trim.trim_request(request, name, vocabulary).request) for name in trim.NAMES]
    if budget.tokens and tier in trim.NAMES:
        fitted = fit_request(request, tier, budget, vocabulary).trimmed
        if fitted.omitted_tools:
            trimmed.append((_FEWER_TOOLS, fitted.request))
    sent_tools = len(captured.sent.tools)
    applied = _FEWER_TOOLS if captured.tier == "max" and sent_tools < len(request.tools) else captured.tier
    previews = []
    for name, each in trimmed:
        after = before if each is request else counter.sums(each)
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


class _Counter:
    """Counts the tokens of trimmed variants of one request; what they have in common is counted once."""

    def __init__(self, vocabulary: TokenEstimator) -> None:
        self._vocabulary = vocabulary
        self._messages: dict[int, tuple[Message, int]] = {}
        """By the identity of the message, with the message so that the identity is not used again."""

    def sums(self, request: Request) -> dict[str, _Sum]:
        """Returns the tokens of each tool, and of the system prompt and everything else together."""
        sums: dict[str, _Sum] = {}
        tools = known_tools(request.tools)
        for tool in tools:
            name = f"tool {tool.name}"
            tokens = self._vocabulary.estimate_tool(tool) + (sums[name].tokens if name in sums else 0)
            sums[name] = _Sum("tool", f"tool:{tool.name}", tokens)
        system = sum(self._count(message) for message in request.messages if message.role in SYSTEM_ROLES)
        others = sum(self._count(message) for message in request.messages if message.role not in SYSTEM_ROLES)
        others += (TOOLS_TOKENS if tools else 0) + MESSAGE_TOKENS * len(request.messages)
        others += self._vocabulary.estimate(request.response_schema)
        return sums | {_SYSTEM: _Sum("system", "", system), _CONVERSATION: _Sum("other", "", others)}

    def _count(self, message: Message) -> int:
        known = self._messages.get(id(message))
        if known is None:
            tokens = sum(map(self._vocabulary.estimate_part, message.parts))
            known = self._messages[id(message)] = (message, tokens)
        return known[1]


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
