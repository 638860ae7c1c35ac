"""Choice of a replica: prompt caches first, unless they make one replica busier than the others."""

import math
import random
from collections import Counter, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.affinity.prefix_affinity import PrefixAffinity
from dragoman.affinity.prompt_blocks import PromptBlocks, prompt_blocks
from dragoman.core.messages import Message, PreviousResponseRef, Request, Text

REPLICAS = ("a", "b", "c", "d")
IDLE = dict.fromkeys(REPLICAS, 0.0)


def prompt(*texts: str) -> PromptBlocks:
    return prompt_blocks(Request("m", tuple(Message("user", (Text(text * 200),)) for text in texts)))


def other_than(replica: str) -> str:
    return next(each for each in REPLICAS if each != replica)


def test_conversation_stays_at_its_replica() -> None:
    affinity = PrefixAffinity()
    turns = [f"turn {n} " for n in range(10)]
    first = affinity.choose(prompt(turns[0]), IDLE)
    assert first.reason == "new"
    for count in range(1, 10):
        affinity.note(prompt(*turns[:count]), first.replicas[0])
        choice = affinity.choose(prompt(*turns[: count + 1]), IDLE)
        assert (choice.replicas[0], choice.reason) == (first.replicas[0], "prefix")
        assert choice.known_share > 0.4


def test_longest_prefix_wins() -> None:
    affinity = PrefixAffinity()
    affinity.note(prompt("x"), "a")
    affinity.note(prompt("x", "y", "z"), "c")
    affinity.note(prompt("x", "y"), "b")
    assert affinity.choose(prompt("x", "y", "z", "w"), IDLE).replicas[0] == "c"


@pytest.mark.parametrize(
    ("load", "others", "stays"),
    [(8, 0, True), (9, 0, False), (11, 3, True), (12, 3, False), (60, 40, True), (61, 40, False), (math.inf, 9, False)],
)
def test_affinity_yields_if_the_replica_is_that_much_busier(load: float, others: float, stays: bool) -> None:
    affinity = PrefixAffinity()
    affinity.note(prompt("x"), "b")
    choice = affinity.choose(prompt("x"), {"a": others, "b": load, "c": others})
    assert (choice.replicas[0] == "b") is stays
    assert sorted(choice.replicas) == ["a", "b", "c"]
    if math.isfinite(load):
        assert choice.reason == ("prefix" if stays else "busy")


@pytest.mark.parametrize(("load", "others", "stays"), [(1, 0, True), (3, 0, False), (43, 35, True), (45, 35, False)])
def test_prefix_that_conversations_share_yields_earlier(load: float, others: float, stays: bool) -> None:
    affinity = PrefixAffinity()
    for number in range(3):
        affinity.note(prompt("long " * 20, f"{number}"), "b")
    for replica in "ac":  # requests in other conversations
        for _ in range(9):
            affinity.note(prompt(replica), replica)
    choice = affinity.choose(prompt("long " * 20, "x"), {"a": others, "b": load, "c": others})
    assert (choice.replicas[0] == "b", choice.reason) == (stays, "shared")


def test_small_prefix_is_worth_less_than_a_short_queue() -> None:
    affinity = PrefixAffinity()
    affinity.note(prompt("x"), "a")
    long = prompt("x", *"123456789")
    assert affinity.choose(long, {"a": 0, "b": 0}).replicas[0] == "a"
    assert affinity.choose(long, {"a": 1, "b": 0}).replicas[0] == "b"


def test_new_prompt_goes_to_the_least_busy_replica_and_the_others_follow() -> None:
    choice = PrefixAffinity().choose(prompt("x"), {"a": 3, "b": 1, "c": math.inf, "d": 2})
    assert (list(choice.replicas), choice.reason, choice.known_share) == (["b", "d", "a", "c"], "new", 0)


def test_all_replicas_are_tried_if_none_accepts_requests() -> None:
    assert list(PrefixAffinity().choose(prompt("x"), {"a": math.inf, "b": math.inf}).replicas) == ["a", "b"]


@given(st.text(max_size=20), st.permutations(REPLICAS))
def test_gateways_that_share_nothing_choose_alike(text: str, order: list[str]) -> None:
    first = PrefixAffinity().choose(prompt(text), IDLE)
    assert PrefixAffinity().choose(prompt(text, "more"), dict.fromkeys(order, 0.0)).replicas[0] == first.replicas[0]


def test_new_conversations_are_spread_evenly_without_load() -> None:
    affinity, chosen = PrefixAffinity(), Counter[str]()
    for number in range(200):
        blocks = prompt(f"{number} ")
        replica = affinity.choose(blocks, IDLE).replicas[0]
        affinity.note(blocks, replica)
        chosen[replica] += 1
    assert max(chosen.values()) <= 1.15 * 200 / 4


def test_prefix_that_conversations_share_spreads_over_the_replicas() -> None:
    affinity, chosen = PrefixAffinity(), Counter[str]()
    for number in range(40):
        blocks = prompt("system ", f"{number} ")
        choice = affinity.choose(blocks, IDLE)
        affinity.note(blocks, choice.replicas[0])
        chosen[choice.replicas[0]] += 1
    assert max(chosen.values()) <= 13


def test_other_processes_learn_what_is_new() -> None:
    one, other = PrefixAffinity(), PrefixAffinity()
    for count in range(1, 20):
        news = one.note(prompt(*map(str, range(count))), "c")
        assert len(news.hashes) <= 40
        other.learn(news)
    blocks = prompt(*map(str, range(20)))
    assert other.choose(blocks, IDLE) == one.choose(blocks, IDLE)
    assert other.choose(blocks, IDLE).replicas[0] == "c"
    assert one.note(prompt(*map(str, range(19))), "c").hashes[1:] == ()


def test_response_is_continued_at_its_replica() -> None:
    affinity = PrefixAffinity()
    affinity.note(prompt("x"), "d", "resp_1")
    turn = Request("m", (Message("user", (Text("y"),)),), previous_response=PreviousResponseRef("resp_1"))
    choice = affinity.choose(prompt_blocks(turn), IDLE)
    assert (choice.replicas[0], choice.reason) == ("d", "prefix")
    assert choice.known_share > 0.9


def test_failed_replica_is_forgotten() -> None:
    affinity = PrefixAffinity()
    affinity.note(prompt("x"), "a")
    affinity.forget("a")
    assert affinity.choose(prompt("x"), IDLE).reason == "new"


@pytest.mark.parametrize("count", [2, 4, 8])
def test_no_replica_is_overloaded_if_most_requests_share_a_prefix(count: int) -> None:
    """Eight requests in flight for each replica; four of five have the same long beginning."""
    affinity, draw = PrefixAffinity(), random.Random(1)
    active = dict.fromkeys(map(str, range(count)), 0.0)
    total, running, most = Counter[str](), deque[str](), 0.0
    for number in range(1500):
        hot = draw.random() < 0.8
        blocks = prompt(*(["hot"] * 5 if hot else [f"cold {number % 10} "]), f"{number}")
        replica = affinity.choose(blocks, active).replicas[0]
        affinity.note(blocks, replica)
        active[replica] += 1
        total[replica] += 1
        running.append(replica)
        if len(running) > 8 * count:
            running.rotate(draw.randrange(len(running)))
            active[running.popleft()] -= 1
            most = max(most, max(active.values()))
    assert max(total.values()) <= 1.3 * 1500 / count
    assert most <= 1.3 * 8 + 1
