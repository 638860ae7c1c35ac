"""Replicas sign with one key, also if their store is down or loses it."""

from pathlib import Path

import pytest

from dragoman import compose
from dragoman.compose.state import state_store
from dragoman.config import Config
from dragoman.core.errors import BackendUnavailableError, RequestError
from dragoman.gateway.compaction import Seal
from dragoman.gateway.config import ResponseStoreConfig
from dragoman.gateway.storage.shared_key import CHECK_EVERY_S, KEYS, SharedKey
from dragoman.state.config import StateConfig
from dragoman.state.memory_store import MemoryStateStore
from dragoman.state.store import StateStore
from support.gateway import until

LOST = StateConfig(url="redis://nowhere.invalid/0")


def seal(store: StateStore, own: bytes) -> Seal:
    return Seal(shared=SharedKey(store, own).keys)


def test_replicas_use_the_key_of_the_first_one() -> None:
    store = MemoryStateStore()
    one, two = seal(store, b"one"), seal(store, b"two")
    assert two.unseal(one.seal("summary")) == "summary"
    assert Seal(b"one").unseal(two.seal("summary")) == "summary"
    assert one.unseal(two.seal("summary")) == "summary"


def test_lost_key_is_stored_again() -> None:
    store, now_s = MemoryStateStore(), [0.0]
    first = SharedKey(store, b"one", lambda: now_s[0])
    assert first.keys() == (b"one",)
    store.delete(KEYS, "compaction")
    now_s[0] += CHECK_EVERY_S + 1
    first.keys()
    until(lambda: store.get(KEYS, "compaction") == b"one")
    assert seal(store, b"two").unseal(Seal(b"one").seal("x")) == "x"


def test_changed_key_is_reported_and_earlier_items_stay_valid(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStateStore()
    shared = SharedKey(store, b"one")
    before = Seal(shared=shared.keys).seal("before")
    store.put(KEYS, "compaction", b"two", 3)
    shared.check()
    assert shared.keys() == (b"two", b"one")
    assert Seal(shared=shared.keys).unseal(before) == "before"
    assert "set response_store.seal_key" in caplog.text
    with pytest.raises(RequestError, match="sealed with another key"):
        seal(store, b"three").unseal(before)


def test_no_other_key_is_used_while_the_store_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path))
    gateway = compose.build_gateway(Config(state=LOST), embedded=False)
    with pytest.raises(BackendUnavailableError):
        gateway.seal.seal("summary")
    own = ResponseStoreConfig(seal_key="key")
    gateway = compose.build_gateway(Config(state=LOST, response_store=own), embedded=False)
    assert Seal(b"key").unseal(gateway.seal.seal("summary")) == "summary"
    state_store(LOST, None).close()
