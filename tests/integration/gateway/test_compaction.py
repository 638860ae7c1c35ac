"""Conversations are compacted for any backend, and sealed summaries are opened again."""

import base64
import itertools
import json
from typing import Any

import httpx2
import openai
import pytest

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.core.errors import ConfigError, RequestError, UnsupportedError
from dragoman.gateway.compaction import Seal
from dragoman.gateway.gateway import Gateway
from support.fake_upstream import RESPONSES, server, whole
from support.gateway import shape_of
from support.http_client import http_client
from support.responses_upstream import BEHIND, CHAT, KEY, SUMMARY, answers, gateway
from support.scripted_backend import Scripted, plain, serving

TRIGGER = {"type": "compaction_trigger"}
CONVERSATION = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix b."}]},
    {"type": "reasoning", "summary": [], "encrypted_content": "x"},
    {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path":"/tmp/x"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "its content"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I see."}]},
]
TOOLS = [{"type": "function", "name": "read", "parameters": {"type": "object"}, "strict": False}]


async def post(made: Gateway, path: str, **body: Any) -> httpx2.Response:
    async with serving(made) as (_, url), http_client(url) as http:
        return await http.post(path, json={"model": "m", "tools": TOOLS, **body})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("settings", BEHIND, ids=lambda s: "-".join(s.values()))
async def test_compaction_trigger_returns_sealed_item_for_other_process(settings: dict[str, Any], stream: bool) -> None:
    async with server(answers(settings)) as far:
        answer = await post(
            gateway(far, **settings), RESPONSES, input=[*CONVERSATION, TRIGGER], stream=stream, store=False
        )
        assert answer.status_code == 200, answer.text
        said = json.loads(answer.content.rpartition(b"data: ")[2])["response"] if stream else answer.json()
        (item,) = said["output"]
        assert (item["type"], said["status"], said["usage"]["output_tokens"]) == ("compaction", "completed", 9)
        if stream:
            done = [line for line in answer.text.split("\n") if '"response.output_item.done"' in line]
            assert json.loads(done[0].partition(" ")[2] if done[0].startswith("data") else done[-1][6:])["item"] == item
        ((_, _, sent),) = far.asked
        assert "its content" in sent.decode()
        assert "about to be replaced by a summary" in sent.decode()
        assert "compaction" not in json.dumps(json.loads(sent))
        again = await post(gateway(far, **settings), RESPONSES, input=[item, {"role": "user", "content": "Go on."}])
        assert again.status_code == 200, again.text
        (_, _, sent) = far.asked[1]
        assert "its content" not in sent.decode()
        assert "dragoman.1." not in sent.decode()
        shown = json.dumps(json.loads(sent), ensure_ascii=False)
        assert json.dumps(SUMMARY, ensure_ascii=False)[1:-1] in shown
        assert shown.index("Summary of the conversation") < shown.index("Go on.")


async def test_compact_endpoint_returns_user_messages_and_sealed_item() -> None:
    async with server(answers({})) as far, serving(gateway(far)) as (_, url):  # noqa: SIM117
        async with openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as sdk:
            said = await sdk.responses.compact(model="m", input=CONVERSATION, instructions="Be brief.")  # type: ignore[arg-type]
            assert (said.object, said.usage.output_tokens) == ("response.compaction", 9)
            user, item = said.output
            assert (user.type, item.type) == ("message", "compaction")
            items = [CONVERSATION[0], {"type": "compaction", "encrypted_content": item.encrypted_content}]
            items.append({"role": "user", "content": "Go on."})
            twice = await sdk.responses.compact(model="m", input=items)  # type: ignore[arg-type]
            assert [item.type for item in twice.output] == ["message", "message", "compaction"]
    told = [m["content"] for m in json.loads(far.asked[1][2])["messages"]]
    assert told[0] == "Fix b."
    assert any(text.endswith(SUMMARY) for text in told)


async def test_stored_response_continues_from_summary_only() -> None:
    async with server(answers({})) as far, serving(gateway(far)) as (_, url), http_client(url) as http:
        first = (await http.post(RESPONSES, json={"model": "m", "input": CONVERSATION})).json()["id"]
        body = {"model": "m", "input": [TRIGGER], "previous_response_id": first}
        compacted = (await http.post(RESPONSES, json=body)).json()
        assert compacted["output"][0]["type"] == "compaction"
        body = {"model": "m", "input": "Go on.", "previous_response_id": compacted["id"]}
        assert (await http.post(RESPONSES, json=body)).status_code == 200
        assert (await http.post("/v1/responses/input_tokens", json=body)).json()["input_tokens"] > 10
    assert "its content" in far.asked[1][2].decode()
    assert "its content" not in far.asked[2][2].decode()
    assert "Task: fix" in far.asked[2][2].decode()


async def test_compacting_upstream_gets_foreign_items_unchanged() -> None:
    theirs = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"}
    reply = {"object": "response", "status": "completed", "output": [theirs], "usage": None}
    settings: dict[str, Any] = {"api": "openai_responses", "compaction": "server", "passthrough": True}
    ours = {"type": "compaction", "encrypted_content": Seal(KEY).seal(SUMMARY)}
    async with server(whole(200, json.dumps(reply))) as far:
        answer = await post(gateway(far, **settings), RESPONSES, input=[theirs, ours, *CONVERSATION[:1], TRIGGER])
        assert answer.json()["output"] == [theirs]
        sent = json.loads(far.asked[0][2])["input"]
        assert [item["type"] for item in sent] == ["compaction", "message", "message", "compaction_trigger"]
        assert (await post(gateway(far, **settings), f"{RESPONSES}/compact", input=CONVERSATION)).json()["output"][
            -1
        ] == theirs


SEALED = Seal(KEY).seal(SUMMARY)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"type": "compaction", "encrypted_content": "gAAAAB"}, "only the server that made it can open"),
        ({"type": "compaction"}, "only the server that made it can open"),
        ({"type": "compaction", "encrypted_content": SEALED[:-8]}, "damaged or sealed with another key"),
        ({"type": "compaction", "encrypted_content": Seal(b"x").seal("y")}, "damaged or sealed with another key"),
        ({"type": "compaction", "encrypted_content": "dragoman.1.é"}, "damaged or sealed with another key"),
        (TRIGGER, "as the last item"),
    ],
)
async def test_unreadable_compaction_item_is_rejected_before_upstream(item: dict[str, str], words: str) -> None:
    async with server(answers({})) as far:
        answer = await post(
            gateway(far), RESPONSES, input=[CONVERSATION[0], item, {"role": "user", "content": "Go on."}]
        )
        assert answer.status_code == 400
        assert words in shape_of(RESPONSES, answer.json())["message"]
        assert not far.asked


async def test_empty_conversation_or_empty_summary_is_an_error() -> None:
    async with server(
        whole(200, json.dumps({**CHAT, "choices": [{"message": {"content": " "}, "finish_reason": "stop"}]}))
    ) as far:
        answer = await post(gateway(far), RESPONSES, input=[TRIGGER], instructions="x")
        assert (answer.status_code, not far.asked) == (400, True)
        assert (await post(gateway(far), RESPONSES, input=[*CONVERSATION, TRIGGER])).status_code == 502
        far.play = whole(400, '{"error":{"message":"prompt is too long: 9 tokens > 8 maximum"}}')
        told = shape_of("", (await post(gateway(far), RESPONSES, input=[*CONVERSATION, TRIGGER])).json())
        assert told["code"] == "context_length_exceeded"


async def test_truncated_summary_is_reported() -> None:
    cut = {**CHAT, "choices": [{**CHAT["choices"][0], "finish_reason": "length"}]}  # type: ignore[index]
    async with server(whole(200, json.dumps(cut))) as far:
        answer = await post(gateway(far), RESPONSES, input=[*CONVERSATION, TRIGGER])
    assert answer.json()["output"][0]["type"] == "compaction"
    assert "truncated_summary" in answer.headers["x-dragoman-warnings"]


async def test_compaction_works_with_any_backend() -> None:
    answer = await post(Gateway([Scripted(plain)]), RESPONSES, input=[*CONVERSATION[:1], TRIGGER])
    assert answer.json()["output"][0]["type"] == "compaction"


def test_changed_byte_in_sealed_item_is_detected() -> None:
    seal, body = Seal(KEY), base64.urlsafe_b64decode(SEALED.removeprefix("dragoman.1."))
    assert seal.unseal(SEALED) == SUMMARY
    for at, bit in itertools.product(range(len(body)), (1, 128)):
        forged = body[:at] + bytes([body[at] ^ bit]) + body[at + 1 :]
        with pytest.raises(RequestError, match="damaged"):
            seal.unseal("dragoman.1." + base64.urlsafe_b64encode(forged).decode())
    with pytest.raises(UnsupportedError):
        seal.unseal(SEALED[1:])
    assert Seal(b"another", checks=False).unseal(SEALED) == SUMMARY


def test_invalid_compaction_setting_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"upstreams\.far\.compaction"):
        HttpBackend("far", HttpConfig(url="http://127.0.0.1:1", compaction="me"), {})
