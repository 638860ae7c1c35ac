"""The map from prefixes to replicas: bounded, and the longest known prefix is found."""

from hypothesis import given
from hypothesis import strategies as st

from dragoman.affinity.prefix_map import PrefixMap
from dragoman.affinity.prompt_blocks import PromptBlocks

REPLICAS = ("a", "b", "c")


def blocks(path: str) -> PromptBlocks:
    """One block of ten bytes for each letter."""
    hashes = tuple(hash(("prompt", path[:end])) for end in range(1, len(path) + 1))
    return PromptBlocks(hashes, tuple(range(10, 10 * len(path) + 1, 10)), 10 * len(path), 0)


def add(known: PrefixMap, path: str, replica: str) -> int:
    return known.add(blocks(path).hashes, [10] * len(path), replica)


def test_longest_prefix_of_each_replica_is_found() -> None:
    known = PrefixMap(100)
    assert add(known, "xyz", "a") == 0
    assert add(known, "xy", "b") == 0
    assert add(known, "xyzw", "a") == 3
    assert known.match(blocks("xyzv"), REPLICAS) == ({"a": 30, "b": 20}, 1)
    assert known.match(blocks("xyzv"), ["b"]) == ({"b": 20}, 1)
    assert known.match(blocks("vwx"), REPLICAS) == ({}, 0)
    assert known.stored_bytes == {"a": 40, "b": 20}


def test_continuations_of_a_prefix_are_counted() -> None:
    known = PrefixMap(100)
    for number, path in enumerate(("xa", "xb", "xb", "xc")):
        assert known.match(blocks("xz"), REPLICAS).branches == min(number, 2)
        add(known, path, "a")
    assert known.match(blocks("xz"), REPLICAS).branches == 3
    assert known.match(blocks("xc"), REPLICAS).branches == 0


def test_least_recently_used_blocks_are_removed() -> None:
    known = PrefixMap(4)
    add(known, "xy", "a")
    add(known, "vw", "a")
    add(known, "xy", "b")
    add(known, "s", "a")
    assert known.match(blocks("xy"), REPLICAS).sizes == {"a": 20, "b": 20}
    assert known.match(blocks("vw"), REPLICAS).sizes == {"a": 20}  # its first block is gone, the rest is known
    assert len(known) == 4


def test_replica_that_lost_its_cache_is_forgotten() -> None:
    known = PrefixMap(100)
    add(known, "xyz", "a")
    add(known, "x", "b")
    known.forget("a")
    assert known.match(blocks("xyz"), REPLICAS).sizes == {"b": 10}
    assert (len(known), dict(known.stored_bytes)) == (1, {"b": 10})


@given(st.lists(st.tuples(st.text("xyz", max_size=8), st.sampled_from(REPLICAS), st.booleans())))
def test_map_is_bounded_and_its_sizes_are_those_of_its_blocks(steps: list[tuple[str, str, bool]]) -> None:
    known, read = PrefixMap(10), {replica: set[str]() for replica in REPLICAS}
    for path, replica, is_lost in steps:
        if is_lost:
            known.forget(replica)
            read[replica].clear()
        else:
            add(known, path, replica)
            read[replica] |= {path[:end] for end in range(1, len(path) + 1)}
        assert len(known) <= 10
    for path, _, _ in steps:
        for replica, size in known.match(blocks(path), REPLICAS).sizes.items():
            assert path[: size // 10] in read[replica]
    found = {
        replica: {p for path, _, _ in steps for end in range(len(path)) if (p := path[: end + 1]) in read[replica]}
        for replica in REPLICAS
    }
    for replica in REPLICAS:
        exact = sum(known.match(blocks(p), [replica]).sizes.get(replica) == 10 * len(p) for p in found[replica])
        assert known.stored_bytes[replica] == 10 * exact
