"""Upstream responses of several APIs, and a gateway with that upstream."""

import json
from typing import Any

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.gateway.compaction import Seal
from dragoman.gateway.gateway import Gateway
from support.fake_upstream import Play, Server, whole

SUMMARY = "Task: fix <b>.\nState: /tmp/x has “quotes”."


CHAT = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": SUMMARY}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 50, "completion_tokens": 9},
}


ANSWERS: dict[str, dict[str, Any]] = {
    "openai_chat": CHAT,
    "anthropic_messages": {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": SUMMARY}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 50, "output_tokens": 9},
    },
    "openai_responses": {
        "object": "response",
        "status": "completed",
        "output": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": SUMMARY}]},
        ],
        "usage": {"input_tokens": 50, "output_tokens": 9, "total_tokens": 59},
    },
}


BEHIND = [*({"api": api} for api in ANSWERS), {"tool_mode": "prompt", "call_format": "hermes"}]


KEY = b"a key of several processes"


def gateway(far: Server, key: bytes = KEY, **settings: Any) -> Gateway:
    base = "" if settings.get("api") == "anthropic_messages" else "/v1"
    config = HttpConfig(url=far.url + base, **{"models": ("m",), "max_retries": 0, "auto_probe": False, **settings})
    return Gateway([HttpBackend("far", config, {})], seal=Seal(key))


def answers(settings: dict[str, Any]) -> Play:
    return whole(200, json.dumps(ANSWERS[settings.get("api", "openai_chat")]))
