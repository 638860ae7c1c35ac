"""Runs of vendor tools in one round: order, concurrency, limits, cancellation, and the models that may use a tool."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final

import pytest

from dragoman import dialects
from dragoman.core import messages as v
from dragoman.core.errors import BackendUnavailableError
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta, UsageUpdate
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.gateway.vendor_tools.tool_runs import MAX_CALLS
from dragoman.prices.config import PriceConfig
from dragoman.prices.price_book import PriceBook
from dragoman.vendor_tools.executor import ToolExecutor
from dragoman.vendor_tools.tool import SearchHit, ToolRunResult, VendorToolCall, search_result
from support.gateway import DEADLINE_S
from support.scenarios import call
from support.scripted_backend import Script, Scripted
from support.vendor_tools import ONLY, asking, body, items, messages, scripted, whole

SEARCH: Final = ONLY["anthropic_messages"]
PATH: Final = dialects.get("anthropic_messages").path
each_stream = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
Run = Callable[[str], Awaitable[None]]


class Searcher(ToolExecutor):
    """Finds a page with the name of the query, after a wait of the test."""

    parameters = '{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}'

    def __init__(self, wait: Run | None = None) -> None:
        self.wait = wait
        self.active = self.most_active = 0
        self.ended: list[str] = []

    async def run(self, call: VendorToolCall) -> ToolRunResult:
        query = json.loads(call.arguments)["query"]
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            if self.wait is not None:
                await self.wait(query)
        finally:
            self.active -= 1
            self.ended.append(query)
        return search_result([SearchHit(f"https://example.com/{query}", query, f"About {query}.")], 1000)


def searches(*queries: str) -> list[AnyEvent]:
    return [event for n, query in enumerate(queries) for event in call(n, "web_search", query=query)]


def failing_once() -> Run:
    """Returns a wait that fails for the first query."""
    waited: list[str] = []

    async def wait(query: str) -> None:
        waited.append(query)
        if len(waited) == 1:
            raise BackendUnavailableError("no search at example.com")

    return wait


async def forever(query: str) -> None:
    await asyncio.Event().wait()


@each_stream
@pytest.mark.parametrize("dialect", ["anthropic_messages", "openai_responses"])
async def test_calls_of_one_round_run_at_once_and_blocks_keep_their_order(dialect: str, stream: bool) -> None:
    last_ended = asyncio.Event()

    async def wait(query: str) -> None:
        if query != "c":
            await last_ended.wait()
        last_ended.set()

    searcher = Searcher(wait)
    asked: list[v.Request] = []
    script = scripted(searches("a", "b", "c"), [TextDelta("Done.")], asked=asked)
    async with asyncio.timeout(DEADLINE_S), asking(script, VendorToolRunner({"web_search": searcher})) as http:
        if dialect == "anthropic_messages":
            content, _ = await messages(http, stream, **SEARCH)
            queries = [block["input"]["query"] for block in content if block["type"] == "server_tool_use"]
            uses = [block["id"] for block in content if block["type"] == "server_tool_use"]
            results = [block["tool_use_id"] for block in content if block["type"] == "web_search_tool_result"]
            assert uses == results
        else:
            output, _ = await items(http, stream, **ONLY[dialect])
            queries = [item["action"]["query"] for item in output if item["type"] == "web_search_call"]
    assert queries == ["a", "b", "c"]
    assert searcher.ended[0] == "c"
    results_read = [part.parts for part in asked[1].messages[-1].parts if isinstance(part, v.ToolResult)]
    assert [f"About {query}." in str(parts) for query, parts in zip("abc", results_read, strict=True)] == [True] * 3


@pytest.mark.parametrize("most", [1, 2])
async def test_number_of_calls_at_once_is_limited(most: int) -> None:
    gate = asyncio.Semaphore(0)

    async def wait(query: str) -> None:
        if searcher.active == most:
            gate.release()
        async with gate:
            pass
        gate.release()

    searcher = Searcher(wait)
    script = scripted(searches(*"abcdef"), [TextDelta("Done.")], asked=[])
    runner = VendorToolRunner({"web_search": searcher}, max_concurrent_calls=most)
    async with asyncio.timeout(DEADLINE_S), asking(script, runner) as http:
        await messages(http, False, **SEARCH)
    assert (searcher.most_active, sorted(searcher.ended)) == (most, list("abcdef"))


@each_stream
@pytest.mark.parametrize("dialect", sorted(ONLY))
async def test_number_of_calls_in_a_round_is_limited(dialect: str, stream: bool) -> None:
    searcher = Searcher()
    asked: list[v.Request] = []
    script = scripted(searches(*map(str, range(MAX_CALLS + 1))), [TextDelta("Done.")], asked=asked)
    unlimited = {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}
    tools = unlimited if dialect == "anthropic_messages" else ONLY[dialect]
    async with asking(script, VendorToolRunner({"web_search": searcher})) as http:
        await whole(http, dialect, body(dialect, stream, **tools))
    assert len(searcher.ended) == MAX_CALLS
    results = [part for message in asked[1].messages for part in message.parts if isinstance(part, v.ToolResult)]
    assert [result.is_error for result in results] == [False] * MAX_CALLS + [True]


@each_stream
async def test_limit_of_one_tool_ends_its_call_and_response_continues(stream: bool) -> None:
    searcher = Searcher(forever)
    searcher.timeout_s = 0.01
    script = scripted(searches("a"), [TextDelta("Done.")], asked=[])
    async with asking(script, VendorToolRunner({"web_search": searcher})) as http:
        content, reason = await messages(http, stream, **SEARCH)
    assert content[1]["content"]["error_code"] == "unavailable"
    assert (content[2]["text"], reason, searcher.active) == ("Done.", "end_turn", 0)


async def test_all_calls_end_if_client_leaves() -> None:
    started = asyncio.Event()
    ended = asyncio.Event()

    async def wait(query: str) -> None:
        if searcher.active == 3:
            started.set()
        try:
            await forever(query)
        finally:
            if searcher.active == 1:
                ended.set()

    searcher = Searcher(wait)
    script = scripted(searches("a", "b", "c"), asked=[])
    async with asyncio.timeout(DEADLINE_S), asking(script, VendorToolRunner({"web_search": searcher})) as http:
        async with http.stream("POST", PATH, json=body("anthropic_messages", True, **SEARCH)) as response:
            async for line in response.aiter_lines():
                if "server_tool_use" in line:
                    break
            await started.wait()
        await ended.wait()
    assert sorted(searcher.ended) == ["a", "b", "c"]


def counting(*usages: v.Usage) -> Script:
    """A model that always searches; it reports these usages in turn, the last one always, or none."""
    rounds = 0

    async def script(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        nonlocal rounds
        yield Start("", "", 0)
        for event in searches("a"):
            yield event
        if usages:
            yield UsageUpdate(usages[min(rounds, len(usages) - 1)])
        rounds += 1
        yield Finish("stop")

    return script


@pytest.mark.parametrize(
    ("limits", "rounds"),
    [
        ({"max_tokens": 250}, 3),
        ({"max_tokens": 0}, 5),
        ({"max_cost_usd": 0.15}, 2),
    ],
)
async def test_tokens_and_cost_of_rounds_are_limited(limits: dict[str, Any], rounds: int) -> None:
    searcher = Searcher()
    runner = VendorToolRunner({"web_search": searcher}, max_rounds=5, **limits)
    async with asking(counting(v.Usage(90, 10, cost_usd=0.1)), runner) as http:
        answer = await http.post(PATH, json=body("anthropic_messages", False, **SEARCH))
    assert (answer.json()["stop_reason"], len(searcher.ended)) == ("pause_turn", rounds)
    assert "vendor_tool_limit" in answer.headers["x-dragoman-warnings"]


async def rounds_of(script: Script, **limits: Any) -> int:
    """Number of searches until a limit ends the response."""
    searcher = Searcher()
    runner = VendorToolRunner({"web_search": searcher}, max_rounds=9, **limits)
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    async with asking(script, runner) as http:
        answer = await http.post(PATH, json=body("anthropic_messages", False, tools=tools))
    assert answer.json()["stop_reason"] == "pause_turn"
    return len(searcher.ended)


@pytest.mark.parametrize("usages", [(), (v.Usage(0, 3),)], ids=["none", "without prompt"])
async def test_tokens_that_are_not_reported_are_estimated(usages: tuple[v.Usage, ...]) -> None:
    """The prompt of the first round has some 300 tokens."""
    assert await rounds_of(counting(*usages), max_tokens=100) == 1
    assert 1 < await rounds_of(counting(*usages), max_tokens=1500) < 9


async def test_cost_of_round_that_reports_none_is_estimated_by_the_others() -> None:
    script = counting(v.Usage(90, 10, cost_usd=0.1), v.Usage(90, 10), v.Usage(90, 10))
    assert await rounds_of(script, max_cost_usd=0.35) == 4


async def test_cost_that_is_never_reported_is_not_limited() -> None:
    assert await rounds_of(counting(v.Usage(90, 10)), max_cost_usd=0.01) == 9


@pytest.mark.parametrize("usages", [(v.Usage(90, 10),), (v.Usage(0, 0),), ()], ids=["reported", "empty", "none"])
async def test_cost_of_rounds_by_the_price_of_the_model_is_limited(usages: tuple[v.Usage, ...]) -> None:
    price = PriceConfig(input_usd_per_million=1_000.0, output_usd_per_million=2_000.0)
    prices = PriceBook({"*": price}, {})
    assert await rounds_of(counting(*usages), max_cost_usd=0.05, prices=prices) == 1
    assert 1 < await rounds_of(counting(*usages), max_cost_usd=1.5, prices=prices) <= 9


@pytest.mark.parametrize(("models", "is_run"), [((), True), (("M",), True), (("gpt-*", "n*"), False)])
async def test_only_allowed_models_use_tool(models: tuple[str, ...], is_run: bool) -> None:
    searcher = Searcher()
    searcher.models = models
    script = scripted(searches("a"), [TextDelta("Done.")], asked=[])
    async with asking(script, VendorToolRunner({"web_search": searcher})) as http:
        content, _ = await messages(http, False, **SEARCH)
    assert (searcher.ended == ["a"]) is is_run
    assert isinstance(content[1]["content"], list) is is_run


@each_stream
async def test_reasked_model_sees_results_of_earlier_rounds(stream: bool) -> None:
    asked: list[v.Request] = []
    wrong, right = call(0, "read", path=[1]), call(0, "read", path="a")
    script = scripted([TextDelta("First."), *searches("a")], [TextDelta("Then."), *wrong], right, asked=asked)
    own = {"name": "read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}
    async with asking(script, VendorToolRunner({"web_search": Searcher()})) as http:
        content, _ = await messages(http, stream, tools=[*SEARCH["tools"], own])
    assert content[-1]["input"] == {"path": "a"}
    _, second, reasked = asked
    assert reasked.messages[: len(second.messages)] == second.messages
    turn, error = reasked.messages[len(second.messages) :]
    assert [part.text for part in turn.parts if isinstance(part, v.Text)] == ["Then."]
    assert error.role == "tool"


async def test_each_run_is_logged_and_counted_without_content(caplog: pytest.LogCaptureFixture) -> None:
    tools = [{"type": "web_search_20250305", "name": "web_search", "max_uses": 2}]
    searcher = Searcher(failing_once())
    script = scripted(searches("a", "b", "c"), [TextDelta("Done.")], asked=[])
    with caplog.at_level("INFO", "dragoman"):
        async with asking(script, VendorToolRunner({"web_search": searcher})) as http:
            await whole(http, "anthropic_messages", body("anthropic_messages", False, tools=tools))
            metrics = (await http.get("/metrics")).text.splitlines()
    lines = [record.getMessage() for record in caplog.records if record.name == "dragoman.gateway.vendor_tools"]
    outcomes = [line.split(" ms: ")[1] for line in lines if line.startswith("ran web_search in ")]
    assert sorted(outcomes) == ["ok", "unavailable"]
    assert not any("About" in line or '"a"' in line for line in lines)
    assert 'dragoman_tool_runs_total{kind="web_search",outcome="ok"} 1.0' in metrics
    assert 'dragoman_tool_runs_total{kind="web_search",outcome="unavailable"} 1.0' in metrics
    assert 'dragoman_tool_run_duration_seconds_count{kind="web_search"} 2.0' in metrics
