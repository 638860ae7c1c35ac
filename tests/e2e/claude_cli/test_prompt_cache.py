"""The prefix that consecutive requests of the Claude CLI share, which allows prompt caching."""

import json
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient

from support.claude_gateway import Says, Turns, behind_claude
from support.gateway import CHAT, DEADLINE_S, MESSAGES

MAX_MARKS = 4
"""The maximum of the Messages API."""


KEY, TOKEN = "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"
OLD = "claude-sonnet-4-5-20250929"
"""With an OAuth login its last message contains the date, so it differs in the next request."""


@pytest.mark.parametrize(
    ("path", "login", "model"),
    [
        *((path, KEY, model) for path in (CHAT, MESSAGES) for model in ("m", "claude-sonnet-5-5", OLD)),
        *((CHAT, TOKEN, model) for model in ("m", "claude-sonnet-5-5")),
    ],
)
async def test_conversation_reuses_cached_prompt_prefix(tmp_path: Path, path: str, login: str, model: str) -> None:
    """Everything up to the last cache mark of a request is a prefix of the next request, byte for byte.

    All marks have the same time to live, since a longer one must not follow a shorter one.
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
        assert json.dumps(body).count('"cache_control"') <= MAX_MARKS
        assert "ttl" not in json.dumps(body)
    assert before["tools"] == after["tools"]
    assert _bare(before["system"][1:]) == _bare(after["system"][1:])
    kept = _to_the_mark(before["messages"], "one")
    assert kept == _bare(after["messages"])[: len(kept)]


def _to_the_mark(messages: list[Any], words: str) -> list[Any]:
    """The messages up to the one that ends with this text, which must have a cache mark."""
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
