"""What the measures share: whom they ask, and what has been heard and found so far."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from dragoman.backends.probe.client import Asker, Heard
from dragoman.backends.probe.report import Finding
from dragoman.backends.probe.server_info import Telling
from dragoman.catalog.servers import ServerKind
from dragoman.core.errors import quote
from dragoman.core.messages import Message, Text, Tool, ToolCall, ToolResult

WEATHER: Final = Tool(
    "get_weather",
    "Get the weather of a city.",
    '{"type":"object","properties":{"city":{"type":"string","description":"Its name"}},"required":["city"]}',
)
CLOCK: Final = Tool("get_time", "Get the time of day.", '{"type":"object","properties":{}}')
ASKS_FOR_TOOL: Final = "What is the weather in Paris? Use the tool."


def _example(n: int, city: str, told: str) -> tuple[Message, ...]:
    call = ToolCall(f"call_example{n}", WEATHER.name, f'{{"city": "{city}"}}')
    return (
        Message("user", (Text(ASKS_FOR_TOOL.replace("Paris", city)),)),
        Message("assistant", (call,)),
        Message("tool", (ToolResult(call.id, (Text(told),)),)),
        Message("assistant", (Text(f"{city}: {told}."),)),
    )


EXAMPLES: Final = (*_example(1, "Rome", "rain, 12 degrees"), *_example(2, "Oslo", "snow, 1 degree"))
"""The smallest models call only what they have been shown, and then they do."""
GREETING: Final = "Say hello in one word."


@dataclass(slots=True)
class Subject:
    """One model of one server."""

    asker: Asker
    telling: Telling
    kind: ServerKind | None
    findings: dict[str, Finding] = field(default_factory=dict)
    heard: dict[str, Heard] = field(default_factory=dict)
    """Answers that later measures look at too, by the measure's own name for them."""

    @property
    def model(self) -> str:
        """Its name."""
        return self.asker.model

    @property
    def examples(self) -> tuple[Message, ...]:
        """What goes before a question for tools, where the model needs it."""
        return EXAMPLES if self.findings["tool calls"].facts.get("examples") else ()

    def is_so(self, what: str) -> bool:
        """Whether this was found to be so, at least in part."""
        return what in self.findings and self.findings[what].verdict in ("yes", "partly")


Measure: TypeAlias = Callable[[Subject], Awaitable[Finding]]


def shown(text: str, limit_chars: int = 60) -> str:
    """Words of the model or the server, on one line."""
    line = " ".join(text.split())
    return quote(line if len(line) <= limit_chars else line[: limit_chars - 1] + "…")


def why(heard: Heard) -> str:
    """Why an answer is none."""
    return heard.error.message if heard.error else "no answer"
