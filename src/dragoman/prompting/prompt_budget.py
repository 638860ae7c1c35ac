"""An agent's request cut to what a model reads in a given time: the mildest step that fits is taken.

    tokens = reading speed (tokens/s) x time (s)

    steps   the tiers of `trim` from the one that is set, then "lean" with the agent's ordinary tools alone, then
            "least" with those, then with fewer of them, the least important left out first

Only what the agent says before the conversation counts: tools and system messages up to the first answer. So the step
is the same for all requests of a conversation, and what the model has read stays in its prompt cache.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from dragoman.core.messages import Request, Tool
from dragoman.core.token_estimate import TokenEstimator
from dragoman.prompting import trim
from dragoman.prompting.trim import TrimmedRequest

INSTRUCTION_SHARE: Final = 0.6
"""Of the time that is for reading instructions and tools. The rest is for the user's own text, for the first words of
the answer, and for a machine that is busier than at the measurement.
"""
_ROLES: Final = ("system", "developer")


class Budget(NamedTuple):
    """What an agent's instructions and tools may cost."""

    tokens: int
    """0: any number."""
    tools: tuple[str, ...] = ()
    """Names of the agent's ordinary tools, the most important first."""


def budget_for(seconds: float, tokens_per_s: float, tools: tuple[str, ...]) -> Budget:
    """What is read in this time; no budget where the speed is not known."""
    return Budget(max(1, round(seconds * tokens_per_s * INSTRUCTION_SHARE)) if tokens_per_s else 0, tools)


class FittedRequest(NamedTuple):
    """A request that fits, or the least that there is."""

    trimmed: TrimmedRequest
    tier: str
    head_tokens: int
    """Estimated size of the tools and system messages."""


def fit_request(request: Request, tier: str, budget: Budget, vocabulary: TokenEstimator) -> FittedRequest:
    """The request by the mildest step from `tier` on whose tools and system messages fit into the budget."""
    step = FittedRequest(TrimmedRequest(request, 0), tier, 0)
    before = head_tokens(request, vocabulary)
    for name, tools in _steps(tier, budget, request):
        made = trim.trim_request(replace(request, tools=tools), name, vocabulary).request
        tokens = head_tokens(made, vocabulary)
        gone = tuple(tool.name for tool in request.tools if tool not in tools)
        saved = max(0, before - tokens)
        step = FittedRequest(TrimmedRequest(made, saved, gone) if saved else TrimmedRequest(request, 0), name, tokens)
        if tokens <= budget.tokens or not budget.tokens:
            break
    return step


def head_tokens(request: Request, vocabulary: TokenEstimator) -> int:
    """About how many tokens the tools and the system messages before the first answer are."""
    said = next((n for n, message in enumerate(request.messages) if message.role == "assistant"), None)
    head = tuple(message for message in request.messages[:said] if message.role in _ROLES)
    return vocabulary.estimate_request(replace(request, messages=head, response_schema=""))


def _steps(tier: str, budget: Budget, request: Request) -> Iterator[tuple[str, tuple[Tool, ...]]]:
    """Tiers and the tools that stay, each step cutting more than the one before."""
    offered = {tool.name for tool in request.tools}
    names = [name for name in budget.tools if name in offered]
    ordinary = _select_tools(request, names)
    yield tier, request.tools
    for name in trim.NAMES[trim.NAMES.index(tier) + 1 :]:
        if name != "least" or ordinary == request.tools:
            yield name, request.tools
        if name != "tools" and ordinary != request.tools:
            yield name, ordinary
    for many in range(len(names) - 1, 0, -1):
        yield "least", _select_tools(request, names[:many])


def _select_tools(request: Request, names: Sequence[str]) -> tuple[Tool, ...]:
    """The tools of these names and the one that must be called; all where there are no names, or any must be called."""
    if not names or request.tool_choice.mode == "required":
        return request.tools
    return tuple(tool for tool in request.tools if tool.name in names or tool.name == request.tool_choice.name)
