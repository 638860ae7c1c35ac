"""One structured line for each request: who asked for what, how it went, how long it took. Never what was said."""

import json
import logging
import secrets
import time
from datetime import UTC, datetime

import msgspec

from dragoman.backends import conversion_time
from dragoman.core.collect import finish_of
from dragoman.core.errors import DragomanError, logged
from dragoman.core.events import (
    AnyEvent,
    EventOrder,
    Failure,
    Finish,
    Notice,
    ReasoningDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.messages import Request, Usage
from dragoman.server.observe.call_outcomes import NO_TOOL, Tally

log = logging.getLogger("dragoman.access")

NAME_LIMIT_CHARS = 100
"""Of names that the client has made up; the line is no place to fill."""

TOOLS_LIMIT = 20
"""Tools whose calls a line tells one by one."""


class Record:
    """What is remembered of one request."""

    def __init__(self, method: str, path: str) -> None:
        self.turn_id = secrets.token_hex(12)
        """As dialects take it, without a prefix."""
        self.id = f"req_{self.turn_id}"
        """What the client is told, too."""
        self.path = path
        self.status = 0
        self.error = ""
        self.cause: BaseException | None = None
        """The exception that `error` names."""
        self.relayed = False
        """The answer was passed on unread: how many calls were in it is not known."""
        self.request: Request | None = None
        """Once it has been understood."""
        self.usage = Usage()
        self.first_s: float | None = None
        """When the backend's answer began; None: it never did."""
        self.spent = conversion_time.start()
        """Time of conversion."""
        self.tally = Tally()
        self._offered: frozenset[str] = frozenset()
        self.warnings: list[str] = []
        """The codes of all, as they came."""
        self._labels: list[str] = []
        """The same with the names of what they are about."""
        self._began_s = time.monotonic()
        self._facts: dict[str, object] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "id": self.id,
            "method": method,
            "path": path[:NAME_LIMIT_CHARS],
        }
        self._calls = EventOrder()
        """Only counts calls here; the writers follow every event."""

    def asked(self, dialect: str, request: Request) -> None:
        """The request has been understood."""
        self.request = request
        self._offered = frozenset(tool.name for tool in request.tools)
        self._facts |= {
            "dialect": dialect,
            "model": request.model[:NAME_LIMIT_CHARS],
            "stream": request.stream,
            "messages": len(request.messages),
            "tools": len(request.tools),
            "tool_choice": request.tool_choice.mode,
        }

    def saw(self, event: AnyEvent) -> None:
        """An event has passed."""
        match event:
            case TextDelta() | ToolCallDelta() | ReasoningDelta():  # first, as most are; nothing is done for a word
                pass
            case Start(input_tokens=tokens):
                self._facts["input_tokens"] = tokens
                self.first_s = self.seconds
                self.usage = Usage(input_tokens=tokens)
            case ToolCallStart(name=name):
                self._calls.calls += 1
                self.tally.begin(name[:NAME_LIMIT_CHARS] if name in self._offered else NO_TOOL)
            case ToolCallEnd():
                self.tally.end(event)
            case ToolCallIncomplete():
                self._calls.incomplete += 1
                self.tally.cut()
            case Notice(code):
                self.warnings.append(code)
                self._labels.append(event.label)
            case UsageUpdate(usage):
                self.usage = usage
                self._facts["input_tokens"] = usage.input_tokens
                self._facts["output_tokens"] = usage.output_tokens
                self._facts |= {} if usage.cost_usd is None else {"cost_usd": usage.cost_usd}
            case Finish():
                unseen = self.relayed and not self._calls.calls
                self._facts["finish"] = event.reason if unseen else finish_of(event, self._calls)
            case Failure(error):
                self.failed(error)
            case _:
                pass

    def counted(self, tokens: int) -> None:
        """The request was only to be counted."""
        self._facts["input_tokens"] = tokens

    def failed(self, error: BaseException) -> None:
        """Why it went wrong: the first reason stays. What a field held is the client's own; its place is told."""
        said = logged(error) if isinstance(error, DragomanError) else ""
        self.error = self.error or f"{type(error).__name__}: {said}".removesuffix(": ")
        self.cause = self.cause or error

    @property
    def seconds(self) -> float:
        """Since it came."""
        return time.monotonic() - self._began_s

    def timing(self) -> dict[str, str]:
        """The header `server-timing`: milliseconds of conversion and of all so far."""
        return {"server-timing": f"convert;dur={self.spent.seconds * 1000:.2f}, total;dur={self.seconds * 1000:.2f}"}

    def close(self) -> None:
        """It is over, however that came."""
        if not self.relayed:  # where a call that was passed on unread ended is not told
            self.tally.close(self.warnings)

    def facts(self) -> dict[str, object]:
        """All that there is to say of it."""
        facts = self._facts | {"status": self.status, "ms": _ms(self.seconds)}
        if self.first_s is not None:
            facts["first_ms"] = _ms(self.first_s)
        if self.relayed:
            facts["relayed"] = True
        elif "model" in facts:
            facts["calls"] = self._calls.calls
        if by_tool := self.tally.by_tool(TOOLS_LIMIT):
            facts["by_tool"] = by_tool
        if rescued := self.warnings.count("leaked_call_recovered"):
            facts["rescued"] = rescued
        if self.warnings:
            facts["warnings"] = self._labels
        if self.error:
            facts["error"] = self.error[:300]
        return facts

    def log(self) -> None:
        """Write the line."""
        log.info("%s", _seen(msgspec.json.encode(self.facts()).decode()))


def _seen(line: str) -> str:
    """The JSON with escapes for what would steer a terminal, or turn the order of what is read."""
    return line if line.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
