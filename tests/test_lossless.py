"""Nothing is lost: what a client sends to its own API arrives as it was, and to another with all losses told."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman import dialects
from vendors import Json, requests

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
def test_its_own_api_gets_what_came(dialect: str, data: st.DataObject) -> None:
    body = data.draw(requests(dialect))
    assert plain(written(dialect, body)) == plain(body)


def plain(value: Any) -> Any:
    """As the APIs take it: a text alone is the same as a block of it, and a default is the same said or not."""
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    kept = {name: plain(inner) for name, inner in value.items()}
    for name in ("content", "output", "system"):
        if isinstance(kept.get(name), str):
            kept[name] = [{"type": "text", "text": kept[name]}]
    if kept.get("type") in ("input_text", "output_text"):
        kept["type"] = "text"
    if isinstance(kept.get("input"), str):
        kept["input"] = [{"role": "user", "content": [{"type": "text", "text": kept["input"]}]}]
    if isinstance(kept.get("stop"), str):
        kept["stop"] = [kept["stop"]]
    if "model" in kept and "tools" not in kept:
        kept.pop("parallel_tool_calls", None)
    return {name: inner for name, inner in kept.items() if (name, json.dumps(inner)) not in DEFAULTS}


DEFAULTS = {
    ("content", '[{"type": "text", "text": ""}]'),
    ("content", "[]"),
    ("content", "null"),
    ("is_error", "false"),
    ("disable_parallel_tool_use", "false"),
    ("parallel_tool_calls", "true"),
    ("parameters", '{"type": "object", "properties": {}}'),
    ("response_format", '{"type": "text"}'),
    ("store", "true"),
    ("stream", "false"),
    ("tool_choice", '"auto"'),
    ("tool_choice", '{"type": "auto"}'),
    ("type", '"custom"'),
    ("type", '"message"'),
}
"""What the APIs' pages say of a field that is left out."""
