"""The fast path for Chat Completions responses yields the same events as the reader of fields.

Checked with whole bodies and with the first and last chunks of streams, and with variations of each.
"""

import json
import random
from typing import Any, Final

import pytest

from dragoman.core.backend import ExchangeContext
from dragoman.core.events import AnyEvent, Failure
from dragoman.core.messages import Message, Request, Text, Tool
from dragoman.dialects.openai_chat.response_reader import ChatResponseReader

VARIATIONS: Final = 1000
REQUEST: Final = Request("m", (Message("user", (Text("hi"),)),), (Tool("weather"), Tool("time")), dialect="openai_chat")
CALLS: Final = [
    {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Bern"}'}},
    {"index": 1, "id": "call_2", "function": {"name": "time", "arguments": "{}"}},
]
MESSAGE: Final = {"role": "assistant", "content": "Zürich is sunny.", "refusal": None, "annotations": []}
USAGE: Final = {
    "prompt_tokens": 7,
    "completion_tokens": 3,
    "total_tokens": 10,
    "prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": 0},
    "completion_tokens_details": None,
}
BODIES: Final = (
    {"message": MESSAGE, "finish_reason": "stop"},
    {"message": {**MESSAGE, "content": None, "tool_calls": CALLS}, "finish_reason": "tool_calls"},
    {"message": {**MESSAGE, "reasoning_content": "hm", "tool_calls": []}, "finish_reason": "length"},
)
VALUES: Final = (
    *(None, True, False, 0, 1, -1, 2.5, 2**60, "", "x", "stop", "error", "assistant", "0", [], {}, [None], [{}]),
    *({"text": "t"}, [{"type": "text", "text": "t"}], {"name": "weather"}, {"cached_tokens": 5}, "\ud83d", "false"),
    *({"message": "bad", "code": 500}, {"content": "c"}, CALLS, MESSAGE, [{"index": 1}], {"top": [1]}),
)
NAMES: Final = (
    *("system_fingerprint", "service_tier", "provider", "timings", "citations", "prompt_progress", "x_groq", "error"),
    *("detail", "message", "code", "object", "usage", "choices", "index", "delta", "logprobs", "stop_reason", "audio"),
    *("reasoning", "reasoning_content", "thinking", "content", "refusal", "tool_calls", "function_call", "images"),
    *("custom", "extra_content", "arguments", "cached_tokens", "reasoning_tokens", "id", "unknown", "finish_reason"),
)


class FieldsReader(ChatResponseReader):
    """Reads every event and body by its fields."""

    __slots__ = ()

    def _quick(self, data: bytes) -> bool:
        return False

    def _quick_whole(self, body: bytes) -> bool:
        return False


def events(reader: type[ChatResponseReader], pieces: list[bytes]) -> list[AnyEvent | str]:
    numbers = iter(range(1000))
    one = reader(REQUEST, ExchangeContext("1", 0, lambda: f"new{next(numbers)}"))
    read = [event for piece in pieces for event in one.feed(piece)] + one.close()
    return [str(event.error) if isinstance(event, Failure) else event for event in read]


def slots(value: Any) -> list[tuple[Any, Any]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [slot for key, member in members for slot in ((value, key), *slots(member))]


def copied(value: Any) -> Any:
    return json.loads(json.dumps(value))


def varied(value: Any, chance: random.Random) -> Any:
    """A copy with up to two changes."""
    copy = copied(value)
    for _ in range(chance.randint(0, 2)):
        container, key = chance.choice(slots(copy))
        if isinstance(container, dict) and chance.random() < 0.6:
            container[chance.choice(NAMES)] = copied(chance.choice(VALUES))
        else:
            container[key] = copied(chance.choice(VALUES))
    return copy


def encoded(value: Any, chance: random.Random) -> bytes:
    return json.dumps(value, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")


def test_whole_bodies_have_the_same_events() -> None:
    chance = random.Random(1)
    for n in range(VARIATIONS):
        choice = {"index": 0, "logprobs": None, **BODIES[n % len(BODIES)]}
        body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": USAGE}
        data = encoded(varied(body, chance), chance)
        assert events(ChatResponseReader, [data]) == events(FieldsReader, [data]), data


@pytest.mark.parametrize("changed", ["first", "last", "usage"])
def test_first_and_last_chunks_have_the_same_events(changed: str) -> None:
    chance = random.Random(2)
    deltas = {"first": {"role": "assistant", "content": ""}, "middle": {"content": "Hi"}, "last": {}, "usage": None}
    for _ in range(VARIATIONS):
        pieces = []
        for name, delta in deltas.items():
            choice = {"index": 0, "delta": delta, "finish_reason": "stop" if name == "last" else None}
            chunk = {"object": "chat.completion.chunk", "choices": [] if delta is None else [choice]}
            chunk |= {"usage": USAGE} if delta is None else {}
            chunk = varied(chunk, chance) if name == changed else chunk
            pieces.append(b"data: " + encoded(chunk, chance) + b"\n\n")
        pieces.append(b"data: [DONE]\n\n")
        assert events(ChatResponseReader, pieces) == events(FieldsReader, pieces), pieces
