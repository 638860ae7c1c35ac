"""The rungs, and Dragoman's output on each for a model's text."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import NamedTuple

from bench.accuracy.cases import Case
from bench.accuracy.texts import Said, Written, exchange_context
from bench.forty import whole_calls
from dragoman.core.events import AnyEvent
from dragoman.core.messages import ToolCall
from dragoman.core.stage import EventPipeline
from dragoman.gateway.response_stream import stream_response
from dragoman.guard.guard import ToolCallGuard
from dragoman.guard.policy import GuardPolicy


@dataclass(frozen=True)
class Rung:
    """One rung; each includes the rungs above it."""

    title: str
    text: str = "raw"
    """Name of the model's first text."""
    again: str = ""
    """Name of the second text, if the model is re-asked."""
    policy: GuardPolicy | None = None
    """None: without the guard."""
    lenient: bool = True
    """False: only calls in the format's tags count."""


MENDS, ASKS = GuardPolicy(reask=False), GuardPolicy()
LADDER = (
    Rung("tags only", lenient=False),
    Rung("raw"),
    Rung("+ repaired", policy=MENDS),
    Rung("+ repaired, re-asked", again="again_free", policy=ASKS),
    Rung("+ constrained", "constrained"),
    Rung("+ constrained, repaired", "constrained", policy=MENDS),
    Rung("+ constrained, repaired, re-asked", "constrained", "again", ASKS),
    Rung("the same, buffered", "constrained", "again", GuardPolicy(buffering="all")),
)
BESIDE = (
    Rung("instructed when to call", "told"),
    Rung("instructed, + constrained, repaired, re-asked", "told_constrained", "told_again", ASKS),
    Rung("one call required", "required", policy=ASKS),
)


class Answer(NamedTuple):
    """The result of a prompt."""

    calls: list[ToolCall]
    spent: list[Written]
    """The texts that were used."""
    events: list[AnyEvent]


def climb(rung: Rung, case: Case, texts: Mapping[str, Written]) -> Answer:
    """Returns the output on this rung for the texts of one prompt, by name."""
    return asyncio.run(_climb(rung, case, texts))


async def _climb(rung: Rung, case: Case, texts: Mapping[str, Written]) -> Answer:
    first = texts[rung.text]
    said = [first, *([texts[rung.again]] if rung.again in texts else ())]
    backend, request = Said(said, lenient=rung.lenient), case.request(first.model)
    events = backend.generate(request, exchange_context())
    if policy := rung.policy:
        guard = EventPipeline([ToolCallGuard(request, policy)])
        events = stream_response(backend.generate, request, exchange_context(), guard, policy.reask_timeout_s)
    async with aclosing(events):
        came = [event async for batch in events for event in batch]
    return Answer(whole_calls(came), said[: len(said) - backend.left], came)
