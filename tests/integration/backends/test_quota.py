"""An upstream that has reached a limit is left until the limit is reset, and other targets are used.

client ─HTTP→ gateway ─HTTP→ one with a limit, one without
"""

import asyncio
import json
from pathlib import Path

import pytest

from dragoman.backends.quota import MAX_BLOCK_S, TRIAL_S, QuotaTimes, SharedQuotaTimes, UpstreamQuota
from dragoman.config.routes import take_routes
from dragoman.core.errors import UpstreamError
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.routing.route import Routes
from support.fake_upstream import FRONTS, Play, Server, ask, server, whole
from support.gateway import CHAT
from support.refusing_upstream import COMPLETION
from support.scripted_backend import serving
from support.upstreams import upstream

LIMIT = '{"error": {"type": "usage_limit_reached", "message": "limit reached, reset in 3 h"}}'
ANSWERS, LIMITED = whole(200, COMPLETION), whole(429, LIMIT)


def in_turn(*plays: Play) -> Play:
    turns = iter(plays)

    async def play(far: Server, writer: asyncio.StreamWriter) -> None:
        await next(turns)(far, writer)

    return play


@pytest.mark.parametrize("path", FRONTS)
async def test_other_upstream_is_used_until_reset(path: str) -> None:
    async with server(LIMITED) as one, server(ANSWERS) as two:
        backends = [upstream("a", one, "m", max_retries=2), upstream("b", two, "m")]
        async with serving(Gateway(backends)) as (_, url):
            answers = [await ask(url, path, False) for _ in range(3)]
    assert [(each.status_code, each.headers["x-dragoman-upstream"]) for each in answers] == [(200, "b")] * 3
    assert (len(one.asked), len(two.asked)) == (1, 3)


@pytest.mark.parametrize("play", [LIMITED, whole(429, "{}", retry_after="10800"), whole(403, LIMIT)])
async def test_error_tells_when_limit_is_reset(play: Play) -> None:
    async with server(play) as one, serving(Gateway([upstream("a", one, "m")])) as (_, url):
        first, second = [await ask(url, CHAT, False) for _ in range(2)]
    assert second.status_code == 429
    assert len(one.asked) == 1
    assert first.headers["retry-after"] == "10800"
    assert 10_700 < int(second.headers["retry-after"]) <= 10_800
    message = json.loads(second.text)["error"]["message"]
    assert message.startswith(json.loads(first.text)["error"]["message"])
    assert "(a gets no requests for 'm' until 20" in message
    assert "UTC, in 3 h 0 min; use another model, or wait)" in message


async def test_limit_is_of_one_model() -> None:
    play = in_turn(LIMITED, ANSWERS)
    async with server(play) as one:
        backend = upstream("a", one, models=("m", "n"))
        async with serving(Gateway([backend])) as (_, url):
            statuses = [(await ask(url, CHAT, False, model=name)).status_code for name in ("m", "n", "m")]
            assert list(backend.health()["limited_s"]) == ["m"]  # type: ignore[call-overload]
    assert statuses == [429, 200, 429]


async def test_error_without_reset_does_not_stop_requests() -> None:
    async with server(whole(403, '{"error": "no"}')) as one, serving(Gateway([upstream("a", one, "m")])) as (_, url):
        assert [(await ask(url, CHAT, False)).status_code for _ in "12"] == [502, 502]
    assert len(one.asked) == 2


async def test_least_busy_leaves_limited_model() -> None:
    rules = Routes(take_routes({"routes": [{"use": ["a", "b"], "balance": "least_busy"}]}, "file"))
    async with server(LIMITED) as one, server(ANSWERS) as two:
        gateway = Gateway([upstream("a", one, "a"), upstream("b", two, "b")], {"m": "a"}, rules=rules)
        async with serving(gateway) as (_, url):
            first, second = [await ask(url, CHAT, False) for _ in range(2)]
    assert [each.headers["x-dragoman-attempts"] for each in (first, second)] == ["2", "1"]


class Clock:
    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


@pytest.mark.parametrize("shared", [False, True])
def test_limit_ends_is_tried_and_is_cleared(shared: bool, tmp_path: Path) -> None:
    def times() -> QuotaTimes:
        return SharedQuotaTimes(tmp_path / "quota") if shared else QuotaTimes()

    clock = Clock()
    quota = UpstreamQuota("a", times(), clock)
    other = UpstreamQuota("a", times(), clock)
    quota.observe("m", UpstreamError("no", status=429, retry_after_s=10 * MAX_BLOCK_S))
    quota.observe("n", UpstreamError("no", status=500, retry_after_s=100))
    quota.observe("o", UpstreamError("no", status=429, retry_after_s=20))
    assert [quota.limited_for_s(model) for model in "mno"] == [MAX_BLOCK_S, 0, 0]
    assert (other.limited_for_s("m") == MAX_BLOCK_S) is shared
    with pytest.raises(UpstreamError, match="in 24 h 0 min"):
        quota.ensure_available("m")
    clock.s += TRIAL_S
    quota.ensure_available("m")  # one request
    with pytest.raises(UpstreamError, match="no \\(a gets no requests"):
        quota.ensure_available("m")
    quota.clear("m")
    quota.ensure_available("m")
    quota.observe("m", UpstreamError("no", status=429, retry_after_s=90))
    clock.s += 91
    quota.ensure_available("m")


def test_number_of_models_is_bounded() -> None:
    times = QuotaTimes()
    for n in range(10_000):
        times.set(str(n), 5.0)
    assert sum(times.get(str(n)) > 0 for n in range(10_000)) == 64
