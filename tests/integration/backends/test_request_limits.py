"""Requests are adapted to a server: the vendor's billing line is removed, prompts that are too long are rejected."""

import json
import re

import pytest

from dragoman import dialects
from dragoman.backends.request_limits import prepare_for_server
from support.fake_upstream import ask, gateway, server, whole
from support.gateway import CHAT
from support.gateway import MESSAGES as PATH
from support.http_client import http_client

MESSAGES = dialects.get("anthropic_messages")
BILLING = "x-anthropic-billing-header: cc_version=2.1; cch=0a1b2;"


@pytest.mark.parametrize("blocks", [[BILLING, "Be brief."], [f"{BILLING}\nBe brief."]], ids=["a block", "a line"])
@pytest.mark.parametrize(
    ("url", "goes"),
    [
        ("https://api.anthropic.com", True),
        ("https://api.anthropic.com/v1", True),
        ("http://127.0.0.1:8080", False),
        ("https://api.anthropic.com.example/v1", False),
    ],
)
def test_billing_line_is_sent_only_to_the_vendors_servers(blocks: list[str], url: str, goes: bool) -> None:
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}],
        "metadata": {"user_id": "u"},
    }
    body["system"] = [{"type": "text", "text": text} for text in blocks]
    request = MESSAGES.read_request(json.dumps(body))
    written = MESSAGES.write_request(prepare_for_server(request, MESSAGES, url), "m")
    sent = json.loads(written.body)
    said = sent["system"] if isinstance(sent["system"], list) else [{"type": "text", "text": sent["system"]}]
    assert [block["text"].strip() for block in said] == ([BILLING] if goes else []) + ["Be brief."]
    assert sent["metadata"] == {"user_id": "u"}
    assert written.warnings == ()


@pytest.mark.parametrize("to", ["openai_chat", "openai_responses"])
def test_billing_line_is_not_sent_to_other_apis(to: str) -> None:
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}],
        "system": f"{BILLING}\nBe brief.",
    }
    written = dialects.get(to).write_request(MESSAGES.read_request(json.dumps(body)), "m")
    assert b"Be brief." in written.body
    assert b"billing" not in written.body


async def test_billing_line_is_removed_for_other_anthropic_api_servers() -> None:
    async with server(whole(400, "{}")) as behind, gateway(behind.url, api="anthropic_messages") as url:
        await ask(url, PATH, False, system=[{"type": "text", "text": BILLING}, {"type": "text", "text": "Be brief."}])
        count = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "system": BILLING}
        async with http_client(url) as client:
            await client.post("/v1/messages/count_tokens", json=count)
    asked, counted = (json.loads(said) for _, _, said in behind.asked)
    assert asked["system"] in ("Be brief.", [{"type": "text", "text": "Be brief."}])
    assert "system" not in counted


@pytest.mark.parametrize(("words", "refused"), [(1000, False), (5000, False), (9000, True)])
async def test_prompt_beyond_context_window_is_rejected(words: int, refused: bool) -> None:
    answer = json.dumps({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]})
    async with server(whole(200, answer)) as behind, gateway(behind.url, context_window=4096) as url:
        told = await ask(url, PATH, False, system="one word " * (words // 2))
    assert len(behind.asked) == (not refused)
    assert told.status_code == (400 if refused else 200)
    if refused:
        assert re.fullmatch(r"prompt is too long: 8\d\d\d tokens > 4096 maximum", told.json()["error"]["message"])


@pytest.mark.parametrize("words", [1000, 9000])
async def test_prompt_beyond_context_window_is_rejected_in_passthrough(words: int) -> None:
    answer = json.dumps({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]})
    tool = {"type": "function", "function": {"name": "f", "description": "one word " * (words // 2)}}
    async with server(whole(200, answer)) as behind, gateway(behind.url, context_window=4096, passthrough=True) as url:
        told = await ask(url, CHAT, False, tools=[tool])
    assert (told.status_code, len(behind.asked)) == ((200, 1) if words == 1000 else (400, 0))


async def test_long_prompt_is_accepted_after_trimming() -> None:
    answer = json.dumps({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]})
    tools = [{"name": "Bash", "description": f"Runs it. {'And more. ' * 5000}", "input_schema": {"type": "object"}}]
    async with (
        server(whole(200, answer)) as behind,
        gateway(behind.url, context_window=4096, prompt_trim="tools") as url,
    ):
        assert (await ask(url, PATH, False, tools=tools)).status_code == 200
