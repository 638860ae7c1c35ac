"""The rungs, and what leaves Dragoman on each for a text that a model wrote."""

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
    """One of them; each has what those above it have."""

    title: str
    text: str = "raw"
    """Which of the model's texts it begins with, by the name it is kept under."""
    again: str = ""
    """Which is the second, where the model is asked for one."""
    policy: GuardPolicy | None = None
    """None: the calls are not guarded."""
    lenient: bool = True
    """False: only calls in the format's own tags count."""


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
    """What came of a prompt."""

    calls: list[ToolCall]
    spent: list[Written]
    """The texts that it took."""
    events: list[AnyEvent]


def climb(rung: Rung, case: Case, texts: Mapping[str, Written]) -> Answer:
    """What leaves on this rung, from the texts of one prompt by the names that they are kept under."""
    return asyncio.run(_climb(rung, case, texts))


async def _climb(rung: Rung, case: Case, texts: Mapping[str, Written]) -> Answer:
    first = texts[rung.text]
    said = [first, *([texts[rung.again]] if rung.again in texts else ())]
    backend, request = Said(said, lenient=rung.lenient), case.request(first.model)
    events = backend.generate(request, exchange_context())
    if policy := rung.policy:
        guard = EventPipeline([ToolCallGuard(request, policy)])
        events = stream_response(backend, request, exchange_context(), guard, policy.reask_timeout_s)
    async with aclosing(events):
        came = [event async for batch in events for event in batch]
    return Answer(whole_calls(came), said[: len(said) - backend.left], came)
