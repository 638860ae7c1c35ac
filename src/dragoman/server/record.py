"""One structured line for each request: who asked for what, how it went, how long it took. Never what was said."""

import json
import logging
import secrets
import time

from dragoman.core.events import AnyEvent, Failure, Finish, Start, ToolCallStart, UsageUpdate, Warning
from dragoman.core.values import Request

log = logging.getLogger("dragoman.access")


class Record:
    """What is remembered of one exchange."""

    def __init__(self, dialect: str) -> None:
        self.id = secrets.token_hex(12)
        self.status = 0
        self.error = ""
        self._began = time.monotonic()
        self._facts: dict[str, object] = {"id": self.id, "dialect": dialect}
        self._calls = 0
        self._warnings: list[str] = []

    def asked(self, request: Request) -> None:
        """The request has been understood."""
        self._facts |= {
            "model": request.model,
            "stream": request.stream,
            "messages": len(request.messages),
            "tools": len(request.tools),
            "tool_choice": request.tool_choice.mode,
        }

    def saw(self, event: AnyEvent) -> None:
        """An event has passed."""
        match event:
            case Start(input_tokens=tokens):
                self._facts["input_tokens"] = tokens
                self._facts["first_ms"] = self._ms()
            case ToolCallStart():
                self._calls += 1
            case Warning(code):
                self._warnings.append(code)
            case UsageUpdate(usage):
                self._facts["input_tokens"] = usage.input_tokens
                self._facts["output_tokens"] = usage.output_tokens
            case Finish(reason):
                self._facts["finish"] = "tool_calls" if self._calls and reason == "stop" else reason
            case Failure(error):
                self.error = f"{type(error).__name__}: {error}"
            case _:
                pass

    def log(self) -> None:
        """Write the line."""
        facts = self._facts | {"status": self.status, "calls": self._calls, "ms": self._ms()}
        if self._warnings:
            facts["warnings"] = self._warnings
        if self.error:
            facts["error"] = self.error[:300]
        log.info("%s", json.dumps(facts, ensure_ascii=False))

    def _ms(self) -> int:
        return round((time.monotonic() - self._began) * 1000)
