"""The request of a captured exchange as its model got it, and the usage that was reported of it."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from dragoman.catalog import tokenizers
from dragoman.console.context_use.views import ReportedUsage
from dragoman.core.errors import DragomanError
from dragoman.core.events import AnyEvent, UsageUpdate
from dragoman.core.messages import Request
from dragoman.prompting import trim
from dragoman.server.capture.files import SUMMARY, chunk_from_json, event_json, reader_of
from dragoman.server.capture.load import LoadedCapture, request_from_json

_TRIMMED = "prompt_trimmed"
_ESTIMATED = "estimated_usage"


class CapturedRequest(NamedTuple):
    """What is known of the context of one exchange."""

    request: Request
    """As the backend got it, before prompt trimming."""
    sent: Request
    """After prompt trimming."""
    tier: str
    """The tier that it was trimmed by."""
    backend: str
    """"": none was asked."""
    settings: Mapping[str, Any]
    """Those of the backend, as far as they are captured."""
    usage: ReportedUsage
    headers: Mapping[str, str]
    """Those of the client's request."""
    began_s: float
    """Seconds since 1970; 0: not known."""


def read_request(capture: LoadedCapture) -> CapturedRequest | None:
    """Returns the request of an exchange; None: it has none, as its body could not be read.

    Args:
        capture: The capture, which may be that of a running exchange.

    Raises:
        ConfigError: The capture is damaged.
    """
    number = _call_number(capture)
    fields = capture.json(f"{number}/values.json") or capture.json("values.json")
    if not fields:
        return None
    request = request_from_json(fields)
    about = capture.json(f"{number}/backend.json")
    events = capture.lines(f"{number}/events.jsonl")
    tier, sent = _trimmed(request, events)
    usage = _usage(events)
    if not usage.input_tokens:
        usage = _usage(capture.lines("events.jsonl"))
    if usage.input_tokens is None:
        usage = _usage(_events_of_output(capture, number, request))
    return CapturedRequest(
        request=request,
        sent=sent,
        tier=tier,
        backend=str(about.get("backend", "")),
        settings=about.get("settings", {}),
        usage=usage,
        headers=capture.json("request.json").get("headers", {}),
        began_s=_began_s(capture),
    )


def _call_number(capture: LoadedCapture) -> int:
    """Returns the number of the first call of a backend that answered; 1: none did."""
    for number in range(1, capture.backend_call_count + 1):
        if f"{number}/events.jsonl" in capture.files:
            return number
    return 1


def _trimmed(request: Request, events: list[dict[str, Any]]) -> tuple[str, Request]:
    """Returns the tier that a warning of the backend names, and the request trimmed by it."""
    warning = next((event for event in events if event.get("code") == _TRIMMED), None)
    if warning is None:
        return "off", request
    tier, omitted = trim.parse_warning(str(warning.get("message", "")))
    offered = tuple(tool for tool in request.tools if tool.name not in omitted)
    sent = trim.trim_request(replace(request, tools=offered), tier, tokenizers.find(request.model)).request
    return tier, sent


def _events_of_output(capture: LoadedCapture, number: int, request: Request) -> list[dict[str, Any]]:
    """Returns the events in the bytes of a response that was passed through, as far as they can be read."""
    head, *pieces = capture.lines(f"{number}/model-output-1.jsonl") or [{}]
    reader = reader_of(str(head.get("target", "")), request)
    if reader is None:
        return []
    events: list[AnyEvent] = []
    with suppress(DragomanError):  # the response broke off, or is an error
        for line in pieces:
            if "text" in line or "base64" in line:
                events += reader.feed(chunk_from_json(line))
        events += reader.close()
    return [event_json(event) for event in events if isinstance(event, UsageUpdate)]


def _usage(events: list[dict[str, Any]]) -> ReportedUsage:
    """Returns the last usage of these events."""
    reported = next((event["usage"] for event in reversed(events) if event.get("event") == "UsageUpdate"), None)
    if reported is None:
        return ReportedUsage()
    return ReportedUsage(
        input_tokens=_count(reported, "input_tokens"),
        cached_tokens=_count(reported, "cached_input_tokens"),
        output_tokens=_count(reported, "output_tokens"),
        reasoning_tokens=_count(reported, "reasoning_tokens"),
        is_estimated=any(event.get("code") == _ESTIMATED for event in events),
    )


def _count(usage: Mapping[str, Any], name: str) -> int:
    value = usage.get(name, 0)
    return value if isinstance(value, int) else 0


def _began_s(capture: LoadedCapture) -> float:
    summary = capture.json(SUMMARY)
    try:
        return datetime.fromisoformat(str(summary.get("log", {}).get("time", ""))).timestamp()
    except ValueError:
        created = summary.get("context", {}).get("created", 0)
        return float(created) if isinstance(created, int) else 0.0
