"""The two formats of the gateway's log, for its own records and for those of any library."""

import io
import json
import logging
from typing import Any

import pytest

from dragoman.cli import _log_format
from dragoman.core.errors import RequestError
from dragoman.core.events import Finish, Notice, Start, ToolCallEnd, ToolCallStart, UsageUpdate
from dragoman.core.messages import Message, Request, Text, Tool, Usage
from dragoman.mcp_client import library_logs
from dragoman.server.observe.access_log import AccessRecord

STEERS = "\x1b[31m\x9b2J\u202e\n16:58:01 200 POST"


def written(log_format: _log_format.LogFormat, *records: logging.LogRecord) -> list[str]:
    """Returns the lines that a handler writes for these records."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_log_format.formatter(log_format))
    for record in records:
        handler.handle(record)
    return stream.getvalue().splitlines()


def of_request(record: AccessRecord, caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    with caplog.at_level("INFO", "dragoman.access"):
        record.log()
    return caplog.records[-1]


def of_library(**more: Any) -> logging.LogRecord:
    return logging.makeLogRecord(
        {"msg": "lost %s", "args": (f"{STEERS}x",), "levelname": "WARNING", "name": "any"} | more
    )


@pytest.fixture
def answered() -> AccessRecord:
    record = AccessRecord("POST", "/v1/messages")
    record.on_request("anthropic_messages", Request("m", (Message("user", (Text("hi"),)),), (Tool("f", "", "{}"),)))
    for event in (
        Start("r", "m", 0, input_tokens=3),
        ToolCallStart(0, "c", "f"),
        ToolCallEnd(0),
        Notice("call_repaired", "f: quotes"),
        UsageUpdate(Usage(input_tokens=1240, output_tokens=35)),
        Finish("tool_calls"),
    ):
        record.observe(event)
    record.status = 200
    return record


def test_text_has_one_readable_line_for_a_request(answered: AccessRecord, caplog: pytest.LogCaptureFixture) -> None:
    (line,) = written("text", of_request(answered, caplog))
    at, _, rest = line.partition(" ")
    assert len(at.split(":")) == 3
    request, model, calls, tokens, took, finish, warnings, id = rest.split("  ")
    assert (request, model, calls, finish) == ("200 POST /v1/messages", "m", "1 call", "tool_calls")
    assert tokens == "1240 tokens in, 35 out"
    assert " ms, first after " in took
    assert warnings.startswith("warnings: call_repaired")
    assert id == answered.id


def test_text_of_failed_request_has_its_error(caplog: pytest.LogCaptureFixture) -> None:
    record = AccessRecord("POST", f"/v1/{STEERS}")
    record.status = 400
    record.on_error(RequestError("expected string, got number"))
    (line,) = written("text", of_request(record, caplog))
    assert "400 POST /v1/" in line
    assert "error: RequestError: expected string, got number" in line
    assert line.isprintable()


def test_json_has_an_object_for_each_record(answered: AccessRecord, caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        failed = of_library(exc_info=(type(error), error, error.__traceback__))
    request, warning, failure = map(json.loads, written("json", of_request(answered, caplog), of_library(), failed))
    assert request == answered.facts() | {"ms": request["ms"]}
    assert {key: warning[key] for key in ("level", "logger", "message")} == {
        "level": "warning",
        "logger": "any",
        "message": f"lost {STEERS}x",
    }
    assert failure["exception"].endswith("ValueError: two\nlines")


def test_no_format_writes_control_characters() -> None:
    for log_format in ("json", "text"):
        (line,) = written(log_format, of_library())
        assert line.isprintable()


@pytest.mark.parametrize("name", ["httpx2", "httpcore2.http11", "mcp.client.streamable_http", "client"])
def test_libraries_that_log_content_are_silent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for silent in library_logs.LOGGERS:
        monkeypatch.setattr(logging.getLogger(silent), "level", logging.DEBUG)
    library_logs.silence()
    assert not logging.getLogger(name).isEnabledFor(logging.CRITICAL)
    for silent in library_logs.LOGGERS:
        logging.getLogger(silent).setLevel(logging.NOTSET)
