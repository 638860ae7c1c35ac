"""Details of one API only: the phase of messages in Responses, prompt progress in Chat Completions."""

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import dialects
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import Collector
from dragoman.core.messages import Message
from support.deviations import answered, chat, delta, frames, messages, response, validates

CHAT, MESSAGES, RESPONSES = "openai_chat", "anthropic_messages", "openai_responses"


def message(text: str, phase: str | None) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    own = {"phase": phase} if phase else {}
    return {
        "id": f"msg_{text}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": content,
        **own,
    }


CALL = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"}
TWO_PHASES = [message("Looking", "commentary"), message("Found", "final_answer")]
OUTPUTS: dict[str, list[Any]] = {
    "one": [message("Hi", "final_answer")],
    "two": TWO_PHASES,
    "with a call between": [TWO_PHASES[0], CALL, TWO_PHASES[1]],
    "then none": [TWO_PHASES[0], message("Found", None)],
    "null": [{**message("Hi", None), "phase": None}],
}


def streamed(output: list[Any], *, early: bool) -> str:
    """The stream of this output, with the phase in the added item (`early`), or only in the finished one."""
    events: list[Any] = [{"type": "response.created", "response": {"status": "in_progress"}}]
    for n, item in enumerate(output):
        begun = {k: v for k, v in item.items() if early or k != "phase"} | {"status": "in_progress"}
        events.append({"type": "response.output_item.added", "output_index": n, "item": {**begun, "content": []}})
        for part in item.get("content", ()):
            told = {"item_id": item["id"], "output_index": n, "content_index": 0}
            events += [{"type": "response.output_text.delta", **told, "delta": each} for each in part["text"]]
        events.append({"type": "response.output_item.done", "output_index": n, "item": item})
    last = {"status": "completed", "output": output}
    return messages(*events, {"type": "response.completed", "response": last})


def phases(output: list[Any]) -> list[tuple[str | None, str]]:
    return [(item.get("phase"), item["content"][0]["text"]) for item in output if item["type"] == "message"]


@pytest.mark.parametrize("form", ["early", "late", "whole"])
@pytest.mark.parametrize("name", OUTPUTS)
def test_responses_client_gets_phase_of_each_message(name: str, form: str) -> None:
    output = OUTPUTS[name]
    sent = response(*output) if form == "whole" else streamed(output, early=form == "early")
    answer = asyncio.run(answered(RESPONSES, RESPONSES, sent.encode(), stream=form != "whole"))
    assert [warning.code for warning in answer.collector.warnings if warning.code == "content_dropped"] == []
    assert phases(json.loads(answer.body)["output"] if form == "whole" else last(answer.stream)) == phases(output)
    for frame in frames(answer.stream):
        validates(RESPONSES)(frame)
    done = [e["item"] for e in frames(answer.stream) if e["type"] == "response.output_item.done"]
    assert form == "whole" or phases(done) == phases(output)
    begun = [e["item"] for e in frames(answer.stream) if e["type"] == "response.output_item.added"]
    if form == "early":
        assert [item.get("phase") for item in begun if item["type"] == "message"] == [p for p, _ in phases(output)]


def last(stream: Any) -> list[Any]:
    return list(list(frames(stream))[-1]["response"]["output"])


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("front", [CHAT, MESSAGES])
def test_dropped_phase_is_reported_to_clients_of_other_apis(front: str, stream: bool) -> None:
    sent = streamed(TWO_PHASES, early=True) if stream else response(*TWO_PHASES)
    answer = asyncio.run(answered(RESPONSES, front, sent.encode(), stream=stream))
    assert [(w.code, w.detail) for w in answer.collector.warnings if w.detail] == [("content_dropped", "phase")]
    assert "".join(part.text for part in answer.collector.reply().parts) == "LookingFound"  # type: ignore[union-attr]


def test_phases_of_past_messages_are_sent_back_to_server() -> None:
    dialect = dialects.get(RESPONSES)
    body = {
        "model": "m",
        "input": [{"role": "user", "content": "Go."}],
        "tools": [{"type": "function", "name": "read"}],
    }
    request = dialect.read_request(json.dumps(body).encode())
    reader, collector = dialect.reader(request, ExchangeContext("1", 0, iter("abc").__next__)), Collector(RESPONSES)
    for event in [*reader.feed(response(TWO_PHASES[0], CALL, TWO_PHASES[1]).encode()), *reader.close()]:
        collector.feed(event)
    said = (*request.messages, Message("assistant", collector.reply().parts))
    sent = json.loads(dialect.write_request(replace(request, messages=said), "m").body)["input"]
    assert [(item.get("type"), item.get("phase")) for item in sent] == [
        ("message", None),
        ("message", "commentary"),
        ("function_call", None),
        ("message", "final_answer"),
    ]
    assert all(
        "phase" not in part for item in sent if isinstance(item.get("content"), list) for part in item["content"]
    )


PROGRESS = {"total": 100, "cache": 0, "processed": 30, "time_ms": 5}
PROGRESS_STREAM = chat(
    {**delta({"role": "assistant", "content": None}), "prompt_progress": PROGRESS},
    {**delta({}), "object": "chat.completion.chunk", "prompt_progress": {**PROGRESS, "processed": 60}},
    delta({"content": "Hi"}),
    delta({}, "stop"),
)


@pytest.mark.parametrize("front", [CHAT, MESSAGES, RESPONSES])
def test_prompt_progress_is_forwarded_only_to_chat_clients(front: str) -> None:
    answer = asyncio.run(answered(CHAT, front, PROGRESS_STREAM.encode(), stream=True))
    told = list(frames(answer.stream))
    for frame in told:
        validates(front)(frame)
    read = [frame["prompt_progress"]["processed"] for frame in told if "prompt_progress" in frame]
    assert read == ([30, 60] if front == CHAT else [])
    assert not [warning for warning in answer.collector.warnings if warning.code == "content_dropped"]
    whole = asyncio.run(answered(CHAT, front, PROGRESS_STREAM.encode(), stream=False))
    assert b"prompt_progress" not in whole.body
