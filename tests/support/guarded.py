"""A guarded stream of a scripted model."""

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from dragoman.core import events as ev
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import collect
from dragoman.core.messages import Message, Request, Text, Tool, ToolCall, Usage
from dragoman.gateway.gateway import Gateway
from dragoman.guard.policy import Buffering, GuardPolicy
from support.events import all_events
from support.scripted_backend import Scripted

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["celsius", "kelvin"]}},
    "required": ["city"],
    "additionalProperties": False,
}


TOOLS = (Tool("get_weather", "", json.dumps(SCHEMA)), Tool("ping"))


ASKED = (Message("user", (Text("How is the weather?"),)),)


Call = tuple[str, str]


def told(*calls: Call, text: str = "", finish: Any = "stop", cut: bool = False) -> list[ev.AnyEvent]:
    """The events of a response with these calls, each with its arguments in two deltas."""
    out: list[ev.AnyEvent] = [ev.Start("", "", 0), *([ev.TextDelta(text)] if text else [])]
    for i, (name, arguments) in enumerate(calls):
        half = len(arguments) // 2
        pieces = [ev.ToolCallDelta(i, arguments[:half]), ev.ToolCallDelta(i, arguments[half:])]
        last = ev.ToolCallIncomplete(i, arguments) if cut else ev.ToolCallEnd(i)
        out += [ev.ToolCallStart(i, f"call_{i}", name), *pieces, last]
    return [*out, ev.UsageUpdate(Usage(10, 5)), ev.Finish(finish)]


class Asked(Scripted):
    """A backend with a list of responses, which records its requests."""

    def __init__(self, *answers: Sequence[ev.AnyEvent]) -> None:
        super().__init__(self.play)
        self.answers = list(answers)
        self.requests: list[Request] = []

    async def play(self, _: Scripted, request: Request) -> AsyncGenerator[ev.AnyEvent, None]:
        self.requests.append(request)
        for event in self.answers.pop(0):
            if isinstance(event, ev.Failure) and len(self.requests) > 1:
                raise event.error
            yield event


def asking(**changes: Any) -> Request:
    return Request(**({"model": "m", "messages": ASKED, "tools": TOOLS, "stream": True} | changes))


async def answered(
    backend: Asked, policy: GuardPolicy | None = None, buffering: Buffering | None = None, **changes: Any
) -> list[ev.AnyEvent]:
    """Returns the events after the guard; asserts that their order is valid."""
    gateway = Gateway([backend], policy=policy or GuardPolicy())
    context = ExchangeContext("t", 0, lambda: "new")
    events = await all_events(gateway.generate(asking(**changes), context, buffering))
    collect(events)
    assert not backend.answers, "asked less often than was expected"
    return events


def calls(events: Sequence[ev.AnyEvent]) -> list[Call]:
    return [(part.name, part.arguments) for part in collect(events).parts if isinstance(part, ToolCall)]


def words(events: Sequence[ev.AnyEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, ev.TextDelta))


def codes(events: Sequence[ev.AnyEvent]) -> list[str]:
    return [event.code for event in events if isinstance(event, ev.Notice)]
