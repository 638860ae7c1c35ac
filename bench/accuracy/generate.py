"""Asks the models through the embedded backend, and stores their texts.

Stored texts are not generated again, so a run of hours can be interrupted.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
from llguidance import LLMatcher, LLTokenizer

from bench.accuracy.cases import Case
from bench.accuracy.ladder import DEPENDS, OPENING, calls_after, text_after
from bench.accuracy.texts import RUNGS, RecordedText, TextsBackend, exchange_context, guarded, read
from dragoman.backends.embedded import weights
from dragoman.backends.embedded.admitted_request import HeldSlot
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.engine_output import Done, Output, Progress, TokenText
from dragoman.backends.embedded.questions.call_decision import call_probability
from dragoman.backends.embedded.questions.call_plan import WHEN_ON, may_plan
from dragoman.core.events import Failure
from dragoman.core.messages import Request, ToolChoice
from dragoman.guard.policy import GuardPolicy

TEXTS = Path(".cache/accuracy")
"""Folder of the texts; a file for each model."""
UNCONSTRAINED_RUNGS = ("raw", "again_free", "told")
"""Rungs without a grammar."""
CONSTRAINED_RUNGS = {"constrained": "raw", "told_constrained": "told"}
"""Rungs with a grammar, and the equal ones without."""
REASK_RUNGS = {"again": "constrained", "again_free": "raw", "told_again": "told_constrained"}
"""Rungs that re-ask, and the rung before."""
ASKED_RUNGS = ("asked", "words", "planned")
"""Rungs that ask how many calls are needed."""
PATIENT_POLICY = GuardPolicy(reask_timeout_s=3600)
"""Timeout on a busy machine."""


class Meter:
    """The engine of a backend, and its input and output since `begin`."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.begin(free=False)

    def begin(self, *, free: bool) -> None:
        """Starts a new prompt; `free`: without a grammar."""
        self._free = free
        self.runs = 0
        self.texts: list[str] = []
        self.writing_cpu_s = 0.0
        self.input_tokens = self.cached_tokens = self.output_tokens = 0
        self._cpu_s, self._began = self._spent(), time.monotonic()

    async def complete(
        self, body: Mapping[str, Any], *, admitted: bool = False, slot: HeldSlot | None = None
    ) -> AsyncGenerator[Output, None]:
        """Generates with the engine."""
        body = {key: value for key, value in body.items() if key != "grammar" or not self._free}
        self.runs += 1
        self.text, self.finish, self.digest = "", "over", digest(body)
        before, first, began_cpu_s = self.output_tokens, True, 0.0
        try:
            async with aclosing(self._engine.complete(body, admitted=admitted, slot=slot)) as outputs:
                async for output in outputs:
                    match output:
                        case Progress(total):
                            self.input_tokens += total if first else 0
                            first = False
                        case TokenText(text):
                            began_cpu_s = began_cpu_s or self._spent()
                            self.text += text
                            self.output_tokens += 1
                        case Done(finish, tokens, cached):
                            self.finish, self.output_tokens = finish, before + tokens
                            self.cached_tokens += cached
                    yield output
        finally:  # also if the caller needs no more
            self.texts.append(self.text)
            self.writing_cpu_s += self._spent() - began_cpu_s if began_cpu_s else 0.0

    def last_text(self, id: str, model: str, rung: str) -> RecordedText:
        """Returns the last run's text, and the cost of all."""
        cpu_s, seconds = round(self.cpu_s, 2), round(time.monotonic() - self._began, 2)
        tokens = (self.input_tokens, self.cached_tokens, self.output_tokens)
        return RecordedText(id, rung, self.finish, *tokens, cpu_s, self.text, model, seconds, self.digest)

    @property
    def cpu_s(self) -> float:
        """Returns the CPU seconds of the engine since `begin`."""
        return self._spent() - self._cpu_s

    def _spent(self) -> float:
        """Returns the CPU seconds of its process so far."""
        if self._engine.pid is None:
            return 0.0
        fields = Path(f"/proc/{self._engine.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


async def run(model: str, cases: Sequence[Case], rungs: Sequence[str], *, threads: int = 1) -> None:
    """Generates the texts that the file of the model lacks, and appends each to it.

    Args:
        model: name of a known model.
        cases: the prompts.
        rungs: names of `RUNGS`.
        threads: threads of the engine.
    """
    path = TEXTS / f"{model}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = {(each.id, each.rung): each for each in read(path)}
    pairs = ((case, rung) for case in cases for rung in rungs if rung != "required" or case.call_count == "one")
    to_generate = [(case, rung) for case, rung in pairs if (case.id, rung) not in stored]
    backend = _backend(model, threads)
    backend.engine = meter = Meter(backend.engine)  # type: ignore[assignment]  # other attributes are the engine's
    await backend.start()
    try:
        with path.open("ab") as out:
            for number, (case, rung) in enumerate(to_generate, 1):
                earlier = {each: stored[case.id, each] for each in RUNGS if (case.id, each) in stored}
                if (text := await _generate_text(backend, meter, case, rung, earlier)) is not None:
                    stored[case.id, rung] = text
                    out.write(msgspec.json.encode(text) + b"\n")
                    out.flush()
                    _say(f"{number}/{len(to_generate)} {case.id} {rung} {text.seconds:.1f} s {text.text!r:.150}")
    finally:
        await backend.close()


def inputs(model: str, cases: Sequence[Case], rungs: Sequence[str]) -> Iterator[str]:
    """Yields a line for each prompt and rung, with a digest of the engine's input.

    Where two versions have the same line, the model writes the same text. Rungs that re-ask are left out.
    """
    backend = _backend(model, threads=1)
    for case in cases:
        for rung in rungs:
            if rung in (*REASK_RUNGS, *ASKED_RUNGS) or (rung == "required" and case.call_count != "one"):
                continue
            body = backend.prepare(_request(case, model, rung)).body
            its = {key: value for key, value in body.items() if key != "grammar" or rung not in UNCONSTRAINED_RUNGS}
            yield f"{case.id} {rung} {digest(its)}"


def _backend(model: str, threads: int) -> EmbeddedModel:
    config = EmbeddedConfig(
        model=model,
        prefix_cache_mb=0,
        context_window=4096,
        max_concurrency=1,
        threads=threads,
        decide_calls=False,  # a rung of its own
        plan_calls="off",
    )
    return EmbeddedModel.from_config(config, weights.find_weights(model), _say)


async def _generate_text(
    backend: EmbeddedModel, meter: Meter, case: Case, rung: str, earlier: Mapping[str, RecordedText]
) -> RecordedText | None:
    """Returns the model's text; None if it is not asked on this rung."""
    model = backend.models()[0].id
    request = _request(case, model, rung)
    meter.begin(free=rung in UNCONSTRAINED_RUNGS)
    free = earlier.get(CONSTRAINED_RUNGS.get(rung, ""))
    if free and _is_allowed_by_grammar(backend, request, free):
        return msgspec.structs.replace(free, rung=rung, unchanged=free.rung)
    if rung in ASKED_RUNGS:
        return await _decided_text(backend, meter, request, case.id, rung, earlier)
    events = backend.generate(request, exchange_context())
    if rung in REASK_RUNGS:
        if REASK_RUNGS[rung] not in earlier:
            return None
        replay = TextsBackend([earlier[REASK_RUNGS[rung]]], live=backend)
        events = guarded(replay, request, PATIENT_POLICY)
    async with aclosing(events):
        async for batch in events:
            if isinstance(batch[-1], Failure):
                raise batch[-1].error
    return meter.last_text(case.id, model, rung) if meter.runs else None


async def _decided_text(
    backend: EmbeddedModel, meter: Meter, request: Request, id: str, rung: str, earlier: Mapping[str, RecordedText]
) -> RecordedText | None:
    """Returns the answers to how many calls are needed, or the text of them; None if the choice is free."""
    prepared = backend.prepare(request)
    if rung == "asked":
        await call_probability(meter, prepared.body, backend.format)
        meter.begin(free=False)  # reading the prompt belongs to the text
        value, answers = await call_probability(meter, prepared.body, backend.format)
        counts = answers.probabilities
        shares = {**counts, OPENING: value / (1 - counts["0"])} if counts["0"] < 1 else counts
        answer = {name: round(share, 4) for name, share in shares.items()}
        if not may_plan(request):
            answer[DEPENDS] = 1
        return msgspec.structs.replace(meter.last_text(id, request.model, rung), text=json.dumps(answer))
    if "asked" not in earlier or text_after(earlier["asked"], WHEN_ON) != rung:
        return None
    if rung == "words":
        prepared = backend.prepare_words(request, prepared, 0.0)
    else:
        prepared = backend.prepare_plan(prepared, calls_after(earlier["asked"], WHEN_ON))
    async with aclosing(meter.complete(prepared.body)) as outputs:
        async for _ in outputs:
            pass
    text, free = meter.last_text(id, request.model, rung), earlier["constrained"]
    # The prompt is cached by the question, so its cost is that of the other text, which was written from the same one.
    more = (text.output_tokens - free.output_tokens) * meter.writing_cpu_s / (text.output_tokens or 1)
    return msgspec.structs.replace(
        text, input_tokens=free.input_tokens, cached_tokens=free.cached_tokens, cpu_s=round(free.cpu_s + more, 2)
    )


def _request(case: Case, model: str, rung: str) -> Request:
    request = case.request(model, is_instructed=rung.startswith("told"))
    if rung == "required":
        return msgspec.structs.replace(request, tool_choice=ToolChoice("required", parallel_tool_calls=False))
    return request


def _is_allowed_by_grammar(backend: EmbeddedModel, request: Request, raw: RecordedText) -> bool:
    """Whether the model would write the same text with its grammar.

    It would if the grammar allows each token of the text and its end, as the most likely token stays the same.
    """
    grammar = backend.prepare(request).body.get("grammar", "")
    if not grammar:
        return True
    matcher, text = LLMatcher(LLTokenizer("byte"), grammar), [*raw.text.encode()]
    if matcher.is_error():
        raise SystemExit(f"no grammar: {matcher.get_error()}")
    return matcher.try_consume_tokens(text) == len(text) and (raw.finish != "stop" or matcher.is_accepting())


def digest(body: Mapping[str, Any]) -> str:
    """Returns a short digest of the engine's input."""
    of_engine = {key: value for key, value in body.items() if key != "prefix_chars"}
    return hashlib.sha256(json.dumps(of_engine, sort_keys=True).encode()).hexdigest()[:16]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
