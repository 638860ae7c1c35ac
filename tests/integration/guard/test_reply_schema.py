"""Response schema next to tools, in prompt mode: shown to the model, validated, re-asked once; several choices."""

import json
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from support.fake_upstream import END, HEAD, server
from support.http_client import http_client
from support.text_upstream import ASKED, FRONTS, ask, gateway, writes

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
SCHEMA = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}'
WANTED = replace(ASKED, response_schema=SCHEMA, response_name="count")
FITS = '{"n": 3}'


def writes_in_turn(*texts: str) -> Any:
    plays = iter([*map(writes, texts)])

    async def play(server: Any, writer: Any) -> None:
        await next(plays)(server, writer)

    return play


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(
    ("texts", "answer", "more"),
    [
        ([FITS], FITS, []),
        ([f"```json\n{FITS}\n```"], FITS, []),
        (["Three.", FITS], FITS, ["reasked"]),
        (["Three.", "Still three."], "Three.", ["reasked", "reask_failed"]),
    ],
)
async def test_response_schema_next_to_tools_is_validated_and_re_asked(
    front: str, texts: list[str], answer: str, more: list[str]
) -> None:
    async with server(writes_in_turn(*texts)) as behind, gateway(behind.url, tool_mode="prompt") as (url, _):
        got = await ask(url, front, WANTED)
    assert got.text == answer
    assert got.reply.finish_reason == "stop"
    assert [code for code in got.warnings if code in ("reasked", "reask_failed")] == more
    assert "constraint_not_applied" in got.warnings
    assert len(behind.asked) == len(texts)
    for _, _, body in behind.asked:
        assert '"additionalProperties":false' in json.loads(body)["messages"][0]["content"].replace(" ", "")
        assert "response_format" not in json.loads(body)


async def test_call_is_not_validated_by_response_schema() -> None:
    call = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'
    async with (
        server(writes(call)) as behind,
        gateway(behind.url, tool_mode="prompt", call_format="hermes") as (url, _),
    ):
        got = await ask(url, "openai_chat", WANTED)
    assert (got.calls, got.text, len(behind.asked)) == ([("ping", {})], "", 1)


@pytest.mark.parametrize(
    ("path", "tool"),
    [(CHAT, {"type": "web_search"}), (MESSAGES, {"type": "advisor_20260301", "name": "advisor"})],
)
@pytest.mark.parametrize("mode", ["prompt", "native"])
async def test_vendor_tool_is_rejected_by_other_servers(path: str, tool: Any, mode: str) -> None:
    api = "openai_responses" if mode == "native" else "openai_chat"
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "tools": [tool]}
    async with server(writes("x")) as behind, gateway(behind.url, tool_mode=mode, api=api) as (url, _):
        answer = await posted(url, path, body)
    assert answer.status_code == 400
    assert repr(tool["type"]) in answer.json()["error"]["message"]
    assert not behind.asked


async def posted(url: str, path: str, body: Any) -> httpx2.Response:
    async with http_client(url) as client:
        return await client.post(path, json=body)


def choice(index: int, text: str) -> bytes:
    said = {"index": index, "delta": {"content": text}, "finish_reason": None}
    chunk = {"id": "x", "object": "chat.completion.chunk", "choices": [said]}
    data = f"data: {json.dumps(chunk)}\n\n".encode()
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def test_several_choices_of_same_api_are_forwarded() -> None:
    async def play(server: Any, writer: Any) -> None:
        writer.write(HEAD + choice(0, "a") + choice(1, "b") + END)

    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "n": 2, "stream": True}
    async with server(play) as behind, gateway(behind.url, tool_mode="native") as (url, _):
        answer = await posted(url, CHAT, body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-dragoman-warnings"] == "unguarded_choices: n"
    chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    told = [(said["index"], said["delta"]["content"]) for chunk in chunks for said in chunk["choices"]]
    assert told[:2] == [(0, "a"), (1, "b")]
    assert json.loads(behind.asked[-1][2])["n"] == 2


async def test_several_choices_are_rejected_in_prompt_mode() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "n": 2}
    async with server(writes("x")) as behind, gateway(behind.url, tool_mode="prompt") as (url, _):
        answer = await posted(url, CHAT, body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "n")
    assert not behind.asked
