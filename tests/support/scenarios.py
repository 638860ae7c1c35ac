"""What a scripted model answers, one scenario after another, and what a client must have made of it.

The model's name is the scenario's. Once the client has sent results, the model says what they hold: then a client's
last words show that the call reached it whole, and that its result came back.
"""

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dragoman.core import messages as v
from dragoman.core.collect import Collector
from dragoman.core.errors import BackendUnavailableError
from dragoman.core.events import (
    AnyEvent,
    Failure,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
    UsageUpdate,
)
from support.scripted_backend import Scripted, Sent

QUESTION = "Weather in Bern?"
LONG = 'Grüße, "Ada" \\ 🌊\n' * 5000
"""100 KB of what JSON has to escape."""
PIECE_CHARS: Final = 997
"""Of a call's arguments, in one event; cuts escapes and characters of several bytes wherever it may."""
DIED = "the engine died"


def call(index: int, name: str, **arguments: object) -> list[AnyEvent]:
    """A whole call, in pieces."""
    text = json.dumps(arguments, ensure_ascii=index % 2 == 1)
    cuts = [0, 1, 5, *range(PIECE_CHARS, len(text), PIECE_CHARS)]
    pieces = [text[a:b] for a, b in zip(cuts, [*cuts[1:], len(text)], strict=True)]
    deltas = [ToolCallDelta(index, piece) for piece in pieces if piece]
    return [ToolCallStart(index, f"call_{index}", name), *deltas, ToolCallEnd(index)]


BERN = call(0, "get_weather", city="Bern")
PAUSE: Final = None
"""The model says nothing until the client has got a ping."""
SCENARIOS: Final[dict[str, Sequence[AnyEvent | None]]] = {
    "text": [TextDelta("Grüße "), TextDelta("aus\nBern 🌊")],
    "one-call": BERN,
    "parallel": [*BERN, *call(1, "get_weather", city="Zürich 🌊"), *call(2, "ping")],
    "text-call-text": [TextDelta("Let me look."), *BERN, TextDelta(" I have asked.")],
    "thinking-call": [ReasoningDelta("It is "), ReasoningDelta("about Bern.", "c2ln"), *BERN],
    "long-arguments": call(0, "write_note", text=LONG),
    "empty-arguments": call(0, "ping"),
    "slow": [
        PAUSE,
        ReasoningDelta("Hm."),
        PAUSE,
        TextDelta("Let "),
        PAUSE,
        TextDelta("me."),
        *BERN[:3],
        PAUSE,
        *BERN[3:],
    ],
    "refusal": [RefusalDelta("That I "), RefusalDelta("will not do.")],
    "cut": [ToolCallStart(0, "call_0", "get_weather"), ToolCallDelta(0, '{"city":"Be'), ToolCallIncomplete(0, "")],
    "broken": [TextDelta("Gr"), Failure(BackendUnavailableError(DIED))],
}
WHOLE: Final = [name for name in SCENARIOS if name not in ("cut", "broken")]
"""Those that come to a good end."""
CALLING: Final = [name for name in WHOLE if any(isinstance(e, ToolCallStart) for e in SCENARIOS[name])]

SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    name: {
        "type": "object",
        "properties": {p: {"type": "string"} for p in properties},
        "required": properties,
        "additionalProperties": False,
    }
    for name, properties in {"get_weather": ["city"], "write_note": ["text"], "ping": []}.items()
}


def run(name: str, arguments: dict[str, str]) -> str:
    """What a client's own tools answer."""
    match name:
        case "get_weather":
            return f"18 degrees in {arguments['city']}"
        case "write_note":
            return f"{len(arguments['text'])} characters"
    return "pong"


@dataclass
class Said:
    """What a client has of an answer, in words that all clients share."""

    text: str = ""
    thoughts: str = ""
    refusal: str = ""
    calls: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """Id, name and arguments of each."""


def expected(scenario: str) -> Said:
    """What a client must have of it; a call that was cut off is in none of these."""
    reply = reply_of(scenario)
    texts = {
        kind: "".join(part.text for part in reply.parts if isinstance(part, kind))
        for kind in (v.Text, v.Reasoning, v.Refusal)
    }
    whole = [p for p in reply.parts if isinstance(p, v.ToolCall) and scenario != "cut"]
    calls = [(p.id, p.name, json.loads(p.arguments)) for p in whole]
    return Said(texts[v.Text], texts[v.Reasoning], texts[v.Refusal], calls)


def told(scenario: str) -> str:
    """The model's last words, once it has the results."""
    return " | ".join(run(name, arguments) for _, name, arguments in expected(scenario).calls)


def reply_of(scenario: str) -> v.Reply:
    """The whole reply, as far as it comes."""
    collector = Collector()
    for event in [Start("1", "m", 7), *SCENARIOS[scenario], *_end(scenario)]:
        if event is not PAUSE:
            collector.feed(event)
    return collector.reply()


def _end(scenario: str) -> list[AnyEvent]:
    if isinstance(SCENARIOS[scenario][-1], Failure):
        return []
    return [
        UsageUpdate(v.Usage(90, 12, cached_input_tokens=30, reasoning_tokens=4)),
        Finish("length" if scenario == "cut" else "stop"),
    ]


def is_kept(sent: Sent) -> bool:
    """Whether it is among the requests that are recorded: the scenarios that have it all."""
    return json.loads(sent.body)["model"] in ("parallel", "thinking-call")


async def play(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
    """The scripted model."""
    results = [p for m in request.messages for p in m.parts if isinstance(p, v.ToolResult)]
    if not results and SCENARIOS[request.model][0] is PAUSE:
        await backend.pause(request)
    yield Start("", "", 0, 90)
    if results:
        yield TextDelta(" | ".join("".join(p.text for p in r.parts if isinstance(p, v.Text)) for r in results))
    for event in [] if results else SCENARIOS[request.model]:
        if event is PAUSE:
            await backend.pause(request)
        else:
            yield event
    for event in _end("text" if results else request.model):
        yield event
