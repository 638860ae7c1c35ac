"""Scenarios of a scripted model, and the result that a client must get from each.

The model's name is the scenario's name. Once the client has sent tool results, the model repeats their text: so the
client's last message shows that the call arrived completely, and that its result was sent back.
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
LONG = 'Grüße, "Ada" \\ 🌊\n' * 2500
"""100 KB of text that JSON has to escape."""
PIECE_CHARS: Final = 997
"""Characters of a call's arguments per event; also splits escapes and multi-byte characters."""
DIED = "the engine died"


def call(index: int, name: str, **arguments: object) -> list[AnyEvent]:
    """A complete call in several deltas."""
    text = json.dumps(arguments, ensure_ascii=index % 2 == 1)
    cuts = [0, 1, 5, *range(PIECE_CHARS, len(text), PIECE_CHARS)]
    pieces = [text[a:b] for a, b in zip(cuts, [*cuts[1:], len(text)], strict=True)]
    deltas = [ToolCallDelta(index, piece) for piece in pieces if piece]
    return [ToolCallStart(index, f"call_{index}", name), *deltas, ToolCallEnd(index)]


BERN = call(0, "get_weather", city="Bern")
PAUSE: Final = None
"""The model waits until the client has received a ping."""
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
"""Scenarios that end without an error."""
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
    """Runs the client's tool, and returns its result."""
    match name:
        case "get_weather":
            return f"18 degrees in {arguments['city']}"
        case "write_note":
            return f"{len(arguments['text'])} characters"
    return "pong"


@dataclass
class Said:
    """A response as seen by a client, independent of its API."""

    text: str = ""
    thoughts: str = ""
    refusal: str = ""
    calls: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """Id, name and arguments of each."""


def expected(scenario: str) -> Said:
    """The result that a client must get; truncated calls are not included."""
    reply = reply_of(scenario)
    texts = {
        kind: "".join(part.text for part in reply.parts if isinstance(part, kind))
        for kind in (v.Text, v.Reasoning, v.Refusal)
    }
    whole = [p for p in reply.parts if isinstance(p, v.ToolCall) and scenario != "cut"]
    calls = [(p.id, p.name, json.loads(p.arguments)) for p in whole]
    return Said(texts[v.Text], texts[v.Reasoning], texts[v.Refusal], calls)


def told(scenario: str) -> str:
    """The model's last text, after the tool results."""
    return " | ".join(run(name, arguments) for _, name, arguments in expected(scenario).calls)


def reply_of(scenario: str) -> v.Reply:
    """The complete reply of a scenario, up to its end."""
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
    """Whether the request is recorded: only scenarios with all kinds of content are."""
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
