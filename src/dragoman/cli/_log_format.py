"""The gateway's log: JSON, of which each line is one object, or text with one readable line for each request.

{"time":"2026-11-25T16:58:01.250Z","level":"warning","logger":"dragoman.server","message":"…"}
16:58:01 200 POST /v1/messages  qwen3-4b  1 call  1240 tokens in, 35 out  812 ms, first after 310 ms  req_6b2b…
16:58:01 warning dragoman.server …
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal

import structlog
from structlog.typing import EventDict, Processor

from dragoman.cli._terminal import printable

LogFormat = Literal["json", "text"]
QUIET: Final = ("uvicorn", "asyncio")
"""Loggers of which only warnings are logged, except at level debug."""


def configure(log_format: LogFormat, written: logging.Handler, *others: logging.Handler, debug: bool = False) -> None:
    """Sends the records of all loggers to handlers.

    Args:
        log_format: the format of what `written` writes.
        written: the handler of the stream or file.
        others: handlers that write nothing.
        debug: records of level debug are logged too, also those of the HTTP server.
    """
    written.setFormatter(formatter(log_format))
    logging.basicConfig(handlers=[written, *others], level=logging.DEBUG if debug else logging.INFO)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.DEBUG if debug else logging.WARNING)


def formatter(log_format: LogFormat) -> logging.Formatter:
    """Returns the formatter for records of any logger, of libraries too."""
    render = _render_json if log_format == "json" else _render_text
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=_FACTS_OF_RECORD, processors=[render])


def status_printer(log_format: LogFormat, print_status: Callable[[str], None]) -> Callable[[str], None]:
    """Returns what reports the progress of a start: `print_status`; for JSON, a function that logs each text."""
    log = logging.getLogger("dragoman.serve")
    return print_status if log_format == "text" else lambda text: log.info("%s", text)


_FACTS_OF_RECORD: Final[list[Processor]] = [
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.format_exc_info,
    structlog.processors.EventRenamer("message"),
]
_TOKENS: Final = (("input_tokens", "tokens in"), ("output_tokens", "out"))
_to_json = structlog.processors.JSONRenderer(separators=(",", ":"))


def _render_json(logger: Any, method: str, event: EventDict) -> str:
    """The line of a request is JSON already."""
    if hasattr(event["_record"], "facts"):
        return str(event["message"])
    return str(
        _to_json(logger, method, structlog.stdlib.ProcessorFormatter.remove_processors_meta(logger, method, event))
    )


def _render_text(_logger: Any, _method: str, event: EventDict) -> str:
    at = time.strftime("%H:%M:%S")
    facts = getattr(event["_record"], "facts", None)
    if facts is not None:
        return printable(f"{at} {'  '.join(request_columns(facts))}")
    trace = f"\n{event['exception']}" if "exception" in event else ""
    return printable(f"{at} {event['level']} {event['logger']} {event['message']}{trace}")


def request_columns(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yields what the readable line of a request contains; `facts` are those of its `AccessRecord`."""
    yield f"{facts['status']} {facts['method']} {facts['path']}"
    if "model" in facts:
        yield facts["model"]
    if calls := facts.get("calls"):
        yield f"{calls} call{'s' * (calls != 1)}"
    if tokens := [f"{facts[key]} {name}" for key, name in _TOKENS if key in facts]:
        yield ", ".join(tokens)
    yield f"{facts['ms']} ms" + (f", first after {facts['first_ms']} ms" if "first_ms" in facts else "")
    if "finish" in facts:
        yield str(facts["finish"])
    if labels := facts.get("warnings"):
        yield f"warnings: {', '.join(labels)}"
    if "error" in facts:
        yield f"error: {facts['error']}"
    yield facts["id"]
