"""The tools of the playground: the built-in ones, and those of MCP servers that clients may use."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from dragoman.compose import vendor_tools
from dragoman.config import Config
from dragoman.config.keys import KeyConfig
from dragoman.console.playground.tools import PlaygroundRunner
from dragoman.console.playground.views import PlaygroundRun
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.server.keys.ring import KeyRing
from support.console import ServedConsole, served_console
from support.mcp_servers import stdio
from support.scripted_backend import AS_PLAYED, Scripted, plain

pytestmark = pytest.mark.asyncio(loop_scope="module")


SERVERS = {"books": stdio(images=True), "private": stdio(serve=False), "broken": stdio(command=("false",))}


@pytest.fixture(scope="module")
def tools() -> VendorToolRunner:
    return vendor_tools(Config(mcp=SERVERS))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def console(tools: VendorToolRunner) -> AsyncIterator[ServedConsole]:
    gateway = Gateway([Scripted(plain)], policy=AS_PLAYED, vendor_tools=tools)
    async with served_console(gateway, mcp=SERVERS) as served:
        yield served


async def run(console: ServedConsole, name: str, arguments: str) -> tuple[str, bool]:
    answer = await console.change("POST", "/playground/tools/run", {"name": name, "arguments": arguments})
    assert answer.status_code == 200, answer.text
    return answer.json()["text"], answer.json()["is_error"]


async def test_list_has_the_demonstration_and_served_tools(console: ServedConsole) -> None:
    view = (await console.get("/playground/tools")).json()
    tools = {tool["name"]: tool for tool in view["tools"]}
    assert list(tools)[:3] == ["get_weather", "calculate", "get_time"]
    assert tools["get_weather"]["signature"] == "get_weather(city: string)"
    assert tools["get_weather"]["parameters"]["required"] == ["city"]
    assert (tools["books__add"]["server"], tools["books__add"]["description"]) == ("books", "Adds two numbers.")
    problems = {problem["server"]: problem["message"] for problem in view["problems"]}
    assert problems["private"] == "clients may not use it: set mcp.private.serve = true"
    assert "could not be started" in problems["broken"]
    assert not any(name.startswith("private") for name in tools)


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("get_weather", '{"city": "Paris"}', "sunny, 22 degrees Celsius"),
        ("calculate", '{"operation": "multiply", "numbers": [6, 7]}', "42"),
        ("books__add", '{"a": 17, "b": 25}', "42"),
    ],
)
async def test_a_call_returns_its_result(console: ServedConsole, name: str, arguments: str, text: str) -> None:
    result, is_error = await run(console, name, arguments)
    assert (result.splitlines()[0], is_error) == (text, False)


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("get_weather", "{", "error: expected arguments of get_weather(city: string), got others"),
        ("get_weather", '{"city": 1}', "error: expected arguments of get_weather(city: string), got others"),
        ("calculate", '{"operation": "divide", "numbers": [1, 0]}', "error: division by zero"),
        ("calculate", '{"operation": "multiply", "numbers": [1e308, 10]}', "error: expected arguments"),
        ("calculate", "[" * 100_000, "error: expected arguments"),
        ("books__fail", "{}", "the ledger is closed"),
        ("books__add", "[]", "The arguments do not match the tool's schema."),
    ],
)
async def test_an_error_is_a_result_for_the_model(console: ServedConsole, name: str, arguments: str, text: str) -> None:
    result, is_error = await run(console, name, arguments)
    assert text in result
    assert is_error


async def test_an_image_is_part_of_the_result(console: ServedConsole) -> None:
    answer = await console.change("POST", "/playground/tools/run", {"name": "books__chart", "arguments": "{}"})
    (image,) = answer.json()["images"]
    assert image["media_type"] == "image/png"


async def test_only_tools_of_the_list_are_run(console: ServedConsole) -> None:
    for name in ("private__add", "run_command", "web_fetch", "books__ad"):
        answer = await console.change("POST", "/playground/tools/run", {"name": name, "arguments": "{}"})
        assert answer.status_code == 404, name
    assert "did you mean 'books__add'" in answer.json()["error"]["message"]
    unmarked = await console.client.post(
        "/console/api/playground/tools/run", json={"name": "get_time", "arguments": ""}
    )
    assert unmarked.status_code == 403


async def test_servers_that_the_key_may_not_use_are_left_out() -> None:
    keys = KeyRing({"boss": KeyConfig(secret="secret-of-admin", admin=True, tools=("web_search",))})
    async with served_console(plain, keys=keys, mcp={"books": stdio()}) as console:
        answer = await console.get("/playground/tools", authorization="Bearer secret-of-admin")
        assert [tool["server"] for tool in answer.json()["tools"]] == [""] * 3


async def test_slow_servers_are_not_waited_for() -> None:
    tools = vendor_tools(Config(mcp={"slow": stdio(command=("sleep", "60"))}))
    runner = PlaygroundRunner(list_timeout_s=0.2)
    try:
        (problem,) = (await runner.tools(tools, ["slow"])).problems
        assert problem.message == "it did not list its tools within 0.2 s"
    finally:
        await tools.close()


async def test_a_call_is_ended_after_its_time_and_a_long_result_is_cut(
    console: ServedConsole, tools: VendorToolRunner
) -> None:
    runner = PlaygroundRunner()
    result = await runner.run(tools, PlaygroundRun(name="books__large", arguments='{"size": 30000}'))
    assert (len(result.text), result.is_cut, result.is_error) == (tools.max_result_chars, True, False)
    short = PlaygroundRunner(run_timeout_s=0.2)
    ended = await short.run(tools, PlaygroundRun(name="books__hang", arguments="{}"))
    assert (ended.is_error, ended.text) == (True, "the tool books__hang did not return within 0.2 s")
