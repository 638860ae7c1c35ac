"""Nothing is lost: what a client sends to its own API arrives as it was, and to another with all losses told."""

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
def test_its_own_api_gets_what_came(dialect: str, data: st.DataObject) -> None:
    body = data.draw(requests(dialect))
    assert plain(written(dialect, body)) == plain(body)


REFUSED: Final = 1 / 3
"""At most so many of the requests that the types allow are refused by name: most have a part of a vendor's own tool in
the user's mouth, or a file that another vendor keeps."""


@pytest.mark.parametrize(("near", "far"), list(permutations(dialects.names(), 2)))
def test_what_comes_back_from_another_api_is_what_went(near: str, far: str) -> None:
    """Read, written for another API, read there, written for its own again: all the same but for what warnings name."""
    counts: Counter[str] = Counter()

    @SLOW
    @given(requests(near))
    def there_and_back(body: Json) -> None:
        counts["all"] += 1
        asked = dialects.get(near).read_request(json.dumps(body))
        asked = replace(asked, messages=repair_history(asked.messages)[0])  # as the gateway does
        try:
            there = dialects.get(far).write_request(asked, asked.model)
            back = dialects.get(near).write_request(dialects.get(far).read_request(there.body), asked.model)
        except UnsupportedError:
            counts["refused"] += 1
            return
        assert list(lost(asked, dialects.get(near).read_request(back.body), (there, back))) == []

    there_and_back()
    assert counts["refused"] <= REFUSED * counts["all"]


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
    if kept.get("input_schema") == {}:
        kept["input_schema"] = {"type": "object"}  # which the API demands
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
"""What the APIs' pages say of a field that is left out."""
