"""Response details besides text and calls, between equal and different APIs, streamed and complete."""

import asyncio
import json
from typing import Any

import pytest

from support.deviations import Got, answered, chat, delta, frames, messages, over, response, validates, wide

CHAT, MESSAGES, RESPONSES = "openai_chat", "anthropic_messages", "openai_responses"
ENTRY = {
    "token": "é",
    "bytes": [195, 169],
    "logprob": -0.5,
    "top_logprobs": [{"token": "e", "bytes": [101], "logprob": -2.0}],
}
SOURCE = {"start_index": 0, "end_index": 1, "title": "T", "url": "https://x.test"}
NESTED, FLAT = {"type": "url_citation", "url_citation": SOURCE}, {"type": "url_citation", **SOURCE}
FILE = {"type": "file_citation", "file_id": "f", "filename": "n", "index": 0}
CITED = {"type": "char_location", "cited_text": "c", "document_index": 0, "document_title": "d", "start_char_index": 0,
         "end_char_index": 1, "file_id": None}  # fmt: skip
AUDIO = {"id": "a", "data": "AAAA", "transcript": "hi", "expires_at": 9}
IMAGES = [{"type": "image_url", "index": 0, "image_url": {"url": "data:image/png;base64,AAAA"}}]
USED = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "cost": 0.5,
        "completion_tokens_details": {"reasoning_tokens": 1, "accepted_prediction_tokens": 4}}  # fmt: skip
FACTS = {"system_fingerprint": "fp", "service_tier": "flex"}

SEARCHES = {"web_search_requests": 1, "web_fetch_requests": 0}
CACHED = {"ephemeral_1h_input_tokens": 2, "ephemeral_5m_input_tokens": 0}
TEXT = {"type": "output_text", "text": "é", "annotations": [FLAT, FILE], "logprobs": [ENTRY]}


def added(annotation: Any) -> dict[str, Any]:
    told = {"output_index": 0, "annotation_index": 0, "annotation": annotation}
    return {"type": "response.output_text.annotation.added", **told}


UPSTREAM_RESPONSES: dict[str, tuple[str, str]] = {
    CHAT: (
        chat(
            {**delta({"role": "assistant", "content": ""}), **FACTS},
            delta({"content": "é"}, logprobs={"content": [ENTRY], "refusal": None}),
            delta({"annotations": [NESTED]}),
            delta({"audio": {**AUDIO, "data": "AA", "transcript": "h"}, "images": IMAGES}),
            delta({"audio": {"data": "AA", "transcript": "i"}}),
            delta({}, "stop"),
            {"choices": [], "usage": USED},
        ),
        wide({"id": "x", **FACTS, "usage": USED, "choices": [{
            "index": 0, "finish_reason": "stop", "logprobs": {"content": [ENTRY], "refusal": None},
            "message": {"content": "é", "annotations": [NESTED], "audio": AUDIO, "images": IMAGES}}]}),
    ),
    RESPONSES: (
        messages(
            {"type": "response.output_text.delta", "output_index": 0, "delta": "é", "logprobs": [ENTRY]},
            added(FLAT),
            added(FILE),
            {"type": "response.completed", "response": {"status": "completed", "service_tier": "flex", "output": []}},
        ),
        response({"type": "message", "content": [TEXT]}, service_tier="flex"),
    ),
    MESSAGES: (
        messages(
            {"type": "message_start", "message": {"usage": {"input_tokens": 3, "cache_creation": CACHED}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "", "citations": []}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "é"}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": CITED}},
            {"type": "content_block_stop", "index": 1},
            {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "b"}},
            {"type": "content_block_stop", "index": 2},
            *over("end_turn", {"output_tokens": 2, "server_tool_use": SEARCHES}),
        ),
        wide({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "é", "citations": [CITED]},
                          {"type": "text", "text": "b"}], "stop_reason": "end_turn",
              "usage": {"input_tokens": 3, "output_tokens": 2, "server_tool_use": SEARCHES,
                        "cache_creation": CACHED}}),
    ),
}  # fmt: skip


def ask_for_details(api: str, front: str, *, stream: bool) -> tuple[Got, Any]:
    """The response as the client gets it: events, or one body."""
    answer = asyncio.run(answered(api, front, UPSTREAM_RESPONSES[api][not stream].encode(), stream=stream))
    assert answer.error is None
    for frame in frames(answer.stream):
        validates(front)(frame)
    return answer, list(frames(answer.stream)) if stream else json.loads(answer.body)


def dropped(answer: Got) -> set[str]:
    return {warning.detail for warning in answer.collector.warnings if warning.code == "content_dropped"}


@pytest.mark.parametrize("api", [CHAT, RESPONSES])
def test_chat_client_gets_response_details(api: str) -> None:
    answer, chunks = ask_for_details(api, CHAT, stream=True)
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    assert [entry for c in choices if c.get("logprobs") for entry in c["logprobs"]["content"]] == [ENTRY]
    assert [each for c in choices for each in c["delta"].get("annotations", ())] == [NESTED]
    assert chunks[-1]["service_tier"] == "flex"
    assert dropped(answer) == (set() if api == CHAT else {"annotations"})
    answer, whole = ask_for_details(api, CHAT, stream=False)
    (choice,) = whole["choices"]
    assert choice["logprobs"]["content"] == [ENTRY]
    assert choice["message"]["annotations"] == [NESTED]
    assert whole["service_tier"] == "flex"
    if api == CHAT:
        assert [c["delta"]["images"] for c in choices if "images" in c["delta"]] == [IMAGES]
        assert "".join(c["delta"]["audio"]["data"] for c in choices if "audio" in c["delta"]) == AUDIO["data"]
        assert (choice["message"]["audio"], choice["message"]["images"]) == (AUDIO, IMAGES)
        assert (whole["system_fingerprint"], whole["usage"]["cost"]) == ("fp", 0.5)
        assert whole["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] == 4
        assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] == 1


@pytest.mark.parametrize("api", [CHAT, RESPONSES])
def test_responses_client_gets_response_details(api: str) -> None:
    answer, sent = ask_for_details(api, RESPONSES, stream=True)
    deltas = [event for event in sent if event["type"] == "response.output_text.delta"]
    assert [entry for event in deltas for entry in event["logprobs"]] == [ENTRY]
    sources = [e["annotation"] for e in sent if e["type"] == "response.output_text.annotation.added"]
    assert sources == ([FLAT] if api == CHAT else [FLAT, FILE])
    (content,) = sent[-1]["response"]["output"][0]["content"]
    _, whole = ask_for_details(api, RESPONSES, stream=False)
    for part in (content, whole["output"][0]["content"][0]):
        assert (part["logprobs"], part["annotations"]) == ([ENTRY], sources)
    assert sent[-1]["response"]["service_tier"] == whole["service_tier"] == "flex"
    assert dropped(answer) == ({"audio", "images"} if api == CHAT else set())


def test_messages_client_gets_citations_and_usage() -> None:
    answer, sent = ask_for_details(MESSAGES, MESSAGES, stream=True)
    cited = [e for e in sent if e["type"] == "content_block_delta" and e["delta"]["type"] == "citations_delta"]
    assert [(e["index"], e["delta"]["citation"]) for e in cited] == [(1, CITED)]
    words = [(e["index"], e["delta"]["text"]) for e in sent if e.get("delta", {}).get("type") == "text_delta"]
    assert words == [(0, "a"), (1, "é"), (2, "b")]
    _, whole = ask_for_details(MESSAGES, MESSAGES, stream=False)
    assert [block.get("citations") for block in whole["content"]] == [None, [CITED], None]
    for usage in (whole["usage"], sent[-2]["usage"]):
        assert usage["server_tool_use"] == SEARCHES
        assert usage["cache_creation"] == CACHED
    assert dropped(answer) == set()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("api", "front", "names"),
    [
        (CHAT, MESSAGES, {"logprobs", "annotations", "audio", "images"}),
        (RESPONSES, MESSAGES, {"logprobs", "annotations"}),
        (MESSAGES, CHAT, {"citations"}),
        (MESSAGES, RESPONSES, {"citations"}),
    ],
)
def test_details_dropped_for_another_api_are_reported_by_name(
    api: str, front: str, names: set[str], stream: bool
) -> None:
    answer, _ = ask_for_details(api, front, stream=stream)
    assert dropped(answer) == names
