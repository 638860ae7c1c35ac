"""Trims an agent's request to what a model reads in a given time: the first step that fits is used.

    tokens = prompt speed (tokens/s) x time (s)

    steps   the tiers of `prompt_trim` from the configured one on; then "aggressive" with the agent's ordinary tools
            only; then "max" with those; then "max" with fewer of them, the least important omitted first

Only what the agent sends before the conversation counts: tools and system messages before the first response. So the
step is the same for all requests of a conversation, and the model's prompt cache stays valid.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from dragoman.core.messages import SYSTEM_ROLES, Request, Tool
from dragoman.core.token_estimate import TokenEstimator
from dragoman.prompting import trim
from dragoman.prompting.trim import TrimmedRequest

INSTRUCTION_SHARE: Final = 0.6
"""Share of the time for instructions and tools. The rest is for the user's own text, for the first tokens of the
response, and for a machine that is busier than during the measurement."""


class Budget(NamedTuple):
    """A limit of the size of an agent's instructions and tools."""

    tokens: int
    """0: no limit."""
    tools: tuple[str, ...] = ()
    """Names of the agent's ordinary tools, the most important first."""


def budget_for(seconds: float, tokens_per_s: float, tools: tuple[str, ...]) -> Budget:
    """Returns the budget for a prompt that is read in `seconds`; without a limit if the speed is not known (0).

    Args:
        seconds: Time for the whole prompt.
        tokens_per_s: Speed at which the model reads a prompt; 0: not known.
        tools: Names of the agent's ordinary tools, the most important first.
    """
    return Budget(max(1, round(seconds * tokens_per_s * INSTRUCTION_SHARE)) if tokens_per_s else 0, tools)


class FittedRequest(NamedTuple):
    """A request that fits the budget, or the smallest one that is possible."""

    trimmed: TrimmedRequest
    tier: str
    head_tokens: int
    """Estimated size of the tools and system messages."""


def fit_request(request: Request, tier: str, budget: Budget, vocabulary: TokenEstimator) -> FittedRequest:
    """Trims the request by the first step, from `tier` on, whose tools and system messages fit the budget.

    Args:
        request: An agent's request.
        tier: The mildest step: a tier of `prompt_trim`.
        budget: The limit.
        vocabulary: Estimates the tokens of a text.
    """
    step = FittedRequest(TrimmedRequest(request, 0), tier, 0)
    before = head_tokens(request, vocabulary)
    for name, tools in _steps(tier, budget, request):
        trimmed = trim.trim_request(replace(request, tools=tools), name, vocabulary).request
        tokens = head_tokens(trimmed, vocabulary)
        removed = tuple(tool.name for tool in request.tools if tool not in tools)
        saved = max(0, before - tokens)
        step = FittedRequest(
            TrimmedRequest(trimmed, saved, removed) if saved else TrimmedRequest(request, 0), name, tokens
        )
        if tokens <= budget.tokens or not budget.tokens:
            break
    return step


def head_tokens(request: Request, vocabulary: TokenEstimator) -> int:
    """Returns the estimated tokens of the tools and the system messages before the first response."""
    first_reply = next((n for n, message in enumerate(request.messages) if message.role == "assistant"), None)
    head = tuple(message for message in request.messages[:first_reply] if message.role in SYSTEM_ROLES)
    return vocabulary.estimate_request(replace(request, messages=head, response_schema=""))


def _steps(tier: str, budget: Budget, request: Request) -> Iterator[tuple[str, tuple[Tool, ...]]]:
    """Pairs of a tier and the tools that stay; each step removes more than the one before."""
    offered = {tool.name for tool in request.tools}
    names = [name for name in budget.tools if name in offered]
    ordinary = _select_tools(request, names)
    yield tier, request.tools
    for name in trim.NAMES[trim.NAMES.index(tier) + 1 :]:
        if name != "max" or ordinary == request.tools:
            yield name, request.tools
        if name != "tools" and ordinary != request.tools:
            yield name, ordinary
    for many in range(len(names) - 1, 0, -1):
        yield "max", _select_tools(request, names[:many])


def _select_tools(request: Request, names: Sequence[str]) -> tuple[Tool, ...]:
    """The tools with these names, the tool that must be called, and tools that are found by a search with that search;
    all tools if there are no names, or if any tool must be called.
    """
    if not names or request.tool_choice.mode == "required":
        return request.tools
    remaining = {*names, request.tool_choice.name}
    return tuple(tool for tool in request.tools if tool.name in remaining or tool.loading != "listed")
