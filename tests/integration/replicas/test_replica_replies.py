"""Replicas render past assistant turns as the model wrote them, also those that another replica got.

client ─HTTP→ 2 × Gateway ─→ a scripted text server, Debian's redis-server
"""

import json
import threading
from collections.abc import Iterator, Sequence
from typing import TypeVar

import pytest
from msgspec.structs import replace

from dragoman.backends.http.config import HttpConfig
from dragoman.backends.text_mode.shared_replies import KIND, RETRY_S, SharedReplies, StoredReply
from dragoman.backends.text_mode.verbatim_history import VerbatimHistory
from dragoman.compose.replies import share_replies
from dragoman.config import Config
from dragoman.core import messages as v
from dragoman.state.config import StateConfig
from dragoman.state.memory_store import MemoryStateStore
from dragoman.state.redis_store import RedisStateStore
from dragoman.state.store import StateKind
from support import redis_server
from support.fake_upstream import server
from support.gateway import until
from support.text_upstream import ASKED, FRONTS, QUESTION, ask, gateway, writes

T = TypeVar("T")
WRITTEN = '<tool_call>\n{"arguments": {"days": 3,  "city": "Paris"}, "name": "get_weather"}\n</tool_call>'
CALL = v.ToolCall("call_a1", "get_weather", '{"city": "Paris"}')
ASKED_AGAIN = v.Request("m", (QUESTION, v.Message("assistant", (CALL,))))


@pytest.fixture
def redis() -> Iterator[redis_server.RedisServer]:
    if redis_server.PROGRAM is None:
        pytest.skip("redis-server is not installed")
    with redis_server.running() as running:
        yield running


@pytest.mark.parametrize("front", FRONTS)
async def test_turn_of_another_replica_is_sent_as_the_model_wrote_it(
    front: str, redis: redis_server.RedisServer
) -> None:
    config = Config(state=StateConfig(url=redis.url), upstreams={"far": HttpConfig("http://unused.invalid")})
    settings = {"tool_mode": "prompt", "call_format": "hermes"}
    async with (
        server(writes(WRITTEN)) as upstream,
        gateway(upstream.url, **settings) as (one, first),
        gateway(upstream.url, **settings) as (two, second),
    ):
        share_replies([first, second], config, None)
        answer = await ask(one, front)
        (call,) = (part for part in answer.reply.parts if isinstance(part, v.ToolCall))
        store = RedisStateStore(redis.url)
        until(lambda: store.usage(KIND)[0], "the reply in Redis")
        store.close()
        call = replace(call, arguments=json.dumps(json.loads(call.arguments), sort_keys=True))
        result = v.Message("tool", (v.ToolResult(call.id, (v.Text("sunny"),)),))
        again = replace(ASKED, messages=(QUESTION, v.Message("assistant", (call,)), result))
        await ask(two, front, again)
        redis.kill()
        await ask(two, front, again)
        unknown = replace(call, id="call_of_another_day")
        other = replace(result, parts=(v.ToolResult(unknown.id, (v.Text("sunny"),)),))
        await ask(two, front, replace(ASKED, messages=(QUESTION, v.Message("assistant", (unknown,)), other)))
    turns = [json.loads(body)["messages"][-2] for _, _, body in upstream.asked[1:]]
    assert [turn["content"] for turn in turns[:2]] == [WRITTEN] * 2
    assert turns[2]["content"] != WRITTEN
    assert "get_weather" in turns[2]["content"], "in the format's own form"


class _CountingStore(MemoryStateStore):
    def __init__(self) -> None:
        super().__init__()
        self.reads: list[int] = []

    def get_many(self, kind: StateKind[T], keys: Sequence[str]) -> list[T | None]:
        self.reads.append(len(keys))
        return super().get_many(kind, keys)


def history(store: MemoryStateStore, now_s: list[float]) -> VerbatimHistory:
    made = VerbatimHistory(owner="far")
    made.store.shared = SharedReplies(store, lambda: now_s[0])
    return made


async def test_known_and_unknown_calls_are_looked_up_once() -> None:
    store, now_s = _CountingStore(), [0.0]
    one, two = history(store, now_s), history(store, now_s)
    one.add("a", "", (CALL,), is_shared=True)
    until(lambda: store.usage(KIND)[0])
    other = v.Message("assistant", (replace(CALL, id="other"), replace(CALL, id="second of its turn")))
    request = replace(ASKED_AGAIN, messages=(*ASKED_AGAIN.messages, other))
    for _ in range(3):
        await two.recall(request)
    assert store.reads == [2], "in one step, and not again"
    assert two.restore(request).messages[1].verbatim_text == "a"
    now_s[0] += RETRY_S
    await two.recall(request)
    assert store.reads == [2, 1]
    await two.recall(v.Request("m", (QUESTION,)))
    assert store.reads == [2, 1]


async def test_calls_of_a_server_that_parses_them_are_not_shared() -> None:
    store = MemoryStateStore()
    made = history(store, [0.0])
    made.add("a", "", (CALL,))
    assert not [thread for thread in threading.enumerate() if thread.name == "shared-replies"]
    assert store.usage(KIND) == (0, 0)


def test_reply_is_the_same_after_encoding() -> None:
    reply = StoredReply("raw\n\u2028", "text", (CALL, replace(CALL, id="b")))
    assert KIND.decode(KIND.encode(reply)) == reply
    with pytest.raises(ValueError, match="Expected"):
        KIND.decode(b"[]")
