"""What second opinions change: the re-ask answered by the same model, by a vote of samples, or by a larger model.

    python -m bench.accuracy.opinions                                   SmolLM2 first, Qwen2.5-Coder as the larger one
    python -m bench.accuracy.opinions --rejected --arms once samples    Qwen2.5-Coder, where its first call is rejected

A tool is required, and the first model writes without a grammar, as on a server without constrained decoding: with one
there is nothing to doubt. Prompts that need one call only, spread over all groups.
"""

import argparse
import asyncio
import os
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from bench.accuracy import judge, texts
from bench.accuracy.cases import Case, own
from bench.accuracy.generate import Meter
from bench.accuracy.ladder import LADDER, run_rung
from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.core.collect import Collector
from dragoman.core.messages import ToolCall, ToolChoice, part_text
from dragoman.gateway.gateway import Gateway
from dragoman.guard.policy import GuardPolicy

SMALL, LARGE = "smollm2-135m", "qwen2.5-coder-1.5b"
PATIENT = GuardPolicy(reask_timeout_s=3600)
ARMS = {
    "none": replace(PATIENT, reask=False),
    "once": PATIENT,
    "samples": replace(PATIENT, samples=3),
    "larger": replace(PATIENT, second_opinion=LARGE),
}
"""Settings of the guard by the name of the arm."""


@dataclass
class ArmTotal:
    """The results of one arm."""

    arm: str
    prompts: int = 0
    reasked: int = 0
    right: int = 0
    valid: int = 0
    """Responses with calls, all of them valid."""
    input_tokens: int = 0
    output_tokens: int = 0
    cpu_s: float = 0.0

    def row(self) -> str:
        """Returns the row of the table; tokens and CPU seconds are those of a prompt."""
        counts = (self.arm, self.prompts, self.reasked, self.valid, self.right)
        means = (self.input_tokens / self.prompts, self.output_tokens / self.prompts, self.cpu_s / self.prompts)
        return f"| {' | '.join(map(str, counts))} | {means[0]:.0f} | {means[1]:.0f} | {means[2]:.1f} |"


async def measure(
    first: str, cases: Sequence[Case], arms: Sequence[str], choice: ToolChoice, *, is_free: bool, threads: int
) -> list[ArmTotal]:
    """Returns the results of each arm.

    Args:
        first: The model that is asked first.
        cases: The prompts.
        arms: Names of `ARMS`.
        choice: The tool choice of the requests.
        is_free: Whether the first model writes without a grammar.
        threads: Threads of the engines.
    """
    names = [first, *([LARGE] if "larger" in arms and first != LARGE else [])]
    backends, meters = [], []
    for name in names:
        config = EmbeddedConfig(model=name, prefix_cache_mb=0, context_window=4096, max_concurrency=1, threads=threads)
        backend = EmbeddedModel.from_config(config, weights.find_weights(name), lambda _: None)
        meter: Any = Meter(backend.engine)
        backend.engine = meter
        backends.append(backend)
        meters.append(meter)
    for backend in backends:
        await backend.start()
    try:
        return [await _arm(arm, backends, meters, cases, choice, is_free=is_free) for arm in arms]
    finally:
        for backend in backends:
            await backend.close()


async def _arm(
    arm: str,
    backends: Sequence[EmbeddedModel],
    meters: Sequence[Meter],
    cases: Sequence[Case],
    choice: ToolChoice,
    *,
    is_free: bool,
) -> ArmTotal:
    total, gateway = ArmTotal(arm), Gateway(backends, policy=ARMS[arm])
    for case in cases:
        for number, meter in enumerate(meters):
            meter.begin(free=is_free and not number)
        request = replace(case.request(backends[0].models()[0].id), tool_choice=choice)
        collector = Collector()
        async with aclosing(gateway.generate(request, texts.exchange_context())) as batches:
            async for batch in batches:
                for event in batch:
                    collector.feed(event)
        reply, codes = collector.reply(), [each.code for each in collector.warnings]
        calls = [part for part in reply.parts if isinstance(part, ToolCall)]
        verdict = judge.judge_calls(case, calls, "".join(map(part_text, reply.parts)))
        total.prompts += 1
        total.reasked += "reasked" in codes
        total.right += verdict.right
        total.valid += bool(verdict.calls) and not verdict.invalid
        cpu_s, usage = sum(meter.cpu_s for meter in meters), reply.usage
        total.input_tokens += usage.input_tokens
        total.output_tokens += usage.output_tokens
        total.cpu_s += cpu_s
        spent = f"{usage.input_tokens} + {usage.output_tokens} tokens, {cpu_s:.1f} CPU s"
        print(arm, case.id, verdict, codes, [(each.name, each.arguments) for each in calls], spent, flush=True)
    return total


def spread(cases: Sequence[Case], count: int) -> list[Case]:
    """Returns so many prompts that need one call, spread over all."""
    single = [case for case in cases if case.category == "own_single"]
    return [single[number * len(single) // count] for number in range(min(count, len(single)))]


def rejected(model: str) -> list[Case]:
    """Returns the prompts whose recorded answer the guard re-asks about, without a grammar."""
    by_id: dict[str, dict[str, texts.RecordedText]] = {}
    for text in texts.read_recording(texts.recording(model)):
        by_id.setdefault(text.id, {})[text.rung] = text
    (rung,) = (each for each in LADDER if each.title == "+ repaired, re-asked")
    return [case for case in own() if case.id in by_id and len(run_rung(rung, case, by_id[case.id]).texts_used) > 1]


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy.opinions", description=__doc__)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=[*ARMS])
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--constrained", action="store_true", help="the first model has its grammar")
    parser.add_argument("--rejected", action="store_true", help=f"{LARGE} alone, where it is re-asked")
    args = parser.parse_args()
    os.nice(5)
    first, cases, choice = SMALL, spread(own(), args.prompts), ToolChoice("required", parallel_tool_calls=False)
    if args.rejected:
        first, cases, choice = LARGE, rejected(LARGE), ToolChoice()
    work = measure(first, cases, args.arms, choice, is_free=not args.constrained, threads=args.threads)
    totals = asyncio.run(work)
    print("| arm | prompts | re-asked | valid | right | input tokens | output tokens | CPU s |\n|---|" + "---:|" * 7)
    for total in totals:
        print(total.row())


if __name__ == "__main__":
    main()
