"""Server-sent events: decoding for any chunk boundaries, and encoding."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import dialects
from dragoman.core.errors import UpstreamError
from dragoman.wire import sse
from dragoman.wire.sse import Decoder, ServerSentEvent
from support import fake_upstream
from support.http_client import http_client

LINES = st.sampled_from(["data: a", "data:b", "data", "event: x", "id: 7", ":", ": note", "é", "", "", ""])
ENDS = st.sampled_from(["\n", "\r", "\r\n", "\r\n", ""])
STREAMS = st.lists(st.tuples(LINES, ENDS).map("".join), max_size=12).map(lambda lines: "".join(lines).encode())


def whole(stream: bytes) -> list[ServerSentEvent]:
    decoder = Decoder()
    return decoder.feed(stream) + decoder.close()


def decode_in_chunks(stream: bytes, cuts: list[int]) -> list[ServerSentEvent]:
    decoder, events, start = Decoder(), [], 0
    for cut in [*sorted(cuts), len(stream)]:
        events += decoder.feed(stream[start:cut])
        start = cut
    return events + decoder.close()


CASES = [
    ("an event", "data: a\n\n", [("", "a")]),
    ("its name", "event: x\ndata: a\n\n", [("x", "a")]),
    ("a name is for one event", "event: x\ndata: a\n\ndata: b\n\n", [("x", "a"), ("", "b")]),
    ("several lines of data", "data: a\ndata: b\n\n", [("", "a\nb")]),
    ("no space", "data:a\n\n", [("", "a")]),
    ("only one space belongs to the frame", "data:  a\n\n", [("", " a")]),
    ("empty data", "data:\n\n", [("", "")]),
    ("a name without data", "event: x\n\ndata: a\n\n", [("", "a")]),
    ("comments", ": ping\n\ndata: a\n: more\n\n", [("", "a")]),
    ("id and retry", "id: 1\nretry: 5\ndata: a\n\n", [("", "a")]),
    ("CRLF", "data: a\r\n\r\n", [("", "a")]),
    ("CRLF within one event", "data: a\r\ndata: b\r\n\r\n", [("", "a\nb")]),
    ("CR", "data: a\r\rdata: b\r\r", [("", "a"), ("", "b")]),
    ("a byte order mark", "\ufeffdata: a\n\n", [("", "a")]),
    ("the last blank line missing", "data: a\n", [("", "a")]),
    ("the last line's end missing", "data: a", [("", "a")]),
    ("a line separator of Unicode is no line end", "data: a\u2028b\n\n", [("", "a\u2028b")]),
    ("nothing", "", []),
]


@pytest.mark.parametrize(("stream", "events"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_sse_case_is_decoded(stream: str, events: list[tuple[str, str]]) -> None:
    expected = [ServerSentEvent(name, data.encode()) for name, data in events]
    body = stream.encode()
    assert whole(body) == expected
    assert decode_in_chunks(body, list(range(len(body)))) == expected


@given(STREAMS, st.data())
def test_chunk_boundaries_do_not_change_events(stream: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(stream))))
    assert decode_in_chunks(stream, cuts) == whole(stream)


@given(
    st.lists(st.tuples(st.sampled_from(["", "message_start"]), st.text().filter(lambda t: not set(t) & set("\r\n"))))
)
def test_encoded_events_are_decoded_again(events: list[tuple[str, str]]) -> None:
    stream = b"".join(sse.encode(data.encode(), name) + sse.comment("ping") for name, data in events)
    assert whole(stream) == [ServerSentEvent(name, data.encode()) for name, data in events]


@pytest.mark.parametrize("line", [b"data: " + b"x" * 60, b"data: x\n" * 60], ids=["one line", "many lines"])
def test_event_size_is_limited(monkeypatch: pytest.MonkeyPatch, line: bytes) -> None:
    monkeypatch.setattr(sse, "EVENT_LIMIT_BYTES", 50)
    with pytest.raises(UpstreamError):
        decode_in_chunks(line, list(range(0, len(line), 10)))


def test_event_limit_does_not_apply_to_sum_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "EVENT_LIMIT_BYTES", 50)
    decoder = Decoder()
    assert sum(len(decoder.feed(b"data: 1234567890\n\n")) for _ in range(100)) == 100


# JSON of requests and upstream responses that is repeated in an event is written on one line.

TOOL = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}}}
ASKED: dict[str, dict[str, object]] = {
    "openai_chat": {
        "messages": [{"role": "user", "content": "hi"}],
        "metadata": {"a": "b", "c": "d"},
        "tools": [{"type": "function", "function": TOOL}],
    },
    "anthropic_messages": {
        "max_tokens": 9,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "metadata": {"user_id": "u"},
        "tools": [
            {"name": "f", "input_schema": TOOL["parameters"]},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
    },
    "openai_responses": {
        "input": [{"role": "user", "content": "hi"}],
        "metadata": {"a": "b", "c": "d"},
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "truncation": "auto",
        "tools": [
            {"type": "function", **TOOL},
            {"type": "custom", "name": "p", "format": {"type": "text"}},
            {"type": "namespace", "name": "n", "description": "d", "tools": [{"type": "function", **TOOL}]},
            {"type": "web_search", "filters": {"allowed_domains": ["a", "b"]}},
        ],
        "tool_choice": {"type": "web_search"},
    },
}
ANSWERED: dict[str, dict[str, object]] = {
    "openai_chat": {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Hi",
                    "annotations": [{"type": "url_citation", "url_citation": {"url": "u"}}],
                },
                "logprobs": {"content": [{"token": "Hi", "logprob": -1, "bytes": [1, 2], "top_logprobs": []}]},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "cost": {"a": [1, 2]}},
    },
    "anthropic_messages": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q", "n": [1, 2]}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": "s",
                "content": [{"type": "web_search_result", "url": "u"}],
            },
            {
                "type": "text",
                "text": "Hi",
                "citations": [{"type": "char_location", "cited_text": "x", "document_index": 0}],
            },
        ],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1, "server_tool_use": {"web_search_requests": 1}},
    },
    "openai_responses": {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": [
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "q"},
            },
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [
                    {"type": "output_text", "text": "Hi", "annotations": [{"type": "url_citation", "url": "u"}]}
                ],
            },
        ],
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
    },
}


@pytest.mark.parametrize("separator", ["\n", "\r", "\r\n"], ids=["LF", "CR", "CRLF"])
@pytest.mark.parametrize("behind", ANSWERED)
@pytest.mark.parametrize("front", ASKED)
async def test_pretty_printed_json_is_sent_as_one_event_line(front: str, behind: str, separator: str) -> None:
    def pretty(said: object) -> str:
        return json.dumps(said, indent=2).replace("\n", separator)

    asked = pretty({"model": "m", "stream": True, **ASKED[front]})
    async with (
        fake_upstream.server(fake_upstream.whole(200, pretty(ANSWERED[behind]))) as server,
        fake_upstream.gateway(server.url, "" if behind == "anthropic_messages" else "/v1", api=behind) as url,
        http_client(url) as http,
    ):
        if front != behind and front == "openai_responses":
            asked = asked.replace('"tool_choice"', '"user"')  # `tool_choice` cannot name a tool of another vendor
        answer = await http.post(dialects.get(front).path, content=asked.encode())
    assert answer.status_code == 200, answer.text
    kinds = {line.split(b":")[0] for line in re.split(rb"\r\n|\n|\r", answer.content)}
    assert kinds <= {b"", b"event", b"data"}
    events = whole(answer.content)
    assert len(events) > 2
    for event in events:
        assert event.data == b"[DONE]" or json.loads(event.data)
