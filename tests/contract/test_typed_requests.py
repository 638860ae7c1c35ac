"""The fast path for requests accepts only what the cursors accept, with the same result.

Checked with recorded and written requests, and with variations of each: values replaced, removed, added and repeated.
"""

import json
import random
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final

import pytest

from dragoman import dialects
from dragoman.core.errors import ClientError
from dragoman.core.messages import Request
from dragoman.dialects.anthropic_messages import request_reader as messages_reader
from dragoman.dialects.openai_chat import request_reader as chat_reader
from dragoman.dialects.openai_responses import typed_request as responses_reader
from support import dialect_cases
from support.recorded_requests import BY_PATH, RECORDED

READERS: Final[dict[str, ModuleType]] = {
    "anthropic_messages": messages_reader,
    "openai_chat": chat_reader,
    "openai_responses": responses_reader,
}
VARIATIONS: Final = 100
"""Per body."""
SMALL_CHARS: Final = 20_000
"""Larger bodies are varied less often."""
VALUES: Final = (
    *(b"null", b"true", b"false", b"0", b"-1", b"1", b"2.0", b"0.5", b"1e3", b"12345678901234567890", b"1e400", b"-0"),
    *(b'""', b'"x"', b'"\\ud83d"', b'"\\u00e9"', b'"auto"', b'"required"', b'"none"', b'"user"', b'"assistant"'),
    *(b'"tool"', b'"text"', b'"function"', b'"message"', b"[]", b"{}", b"[null]", b'["x"]', b'[{"type":"text"}]'),
    *(b'{"type":"text","text":""}', b'[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]', b'"\xff"'),
    *(b'[""]', b"[1]", b'{"type":null}', b'{"type":"object","x":null}', b'{"effort":"low"}', b'{"include_usage":true}'),
)
NAMES: Final = (
    *("name", "id", "type", "role", "content", "text", "strict", "status", "index", "cache_control", "detail", "phase"),
    *("tool_choice", "parallel_tool_calls", "stop", "n", "top_k", "seed", "user", "metadata", "max_tokens", "tools"),
    *("max_completion_tokens", "reasoning_effort", "thinking", "output_config", "system", "functions", "refusal"),
    *("reasoning", "reasoning_content", "tool_calls", "instructions", "store", "include", "previous_response_id"),
    *("annotations", "signature", "is_error", "unknown", "background", "text", "summary", "encrypted_content"),
)


def bodies(name: str) -> Iterator[bytes]:
    for sent in RECORDED.values():
        if BY_PATH[sent.path].name == name:
            yield sent.body
    for case in dialect_cases.CASES:
        if case.dialect == name and case.kind.startswith("request"):
            yield case.text.encode()


def result(read: Callable[[bytes], Request], body: bytes) -> Request | None:
    try:
        return read(body)
    except ClientError:
        return None


def sent(request: Request, api: str) -> bytes | str:
    """The request as JSON for its own API, in which the order of fields shows."""
    try:
        return dialects.get(api).write_request(request, "m").body
    except ClientError as e:
        return str(e)


def slots(value: Any) -> Iterator[tuple[Any, Any]]:
    """All containers with the keys or indices of their members."""
    if isinstance(value, dict | list):
        for key, member in value.items() if isinstance(value, dict) else enumerate(value):
            yield value, key
            yield from slots(member)


def varied(body: bytes, chance: random.Random) -> bytes:
    """The body with one to three changes."""
    value = json.loads(body)
    marks: dict[str, bytes] = {}
    for n in range(chance.randint(1, 3)):
        container, key = chance.choice([*slots(value)] or [({"x": 1}, "x")])
        mark = f"\u0001{n}"
        marks[json.dumps(mark)] = chance.choice(VALUES)
        match chance.randrange(4):
            case 0:
                container[key] = mark
            case 1 if isinstance(container, dict):
                container[chance.choice(NAMES)] = mark
            case 2 if isinstance(container, dict):
                del container[key]
            case _:
                value = {**value, chance.choice(NAMES): mark}
    made = json.dumps(value).encode()
    for mark, raw in marks.items():
        made = made.replace(mark.encode(), raw)
    if chance.random() < 0.1:  # a repeated name
        made = made[:-1] + b", " + chance.choice([*b'"model" "messages" "stream" "user" "input"'.split()]) + b": "
        made += chance.choice(VALUES) + b"}"
    return made


@pytest.mark.parametrize("name", READERS)
def test_typed_requests_equal_those_read_by_cursors(name: str) -> None:
    reader = READERS[name]
    chance = random.Random(1)
    accepted = 0
    for original in bodies(name):
        try:
            is_object = isinstance(json.loads(original), dict)
        except ValueError:
            is_object = False
        count = (VARIATIONS if len(original) < SMALL_CHARS else 4) if is_object else 0
        for body in (original, *(varied(original, chance) for _ in range(count))):
            fast = reader.read_typed(body)
            if fast is not None:
                accepted += 1
                slow = result(reader.read_any, body)
                assert slow == fast, body
                assert sent(fast, name) == sent(slow, name), body
    assert accepted > 500


@pytest.mark.parametrize("name", READERS)
def test_most_recorded_requests_take_the_fast_path(name: str) -> None:
    reader = READERS[name]
    recorded = [sent.body for sent in RECORDED.values() if BY_PATH[sent.path].name == name]
    assert sum(reader.read_typed(body) is not None for body in recorded) > len(recorded) * 0.7
