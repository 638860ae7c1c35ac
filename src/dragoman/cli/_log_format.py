"""The gateway's log: JSON (one object per line), or text with one readable line for each request.

{"time":"2026-11-25T16:58:01.250Z","level":"warning","logger":"dragoman.server","message":"…"}
16:58:01 200 POST /v1/messages  qwen3-4b  1 call  1240 tokens in, 35 out  812 ms, first after 310 ms  req_6b2b…
16:58:01 warning dragoman.server …
"""

import logging
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, Literal

import structlog
from structlog.typing import EventDict, Processor

from dragoman.cli._terminal import one_line, printable
from dragoman.mcp_client import library_logs
from dragoman.server.observe.timestamps import timestamp

LogFormat = Literal["json", "text"]
QUIET: Final = ("uvicorn", "asyncio")
"""Loggers that log only warnings and errors, except at level debug."""


def configure(
    log_format: LogFormat, output: "logging.StreamHandler[Any]", *others: logging.Handler, debug: bool = False
) -> None:
    """Sends the records of all loggers, and Python's warnings, to handlers.

    Args:
        log_format: the format of `output`; lines of text have the date too, unless a terminal shows them.
        output: the handler of the stream or file.
        others: handlers that only observe records.
        debug: records of level debug are logged too, also those of the HTTP server.
    """
    output.setFormatter(formatter(log_format, dates=not output.stream.isatty()))
    logging.basicConfig(handlers=[output, *others], level=logging.DEBUG if debug else logging.INFO)
    logging.captureWarnings(True)
    _omit_unused_facts()
    library_logs.silence()
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.DEBUG if debug else logging.WARNING)


def _omit_unused_facts() -> None:
    """Spares each record what no format shows: where in the code it was logged, and by which thread and process.

    Source: https://docs.python.org/3/howto/logging.html#optimization (2026-11).
    """
    setattr(logging, "_srcfile", None)  # noqa: B010 a documented switch without a public name
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def formatter(log_format: LogFormat, *, dates: bool = False) -> logging.Formatter:
    """Returns the formatter for records of any logger, also of libraries; `dates`: text has the date too."""
    render = (
        _render_json if log_format == "json" else partial(_render_text, "%Y-%m-%d %H:%M:%S" if dates else "%H:%M:%S")
    )
    kind = _JsonFormatter if log_format == "json" else structlog.stdlib.ProcessorFormatter
    return kind(foreign_pre_chain=_FACTS_OF_RECORD, processors=[render])


class _JsonFormatter(structlog.stdlib.ProcessorFormatter):
    """Passes on the line of a request, which is JSON already, without the cost of the processors."""

    def format(self, record: logging.LogRecord) -> str:
        return record.getMessage() if hasattr(record, "facts") else super().format(record)


def _add_time(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Adds the time of the record, in the form that the line of a request has."""
    event["time"] = timestamp(event["_record"].created)
    return event


_FACTS_OF_RECORD: Final[list[Processor]] = [
    _add_time,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.format_exc_info,
    structlog.processors.EventRenamer("message"),
]
_TOKENS: Final = (("input_tokens", "tokens in"), ("output_tokens", "out"))
_to_json = structlog.processors.JSONRenderer(separators=(",", ":"))


def _render_json(logger: Any, method: str, event: EventDict) -> str:
    facts = structlog.stdlib.ProcessorFormatter.remove_processors_meta(logger, method, event)
    return str(_to_json(logger, method, facts))


def _render_text(time_format: str, _logger: Any, _method: str, event: EventDict) -> str:
    record = event["_record"]
    at = time.strftime(time_format, time.localtime(record.created))
    if (facts := getattr(record, "facts", None)) is not None:
        return one_line(f"{at} {'  '.join(request_columns(facts))}")
    line = one_line(f"{at} {event['level']} {event['logger']} {event['message']}")
    return f"{line}\n{printable(event['exception'])}" if "exception" in event else line


def _model_column(facts: Mapping[str, Any]) -> str:
    """Returns `coder → lan: qwen3-coder, 2 attempts`; the model's own name only if it differs."""
    text = str(facts["model"])
    if "upstream" in facts:
        text += f" → {facts['upstream']}"
        if facts["upstream_model"] != facts["model"]:
            text += f": {facts['upstream_model']}"
        if facts["attempts"] > 1:
            text += f", {facts['attempts']} attempts"
    return text


def request_columns(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yields what the readable line of a request contains; `facts` are those of its `AccessRecord`."""
    yield f"{facts['status']} {facts['method']} {facts['path']}"
    if "model" in facts:
        yield _model_column(facts)
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
