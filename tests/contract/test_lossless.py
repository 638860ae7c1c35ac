"""Requests are unchanged for the client's own API; for another API, everything that is lost is reported."""

import json
from collections import Counter
from itertools import permutations
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman import dialects
from dragoman.core.errors import UnsupportedError
from dragoman.wire.history import repair_history
from support.request_facts import lost
from support.vendor_requests import Json, requests

SLOW = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much])


def written(dialect: str, body: Json) -> Json:
    request = dialects.get(dialect).read_request(json.dumps(body))
    outgoing = dialects.get(dialect).write_request(request, body["model"])
    assert outgoing.warnings == ()
    sent: Json = json.loads(outgoing.body)
    return sent


@pytest.mark.parametrize("dialect", dialects.names())
@SLOW
@given(st.data())
def test_request_is_unchanged_for_its_own_api(dialect: str, data: st.DataObject) -> None:
    body = data.draw(requests(dialect))
    assert normalized(written(dialect, body)) == normalized(body)


MAX_REJECTED_SHARE: Final = 1 / 2
"""The maximum share of requests that the types allow and that are rejected. Most of these have a part of a vendor's
own tool in a user message, or a file that another vendor stores."""


@pytest.mark.parametrize(("near", "far"), list(permutations(dialects.names(), 2)))
def test_round_trip_through_another_api_loses_only_what_is_reported(near: str, far: str) -> None:
    """Read, written for another API, read there, written for its own API: equal except for what warnings report."""
    counts: Counter[str] = Counter()

    @SLOW
    @given(requests(near))
    def there_and_back(body: Json) -> None:
        counts["all"] += 1
        asked = dialects.get(near).read_request(json.dumps(body))
        asked = replace(asked, messages=repair_history(asked.messages)[0])  # like the gateway
        try:
            there = dialects.get(far).write_request(asked, asked.model)
            back = dialects.get(near).write_request(dialects.get(far).read_request(there.body), asked.model)
        except UnsupportedError:
            counts["refused"] += 1
            return
        assert list(lost(asked, dialects.get(near).read_request(back.body), (there, back))) == []

    there_and_back()
    assert counts["refused"] <= MAX_REJECTED_SHARE * counts["all"]


def normalized(value: Any) -> Any:
    """Normalized JSON: a text is written as a block, and members with their default value are removed."""
    if isinstance(value, list):
        return [normalized(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    kept = {name: normalized(inner) for name, inner in value.items()}
    for name in ("content", "output", "system"):
        if isinstance(kept.get(name), str):
            kept[name] = [{"type": "text", "text": kept[name]}]
    if kept.get("type") in ("input_text", "output_text"):
        kept["type"] = "text"
    if isinstance(kept.get("input"), str):
        kept["input"] = [{"role": "user", "content": [{"type": "text", "text": kept["input"]}]}]
    if isinstance(kept.get("stop"), str):
        kept["stop"] = [kept["stop"]]
    if kept.get("input_schema") == {}:
        kept["input_schema"] = {"type": "object"}  # the API requires it
    if "model" in kept and "tools" not in kept:
        kept.pop("parallel_tool_calls", None)
    return {name: inner for name, inner in kept.items() if (name, json.dumps(inner)) not in DEFAULTS}


DEFAULTS = {
    ("content", '[{"type": "text", "text": ""}]'),
    ("content", "[]"),
    ("content", "null"),
    ("is_error", "false"),
    ("parameters", '{"type": "object", "properties": {}}'),
    ("response_format", '{"type": "text"}'),
    ("store", "true"),
    ("stream", "false"),
    ("tool_choice", '"auto"'),
    ("tool_choice", '{"type": "auto"}'),
    ("type", '"custom"'),
    ("type", '"message"'),
}
"""The documented default values of the APIs."""
