"""The cases with which the CLI was recorded."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from support.claude_cli.session import CALLED, OAUTH, Case
from support.claude_cli.upstream import TOLD, Reply, error, message

TEXT: Final = {"type": "text", "text": "Hello to you too."}
THOUGHT: Final = {"type": "thinking", "thinking": "They greet me.", "signature": "c2lnbmVk"}
CALLS: Final = [
    {"type": "tool_use", "id": f"toolu_0{n}", "name": "mcp__t__weather", "input": {"city": city}}
    for n, city in enumerate(("Oslo", "Rome"))
]
REPLY: Final = {"type": "tool_use", "id": "toolu_0", "name": "StructuredOutput", "input": {"n": 1}}
WEATHER: Final = {
    "name": "weather",
    "description": "Tells the weather.",
    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
SCHEMA: Final = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
HELLO: Final = Reply(events=message(TEXT))
BUSY: Final = error(529, "overloaded_error", "Overloaded")
BROKEN: Final = error(500, "api_error", "Internal server error")
SLOWER: Final = "This request would exceed your account's rate limit."
LONG: Final = "prompt is too long: 210000 tokens > 200000 maximum"
LATER: Final = str(4_102_444_800)
"""The year 2100, in seconds since 1970."""


def refused(status: int, kind: str, words: str, **headers: str) -> Case:
    """Every request gets this error."""
    return Case([error(status, kind, words, **headers)])


def subscriber(*replies: Reply) -> Case:
    """A case with a subscription login."""
    return Case(replies, login=OAUTH)


def limits(status: str, claim: str = "five_hour") -> dict[str, str]:
    """Rate limit headers of responses to subscribers."""
    told = {"status": status, "reset": LATER, "representative-claim": claim, "fallback": "available"}
    told |= {"5h-status": status, "5h-reset": LATER, "5h-utilization": "1.0" if status == "rejected" else "0.9"}
    told |= {"overage-status": "rejected", "overage-disabled-reason": "org_level_disabled"}
    told |= {"5h-surpassed-threshold": "0.9"} if status == "allowed_warning" else {}
    return {f"anthropic-ratelimit-unified-{name}": value for name, value in told.items()}


def limited(**headers: str) -> Reply:
    return Reply(429, error(429, "rate_limit_error", SLOWER).body, headers=headers)


def broken(end: str, *blocks: Mapping[str, Any], events: int = 5) -> Reply:
    """A stream that breaks after `events` events, including a ping."""
    return Reply(events=message(*(blocks or [TEXT]))[:events], end=end)


def conversation() -> Sequence[Mapping[str, Any]]:
    """One turn with two calls, the second of which failed."""
    results = [
        {"type": "tool_result", "tool_use_id": "toolu_00", "content": "rain"},
        {"type": "tool_result", "tool_use_id": "toolu_01", "content": "no such city", "is_error": True},
    ]
    return [
        {"role": "user", "content": "How is the weather in Oslo and Rome?"},
        {"role": "assistant", "content": [TEXT, *CALLS]},
        {"role": "user", "content": results},
    ]


CASES: Final[Mapping[str, Case]] = {
    # responses
    "plain": Case([HELLO]),
    "thinking": Case([Reply(events=message(THOUGHT, TEXT))]),
    "call": Case([Reply(events=message(TEXT, CALLS[0], stop="tool_use"))], tools=[WEATHER], until=CALLED),
    "calls": Case([Reply(events=message(*CALLS, stop="tool_use"))], tools=[WEATHER], until=CALLED),
    "history": Case([HELLO], tools=[WEATHER], said=conversation()),
    "schema": Case([Reply(events=message(REPLY, stop="tool_use")), HELLO], schema=SCHEMA),
    "empty": Case([Reply(events=message())]),
    "max_tokens": Case([Reply(events=message(TEXT, stop="max_tokens"))]),
    "refusal": Case([Reply(events=message(stop="refusal"))]),
    # errors of the model's API
    "too_long": refused(400, "invalid_request_error", LONG),
    "too_long_history": Case([error(400, "invalid_request_error", LONG)], tools=[WEATHER], said=conversation()),
    "invalid": refused(400, "invalid_request_error", "messages.0.content: at least one block is required"),
    "credit": refused(400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."),
    "key_wrong": refused(401, "authentication_error", "invalid x-api-key"),
    "token_wrong": subscriber(error(401, "authentication_error", "Invalid bearer token")),
    "token_revoked": subscriber(error(403, "permission_error", "OAuth token has been revoked.")),
    "no_login": Case([HELLO], login={}),
    "forbidden": refused(403, "permission_error", "Your account does not have access to this resource."),
    "no_model": refused(404, "not_found_error", "model: m"),
    "too_large": refused(413, "request_too_large", "Request exceeds the maximum size"),
    "failed": refused(500, "api_error", "Internal server error"),
    "failed_proxy": Case([Reply(502, headers={"content-type": "text/html"})]),
    "overloaded": refused(529, "overloaded_error", "Overloaded"),
    # limits
    "limit_key": refused(429, "rate_limit_error", SLOWER, retry_after="7"),
    "limit_key_long": Case([limited(**{"retry-after": "45"})], retries=2, until=["api_retry"]),
    "limit_subscriber": subscriber(limited()),
    "limit_five_hours": subscriber(limited(**limits("rejected"), **{"retry-after": "3600"})),
    "limit_week": subscriber(limited(**limits("rejected", "seven_day"))),
    "limit_near": subscriber(Reply(events=message(TEXT), headers=limits("allowed_warning"))),
    # retries
    "overloaded_twice": Case([BUSY, BUSY, HELLO], retries=2),
    "overloaded_always": Case([BUSY], retries=2),
    "failed_once": Case([BROKEN, HELLO], retries=2),
    "limit_key_once": Case([limited(**{"retry-after": "1"}), HELLO], retries=2),
    # streams that break
    "error_first": Case([Reply(events=[TOLD])]),
    "error_in_stream": Case([broken("error")]),
    "cut": Case([broken("cut")]),
    "cut_at_start": Case([broken("cut", events=1), HELLO], retries=2),
    "cut_in_thoughts": Case([broken("cut", THOUGHT), HELLO], retries=2),
    "cut_in_text": Case([broken("cut"), HELLO], retries=2),
    "cut_in_call": Case([broken("cut", TEXT, CALLS[0], events=9)], tools=[WEATHER]),
    "cut_after_call": Case([broken("cut", CALLS[0], events=7)], tools=[WEATHER], until=CALLED),
    "reset": Case([broken("reset")]),
    "ended_early": Case([broken("whole")]),
    "no_events": Case([Reply(body={})]),
    "hang": Case([broken("hang", events=4)], until=["content_block_delta"]),
    "not_streamed": Case([broken("cut"), HELLO], streams_only=False),
}
