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
    if isinstance(value, dict):
        kept = {name: plain(inner) for name, inner in value.items()}
        if "content" in kept and isinstance(kept["content"], str):
            kept["content"] = [{"type": "text", "text": kept["content"]}]
        return {name: inner for name, inner in kept.items() if (name, json.dumps(inner)) not in DEFAULTS}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return value


DEFAULTS = {("stream", "false")}
