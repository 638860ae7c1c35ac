"""Re-asks that another model answers, or a vote of samples, over each API.

client ─HTTP→ gateway ─HTTP→ `a`, whose first response is not valid, and `b`, the other model
"""

import contextlib
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from msgspec.structs import replace

from dragoman import dialects
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.gguf import Metadata
from dragoman.catalog import models
from dragoman.compose.limits import usage_limits
from dragoman.config import Config
from dragoman.config.keys import KeyConfig
from dragoman.config.routes import take_routes
from dragoman.config.server import CaptureConfig
from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import ConfigError, UsageError
from dragoman.core.events import AnyEvent, Failure, Finish, Start, ToolCallDelta, ToolCallEnd, ToolCallStart
from dragoman.core.messages import Request
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.routing.route import Routes
from dragoman.guard.policy import GuardPolicy
from dragoman.prices.config import PriceConfig
from dragoman.prices.price_book import PriceBook
from dragoman.server.keys.ring import KeyRing
from dragoman.usage_limits.config import LimitsConfig
from support.fake_upstream import END, HEAD, Play, Server, piece, server, whole
from support.http_client import http_client
from support.scripted_backend import Scripted, serving
from support.scripted_llama import ScriptedLlama
from support.text_upstream import ASKED, FRONTS
from support.upstreams import upstream

pytestmark = pytest.mark.asyncio


def call(city: Any, name: str = "get_weather") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps({"city": city})}}}\n</tool_call>'


INVALID, PARIS, ROME, OSLO = call({"name": "?"}), call("Paris"), call("Rome"), call("Oslo")
FAILS = whole(503, '{"error": {"message": "loading"}}')
PRICES = {
    "a/*": PriceConfig(input_usd_per_million=1.0, output_usd_per_million=2.0),
    "b/*": PriceConfig(input_usd_per_million=100.0, output_usd_per_million=200.0),
}
TOKENS = {"prompt_tokens": 1000, "completion_tokens": 10}


def writes(text: Callable[[Server], str]) -> Play:
    """A server that writes what the function returns, and reports 1000 and 10 tokens."""

    async def play(far: Server, writer: Any) -> None:
        usage = b"data: %b\n\n" % json.dumps({"id": "x", "choices": [], "usage": TOKENS}).encode()
        chunk = b"%x\r\n%b\r\n" % (len(usage), usage)
        writer.write(HEAD + piece({"content": text(far)}) + piece({}, "stop") + chunk + END)

    return play


def in_turn(*texts: str) -> Play:
    return writes(lambda far: texts[len(far.asked) - 1])


def by_seed(first: str, *samples: str) -> Play:
    """A server whose second responses depend on the seed, as they are requested at the same time."""

    def text(far: Server) -> str:
        if len(far.asked) == 1:
            return first
        return samples[body_of(far, -1).get("seed", 0)]

    return writes(text)


def body_of(far: Server, number: int) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(far.asked[number][2])
    return body


class Answered(NamedTuple):
    """What the client got."""

    headers: httpx2.Headers
    cities: list[Any]
    warnings: list[str]
    """With their details."""
    text: str


def rules_of(*routes: dict[str, Any]) -> Routes | None:
    return Routes(take_routes({"routes": list(routes)}, "file")) if routes else None


@contextlib.asynccontextmanager
async def two_models(
    a: Play, b: Play = FAILS, policy: GuardPolicy | None = None, *routes: dict[str, Any], **more: Any
) -> AsyncIterator[tuple[str, Server, Server]]:
    """The URL of a gateway with the models m of `a` and big of `b`."""
    text_mode = {"tool_mode": "prompt", "call_format": "hermes"}
    async with server(a) as one, server(b) as two:
        backends = [upstream("a", one, "m", **text_mode), upstream("b", two, "big", **text_mode)]
        prices, rules = PriceBook(PRICES, {}), rules_of(*routes)
        gateway = Gateway(backends, policy=policy or GuardPolicy(), prices=prices, rules=rules)
        async with serving(gateway, **more) as (_, url):
            yield url, one, two


BIG = GuardPolicy(second_opinion="big")


async def ask(url: str, front: str = "openai_chat", *, stream: bool = False, key: str = "", **more: Any) -> Answered:
    dialect, request = dialects.get(front), ASKED
    body = json.loads(dialect.write_request(request, request.model).body) | {"stream": stream} | more
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with http_client(url) as client:
        answer = await client.post(dialect.path, content=json.dumps(body).encode(), headers=headers)
    assert answer.status_code == 200, answer.text
    labels = [answer.headers.get("x-dragoman-warnings", "")]
    labels += re.findall(r"(?m)^: dragoman-warnings (.+)$", answer.text)
    calls = re.findall(r'\\?"city\\?": ?\\?"(\w+)\\?"', answer.text)
    warnings = [each for each in ", ".join(filter(None, labels)).split(", ") if each]
    return Answered(answer.headers, list(dict.fromkeys(calls)), warnings, answer.text)


def named(answer: Answered) -> list[str]:
    return [answer.headers[f"x-dragoman-{name}"] for name in ("upstream", "model", "attempts")]


def counts(*servers: Server) -> list[int]:
    return [len(each.asked) for each in servers]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("front", FRONTS)
async def test_other_model_answers_the_re_ask(front: str, stream: bool) -> None:
    async with two_models(in_turn(INVALID), in_turn(PARIS), BIG) as (url, a, b):
        answer = await ask(url, front, stream=stream)
    assert answer.cities == ["Paris"]
    assert {"reasked", "second_opinion: big"} <= set(answer.warnings)
    assert counts(a, b) == [1, 1]
    assert body_of(b, 0)["model"] == "big"
    assert "expected" in json.dumps(body_of(b, 0)["messages"][-1])  # the error, as for the first model


@pytest.mark.parametrize("front", FRONTS)
async def test_usage_and_cost_are_of_both_models(front: str) -> None:
    async with two_models(in_turn(INVALID), in_turn(PARIS), BIG) as (url, *_):
        answer = await ask(url, front)
    usage = json.loads(answer.text)["usage"]
    assert usage.get("prompt_tokens", usage.get("input_tokens")) == 2000
    assert usage.get("completion_tokens", usage.get("output_tokens")) == 20
    assert answer.headers["x-dragoman-cost-usd"] == f"{(1000 * 1.0 + 10 * 2.0) * 101 / 1e6:.6f}"
    assert named(answer) == ["b", "big", "2"]


async def test_valid_response_asks_no_other_model() -> None:
    async with two_models(in_turn(PARIS), FAILS, GuardPolicy(second_opinion="big", samples=3)) as (url, a, b):
        answer = await ask(url)
    assert (answer.cities, answer.warnings, counts(a, b)) == (["Paris"], [], [1, 0])
    assert answer.headers["x-dragoman-cost-usd"] == f"{1020 / 1e6:.6f}"


@pytest.mark.parametrize("stream", [False, True])
async def test_first_model_is_re_asked_where_the_other_fails(stream: bool) -> None:
    async with two_models(in_turn(INVALID, ROME), FAILS, BIG) as (url, a, b):
        answer = await ask(url, stream=stream)
    assert answer.cities == ["Rome"]
    assert {"reasked", "second_opinion_failed: big"} <= set(answer.warnings)
    assert counts(a, b) == [2, 1]
    if not stream:
        assert [answer.headers[f"x-dragoman-{name}"] for name in ("upstream", "attempts")] == ["a", "3"]
        assert answer.headers["x-dragoman-cost-usd"] == f"{2 * 1020 / 1e6:.6f}"


@pytest.mark.parametrize("second", [INVALID, ""])
async def test_model_whose_response_is_not_used_is_priced_and_not_named(second: str) -> None:
    async with two_models(in_turn(INVALID), in_turn(second), BIG) as (url, a, b):
        answer = await ask(url)
    assert {"reask_failed", "second_opinion: big", "invalid_call"} <= {each for each in answer.warnings}
    assert counts(a, b) == [1, 1]
    assert named(answer) == ["a", "m", "2"]
    assert json.loads(answer.text)["usage"]["prompt_tokens"] == 2000
    assert answer.headers["x-dragoman-cost-usd"] == f"{1020 * 101 / 1e6:.6f}"


async def test_record_names_the_model_whose_response_is_sent() -> None:
    async def reasons(far: Server, writer: Any) -> None:
        function = {"name": "get_weather", "arguments": '{"city": {"name": "?"}}'}
        tool_calls = [{"index": 0, "id": "call_1", "type": "function", "function": function}]
        writer.write(HEAD + piece({"tool_calls": tool_calls}) + piece({}, "tool_calls") + END)

    async with server(reasons) as one, server(in_turn(INVALID)) as two:
        native = upstream("a", one, "m", tool_mode="native")
        other = upstream("b", two, "big", tool_mode="prompt", call_format="hermes")
        gateway = Gateway([native, other], policy=BIG)
        context = ExchangeContext("x", 0, iter("abcdefgh").__next__)
        async for _ in gateway.generate(ASKED, context):
            pass
        await gateway.close()
    attempts = context.attempts
    assert (attempts.upstream, attempts.model, attempts.tool_mode, attempts.format) == ("a", "m", "native", "")


async def test_late_second_response_is_not_waited_for() -> None:
    async def silent(far: Server, writer: Any) -> None:
        await far.left.wait()

    policy = GuardPolicy(second_opinion="big", reask_timeout_s=0.05)
    async with two_models(in_turn(INVALID), silent, policy) as (url, a, b):
        answer = await ask(url)
    assert {"second_opinion_failed: big", "reask_failed"} <= set(answer.warnings)
    assert counts(a, b) == [1, 1]
    assert named(answer) == ["a", "m", "2"]
    assert answer.headers["x-dragoman-cost-usd"] == f"{1020 / 1e6:.6f}"


async def breaks_off(far: Server, writer: Any) -> None:
    writer.write(HEAD + piece({"content": "Let me look it up in the forecast."}))
    writer.close()


async def test_other_model_that_breaks_off_is_priced_and_ends_the_re_ask() -> None:
    policy = GuardPolicy(second_opinion="big", samples=3)
    async with two_models(in_turn(INVALID, ROME), breaks_off, policy) as (url, a, b):
        answer = await ask(url)
    assert {"second_opinion_failed: big", "reask_failed", "estimated_usage"} <= set(answer.warnings)
    assert (counts(a, b), answer.headers["x-dragoman-upstream"]) == ([1, 1], "a")
    usage = json.loads(answer.text)["usage"]
    tokens = usage["prompt_tokens"] - 1000, usage["completion_tokens"] - 10
    assert min(tokens) > 0
    cost = 1020 + tokens[0] * 100 + tokens[1] * 200
    assert answer.headers["x-dragoman-cost-usd"] == f"{cost / 1e6:.6f}"


async def test_other_model_that_fails_at_once_leads_to_one_sample() -> None:
    policy = GuardPolicy(second_opinion="big", samples=3)
    async with two_models(in_turn(INVALID, ROME), FAILS, policy) as (url, a, b):
        answer = await ask(url)
    assert (answer.cities, counts(a, b)) == (["Rome"], [2, 1])


async def test_first_model_without_counts_is_not_billed_as_the_other() -> None:
    async def silent_about_tokens(far: Server, writer: Any) -> None:
        writer.write(HEAD + piece({"content": INVALID}) + piece({}, "stop") + END)

    async with two_models(silent_about_tokens, in_turn(PARIS), BIG) as (url, *_):
        answer = await ask(url)
    assert answer.headers["x-dragoman-cost-usd"] == f"{1020 * 100 / 1e6:.6f}"


async def test_budget_is_reserved_for_the_other_model_and_for_samples() -> None:
    async with server(FAILS) as far:
        backends = [upstream("a", far, "m"), upstream("b", far, "big")]
        gateway = Gateway(backends, policy=GuardPolicy(second_opinion="big", samples=3))
        assert gateway.answering(ASKED) == [("a", "m"), ("b", "big")]
        assert gateway.most_samples(ASKED) == 3
        chat = replace(ASKED, tools=())
        assert (gateway.answering(chat), gateway.most_samples(chat)) == ([("a", "m")], 1)
        await gateway.close()


@pytest.mark.parametrize("limit", [{"models": ("m",)}, {"upstreams": ("a",)}])
async def test_key_that_may_not_use_the_other_model(limit: dict[str, Any]) -> None:
    bob = KeyConfig(secret="secret-of-bob-1", models=("m", "big"))
    keys = KeyRing({"alice": KeyConfig(secret="secret-of-alice", **limit), "bob": bob})
    policy = GuardPolicy(second_opinion="b/big")
    async with two_models(in_turn(INVALID, ROME, INVALID), in_turn(PARIS), policy, keys=keys) as (url, a, b):
        limited = await ask(url, key="secret-of-alice")
        assert (limited.cities, counts(a, b)) == (["Rome"], [2, 0])
        assert "second_opinion_failed: b/big" in limited.warnings
        assert (await ask(url, key="secret-of-bob-1")).cities == ["Paris"]


async def test_route_names_the_other_model() -> None:
    route = {"tools": True, "second_opinion": "big"}
    async with two_models(in_turn(INVALID), in_turn(PARIS), None, route) as (url, a, b):
        answer = await ask(url)
    assert (answer.cities, counts(a, b)) == (["Paris"], [1, 1])


async def test_same_model_is_re_asked_as_usual_where_it_is_the_other_one() -> None:
    async with two_models(in_turn(INVALID, PARIS), FAILS, GuardPolicy(second_opinion="m")) as (url, a, b):
        answer = await ask(url)
    assert (answer.cities, counts(a, b)) == (["Paris"], [2, 0])
    assert not any(each.startswith("second_opinion") for each in answer.warnings)


async def test_reasoning_of_the_first_model_is_not_sent_to_the_other() -> None:
    secret = "secret plan of the first vendor"

    async def reasons(far: Server, writer: Any) -> None:
        function = {"name": "get_weather", "arguments": '{"city": {"name": "?"}}'}
        tool_calls = [{"index": 0, "id": "call_1", "type": "function", "function": function}]
        deltas = ({"reasoning_content": secret}, {"content": "Let me look."}, {"tool_calls": tool_calls})
        writer.write(HEAD + b"".join(map(piece, deltas)) + piece({}, "tool_calls") + END)

    async with server(reasons) as one, server(in_turn(PARIS)) as two:
        native = upstream("a", one, "m", tool_mode="native")
        other = upstream("b", two, "big", tool_mode="prompt", call_format="hermes")
        async with serving(Gateway([native, other], policy=BIG)) as (_, url):
            answer = await ask(url)
    assert answer.cities == ["Paris"]
    assert b"Let me look." in two.asked[0][2]
    assert secret.encode() not in two.asked[0][2]


async def test_valid_call_of_one_sample_wins_over_text() -> None:
    async with two_models(by_seed(INVALID, "No.", "I cannot.", ROME), FAILS, VOTES) as (url, *_):
        answer = await ask(url)
    assert (answer.cities, "samples_disagreed: 1 of 3" in answer.warnings) == (["Rome"], True)


async def test_invented_values_have_no_vote() -> None:
    def refund(id: str) -> str:
        return f'<tool_call>\n{{"name": "refund", "arguments": {{"order_id": "{id}"}}}}\n</tool_call>'

    def function(name: str, *fields: str) -> dict[str, Any]:
        schema = {"type": "object", "properties": {key: {"type": "string"} for key in fields}, "required": fields}
        return {"type": "function", "function": {"name": name, "parameters": schema}}

    listed = '<tool_call>\n{"name": "list_orders", "arguments": {"name": "Ann Lee"}}\n</tool_call>'
    tools = [function("refund", "order_id"), function("list_orders", "name")]
    user = [{"role": "user", "content": "Refund the last order of Ann Lee."}]
    policy = GuardPolicy(samples=3, invented_values="reask")
    texts = by_seed(refund("48151623"), refund("48151623"), refund("48151623"), listed)
    async with two_models(texts, FAILS, policy) as (url, *_):
        answer = await ask(url, tools=tools, messages=user)
    assert "samples_disagreed: 1 of 3" in answer.warnings
    assert ("list_orders" in answer.text, "48151623" in answer.text) == (True, False)


async def test_bug_in_one_of_several_samples_is_one_error() -> None:
    calls = 0

    async def script(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise UsageError("a bug")
        yield Start("", "m", 0)
        yield ToolCallStart(0, "call_1", "get_weather")
        yield ToolCallDelta(0, '{"city": {}}')
        yield ToolCallEnd(0)
        yield Finish("tool_calls")

    context = ExchangeContext("x", 0, lambda prefix: f"{prefix}1")
    events = [
        each async for batch in Gateway([Scripted(script)], policy=VOTES).generate(ASKED, context) for each in batch
    ]
    assert isinstance(events[-1], Failure)
    assert isinstance(events[-1].error, UsageError)


@pytest.mark.parametrize(("second", "model"), [('{"n": 7}', "big"), ('{"n": "7"}', "m")])
async def test_other_model_is_re_asked_for_a_reply_of_the_schema(second: str, model: str) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    async with two_models(in_turn("no JSON"), in_turn(second), BIG) as (url, a, b):
        answer = await ask(url, response_format=form)
    assert ('{\\"n\\": 7}' in answer.text) is (model == "big")
    assert answer.headers["x-dragoman-model"] == model
    assert (counts(a, b), "second_opinion: big" in answer.warnings) == ([1, 1], True)


VOTES = GuardPolicy(samples=3)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("front", FRONTS)
async def test_calls_of_most_samples_are_used(front: str, stream: bool) -> None:
    async with two_models(by_seed(INVALID, PARIS, ROME, ROME), FAILS, VOTES) as (url, a, _):
        answer = await ask(url, front, stream=stream)
    assert answer.cities == ["Rome"]
    assert {"reasked", "samples_compared: 2 of 3"} <= set(answer.warnings)
    bodies = [body_of(a, number) for number in range(1, 4)]
    assert sorted((each.get("seed"), each.get("temperature")) for each in bodies[1:] if "seed" in each)
    assert {each.get("temperature") for each in bodies} == {None, 0.7}


@pytest.mark.parametrize(
    ("samples", "city", "label"),
    [
        ((OSLO, PARIS, ROME), "Oslo", "samples_disagreed: 1 of 3"),
        ((INVALID, INVALID, ROME), "Rome", "samples_disagreed: 1 of 3"),
        ((INVALID, ROME, ROME), "Rome", "samples_compared: 2 of 3"),
    ],
)
async def test_votes_without_and_with_majority(samples: tuple[str, ...], city: str, label: str) -> None:
    async with two_models(by_seed(INVALID, *samples), FAILS, VOTES) as (url, a, _):
        answer = await ask(url)
    assert (answer.cities, counts(a)) == ([city], [4])
    assert label in answer.warnings
    usage = json.loads(answer.text)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (4000, 40)
    assert answer.headers["x-dragoman-attempts"] == "4"


@pytest.mark.parametrize(("limit", "responses"), [(700, 2), (100_000, 4)])
async def test_samples_are_made_within_the_tokens_of_a_minute(tmp_path: Path, limit: int, responses: int) -> None:
    keys = KeyRing({"alice": KeyConfig(secret="secret-of-alice", tokens_per_minute=limit)})
    limits = usage_limits(Config(limits=LimitsConfig(path=str(tmp_path / "usage.sqlite"))), None)
    texts = by_seed(INVALID, ROME, ROME, ROME)
    async with two_models(texts, FAILS, VOTES, keys=keys, limits=limits) as (url, a, _):
        answer = await ask(url, key="secret-of-alice")
    assert (answer.cities, counts(a)) == (["Rome"], [responses])


async def test_samples_that_are_all_invalid_lead_to_no_further_one() -> None:
    async with two_models(by_seed(INVALID, INVALID, INVALID, INVALID), FAILS, VOTES) as (url, a, _):
        answer = await ask(url)
    assert {"reask_failed", "samples_disagreed: 0 of 3", "invalid_call"} <= set(answer.warnings)
    assert counts(a) == [4]


async def test_samples_that_are_complete_in_time_are_compared() -> None:
    async def play(far: Server, writer: Any) -> None:
        if len(far.asked) > 1 and body_of(far, -1).get("seed") == 2:
            await far.left.wait()
        else:
            await in_turn(*[INVALID, ROME, ROME, ROME])(far, writer)

    async with two_models(play, FAILS, GuardPolicy(samples=3, reask_timeout_s=0.5)) as (url, _, _b):
        answer = await ask(url)
    assert (answer.cities, "samples_compared: 2 of 3" in answer.warnings) == (["Rome"], True)


async def test_failed_samples_do_not_count() -> None:
    async def play(far: Server, writer: Any) -> None:
        is_last = len(far.asked) > 1 and body_of(far, -1).get("seed") == 2
        await (FAILS if is_last else in_turn(*[INVALID, ROME, ROME, ROME]))(far, writer)

    async with two_models(play, FAILS, VOTES) as (url, _, _b):
        answer = await ask(url)
    assert (answer.cities, "samples_compared: 2 of 3" in answer.warnings) == (["Rome"], True)


async def test_temperature_of_the_request_is_kept() -> None:
    async with two_models(by_seed(INVALID, ROME, ROME, ROME), FAILS, VOTES) as (url, a, _):
        await ask(url, temperature=1.2, seed=5)
    assert {body_of(a, number)["temperature"] for number in range(1, 4)} == {1.2}
    assert sorted(body_of(a, number)["seed"] for number in range(1, 4)) == [5, 6, 7]


async def test_captured_samples_are_requested_in_turn(tmp_path: Path) -> None:
    capture = CaptureConfig(dir=str(tmp_path))
    async with two_models(in_turn(INVALID, ROME, ROME), FAILS, VOTES, capture=capture) as (url, a, _):
        answer = await ask(url)
    assert (answer.cities, counts(a)) == (["Rome"], [3])  # the third could change nothing
    assert "samples_compared: 2 of 2" in answer.warnings


async def test_embedded_model_samples_in_turn() -> None:
    chatml = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    profile = models.default()
    metadata = Metadata("m", chatml, 4096, "", "", ("<|im_start|>", "<|im_end|>"), ())
    backend = EmbeddedModel(Path("m.gguf"), profile, EmbeddedConfig(), lambda _: None, metadata)

    class Llama(ScriptedLlama):
        async def start(self) -> None:
            """Does nothing."""

        async def close(self) -> None:
            """Does nothing."""

    backend.engine = engine = Llama(INVALID, PARIS, INVALID, PARIS, OSLO)
    async with serving(Gateway([backend], {"m": profile.name}, policy=GuardPolicy(samples=4))) as (_, url):
        answer = await ask(url)
    assert (answer.cities, len(engine.asked)) == (["Paris"], 5)
    assert "samples_compared: 2 of 4" in answer.warnings


@pytest.mark.parametrize(
    ("policy", "routes", "error"),
    [
        (GuardPolicy(), [{"second_opinion": "huge"}], r"no backend serves 'huge'.* - at routes\[1\]\.second_opinion"),
        (GuardPolicy(second_opinion="huge"), [], r"no backend serves 'huge'.* - at guard\.second_opinion"),
        (GuardPolicy(), [{"use": "m", "second_opinion": "m"}], r"expected another model than that of `use`, got 'm'"),
    ],
)
async def test_settings_that_name_no_other_model(policy: GuardPolicy, routes: list[dict[str, Any]], error: str) -> None:
    async with server(FAILS) as far:
        backends = [upstream("a", far, "m"), upstream("b", far, "big")]
        with pytest.raises(ConfigError, match=error):
            await Gateway(backends, policy=policy, rules=rules_of(*routes)).start()


async def test_reload_changes_the_other_model() -> None:
    async with server(in_turn(INVALID)) as one, server(in_turn(PARIS)) as two:
        text_mode = {"tool_mode": "prompt", "call_format": "hermes"}
        backends = [upstream("a", one, "m", **text_mode), upstream("b", two, "big", **text_mode)]
        running = Gateway(backends)
        unknown = running.successor(backends, {}, GuardPolicy(second_opinion="huge"), running.vendor_tools, None, None)
        with pytest.raises(ConfigError, match=r"guard\.second_opinion"):
            await unknown.start_next_to(running)
        successor = running.successor(backends, {}, BIG, running.vendor_tools, None, None)
        async with serving(successor) as (_, url):
            answer = await ask(url)
    assert (answer.cities, counts(one, two)) == (["Paris"], [1, 1])
