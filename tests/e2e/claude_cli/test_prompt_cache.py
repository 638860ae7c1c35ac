"""What a request through claude shares with the one before it, which the model's service then need not read again."""

import json
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient

from support.claude_gateway import Says, Turns, behind_claude
from support.gateway import CHAT, DEADLINE_S, MESSAGES

MARKS = 4
"""As many as the Messages API takes."""


KEY, TOKEN = "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"
OLD = "claude-sonnet-4-5-20250929"
"""With a login it has the date in its last message, which is therefore another in the next request."""


@pytest.mark.parametrize(
    ("path", "login", "model"),
    [
        *((path, KEY, model) for path in (CHAT, MESSAGES) for model in ("m", "claude-sonnet-5-5", OLD)),
        *((CHAT, TOKEN, model) for model in ("m", "claude-sonnet-5-5")),
    ],
)
async def test_a_conversation_goes_on_from_what_is_kept(tmp_path: Path, path: str, login: str, model: str) -> None:
    """All up to the last mark of a request is the beginning of the next, byte for byte.

    All marks are for the same time: one for longer may not stand behind one for less.
    """
    tools: Any = {"name": "read", "input_schema": {"type": "object", "properties": {}}}
    if path == CHAT:
        tools = {"type": "function", "function": {"name": "read", "parameters": tools["input_schema"]}}
    mark = {"cache_control": {"type": "ephemeral"}} if path == MESSAGES else {}
    words = {"type": "text", "text": "one", **mark}
    said: list[Any] = [{"role": "user", "content": [words]}]
    async with (
        behind_claude(Turns([Says("first"), Says("second")]), tmp_path, "native", model, login=login) as chain,
        AsyncClient(base_url=chain.url, timeout=DEADLINE_S, trust_env=False) as client,
    ):
        for ask in ("two", "three"):
            reply = await client.post(
                path, json={"model": model, "max_tokens": 5000, "messages": said, "tools": [tools]}
            )
            assert reply.status_code == 200, reply.text
            said += [{"role": "assistant", "content": "answer"}, {"role": "user", "content": ask}]
    before, after = (json.loads(sent.body) for sent in chain.sent)
    for body in (before, after):
        assert json.dumps(body).count('"cache_control"') <= MARKS
        assert "ttl" not in json.dumps(body)
    assert before["tools"] == after["tools"]
    assert _bare(before["system"][1:]) == _bare(after["system"][1:])
    kept = _to_the_mark(before["messages"], "one")
    assert kept == _bare(after["messages"])[: len(kept)]


def _to_the_mark(messages: list[Any], words: str) -> list[Any]:
    """The messages up to the one with these words, which end it and are marked."""
    for n, message in enumerate(messages):
        blocks = message["content"]
        if isinstance(blocks, list) and blocks and blocks[-1].get("text") == words:
            assert "cache_control" in blocks[-1]
            return _bare(messages[: n + 1])
    raise AssertionError(messages)


def _bare(value: Any) -> Any:
    if isinstance(value, list):
        return [_bare(each) for each in value]
    if isinstance(value, dict):
        return {name: _bare(each) for name, each in value.items() if name != "cache_control"}
    return value
