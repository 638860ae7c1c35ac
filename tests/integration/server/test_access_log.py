"""The access log line: each field is documented in docs/metrics.md, and calls are counted by tool."""

import json
import logging
import re
from collections.abc import Sequence
from typing import Any

import pytest

from dragoman import dialects
from dragoman.core.client import ClientFacts
from dragoman.core.errors import BackendUnavailableError
from dragoman.core.events import (
    AnyEvent,
    Failure,
    Finish,
    Notice,
    Start,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.messages import Usage
from dragoman.server.observe.access_log import AccessRecord
from support.gateway import CHAT
from support.paths import ROOT
from support.scripted_backend import body

PAGE = (ROOT / "docs" / "metrics.md").read_text()


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")


def offered(name: str) -> dict[str, object]:
    return {"type": "function", "function": {"name": name}}


def line(
    caplog: pytest.LogCaptureFixture,
    *events: AnyEvent,
    is_passthrough: bool = False,
    tools: Sequence[str] = ("search", "look"),
) -> dict[str, Any]:
    """Returns the log line of one response with these events."""
    record, dialect = AccessRecord("POST", CHAT), dialects.get("openai_chat")
    record.on_request(dialect.name, dialect.read_request(json.dumps(body() | {"tools": [*map(offered, tools)]})))
    record.is_passthrough = is_passthrough
    for event in (Start("", "m", 0), *events):
        record.observe(event)
    record.status = 200
    record.close()
    record.log()
    facts: dict[str, Any] = json.loads(caplog.messages[-1])
    return facts


def test_calls_are_counted_by_tool(caplog: pytest.LogCaptureFixture) -> None:
    facts = line(
        caplog,
        *(ToolCallStart(0, "id", "search"), ToolCallEnd(0, (), True)),
        *(ToolCallStart(1, "id", "search"), ToolCallEnd(1, ("match_case", "to_number"), True)),
        *(ToolCallStart(2, "id", "look"), ToolCallEnd(2, ("to_number",), False, True)),
        *(ToolCallStart(3, "id", "look"), ToolCallIncomplete(3, "secret words")),
        Notice("unknown_tool", "secret words"),
        Finish("stop"),
    )
    assert facts["calls"] == 4
    assert facts["by_tool"] == {
        "search": {"valid": 1, "repaired": 1, "steps": {"match_case": 1, "to_number": 1}},
        "look": {"invalid": 1, "incomplete": 1, "steps": {"to_number": 1}},
        "": {"unknown": 1},
    }
    assert "secret" not in caplog.text


def test_call_interrupted_by_failure_is_incomplete(caplog: pytest.LogCaptureFixture) -> None:
    facts = line(caplog, ToolCallStart(0, "id", "search"), Failure(BackendUnavailableError("it died")))
    assert facts["by_tool"] == {"search": {"incomplete": 1}}


def test_unparsed_calls_are_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    facts = line(caplog, ToolCallStart(0, "id", "search"), Finish("stop"), is_passthrough=True)
    assert "by_tool" not in facts
    assert "calls" not in facts


def test_log_line_length_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    names = [f"{n:03}" * 40 for n in range(300)]
    calls = [(ToolCallStart(n, "id", name), ToolCallEnd(n)) for n, name in enumerate(names)]
    facts = line(caplog, *(event for pair in calls for event in pair), Finish("stop"), tools=names)
    assert facts["calls"] == 300
    assert len(facts["by_tool"]) == 20
    assert len(caplog.messages[-1]) < 4000


def retried_line(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    record = AccessRecord("POST", CHAT)
    record.trace = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
    record.client = ClientFacts("alice", "codex", "main")
    record.attempts.begin("a", "m")
    record.attempts.placement = "prefix"
    record.attempts.retry(BackendUnavailableError("it died"))
    record.observe(Start("", "m", 0, headers={"x-dragoman-upstream-request-id": "r"}))
    record.log()
    facts: dict[str, Any] = json.loads(caplog.messages[-1])
    return facts


def test_every_log_field_is_documented(caplog: pytest.LogCaptureFixture) -> None:
    full = line(
        caplog,
        *(ToolCallStart(0, "id", "search"), ToolCallEnd(0, ("to_number",), True)),
        UsageUpdate(Usage(3, 1, cost_usd=0.1)),
        Notice("leaked_call_recovered", ""),
        Finish("stop"),
    )
    broken = line(caplog, Failure(BackendUnavailableError("it died")))
    retried = retried_line(caplog)
    section = PAGE.partition("## Access log")[2]
    documented = [name for row in re.findall(r"^\| (`.*?) \|", section, re.M) for name in re.findall(r"`(\w+)`", row)]
    assert (
        set(documented)
        == full.keys() | retried.keys() | broken.keys() | line(caplog, Finish("stop"), is_passthrough=True).keys()
    )
    assert len(documented) == len(set(documented))


def test_control_characters_are_escaped_in_log_line(caplog: pytest.LogCaptureFixture) -> None:
    """C1 controls, DEL and bidirectional marks are escaped, as in all printed output."""
    path = "/\x9b31m\x7f\u202e\u2066\U000e0001é"
    record = AccessRecord("GET", path)
    with caplog.at_level("INFO", "dragoman.access"):
        record.log()
    assert caplog.messages[-1].isprintable()
    assert json.loads(caplog.messages[-1])["path"] == path
