"""One structured log line for each request: client, model, result, time. It never contains messages or arguments."""

import json
import logging
import time
from collections.abc import Mapping
from typing import Final

import msgspec

from dragoman.backends import conversion_time
from dragoman.core.backend import Attempts
from dragoman.core.client import ANONYMOUS
from dragoman.core.collect import finish_reason
from dragoman.core.errors import UpstreamError, failure_reason
from dragoman.core.events import (
    AnyEvent,
    Detail,
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
from dragoman.core.identifiers import random_id
from dragoman.core.messages import Request, Usage
from dragoman.prices.price_book import PriceBook
from dragoman.server.observe.call_outcomes import NO_TOOL, CallOutcomes
from dragoman.server.observe.timestamps import timestamp
from dragoman.trace_context import trace_id
from dragoman.usage_limits.admission import Admission
from dragoman.wire.response_headers import REQUEST_ID, attempt_headers

log = logging.getLogger("dragoman.access")
_encode = msgspec.json.Encoder().encode

NAME_LIMIT_CHARS = 100
"""Maximum length of names that the client chose."""

FAILED_LIMIT = 20
"""Maximum number of failed attempts in a line."""

TOOLS_LIMIT = 20
"""Maximum number of tools whose calls are listed in a line."""

_UNRECORDED: Final = frozenset((TextDelta, ToolCallDelta, ReasoningDelta, Detail))
"""Types of most events, of which nothing is recorded."""


class AccessRecord:
    """What is recorded of one request, while it runs."""

    def __init__(self, method: str, path: str, prices: PriceBook | None = None) -> None:
        self.turn_id = random_id()
        """The id as dialects use it, without a prefix."""
        self.id = f"req_{self.turn_id}"
        """The id in the `x-request-id` header."""
        self.path = path
        self.status = 0
        self.error = ""
        self.cause: BaseException | None = None
        """The exception that `error` describes."""
        self.is_passthrough = False
        """The response was passed through: the number of its calls is unknown."""
        self.request: Request | None = None
        """Set once the request has been parsed."""
        self.trace: dict[str, str] = {}
        """The client's trace headers, which are forwarded."""
        self.client = ANONYMOUS
        """Who sent the request."""
        self.prices = prices
        """Prices of models; None: no price is known."""
        self.admission: Admission | None = None
        """What limits the API key; None: nothing does."""
        self.delta_count = 0
        """Events of the stream that were sent, if `admission` is set."""
        self.attempts = Attempts()
        """Which backends were asked."""
        self._upstream_request_id = ""
        self.usage = Usage()
        self.first_s: float | None = None
        """Seconds until the backend's first event; None: there was none."""
        self.spent = conversion_time.start()
        """Time spent on conversion."""
        self.tally = CallOutcomes()
        self._offered: frozenset[str] = frozenset()
        self.finish = ""
        """The finish reason; empty: the response has not ended."""
        self.warnings: list[str] = []
        """The codes of all warnings, in order."""
        self.labels: list[str] = []
        """The codes with the names of what the warnings are about."""
        self._began_s = time.monotonic()
        self._facts: dict[str, object] = {
            "time": timestamp(time.time()),
            "id": self.id,
            "method": method,
            "path": path[:NAME_LIMIT_CHARS],
        }
        self._calls = EventOrder()
        """Only counts calls here; the response writers check the order of events."""

    def on_request(self, dialect: str, request: Request) -> None:
        """The request has been parsed."""
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

    def observe(self, event: AnyEvent) -> None:
        """Records an event of the response."""
        if type(event) in _UNRECORDED:
            return
        match event:
            case Start(input_tokens=tokens):
                self._upstream_request_id = event.headers.get(REQUEST_ID, "")
                self._facts["input_tokens"] = tokens
                self.first_s = self.seconds
                self.usage = Usage(input_tokens=tokens)
            case UsageUpdate(usage):
                if self.prices is not None:
                    usage = self.priced(usage, self.prices)
                self.usage = usage
                self._facts["input_tokens"] = usage.input_tokens
                self._facts["output_tokens"] = usage.output_tokens
                self._facts |= {} if usage.cost_usd is None else {"cost_usd": usage.cost_usd}
            case Finish():
                unseen = self.is_passthrough and not self._calls.calls
                self._facts["finish"] = self.finish = event.reason if unseen else finish_reason(event, self._calls)
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
                self.labels.append(event.label)
                if code == "leaked_call_recovered":
                    self.tally.recover()
            case Failure(error):
                self.on_error(error)
            case _:
                pass

    def priced(self, usage: Usage, prices: PriceBook) -> Usage:
        """Returns the usage with its cost, if the price is known.

        Args:
            usage: The tokens of the response.
            prices: Prices of models.
        """
        cost_usd = prices.cost_usd(self.attempts.upstream, self.attempts.model, usage, self.seconds)
        return usage if cost_usd is None else msgspec.structs.replace(usage, cost_usd=round(cost_usd, 9))

    def on_count(self, tokens: int) -> None:
        """Records that the request only counted tokens."""
        self._facts["input_tokens"] = tokens

    def on_error(self, error: BaseException) -> None:
        """Records why the request failed; the first reason is kept."""
        self.error = self.error or failure_reason(error)
        if isinstance(error, UpstreamError) and REQUEST_ID in error.headers:
            self._upstream_request_id = error.headers[REQUEST_ID]
        self.cause = self.cause or error

    @property
    def seconds(self) -> float:
        """Seconds since the request arrived."""
        return time.monotonic() - self._began_s

    @property
    def overhead_s(self) -> float | None:
        """Seconds of the gateway itself until the first event: without waiting for servers; None: not known."""
        waited_s = self.attempts.waited_s
        return None if waited_s is None or self.first_s is None else max(0.0, self.first_s - waited_s)

    def timing(self) -> dict[str, str]:
        """Returns the header `server-timing`, in milliseconds: conversion, total so far, and the gateway itself."""
        times = f"convert;dur={self.spent.seconds * 1000:.2f}, total;dur={self.seconds * 1000:.2f}"
        if (overhead_s := self.overhead_s) is not None:
            times = f"{times}, overhead;dur={overhead_s * 1000:.2f}"
        return {"server-timing": times}

    def attempt_headers(self) -> dict[str, str]:
        """Returns the headers that tell which backend answers; empty while none was asked."""
        attempts = self.attempts
        return attempt_headers(attempts.upstream, attempts.model, attempts.count) if attempts.count else {}

    def close(self) -> None:
        """Ends the record, whatever the result."""
        if not self.is_passthrough:  # of a call that was passed through, the end is not known
            self.tally.close(self.warnings)

    def facts(self) -> dict[str, object]:
        """Returns the fields of the log line."""
        facts = self._facts | {"status": self.status, "ms": _ms(self.seconds)}
        if self.first_s is not None:
            facts["first_ms"] = _ms(self.first_s)
        if self.client is not ANONYMOUS:
            self._add_client(facts)
        if self.attempts.count:
            self._add_attempts(facts)
        if self.trace:
            facts["trace_id"] = trace_id(self.trace)
        if self.is_passthrough:
            facts["passthrough"] = True
        elif "model" in facts:
            facts["calls"] = self._calls.calls
        if by_tool := self.tally.by_tool(TOOLS_LIMIT):
            facts["by_tool"] = by_tool
        if recovered := self.warnings.count("leaked_call_recovered"):
            facts["recovered_calls"] = recovered
        if self.warnings:
            facts["warnings"] = self.labels
        if self.error:
            facts["error"] = self.error[:300]
        return facts

    def _add_client(self, facts: dict[str, object]) -> None:
        client = self.client
        named = {"key": client.key, "agent": client.agent, "role": client.role}
        facts |= {name: value for name, value in named.items() if value}

    def _add_attempts(self, facts: dict[str, object]) -> None:
        attempts = self.attempts
        facts["upstream"] = attempts.upstream
        facts["upstream_model"] = attempts.model[:NAME_LIMIT_CHARS]
        facts["attempts"] = attempts.count
        if attempts.placement:
            facts["placement"] = attempts.placement
        if attempts.failed:
            failed = attempts.failed[:FAILED_LIMIT]
            facts["failed_attempts"] = [{"upstream": name, "error": reason[:300]} for name, reason in failed]
        if self._upstream_request_id:
            facts["upstream_request_id"] = self._upstream_request_id

    def log(self) -> None:
        """Writes the log line; its record has the `facts` too, for other formats."""
        if log.isEnabledFor(logging.INFO):
            facts = self.facts()
            log.handle(_LogRecord(_printable(_encode(facts).decode()), facts))


class _LogRecord(logging.LogRecord):
    """The log record of a request; `Logger.makeRecord` would take longer than all else in the log."""

    def __init__(self, line: str, facts: Mapping[str, object]) -> None:
        self.__dict__.update(_LOG_RECORD)
        self.msg, self.facts = line, facts
        self.created = time.time()
        self.msecs = int(self.created % 1 * 1000)


_LOG_RECORD: Final[Mapping[str, object]] = vars(logging.LogRecord(log.name, logging.INFO, "", 0, "", None, None))
"""What the log records of all requests have in common."""


def _printable(line: str) -> str:
    """Escapes characters of the JSON that would control a terminal or change the order of its text."""
    return line if line.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
