"""Whatever a server behind sends, in any cut, a reader gives one legal stream of events that ends.

What has been read is then written for the clients of every API, and says the same there.

    python -m fuzz.answers --seconds 60 [--seed N]

Begins with every answer of `tests/data/dialects/`, damages its bytes or the values of its events, and prints what
fails, as small as it gets.
"""

import json
import random
import re
import sys
from functools import cache
from itertools import count
from pathlib import Path

from dragoman import dialects
from dragoman.core.backend import ExchangeContext
from dragoman.core.events import (
    AnyEvent,
    EventOrder,
    Failure,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
)
from dragoman.core.messages import Request, Tool
from dragoman.text.json_stream import JsonStream
from fuzz.mutate import damaged, run, smallest, spliced
from fuzz.requests import WORDS, revalued

DATA = Path(__file__).parent.parent / "tests" / "data" / "dialects"
TOOLS = tuple(Tool(name) for name in ("weather", "read", "read_file"))
ASKED = Request("m", (), TOOLS, stream=True, stream_usage=True)


@cache
def answers(dialect: str) -> list[bytes]:
    """Streams and whole bodies, good and bad."""
    found = []
    for block in re.split(r"^# ", (DATA / dialect / "upstream.txt").read_text(), flags=re.M)[1:]:
        _, kind, rest = block.split("\n", 2)
        text = rest.partition("\n---\n")[0]
        found.append(text.encode() if kind.endswith("bytes") else "\n\n".join(map(_frame, text.splitlines())).encode())
    return found


def _frame(line: str) -> str:
    kind, _, rest = line.partition(" ")
    if kind == "delta":
        return f'data: {{"choices":[{{"index":0,"delta":{rest}}}]}}'
    if kind == "finish":
        return f'data: {{"choices":[{{"index":0,"delta":{{}},"finish_reason":{rest}}}]}}'
    return line


def attempt(chance: random.Random) -> str:
    """One mutated answer; the failing one, or ""."""
    name = chance.choice(dialects.names())
    body = chance.choice(answers(name))
    if chance.random() < 0.2:
        body = spliced(body, chance.choice(answers(name)), chance)
    body = _revalued(body, chance) if chance.random() < 0.75 else damaged(body, WORDS, chance)
    if not (problem := wrong(name, body)):
        return ""
    kind = problem.partition("(")[0]
    less = smallest(body, lambda body: wrong(name, body).startswith(kind))
    return f"{name}: {wrong(name, less)}\n\n{less!r}"


def _revalued(body: bytes, chance: random.Random) -> bytes:
    """One event's JSON damaged in its values, or told twice, or left out."""
    frames = body.split(b"\n\n")
    at = chance.randrange(len(frames))
    head, found, data = frames[at].partition(b"{")
    match chance.randrange(4):
        case 0:
            frames.insert(chance.randrange(len(frames)), frames[at])
        case 1:
            del frames[at]
        case _:
            frames[at] = head + revalued(found + data, chance)
    return b"\n\n".join(frames)


class _Arguments:
    """Of one call, as far as they have come."""

    def __init__(self) -> None:
        self.json = JsonStream()
        self.waiting = ""
        """The end of what came, which may be the beginning of a number."""


def wrong(dialect: str, body: bytes) -> str:
    """What does not hold, or ""."""
    try:
        whole = _read(dialect, [body])
        single = _read(dialect, [body[i : i + 1] for i in range(len(body))])
        order, texts = EventOrder(), dict[int, _Arguments]()
        for event in whole:
            order.feed(event)
            if problem := _arguments(event, texts):
                return problem
        if order.phase != "ended":
            return "no end"
        if list(map(_shown, whole)) != list(map(_shown, single)):
            return f"cuts matter: {whole} {single}"
        cut = any(isinstance(event, ToolCallIncomplete) for event in whole)
        for to in dialects.names():
            if (said := essence(_passed_on(whole, to), cut)) != essence(whole, cut):
                return f"{to} says {said} for {essence(whole, cut)}"
    except Exception as error:  # noqa: BLE001 what may not come out is what this looks for
        return f"{type(error).__name__}({error})"
    return ""


def _passed_on(events: list[AnyEvent], to: str) -> list[AnyEvent]:
    """What a client of that API makes of these events."""
    writer = dialects.get(to).writer(ASKED)
    return _read(to, [b"".join(map(writer.feed, events))])


def essence(events: list[AnyEvent], cut: bool) -> tuple[str, str, list[str], bool]:
    """Words, thoughts, calls and whether it broke off; of calls of which one was `cut` off, the names alone.

    A call that was cut off before its first argument is like one that takes none where only a reason at the end of the
    answer tells them apart.
    """
    words, thoughts, calls = "", "", list[str]()
    for event in events:
        match event:
            case TextDelta(text) | RefusalDelta(text):
                words += text
            case ReasoningDelta(text):
                thoughts += text
            case ToolCallStart(name=name):
                calls.append(name)
            case ToolCallDelta(text=text) if not cut:
                calls[-1] += text
            case _:
                pass
    return words, thoughts, calls, isinstance(events[-1], Failure)


def _arguments(event: AnyEvent, texts: dict[int, _Arguments]) -> str:
    """What is wrong with the arguments so far, or ""."""
    match event:
        case ToolCallStart(index):
            texts[index] = _Arguments()
        case ToolCallDelta(index, said):
            text = texts[index]
            text.waiting += said
            text.waiting = text.waiting[text.json.feed(text.waiting, 0) :]
            if text.json.problem or (text.json.done and text.waiting):
                return "arguments are no JSON"
        case ToolCallEnd(index):
            text = texts[index]
            if not (text.json.done and isinstance(json.loads(text.json.drain()), dict)):
                return "arguments are no whole object"
        case _:
            pass
    return ""


def _read(dialect: str, pieces: list[bytes]) -> list[AnyEvent]:
    numbers = count()
    reader = dialects.get(dialect).reader(ASKED, ExchangeContext("1", 0, lambda: str(next(numbers))))
    return [event for piece in pieces for event in reader.feed(piece)] + reader.close()


def _shown(event: AnyEvent) -> object:
    return event.error.message if isinstance(event, Failure) else event


if __name__ == "__main__":
    sys.exit(run(__doc__ or "", attempt))
