"""What gateways tell one another about prompts that their upstreams have read."""

import asyncio

import pytest

from dragoman.affinity.prefix_affinity import PrefixAffinity
from dragoman.affinity.prompt_blocks import PromptBlocks, prompt_blocks
from dragoman.core.errors import BackendUnavailableError
from dragoman.core.messages import Message, Request, Text
from dragoman.gateway.routing import shared_prefixes
from dragoman.gateway.routing.shared_prefixes import SharedPrefixes
from dragoman.state.memory_store import MemoryStateStore
from dragoman.state.store import LogPage

pytestmark = pytest.mark.asyncio

LOADS = {"a": 0.0, "b": 0.0}


class _Store(MemoryStateStore):
    """A store that tests can stop, and that tells when something was added."""

    def __init__(self) -> None:
        super().__init__()
        self.appended = asyncio.Event()
        self.is_down = False
        self._loop = asyncio.get_running_loop()

    def append(self, log: str, value: bytes) -> None:
        try:
            if self.is_down:
                raise BackendUnavailableError("the store cannot be used now")
            super().append(log, value)
        finally:
            self._loop.call_soon_threadsafe(self.appended.set)

    def read_log(self, log: str, position: str = "") -> LogPage:
        if self.is_down:
            raise BackendUnavailableError("the store cannot be used now")
        return super().read_log(log, position)


def prompt(text: str) -> PromptBlocks:
    return prompt_blocks(Request("m", (Message("user", (Text(text * 100),)),)))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_prefixes, "BATCH_S", 0)
    monkeypatch.setattr(shared_prefixes, "MISS_TIMEOUT_S", 60)


async def publish(store: _Store, one: PrefixAffinity, shared: SharedPrefixes, *texts: str) -> None:
    store.appended.clear()
    for text in texts:
        shared.publish(one.note(prompt(text), "b"))
    async with asyncio.timeout(60):
        await store.appended.wait()


async def test_other_gateway_knows_what_was_placed() -> None:
    store, one, other = _Store(), PrefixAffinity(), PrefixAffinity()
    here, there = SharedPrefixes(one, store), SharedPrefixes(other, store)
    assert not await there.read_on_miss()
    await publish(store, one, here, *"123456")
    assert await there.read_on_miss()
    assert {other.choose(prompt(text), LOADS).replicas[0] for text in "123456"} == {"b"}
    assert not await there.read_on_miss()
    assert not await here.read_on_miss()  # its own


async def test_requests_of_a_moment_are_one_entry_without_text() -> None:
    store, one = _Store(), PrefixAffinity()
    shared = SharedPrefixes(one, store)
    position = store.read_log("prefixes").position
    await publish(store, one, shared, "secret ", "more ", "words ")
    (value,) = store.read_log("prefixes", position).values
    assert b"secret" not in value


async def test_placement_goes_on_while_the_store_is_down() -> None:
    store, one, other = _Store(), PrefixAffinity(), PrefixAffinity()
    here, there = SharedPrefixes(one, store), SharedPrefixes(other, store)
    await there.read_on_miss()
    store.is_down = True
    await publish(store, one, here, "lost ")
    assert not await there.read_on_miss()
    store.is_down = False
    await publish(store, one, here, "new ")
    assert await there.read_on_miss()
    assert other.choose(prompt("new "), LOADS).reason == "prefix"
    assert other.choose(prompt("lost "), LOADS).reason == "new"


async def test_news_while_others_are_sent_are_sent_too() -> None:
    store, one = _Store(), PrefixAffinity()
    shared = SharedPrefixes(one, store)
    position = store.read_log("prefixes").position
    for text in "123":
        await publish(store, one, shared, text)
    assert len(store.read_log("prefixes", position).values) == 3


async def test_entry_of_another_version_is_skipped() -> None:
    store, other = _Store(), PrefixAffinity()
    there = SharedPrefixes(other, store)
    await there.read_on_miss()
    store.append("prefixes", b"\xc1 not msgpack")
    assert not await there.read_on_miss()
    await publish(store, one := PrefixAffinity(), SharedPrefixes(one, store), "new ")
    assert await there.read_on_miss()
