"""Web citations of Anthropic Messages for clients of OpenAI's APIs, with the text span of each."""

import asyncio
import json
from typing import Any

import pytest

from dragoman.core.events import TEXT_BREAK, AnyEvent, Detail, Finish, ReasoningDelta, TextDelta, ToolCallStart
from dragoman.core.response_details import ANNOTATIONS, CITATIONS
from dragoman.wire.web_sources import WebSourceConverter
from support.deviations import answered, frames, messages, over, validates, wide

CHAT, MESSAGES, RESPONSES = "openai_chat", "anthropic_messages", "openai_responses"
FOUND = {"type": "web_search_result_location", "url": "https://x.test", "title": "T", "encrypted_index": "e",
         "cited_text": "c"}  # fmt: skip
BARE = {**FOUND, "url": "https://y.test", "title": None}
DOCUMENT_CITATION = {"type": "char_location", "cited_text": "c", "document_index": 0, "document_title": "d",
               "start_char_index": 0, "end_char_index": 1, "file_id": None}  # fmt: skip
BLOCKS = [("Sé 😀 ", []), ("It is 8°.", [FOUND, BARE]), (" Or ", []), ("9°.", [FOUND])]
TEXT = "".join(text for text, _ in BLOCKS)
SPANS = [(5, 14, "https://x.test", "T"), (5, 14, "https://y.test", ""), (18, 21, "https://x.test", "T")]


def said(*, stream: bool) -> bytes:
    if not stream:
        content = [{"type": "text", "text": text, **({"citations": found} if found else {})} for text, found in BLOCKS]
        return wide({"content": content, "stop_reason": "end_turn", "usage": {"input_tokens": 3}}).encode()
    sent: list[Any] = [{"type": "message_start", "message": {"usage": {"input_tokens": 3}}}]
    for n, (text, found) in enumerate(BLOCKS):
        start = {"type": "text", "text": "", **({"citations": []} if found else {})}
        sent.append({"type": "content_block_start", "index": n, "content_block": start})
        deltas: list[Any] = [{"type": "citations_delta", "citation": each} for each in found]
        deltas.insert(len(deltas) // 2, {"type": "text_delta", "text": text})
        sent += [{"type": "content_block_delta", "index": n, "delta": delta} for delta in deltas]
        sent.append({"type": "content_block_stop", "index": n})
    return messages(*sent, *over("end_turn")).encode()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("front", [CHAT, RESPONSES])
def test_openai_clients_get_text_span_of_each_source(front: str, stream: bool) -> None:
    answer = asyncio.run(answered(MESSAGES, front, said(stream=stream), stream=stream))
    assert not [warning.detail for warning in answer.collector.warnings if warning.code == "content_dropped"]
    for frame in frames(answer.stream):
        validates(front)(frame)
    events = list(frames(answer.stream)) if stream else [json.loads(answer.body)]
    found = [(each["start_index"], each["end_index"], each["url"], each["title"]) for each in sources(front, events)]
    assert found == SPANS
    assert [TEXT[start:end] for start, end, _, _ in SPANS] == ["It is 8°.", "It is 8°.", "9°."]


def sources(front: str, events: list[Any]) -> list[Any]:
    if front == CHAT:
        said = [choice.get("delta") or choice.get("message") for event in events for choice in event["choices"]]
        return [each["url_citation"] for message in said if message for each in message.get("annotations", ())]
    added = [event["annotation"] for event in events if event.get("type") == "response.output_text.annotation.added"]
    last = events[-1].get("response", events[-1])
    (content,) = last["output"][0]["content"]
    assert content["text"] == TEXT
    assert len(events) == 1 or added == content["annotations"]
    return list(content["annotations"])


def citation_detail(*found: Any) -> Detail:
    return Detail(CITATIONS, json.dumps(found), MESSAGES)


END = Detail(TEXT_BREAK, "", MESSAGES)


def spans(client: str, *events: AnyEvent) -> list[tuple[int, int]]:
    made, out = WebSourceConverter(client), []
    for event in events:
        if isinstance(event, TextDelta):
            made.chars += len(event.text)
        else:
            out += made.feed(event)
    told = [each for event in out if isinstance(event, Detail) and event.name == ANNOTATIONS for each in
            json.loads(event.json)]  # fmt: skip
    return [(each["start_index"], each["end_index"]) for each in told]


@pytest.mark.parametrize("between", [ToolCallStart(0, "a", "b"), ReasoningDelta("Hm.")])
def test_spans_count_from_message_in_chat_and_item_in_responses(between: AnyEvent) -> None:
    events = (TextDelta("abc"), END, between, citation_detail(FOUND), TextDelta("de"), END, Finish("stop"))
    assert spans(CHAT, *events) == [(3, 5)]
    assert spans(RESPONSES, *events) == [(0, 2)]


@pytest.mark.parametrize("last", [END, Finish("stop"), ToolCallStart(0, "a", "b")])
def test_source_in_unclosed_block_is_kept(last: AnyEvent) -> None:
    assert spans(CHAT, TextDelta("ab"), citation_detail(FOUND), last) == [(0, 2)]


@pytest.mark.parametrize("found", [DOCUMENT_CITATION, {**FOUND, "url": 3}, {"type": "other"}])
def test_other_citations_are_unchanged(found: Any) -> None:
    assert WebSourceConverter(CHAT).feed(citation_detail(found)) == [citation_detail(found)]


def test_citations_are_unchanged_for_messages_client() -> None:
    assert WebSourceConverter(MESSAGES).feed(citation_detail(FOUND)) == [citation_detail(FOUND)]
