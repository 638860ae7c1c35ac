"""Sixty prompts through a whole gateway: forty where one call is right, twenty without a suitable tool.

    python -m bench.accuracy.fresh [--arm auto required] [--seeds 0 1 2 3] [--most 20] [--record]

Seed 0 is temperature 0, the others temperature 0.3. Answers are stored in .cache/accuracy, and not requested twice.
Without `--record` the model is asked for those that are not stored; with it, they become the recording of the tests.
"""

import argparse
import asyncio
import json
import math
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.accuracy import texts
from bench.accuracy.cases import REPLY_TOKENS, Case, fresh
from bench.accuracy.generate import TEXTS, Meter
from bench.accuracy.judge import judge_calls
from bench.accuracy.texts import TextsBackend, exchange_context, guarded
from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.core.collect import complete_calls
from dragoman.core.events import AnyEvent, Failure, Notice, TextDelta
from dragoman.core.messages import Request, Sampling, ToolCall, ToolChoice
from dragoman.gateway.gateway import Gateway
from dragoman.guard.policy import GuardPolicy

MODEL = "qwen2.5-coder-1.5b"
ARMS: Mapping[str, str] = {
    "auto": "free choice",
    "auto_undecided": "without `decide_calls`",
    "auto_decided": "with `decide_calls`",
    "required": "required",
}
"""The arms, and their titles."""
SEEDED_TEMPERATURE = 0.3
RECORDING = texts.FOLDER / "fresh.jsonl"


class ClientView(msgspec.Struct, frozen=True):
    """What the client gets."""

    calls: list[tuple[str, str]]
    """Name and arguments of each."""
    text: str
    warnings: list[str]


class FreshAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer, and its cost."""

    id: str
    arm: str
    seed: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cpu_s: float
    """CPU seconds of the engine's process."""
    writing_cpu_s: float
    """Those after the first token of each generation."""
    texts: list[str] = []
    """The model's text in each generation. Absent in a recording: as with seed 0."""
    outcome: ClientView | None = None
    """Absent in a recording: a replay of the texts has it."""

    @property
    def key(self) -> tuple[str, str, int]:
        """Returns what identifies it."""
        return self.id, self.arm, self.seed


class Group(msgspec.Struct):
    """Results of a kind of prompt, an arm and a temperature."""

    title: str
    answers: int = 0
    right: int = 0
    calls: int = 0
    most_calls: int = 0
    output_tokens: int = 0


def request(case: Case, arm: str, seed: int) -> Request:
    """Returns the client's request; several calls are neither allowed nor forbidden."""
    choice = ToolChoice("required") if arm.startswith("required") else ToolChoice()
    sampling = Sampling(temperature=SEEDED_TEMPERATURE, seed=seed) if seed else Sampling(temperature=0)
    return msgspec.structs.replace(case.request(MODEL), tool_choice=choice, sampling=sampling)


def outcome(events: Iterable[AnyEvent]) -> ClientView:
    """Returns what a client gets of these events."""
    events = list(events)
    for event in events:
        if isinstance(event, Failure):
            raise event.error
    written = "".join(event.text for event in events if isinstance(event, TextDelta))
    calls = [(call.name, call.arguments) for call in complete_calls(events)]
    return ClientView(calls, written, [event.code for event in events if isinstance(event, Notice)])


def replay(answer: FreshAnswer, case: Case) -> ClientView:
    """Returns the outcome of the recorded texts with the guard of this version."""
    client_request = request(case, answer.arm, answer.seed)
    recorded = [
        texts.RecordedText(case.id, answer.arm, "stop", 0, 0, 0, 0.0, text, model=MODEL) for text in answer.texts
    ]

    async def events() -> list[AnyEvent]:
        async with aclosing(guarded(TextsBackend(recorded), client_request, GuardPolicy())) as batches:
            return [event async for batch in batches for event in batch]

    return outcome(asyncio.run(events()))


def is_right(case: Case, result: ClientView) -> bool:
    """Whether it is the right call, or only words where no tool is suitable."""
    calls = [ToolCall("", name, arguments) for name, arguments in result.calls]
    return judge_calls(case, calls, result.text).right


def groups(answers: Iterable[FreshAnswer]) -> list[Group]:
    """Returns the results of each arm, kind of prompt and temperature."""
    cases, found = {case.id: case for case in fresh()}, dict[tuple[str, str, bool], Group]()
    for answer in answers:
        case, has_seed = cases[answer.id], bool(answer.seed)
        kind = "no suitable tool" if case.call_count == "none" else "one call"
        title = f"{kind}, {ARMS.get(answer.arm, answer.arm)}{f', temperature {SEEDED_TEMPERATURE}' if has_seed else ''}"
        group = found.setdefault((kind, answer.arm, has_seed), Group(title))
        result = answer.outcome or replay(answer, case)
        group.answers += 1
        group.right += is_right(case, result)
        group.calls += len(result.calls)
        group.most_calls = max(group.most_calls, len(result.calls))
        group.output_tokens += answer.output_tokens
    return [found[key] for key in sorted(found, key=lambda key: (key[0] != "one call", key[1], key[2]))]


def common(answers: Iterable[FreshAnswer]) -> list[FreshAnswer]:
    """Returns the answers to the prompts that each arm with such prompts and temperatures answered."""
    answers, kinds = list(answers), {case.id: case.call_count for case in fresh()}
    arms, has = defaultdict[tuple[str, bool], set[str]](set), {each.key for each in answers}
    for each in answers:
        arms[kinds[each.id], bool(each.seed)].add(each.arm)
    return [
        each
        for each in answers
        if all((each.id, arm, each.seed) in has for arm in arms[kinds[each.id], bool(each.seed)])
    ]


def wilson(right: int, count: int) -> tuple[float, float]:
    """Returns the 95 % interval of a share, in percent (Wilson's score interval)."""
    z, share = 1.96, right / count
    middle = share + z * z / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    low, high = ((middle + sign * half) / (1 + z * z / count) for sign in (-1, 1))
    return 100 * low, 100 * high


def markdown(results: Iterable[Group]) -> str:
    """Returns the table of docs/accuracy.md."""
    heads = ("prompts", "right", "95 % interval", "most calls", "tokens")
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    for group in results:
        low, high = wilson(group.right, group.answers)
        lines.append(
            f"| {group.title} | {group.right} of {group.answers} | {low:.0f} to {high:.0f} % | {group.most_calls} "
            f"| {group.output_tokens / group.answers:.0f} |"
        )
    return "\n".join([*lines, ""])


def read(path: Path) -> list[FreshAnswer]:
    """Returns the answers of a file, with their texts; none if it does not exist."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    answers = [msgspec.json.decode(line, type=FreshAnswer) for line in lines if line.startswith(b'{"id"')]
    first = {(each.id, each.arm): each.texts for each in answers if not each.seed}
    return [each if each.texts else msgspec.structs.replace(each, texts=first[each.id, each.arm]) for each in answers]


def record(answers: Sequence[FreshAnswer], path: Path) -> None:
    """Stores the answers for the tests, without texts and outcomes that follow from others."""
    cases, order = {case.id: case for case in fresh()}, [case.id for case in fresh()]
    first = {(each.id, each.arm): each.texts for each in answers if not each.seed}
    settings = f"at most {REPLY_TOKENS} tokens, one thread; seeds: temperature {SEEDED_TEMPERATURE}"
    head = texts.recording_head("python -m bench.accuracy.fresh --record", MODEL, settings)
    lines = [msgspec.json.encode(head)]
    for each in sorted(answers, key=lambda each: (each.arm, each.seed, order.index(each.id))):
        is_like_first = bool(each.seed) and each.texts == first.get((each.id, each.arm))
        result = None if each.outcome == replay(each, cases[each.id]) else each.outcome
        lines.append(
            msgspec.json.encode(
                msgspec.structs.replace(each, texts=[] if is_like_first else each.texts, outcome=result)
            )
        )
    path.write_bytes(b"\n".join([*lines, b""]))


async def ask(
    arms: Sequence[str], seeds: Sequence[int], path: Path, most: int, policy: GuardPolicy, settings: Mapping[str, Any]
) -> None:
    """Asks the model for the answers that the file lacks, and appends each.

    Args:
        arms: names of arms.
        seeds: seeds; 0 is temperature 0.
        path: the file.
        most: maximum number of answers; 0: all.
        policy: settings of the guard.
        settings: settings of the embedded model that differ from the default.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = {each.key for each in read(path)}
    missing = [(case, arm, seed) for seed in seeds for arm in arms for case in fresh()]
    missing = [
        (case, arm, seed)
        for case, arm, seed in missing
        if (case.id, arm, seed) not in stored and (case.call_count == "one" or not arm.startswith("required"))
    ][: most or None]
    async with _running(settings) as (backend, meter):
        gateway = Gateway([backend], policy=policy)
        with path.open("ab") as out:
            for number, (case, arm, seed) in enumerate(missing, 1):
                meter.begin(free=False)
                async with aclosing(gateway.generate(request(case, arm, seed), exchange_context())) as batches:
                    result = outcome([event async for batch in batches for event in batch])
                answer = FreshAnswer(
                    case.id,
                    arm,
                    seed,
                    meter.input_tokens,
                    meter.cached_tokens,
                    meter.output_tokens,
                    round(meter.cpu_s, 2),
                    round(meter.writing_cpu_s, 2),
                    meter.texts,
                    result,
                )
                out.write(msgspec.json.encode(answer) + b"\n")
                out.flush()
                verdict = "right" if is_right(case, result) else "WRONG"
                _say(
                    f"{number}/{len(missing)} {case.id} {arm} {seed} {verdict} {answer.cpu_s} s {len(answer.texts)}"
                    f" {result.calls} {result.text!r:.120}"
                )


@asynccontextmanager
async def _running(settings: Mapping[str, Any]) -> AsyncGenerator[tuple[EmbeddedModel, Meter], None]:
    fixed = {"model": MODEL, "context_window": 4096, "max_concurrency": 1, "prefix_cache_mb": 0, "threads": 1}
    config = msgspec.convert({**fixed, **settings}, EmbeddedConfig)
    backend = EmbeddedModel.from_config(config, weights.find_weights(MODEL), _say)
    backend.engine = meter = Meter(backend.engine)  # type: ignore[assignment]  # other attributes are the engine's
    await backend.start()
    try:
        yield backend, meter
    finally:
        await backend.close()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy.fresh", description=__doc__)
    parser.add_argument(
        "--arm", nargs="+", default=("auto", "required"), help="auto, required, or a name that begins so"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2, 3))
    parser.add_argument("--most", type=int, default=0, help="ask for at most so many answers; 0: all")
    parser.add_argument("--guard", default="{}", help="settings of the guard, as JSON, for an arm of another name")
    parser.add_argument("--embedded", default="{}", help="settings of the embedded model, as JSON, for such an arm")
    parser.add_argument("--file", type=Path, default=TEXTS / "fresh.jsonl", help="where the answers are stored")
    parser.add_argument("--record", action="store_true", help="store the answers for the tests, without the model")
    args = parser.parse_args()
    if args.record:
        record(read(args.file), RECORDING)
    else:
        policy = msgspec.json.decode(args.guard, type=GuardPolicy)
        asyncio.run(ask(args.arm, args.seeds, args.file, args.most, policy, json.loads(args.embedded)))
    print(markdown(groups(common({each.key: each for each in read(args.file)}.values()))))


if __name__ == "__main__":
    main()
