"""Items of responses: events of any shape are kept, also those of servers that do not follow their API."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dragoman.console.exchange.lanes.reply_items import body_items, stream_items

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2),
    max_leaves=6,
)
MEMBERS = ("type", "index", "content", "refusal", "reasoning", "tool_calls", "function", "name", "id", "arguments")
PART = st.dictionaries(st.sampled_from((*MEMBERS, "text", "partial_json")), JSON, max_size=4)
NAMES = ("content_block_start", "content_block_delta", "response.output_item.added", "response.output_text.delta")
EVENT = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(NAMES) | JSON,
        "choices": st.lists(st.fixed_dictionaries({}, optional={"delta": PART, "message": PART}), max_size=2) | JSON,
        **{name: PART | st.lists(PART, max_size=2) | JSON for name in ("delta", "content_block", "item", "content")},
        **{name: PART | st.lists(PART, max_size=2) | JSON for name in ("output", "summary", "index", "usage")},
    },
)


@given(st.lists(EVENT, max_size=3))
def test_events_of_any_shape_are_items(events: list[dict[str, Any]]) -> None:
    data = [json.dumps(event).encode() for event in events]
    stream_items([(0, b"data: %b\n\n" % each) for each in data])
    assert all(body_items(each, 0) for each in data)


def test_calls_of_another_type_are_kept() -> None:
    message = {"content": "Sunny.", "tool_calls": 5}
    [text, rest] = body_items(json.dumps({"choices": [{"message": message}]}).encode(), 0)
    assert text.text == "Sunny."
    assert '"tool_calls": 5' in rest.text
    delta = {"type": "content_block_delta", "delta": {"type": ["text_delta"]}}
    [item] = stream_items([(0, b"data: %b\n\n" % json.dumps(delta).encode())])
    assert '["text_delta"]' in item.text
