"""The rungs, and Dragoman's output on each for a model's text."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import NamedTuple

from bench.accuracy.cases import Case
from bench.accuracy.texts import RecordedText, TextsBackend, exchange_context, guarded
from dragoman.backends.embedded.questions.call_plan import WHEN_ON, planned_calls
from dragoman.catalog import models as model_catalog
from dragoman.core.collect import complete_calls
from dragoman.core.events import AnyEvent, TextDelta
from dragoman.core.messages import ToolCall
from dragoman.guard.policy import GuardPolicy

DEPENDS = "depends"
"""In the same answers: 1 if calls may depend on each other, so that several are not planned."""
OPENING = "opening"
"""In the recorded answers to how many calls are needed, the probability that the reply opens with a call."""


@dataclass(frozen=True)
class Rung:
    """One rung; each includes the rungs above it."""

    title: str
    text: str = "raw"
    """Name of the model's first text."""
    reask_text: str = ""
    """Name of the second text, if the model is re-asked."""
    policy: GuardPolicy | None = None
    """None: without the guard."""
    lenient: bool = True
    """False: only calls in the format's tags count."""
    published: bool = True
    """Whether docs/accuracy.md has it; the others are measured for the tests."""
    after: tuple[str, ...] = ()
    """Names of texts that follow from the model's answer to how many calls are needed; without any it is not asked."""
    plan_from: float = 0.0
    """Probability of several calls from which they are planned; 0: that of the catalogue."""

    def used(self, texts: Mapping[str, RecordedText]) -> list[str]:
        """Returns the names of the question and the first text that are used of a prompt's texts."""
        if not self.after:
            return [self.text]
        if "asked" not in texts:
            return ["asked", self.text]
        text = text_after(texts["asked"], self.plan_from)
        return ["asked", text if text in self.after else self.text]


def text_after(question: RecordedText, plan_from: float = 0.0) -> str:
    """Returns the name of the text that follows from the number of calls that the model needs; "": any text.

    Args:
        question: the probabilities of each number.
        plan_from: probability of several calls from which they are planned; 0: that of the catalogue.
    """
    shares = json.loads(question.text)
    if OPENING in shares and (1 - shares["0"]) * shares[OPENING] < model_catalog.get(question.model).words_below:
        return "words"
    return "planned" if calls_after(question, plan_from) else ""


def calls_after(question: RecordedText, plan_from: float = 0.0) -> int:
    """Returns the number of calls to which the response is constrained, see `text_after`; 0: any number."""
    threshold = plan_from or model_catalog.get(question.model).several_calls_from or WHEN_ON
    counts = {name: share for name, share in json.loads(question.text).items() if name not in (OPENING, DEPENDS)}
    return 0 if DEPENDS in json.loads(question.text) else planned_calls(counts, threshold)


REPAIR, REASK = GuardPolicy(reask=False), GuardPolicy()
LADDER = (
    Rung("tags only", lenient=False),
    Rung("raw"),
    Rung("+ repaired", policy=REPAIR, published=False),
    Rung("+ repaired, re-asked", reask_text="again_free", policy=REASK),
    Rung("+ constrained", "constrained", published=False),
    Rung("+ constrained, repaired", "constrained", policy=REPAIR, published=False),
    Rung("+ constrained, repaired, re-asked", "constrained", "again", REASK),
    Rung("the same, buffered", "constrained", "again", GuardPolicy(buffering="all"), published=False),
)
SEPARATE_RUNGS = (
    Rung("instructed when to call", "told", published=False),
    Rung("instructed, + constrained, repaired, re-asked", "told_constrained", "told_again", REASK, published=False),
    Rung("asked, + constrained, repaired, re-asked", "constrained", "again", REASK, after=("words",)),
    Rung('`plan_calls = "on"`', "constrained", "again", REASK, after=("words", "planned"), plan_from=WHEN_ON),
    Rung("one call required", "required", policy=REASK),
)


class RungResult(NamedTuple):
    """The result of a prompt."""

    calls: list[ToolCall]
    texts_used: list[RecordedText]
    """The texts that were used; a question comes first."""
    events: list[AnyEvent]

    @property
    def text(self) -> str:
        """Returns the text for the user."""
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))


def run_rung(rung: Rung, case: Case, texts: Mapping[str, RecordedText]) -> RungResult:
    """Returns the output on this rung for the texts of one prompt, by name."""
    return asyncio.run(_run_rung(rung, case, texts))


async def _run_rung(rung: Rung, case: Case, texts: Mapping[str, RecordedText]) -> RungResult:
    *questions, first = (texts[name] for name in rung.used(texts))
    may_reask = rung.reask_text in texts and first.rung not in ("words", "planned")
    attempts = [first, *([texts[rung.reask_text]] if may_reask else ())]
    backend, request = TextsBackend(attempts, lenient=rung.lenient), case.request(first.model)
    events = backend.generate(request, exchange_context())
    if policy := rung.policy:
        events = guarded(backend, request, policy)
    async with aclosing(events):
        output = [event async for batch in events for event in batch]
    used = attempts[: len(attempts) - backend.remaining]
    return RungResult(complete_calls(output), [*questions, *used], output)
