"""Limits, budgets and the use of keys.

client ─HTTP→ gateway → scripted backend, whose responses have 100 tokens of the prompt and 50 of the response
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.compose.limits import usage_limits
from dragoman.config import Config
from dragoman.config.keys import KeyConfig
from dragoman.core.errors import BackendUnavailableError, ConfigError
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta, UsageUpdate
from dragoman.core.messages import Request, Usage
from dragoman.gateway.gateway import Gateway
from dragoman.prices.config import PriceConfig
from dragoman.prices.price_book import PriceBook
from dragoman.server.keys.ring import KeyRing
from dragoman.usage_limits.config import LimitsConfig
from support.fake_upstream import server as upstream
from support.fake_upstream import whole
from support.gateway import shape_of
from support.scripted_backend import Script, Scripted, eventually, serving
from support.vendor_tools import body

pytestmark = pytest.mark.asyncio

PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
}
DIALECTS = list(PATHS)
SECRET = "the-secret-of-alice"
USAGE = Usage(100, 50)
PRICES = PriceBook({"*": PriceConfig(input_usd_per_million=100.0, output_usd_per_million=1000.0)}, {})
COST_USD = 0.06


class Model:
    """A model whose responses wait until the test lets them go."""

    def __init__(self, *, waits: bool = False) -> None:
        self.go = asyncio.Event()
        self.running = self.asked = 0
        if not waits:
            self.go.set()

    async def __call__(self, backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        self.running += 1
        self.asked += 1
        try:
            yield Start("", "", 0)
            for _ in range(20):
                yield TextDelta("word ")
            await self.go.wait()
            yield UsageUpdate(USAGE)
            yield Finish("stop")
        finally:
            self.running -= 1


class Client:
    def __init__(self, url: str, http: httpx2.AsyncClient) -> None:
        self.url, self.http = url, http
        self.headers = {"authorization": f"Bearer {SECRET}"}

    async def ask(self, dialect: str = "openai_chat", **fields: Any) -> httpx2.Response:
        fields = {"max_tokens": 50, **fields} if dialect != "openai_responses" else fields
        return await self.http.post(
            self.url + PATHS[dialect], json=body(dialect, False, **fields), headers=self.headers
        )

    async def usage(self) -> dict[str, Any]:
        answer: dict[str, Any] = (await self.http.get(f"{self.url}/v1/usage", headers=self.headers)).json()
        return answer


@asynccontextmanager
async def client(
    path: Path, script: Script, settings: dict[str, Any] | None = None, **limits: Any
) -> AsyncIterator[Client]:
    """A client with a key that has these limits."""
    keys = KeyRing({"alice": KeyConfig(secret=SECRET, **limits)})
    config = Config(limits=LimitsConfig(path=str(path / "usage.sqlite"), **(settings or {})))
    gateway = Gateway([Scripted(script)], prices=PRICES)
    limits_of_all = usage_limits(config, None)
    async with serving(gateway, keys=keys, limits=limits_of_all) as (_, url), httpx2.AsyncClient(timeout=60) as http:
        yield Client(url, http)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_headers_have_the_names_of_the_vendor(tmp_path: Path, dialect: str) -> None:
    async with client(tmp_path, Model(), requests_per_minute=9, tokens_per_minute=10_000) as it:
        first, second = await it.ask(dialect), await it.ask(dialect)
    assert (first.status_code, second.status_code) == (200, 200)
    if dialect == "anthropic_messages":
        assert second.headers["anthropic-ratelimit-requests-limit"] == "9"
        assert second.headers["anthropic-ratelimit-requests-remaining"] == "7"
        assert second.headers["anthropic-ratelimit-tokens-limit"] == "10000"
        assert re.fullmatch(r"20\d\d-.*Z", second.headers["anthropic-ratelimit-tokens-reset"])
        assert int(second.headers["anthropic-ratelimit-tokens-remaining"]) < 10_000 - 150
    else:
        assert second.headers["x-ratelimit-limit-requests"] == "9"
        assert second.headers["x-ratelimit-remaining-requests"] == "7"
        assert second.headers["x-ratelimit-limit-tokens"] == "10000"
        assert re.fullmatch(r"(\dm)?[\d.]+s", second.headers["x-ratelimit-reset-tokens"])
        assert int(second.headers["x-ratelimit-remaining-tokens"]) < 10_000 - 150


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_requests_over_the_limit_get_429_in_the_shape_of_the_api(tmp_path: Path, dialect: str) -> None:
    model = Model()
    async with client(tmp_path, model, requests_per_minute=2) as it:
        answers = [await it.ask(dialect) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    error = shape_of(PATHS[dialect], answers[2].json())
    assert (error["type"], error.get("code", "none")) in (
        ("rate_limit_error", "rate_limit_exceeded"),
        ("rate_limit_error", "none"),
    )
    assert "expected at most 2 requests a minute with the API key alice" in error["message"]
    assert 1 <= int(answers[2].headers["retry-after"]) <= 120
    assert "x-should-retry" not in answers[2].headers
    assert model.asked == 2


async def test_key_without_limits_gets_no_headers_and_is_counted(tmp_path: Path) -> None:
    async with client(tmp_path, Model()) as it:
        answer = await it.ask()
        used = await it.usage()
    assert not [name for name in answer.headers if "ratelimit" in name]
    assert used["usage"]["day"] | {"resets_at": ""} == {
        "requests": 1,
        "input_tokens": 100,
        "cached_input_tokens": 0,
        "output_tokens": 50,
        "cost_usd": COST_USD,
        "resets_at": "",
    }
    assert used["left"] == {}


async def test_tokens_are_reserved_and_corrected(tmp_path: Path) -> None:
    model = Model(waits=True)
    async with client(tmp_path, model, tokens_per_minute=5_000) as it:
        asked = asyncio.create_task(it.ask(max_tokens=4_000))
        await eventually(lambda: model.running == 1)
        refused = await it.ask(max_tokens=4_000)
        assert refused.status_code == 429
        assert "5000 tokens a minute" in refused.json()["error"]["message"]
        model.go.set()
        assert (await asked).status_code == 200
        # What is given back counts less the later it is.
        assert 4_000 < (await it.usage())["left"]["tokens_per_minute"]["remaining"] <= 5_000 - 150
        assert (await it.ask(max_tokens=3_000)).status_code == 200


async def test_request_larger_than_the_limit_is_not_retried(tmp_path: Path) -> None:
    async with client(tmp_path, Model(), tokens_per_minute=20) as it:
        text = "many different words in a long text " * 50
        answer = await it.ask(messages=[{"role": "user", "content": text}])
        assert (answer.status_code, answer.headers["x-should-retry"]) == (429, "false")
        assert "shorten it - at keys.alice.tokens_per_minute" in answer.json()["error"]["message"]
        assert (await it.ask(messages=[{"role": "user", "content": "Hi"}])).status_code == 200


async def test_slots_are_released_at_the_end_and_on_disconnect(tmp_path: Path) -> None:
    model = Model(waits=True)
    async with client(tmp_path, model, max_concurrency=2) as it:
        tasks = [asyncio.create_task(it.ask()) for _ in range(2)]
        await eventually(lambda: model.running == 2)
        refused = await it.ask()
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert (await it.usage())["left"]["max_concurrency"]["remaining"] == 0
        tasks[0].cancel()
        await eventually(lambda: model.running == 1)
        tasks.append(asyncio.create_task(it.ask()))
        await eventually(lambda: model.running == 2)
        model.go.set()
        assert [(await task).status_code for task in tasks[1:]] == [200, 200]
        assert (await it.ask()).status_code == 200


async def test_parallel_requests_never_exceed_a_budget_by_more_than_one_response(tmp_path: Path) -> None:
    budget_usd = 0.5
    async with client(tmp_path, Model(), budget_usd_per_day=budget_usd) as it:
        statuses: Counter[int] = Counter()
        for _ in range(3):
            answers = await asyncio.gather(*(it.ask() for _ in range(50)))
            statuses.update(answer.status_code for answer in answers)
        while (last := await it.ask()).status_code == 200:
            statuses[200] += 1
        used = await it.usage()
    assert set(statuses) == {200, 429}
    spent_usd = used["usage"]["day"]["cost_usd"]
    assert spent_usd == pytest.approx(statuses[200] * COST_USD)
    assert budget_usd <= spent_usd <= budget_usd + COST_USD
    error = last.json()["error"]
    assert (error["type"], error["code"]) == ("insufficient_quota", "insufficient_quota")
    assert "(0.5 US dollars per day) is used up; it is renewed at 20" in error["message"]
    assert last.headers["x-should-retry"] == "false"
    assert 0 < int(last.headers["retry-after"]) <= 86_400
    assert used["left"]["budget_usd_per_day"]["remaining"] == 0


async def test_used_up_budget_is_a_billing_error_in_messages(tmp_path: Path) -> None:
    async with client(tmp_path, Model(), budget_tokens_per_month=100) as it:
        assert (await it.ask("anthropic_messages")).status_code == 200
        answer = await it.ask("anthropic_messages")
    assert (answer.status_code, answer.json()["error"]["type"]) == (402, "billing_error")
    assert answer.headers["x-should-retry"] == "false"


async def test_restart_keeps_what_was_used(tmp_path: Path) -> None:
    limits = {"budget_tokens_per_day": 100}
    async with client(tmp_path, Model(), **limits) as it:
        assert (await it.ask()).status_code == 200
    async with client(tmp_path, Model(), **limits) as it:
        assert (await it.ask()).status_code == 429
        assert (await it.usage())["usage"]["month"]["requests"] == 1


async def test_response_that_the_client_leaves_is_counted_by_estimate(tmp_path: Path) -> None:
    model = Model(waits=True)
    async with client(tmp_path, model, budget_usd_per_day=100.0) as it:
        content = body("openai_chat", True, max_tokens=50)
        async with it.http.stream("POST", it.url + PATHS["openai_chat"], json=content, headers=it.headers) as response:
            async for line in response.aiter_lines():
                if "word" in line:
                    break
        await eventually(lambda: model.running == 0)

        async def day() -> dict[str, Any]:
            used: dict[str, Any] = (await it.usage())["usage"]["day"]
            return used

        used = await day()
        while not used["requests"]:
            used = await day()
    assert (used["requests"], used["output_tokens"] > 0, used["input_tokens"] > 0) == (1, True, True)
    assert used["cost_usd"] > 0


async def test_prompt_of_a_complete_response_that_the_client_leaves_counts(tmp_path: Path) -> None:
    model = Model(waits=True)
    async with client(tmp_path, model, budget_tokens_per_day=100_000) as it:
        task = asyncio.create_task(it.ask())
        await eventually(lambda: model.running == 1)
        task.cancel()
        await eventually(lambda: model.running == 0)
        while not (used := (await it.usage())["usage"]["day"])["requests"]:
            pass
    assert used["input_tokens"] > 0


async def test_failed_request_costs_nothing(tmp_path: Path) -> None:
    async def fails(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        raise BackendUnavailableError("the model is down")
        yield Finish("stop")

    async with client(tmp_path, fails, requests_per_minute=5, tokens_per_minute=10_000, budget_usd_per_day=1.0) as it:
        assert (await it.ask()).status_code == 503
        used = await it.usage()
    assert used["usage"]["day"]["input_tokens"] == 0
    assert 9_900 < used["left"]["tokens_per_minute"]["remaining"] <= 10_000
    assert used["left"]["requests_per_minute"]["remaining"] == 4
    assert used["left"]["budget_usd_per_day"] | {"resets_at": ""} == {
        "remaining": 1.0,
        "reserved": 0.0,
        "resets_at": "",
    }


async def test_sdks_retry_after_the_time_of_a_refusal(tmp_path: Path) -> None:
    """The first attempt is refused because another request runs; the SDK waits for `retry-after`, one second."""
    model = Model(waits=True)
    messages: Any = [{"role": "user", "content": "Hi"}]
    async with client(tmp_path, model, max_concurrency=1) as it:
        openai_sdk = openai.AsyncOpenAI(base_url=f"{it.url}/v1", api_key=SECRET, max_retries=1)
        anthropic_sdk = anthropic.AsyncAnthropic(base_url=it.url, api_key=SECRET, max_retries=1)
        for sdk in ("openai", "anthropic"):
            model.go.clear()
            blocking = asyncio.create_task(it.ask())
            await eventually(lambda: model.running == 1)
            if sdk == "openai":
                asked: Any = openai_sdk.chat.completions.create(model="m", messages=messages)
            else:
                asked = anthropic_sdk.messages.create(model="m", messages=messages, max_tokens=50)
            task = asyncio.create_task(asked)
            await refusals(it)
            model.go.set()
            await blocking
            assert (await task).id
        await openai_sdk.close()
        await anthropic_sdk.close()


async def refusals(it: Client) -> None:
    """Waits until a request of the SDK must have been refused: the gateway has answered a later one."""
    for _ in range(20):
        assert (await it.ask()).status_code == 429


async def test_sdks_do_not_retry_a_used_up_budget(tmp_path: Path) -> None:
    model = Model()
    messages: Any = [{"role": "user", "content": "Hi"}]
    async with client(tmp_path, model, budget_tokens_per_day=100) as it:
        assert (await it.ask()).status_code == 200
        openai_sdk = openai.AsyncOpenAI(base_url=f"{it.url}/v1", api_key=SECRET, max_retries=5)
        anthropic_sdk = anthropic.AsyncAnthropic(base_url=it.url, api_key=SECRET, max_retries=5)
        with pytest.raises(openai.RateLimitError) as refused:
            await openai_sdk.chat.completions.create(model="m", messages=messages)
        assert refused.value.code == "insufficient_quota"
        with pytest.raises(anthropic.APIStatusError) as also_refused:
            await anthropic_sdk.messages.create(model="m", messages=messages, max_tokens=50)
        assert also_refused.value.status_code == 402
        await openai_sdk.close()
        await anthropic_sdk.close()
    assert model.asked == 1


async def test_usage_of_keys_without_a_name_has_no_use(tmp_path: Path) -> None:
    async with client(tmp_path, Model()) as it:
        answer = await it.http.get(f"{it.url}/v1/usage")
        assert answer.status_code == 401


async def test_untranslated_requests_count_and_replace_headers_of_the_upstream(tmp_path: Path) -> None:
    embedded = {"object": "list", "data": [], "model": "own", "usage": {"prompt_tokens": 7, "total_tokens": 7}}
    answer = whole(200, json.dumps(embedded), x_ratelimit_limit_requests="9999", x_ratelimit_limit_project_tokens="5")
    keys = KeyRing({"alice": KeyConfig(secret=SECRET, requests_per_minute=1, budget_usd_per_day=1.0)})
    limits = usage_limits(Config(limits=LimitsConfig(path=str(tmp_path / "usage.sqlite"))), None)
    async with upstream(answer) as far:
        backend = HttpBackend("far", HttpConfig(url=f"{far.url}/v1", models=("own",)), {})
        gateway = Gateway([backend], prices=PRICES)
        async with serving(gateway, keys=keys, limits=limits) as (_, url), httpx2.AsyncClient() as http:
            it = Client(url, http)
            content = {"model": "own", "input": "words"}
            first, second = [
                await http.post(f"{url}/v1/embeddings", json=content, headers=it.headers) for _ in range(2)
            ]
            used = await it.usage()
    assert (first.status_code, second.status_code) == (200, 429)
    limit_headers = {name: value for name, value in first.headers.items() if "ratelimit-limit" in name}
    assert limit_headers == {"x-ratelimit-limit-requests": "1"}
    assert used["usage"]["day"]["input_tokens"] == 7
    assert used["usage"]["day"]["cost_usd"] == pytest.approx(7 * 100.0 / 1e6)


async def test_missing_package_is_reported_to_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with client(tmp_path, Model(), requests_per_minute=5) as it:
        monkeypatch.setattr("dragoman.extras.missing_extras", lambda *names: list(names))
        answer = await it.ask()
    assert (answer.status_code, "pip" in answer.text) == (503, False)
    assert "limits of keys need more than is installed: pip install" in caplog.text


async def test_missing_package_is_an_error_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.extras.missing_extras", lambda *names: list(names))
    config = Config(keys={"alice": KeyConfig(secret=SECRET, requests_per_minute=5)})
    with pytest.raises(ConfigError, match="limits of keys need more than is installed"):
        usage_limits(config, None)


async def test_file_that_cannot_be_written_is_an_error_at_the_start(tmp_path: Path) -> None:
    limits = LimitsConfig(path=str(tmp_path / "file" / "usage.sqlite"))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"expected a writable SQLite file, got .* at limits.path"):
        usage_limits(Config(keys={"alice": KeyConfig(secret=SECRET)}, limits=limits), None)


@pytest.mark.parametrize("reported", [Usage(1 << 80, 1 << 80), Usage(5, 5, cost_usd=float("nan"))], ids=["huge", "nan"])
async def test_absurd_numbers_neither_fail_nor_keep_a_slot(tmp_path: Path, reported: Usage) -> None:
    async def script(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        yield Start("", "", 0)
        yield TextDelta("word")
        yield UsageUpdate(reported)
        yield Finish("stop")

    limits = {"max_concurrency": 1, "tokens_per_minute": 1 << 40, "budget_usd_per_day": 1e12}
    async with client(tmp_path, script, **limits) as it:
        for _ in range(2):
            assert (await it.ask(max_tokens=1 << 61)).status_code in (200, 429)
            left = (await it.usage())["left"]
            assert left["max_concurrency"] == {"remaining": 1}
            assert left["budget_usd_per_day"]["reserved"] == 0
