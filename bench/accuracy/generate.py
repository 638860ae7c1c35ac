"""Asks the models, through the embedded backend's own prompt, and keeps what they write.

Each text is a line of JSON: who wrote it on which rung, what it cost, and why it ended. A line that is there is not
asked for again, so that hours of work may be broken off.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
from llguidance import LLMatcher, LLTokenizer

from bench.accuracy.cases import Case
from dragoman.backends import weights
from dragoman.backends.embedded import Embedded
from dragoman.backends.embedded_config import EmbeddedConfig
from dragoman.backends.engine import Done, Piece, Progress
from dragoman.core.contracts import Turn
from dragoman.core.values import ToolChoice

TEXTS = Path(".cache/accuracy")
"""Where they are kept; a file a model."""
RUNGS = ("raw", "constrained", "required")
"""Asked with free choice and no grammar; with the grammar that the backend has for free choice; and, beside the ladder,
with one call required, which its grammar holds from the first token on; that is for prompts that want just one."""
TURN = Turn("x", 0, lambda: "x" * 24)


class Written(msgspec.Struct, frozen=True):
    """What a model wrote."""

    id: str
    model: str
    rung: str
    text: str
    finish: str
    """"stop" or "length"; "over" where the reader had enough."""
    input_tokens: int
    cached_tokens: int
    """Of them, read for an earlier prompt that began alike."""
    output_tokens: int
    cpu_s: float
    """Of the engine's process."""
    seconds: float
    prompt_sha256: str
    unchanged: bool = False
    """The raw text, all of which the grammar lets through: at temperature 0 the model would write it again."""


def read(path: Path) -> list[Written]:
    """All lines of a file; none where there is no such file."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Written) for line in lines if line.startswith(b'{"id"')]


async def run(model: str, cases: Sequence[Case], rungs: Sequence[str], *, threads: int = 1) -> None:
    """Ask what is not there yet."""
    path = TEXTS / f"{model}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    there = {(each.id, each.rung): each for each in read(path)}
    all_of_them = ((case, rung) for case in cases for rung in rungs if rung != "required" or case.wants == "one")
    wanted = [(case, rung) for case, rung in all_of_them if (case.id, rung) not in there]
    config = EmbeddedConfig(model=model, context_tokens=4096, parallel=1, threads=threads)
    backend = Embedded.of(config, weights.find(model), _say)
    await backend.start()
    try:
        with path.open("ab") as out:
            for number, (case, rung) in enumerate(wanted, 1):
                written = await _ask(backend, case, rung, there.get((case.id, "raw")))
                there[case.id, rung] = written
                out.write(msgspec.json.encode(written) + b"\n")
                out.flush()
                _say(f"{number}/{len(wanted)} {case.id} {rung} {written.seconds:.1f} s {written.text!r:.150}")
    finally:
        await backend.close()


async def _ask(backend: Embedded, case: Case, rung: str, raw: Written | None) -> Written:
    model = backend.models()[0].id
    request = case.request(model)
    if rung == "required":
        request = msgspec.structs.replace(request, tool_choice=ToolChoice("required", parallel=False))
    prepared = backend.prepared(request)
    body = dict(prepared.body)
    if rung == "raw":
        body.pop("grammar", None)
    elif rung == "constrained" and raw and _lets_through(body.get("grammar", ""), raw):
        return msgspec.structs.replace(raw, rung=rung, unchanged=True, prompt_sha256=_digest(body))
    reader = backend.reader(request, TURN, prepared)
    text, finish, total, output, cached = "", "over", 0, 0, 0
    began, spent = time.monotonic(), _cpu_s(backend)
    async with aclosing(backend.engine.complete(body)) as outputs:
        async for one in outputs:
            match one:
                case Progress(total):
                    pass
                case Piece(piece):
                    text, output = text + piece, output + 1
                    reader.feed(piece)
                    if reader.over:  # as the backend does
                        break
                case Done(finish, output, cached):
                    pass
    return Written(
        case.id,
        model,
        rung,
        text,
        finish,
        total,
        cached,
        output,
        round(_cpu_s(backend) - spent, 2),
        round(time.monotonic() - began, 2),
        _digest(body),
    )


def _lets_through(grammar: str, raw: Written) -> bool:
    """Whether a model that is held to the grammar would write the same text.

    It would if no token of the text, nor its end, is forbidden: then the likeliest one is the likeliest still.
    """
    if not grammar:
        return True
    matcher, text = LLMatcher(LLTokenizer("byte"), grammar), [*raw.text.encode()]
    if matcher.is_error():
        raise SystemExit(f"no grammar: {matcher.get_error()}")
    return matcher.try_consume_tokens(text) == len(text) and (raw.finish != "stop" or matcher.is_accepting())


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def _cpu_s(backend: Embedded) -> float:
    fields = Path(f"/proc/{backend.engine.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
