"""Which of two stores has what."""

from dragoman.state.memory_store import MemoryStateStore
from dragoman.state.store import StateKind
from dragoman.state.tiered_store import TieredStateStore

DURABLE = StateKind("durable", str.encode, bytes.decode, ttl_s=60, is_durable=True)
OTHER = StateKind("other", str.encode, bytes.decode, ttl_s=60)


def test_kinds_and_logs_have_a_store_each() -> None:
    database, cache = MemoryStateStore(), MemoryStateStore()
    store = TieredStateStore(database, cache)
    store.put(DURABLE, "a", "1", 1)
    assert store.put_if_absent(OTHER, "a", "2", 1)
    store.append("news", b"3")
    assert (database.get(DURABLE, "a"), cache.get(DURABLE, "a")) == (store.get(DURABLE, "a"), None) == ("1", None)
    assert (cache.get(OTHER, "a"), database.get(OTHER, "a")) == (store.get(OTHER, "a"), None) == ("2", None)
    assert cache.read_log("news").position == store.read_log("news").position == "1"
    assert store.usage(DURABLE) == database.usage(DURABLE) == (1, 1)
    assert store.delete(OTHER, "a")
    assert cache.usage(OTHER) == (0, 0)
    store.close()
