"""State that the checks share: the client, the responses and the findings so far."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from dragoman.backends.probe.client import ProbeAnswer, ProbeClient
from dragoman.backends.probe.report import ProbeFinding, Verdict
from dragoman.backends.probe.server_info import ServerInfo
from dragoman.catalog.servers import Provider
from dragoman.core.errors import UpstreamTimeoutError, quote
from dragoman.core.messages import Message, Text, Tool, ToolCall, ToolResult

WEATHER: Final = Tool(
    "get_weather",
    "Get the weather of a city.",
    '{"type":"object","properties":{"city":{"type":"string","description":"Its name"}},"required":["city"]}',
)
CLOCK: Final = Tool("get_time", "Get the time of day.", '{"type":"object","properties":{}}')
ASKS_FOR_TOOL: Final = "What is the weather in Paris? Use the tool."


def _example(n: int, city: str, result: str) -> tuple[Message, ...]:
    call = ToolCall(f"call_example{n}", WEATHER.name, f'{{"city": "{city}"}}')
    return (
        Message("user", (Text(ASKS_FOR_TOOL.replace("Paris", city)),)),
        Message("assistant", (call,)),
        Message("tool", (ToolResult(call.id, (Text(result),)),)),
        Message("assistant", (Text(f"{city}: {result}."),)),
    )


EXAMPLES: Final = (*_example(1, "Rome", "rain, 12 degrees"), *_example(2, "Oslo", "snow, 1 degree"))
"""The smallest models call a tool only if they have been shown examples."""
GREETING: Final = "Say hello in one word."


@dataclass(slots=True)
class ProbeContext:
    """The probe of one model of one server."""

    client: ProbeClient
    server_info: ServerInfo
    provider: Provider | None
    findings: dict[str, ProbeFinding] = field(default_factory=dict)
    answers: dict[str, ProbeAnswer] = field(default_factory=dict)
    """Responses that later checks use too, by name."""

    @property
    def model(self) -> str:
        """The model's name."""
        return self.client.model

    @property
    def examples(self) -> tuple[Message, ...]:
        """Messages to put before a request for tools, if the model needs examples."""
        return EXAMPLES if self.findings["tool calls"].facts.get("examples") else ()

    def holds(self, what: str) -> bool:
        """Returns whether this check succeeded, at least in part."""
        return what in self.findings and self.findings[what].verdict in ("yes", "partly")


ProbeCheck: TypeAlias = Callable[[ProbeContext], Awaitable[ProbeFinding]]


def quote_line(text: str, limit_chars: int = 60) -> str:
    """Returns text of the model or the server, quoted on one line."""
    line = " ".join(text.split())
    return quote(line if len(line) <= limit_chars else line[: limit_chars - 1] + "…")


def failure_verdict(answer: ProbeAnswer) -> Verdict:
    """Returns whether a missing reply is the server's fault; "unknown" if there was no time for one."""
    return "unknown" if isinstance(answer.error, UpstreamTimeoutError) else "no"


def failure_reason(answer: ProbeAnswer) -> str:
    """Returns why there is no reply."""
    return answer.error.message if answer.error else "no answer"
