"""Routes: which rule applies, and in which order its models are tried."""

import random
import time
from collections import Counter
from datetime import UTC, datetime, tzinfo
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.config.routes import take_routes
from dragoman.core.client import ClientFacts
from dragoman.core.errors import ConfigError
from dragoman.core.messages import Image, MediaSource, Message, Request, Text, Tool, ToolResult
from dragoman.gateway.routing import balance
from dragoman.gateway.routing.route import Routes

HI = Message("user", (Text("hi"),))
PICTURE = Image(MediaSource("image/png", "aGk="))
NIGHT = datetime(2026, 11, 26, 23, 30, tzinfo=UTC)


def routes(*tables: dict[str, Any], now: datetime = NIGHT) -> Routes:
    def at(zone: tzinfo | None) -> datetime:
        return now.astimezone(zone or UTC)

    return Routes(take_routes({"routes": [{"use": "x", **table} for table in tables]}, "file"), at)


def request(*parts: Any, **fields: Any) -> Request:
    return Request(fields.pop("model", "m"), (Message("user", (Text("hi"), *parts)),), **fields)


CLIENT = ClientFacts("alice", "claude-code", "background", "s1")


@pytest.mark.parametrize(
    ("table", "asked", "expected"),
    [
        ({}, request(), True),
        ({"agent": "claude-code"}, request(), True),
        ({"agent": ["codex", "Claude-*"]}, request(), True),
        ({"agent": "codex"}, request(), False),
        ({"role": ["title", "background"]}, request(), True),
        ({"role": "main"}, request(), False),
        ({"key": "al*"}, request(), True),
        ({"key": "bob"}, request(), False),
        ({"key": "*"}, request(), True),
        ({"model": "*HAIKU*"}, request(model="claude-haiku-4-5"), True),
        ({"model": "gpt-*"}, request(model="claude-haiku-4-5"), False),
        ({"model": "m"}, request(model="claude-m", dialect="anthropic_messages"), True),
        ({"min_tokens": 500}, request(Text("word " * 1000)), True),
        ({"min_tokens": 500}, request(), False),
        ({"max_tokens": 500}, request(), True),
        ({"max_tokens": 500}, request(Text("word " * 1000)), False),
        ({"tools": True}, request(tools=(Tool("a"),)), True),
        ({"tools": True}, request(), False),
        ({"tools": False}, request(), True),
        ({"tools": "mcp__*"}, request(tools=(Tool("a"), Tool("mcp__x__y"))), True),
        ({"tools": ["b", "c"]}, request(tools=(Tool("a"),)), False),
        ({"images": True}, request(PICTURE), True),
        ({"images": True}, request(ToolResult("1", (PICTURE,))), True),
        ({"images": True}, request(), False),
        ({"images": False}, request(PICTURE), False),
        ({"reply_schema": True}, request(response_schema="{}"), True),
        ({"reply_schema": False}, request(response_schema="{}"), False),
        ({"time": "22:00-06:00", "zone": "UTC"}, request(), True),
        ({"time": "22:00-23:30", "zone": "UTC"}, request(), False),
        ({"time": "23:30-24:00", "zone": "UTC"}, request(), True),
        ({"time": ["01:00-02:00", "00:00-24:00"], "zone": "UTC"}, request(), True),
        ({"time": "08:00-09:00", "zone": "Asia/Tokyo"}, request(), True),
        ({"agent": "claude-code", "role": "main"}, request(), False),
        ({}, Request("m", ()), False),
    ],
)
def test_rule_applies_if_all_conditions_hold(table: dict[str, Any], asked: Request, expected: bool) -> None:
    decision = routes(table).decide(asked, CLIENT)
    assert (decision is not None) is expected
    if decision:
        assert decision.models == ("x",)


@given(
    st.lists(st.sampled_from(["main", "background", "title"]), min_size=1, max_size=6),
    st.sampled_from(["main", "title"]),
)
def test_first_matching_rule_applies(roles: list[str], role: str) -> None:
    found = routes(*({"role": each, "use": str(n)} for n, each in enumerate(roles))).decide(
        request(), ClientFacts(role=role)
    )
    expected = roles.index(role) if role in roles else None
    assert (None if found is None else int(found.models[0])) == expected


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"use": ["a", "b"]}, ["a", "b"]),
        ({"use": {"a": 1, "b": 3}, "balance": "order"}, ["a", "b"]),
        ({"use": ["a", "b", "c"], "balance": "least_busy"}, ["c", "a", "b"]),
        ({"use": {"a": 9, "b": 1, "c": 1}, "balance": "least_busy"}, ["a", "c", "b"]),
    ],
)
def test_models_are_ordered(table: dict[str, Any], expected: list[str]) -> None:
    loads = {"a": 2, "b": 2, "c": 0}
    decision = routes(table).decide(request(), CLIENT, loads.__getitem__)
    assert decision is not None
    assert list(decision.models) == expected


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=2), st.integers(0, 2**32))
def test_weights_are_kept(weights: dict[str, float], seed: int) -> None:
    drawn, draw = 600, random.Random(seed).random
    first = Counter(balance.weighted(weights, draw)[0] for _ in range(drawn))
    for name, weight in weights.items():
        share = weight / sum(weights.values())
        assert abs(first[name] / drawn - share) < 6 * (share * (1 - share) / drawn) ** 0.5


@given(st.dictionaries(st.text(max_size=5), st.floats(0.01, 100), min_size=1, max_size=6), st.text(max_size=9))
def test_session_keeps_its_model_and_order(weights: dict[str, float], session: str) -> None:
    order = balance.sticky(weights, session)
    assert sorted(order) == sorted(weights)
    assert balance.sticky(dict(reversed(weights.items())), session) == order
    without = {name: weight for name, weight in weights.items() if name != order[0]}
    assert balance.sticky(without, session) == order[1:]  # where one fails or is removed, the others keep their order


def test_sessions_are_spread_by_weight() -> None:
    first = Counter(balance.sticky({"a": 3, "b": 1}, f"session {n}")[0] for n in range(2000))
    assert 1400 < first["a"] < 1600


def test_conversation_without_session_keeps_its_model() -> None:
    rules = routes({"use": ["a", "b", "c"], "balance": "sticky"})

    def first(*messages: Message) -> str:
        decision = rules.decide(Request("m", messages), ClientFacts())
        assert decision is not None
        return decision.models[0]

    answers = [(HI, Message("assistant", (Text(f"answer {n}"),)), HI) for n in range(20)]
    assert {first(*each) for each in answers} == {first(HI)}
    others = {first(Message("user", (Text(f"question {n}"),))) for n in range(20)}
    assert others == {"a", "b", "c"}


def test_rule_with_balance_prefix_needs_no_model() -> None:
    rules = Routes(take_routes({"routes": [{"balance": "prefix"}]}, "file"))
    decision = rules.decide(request(), CLIENT)
    assert decision is not None
    assert (decision.models, decision.rule.balance) == ((), "prefix")
    assert rules.balances_by_prefix
    assert not routes({}).balances_by_prefix


def test_exchange_is_decided_once() -> None:
    drawn = iter([0.1, 0.9, 0.9, 0.1])
    rules = Routes(take_routes({"routes": [{"use": {"a": 1, "b": 1}}]}, "file"), random=lambda: next(drawn))
    one, other = (ClientFacts(exchange=name) for name in ("1", "2"))
    assert rules.decide(request(), one) is rules.decide(request(), one)
    assert rules.decide(request(), other) is not rules.decide(request(), one)


def test_prompt_is_counted_only_if_other_conditions_hold() -> None:
    long = request(Text("word " * 3_000_000))
    rules = routes({"min_tokens": 5, "agent": "codex"}, {"min_tokens": 5, "role": "main"})
    began_s = time.process_time()
    assert rules.decide(long, CLIENT) is None
    assert time.process_time() - began_s < 0.01


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"use": "m"}, "expected tables, [[routes]], got a table - at routes, from file"),
        ([1], "expected a table, [[routes]], got 1 - at routes[1], from file"),
        ([{"use": "m"}, {"agnt": "x"}], "unknown setting 'routes[2].agnt'; did you mean 'agent'? - in file"),
        ([{"use": "m", "min_tokens": "5"}], "expected `int`, got `str` - at `routes[1].min_tokens`, from file"),
        ([{}], "expected a model, a list of models, or a table of weights, got none - at routes[1].use, from file"),
        (
            [{"use": []}],
            "expected a model, a list of models, or a table of weights, got none - at routes[1].use, from file",
        ),
        ([{"use": {"m": 0}}], "expected a weight above 0, got 0 for 'm' - at routes[1].use, from file"),
        (
            [{"use": "m", "time": "22-6"}],
            "expected times such as \"22:00-06:00\", got '22-6' - at routes[1].time, from file",
        ),
        ([{"use": "m", "time": "22:00-22:00"}], "expected times such as"),
        ([{"use": "m", "time": "22:61-23:00"}], "expected times such as"),
        ([{"use": "m", "zone": "UTC"}], "expected a time with the zone"),
        (
            [{"use": "m", "time": "22:00-06:00", "zone": "Mars"}],
            "expected a time zone such as \"Europe/Berlin\", got 'Mars'",
        ),
        ([{"use": "m", "time": "22:00-06:00", "zone": "../x"}], "expected a time zone such as"),
        ([{"use": "m", "balance": "least-busy"}], "unknown 'least-busy'; did you mean 'least_busy'?"),
        (
            [{"use": {"m": 1, "n": 2}, "balance": "prefix"}],
            "expected a list, since the load decides how many requests a replica gets, got a table of weights"
            " - at routes[1].use, from file",
        ),
        (
            [{"use": "m", "min_tokens": 9, "max_tokens": 5}],
            "expected at least min_tokens, 9, got 5 - at routes[1].max_tokens",
        ),
    ],
)
def test_wrong_setting_is_reported_with_its_place(tables: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        take_routes({"routes": tables}, "file")
    assert message in caught.value.message
