"""Steps that are tools which the gateway runs: each round is restricted again."""

from typing import Any

import pytest

from dragoman.core.events import Notice, TextDelta
from dragoman.core.messages import Request
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.vendor_tools.executor import ToolExecutor
from dragoman.vendor_tools.tool import SearchHit, ToolRunResult, VendorToolCall, search_result
from support.scenarios import call
from support.vendor_tools import ONLY, OWN, asking, body, messages, scripted, whole


class Found(ToolExecutor):
    """Always finds the same."""

    description = "Searches."
    parameters = '{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}'

    async def run(self, call: VendorToolCall) -> ToolRunResult:
        return search_result((SearchHit("https://example.com/news", "News", "Dragoman 1.0.", ""),), 10_000)


async def test_the_round_after_a_search_allows_the_next_step() -> None:
    asked: list[Request] = []
    script = scripted(call(0, "web_search", query="dragoman"), call(0, "read", path="/a"), asked=asked)
    api = "anthropic_messages"
    tools = [*ONLY[api]["tools"], OWN[api]]
    steps = {"required": "web_search", "terminal": "read"}
    async with asking(script, VendorToolRunner({"web_search": Found()})) as http:
        answer = await whole(http, api, body(api, False, tools=tools, dragoman={"steps": steps}))
    assert [[tool.name for tool in each.tools] for each in asked] == [["web_search"], ["read"]]
    assert [(each.tool_choice.mode, each.tool_choice.name) for each in asked] == [
        ("named", "web_search"),
        ("named", "read"),
    ]
    assert [block["name"] for block in answer["content"] if block["type"] == "tool_use"] == ["read"]


async def test_a_premature_call_of_a_round_is_dropped() -> None:
    asked: list[Request] = []
    early = call(0, "read", path="/a")
    api = "anthropic_messages"
    steps = {"required": "web_search", "terminal": "read"}
    async with asking(scripted(early, early, asked=asked), VendorToolRunner({"web_search": Found()})) as http:
        sent = body(api, False, tools=[*ONLY[api]["tools"], OWN[api]], dragoman={"steps": steps})
        answer = await whole(http, api, sent)
    assert [block["type"] for block in answer["content"]] == ["text"]
    assert answer["stop_reason"] == "end_turn"


RUNNER = VendorToolRunner({"web_search": Found()}, search_above=2)
API = "anthropic_messages"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
BM25 = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
SEARCHED = call(0, "web_search", query="dragoman")
TEXT = [TextDelta("It is done.")]


def own(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, "description": f"Does {name}.", "input_schema": SCHEMA, **more} for name in names]


def loading(request: Request) -> dict[str, str]:
    return {tool.name: tool.loading for tool in request.tools}


async def asked_for(tools: list[dict[str, Any]], steps: object, *rounds: Any, **more: Any) -> tuple[Any, list[Request]]:
    """The content of the response, and the requests that the model got."""
    asked: list[Request] = []
    async with asking(scripted(*rounds, asked=asked), RUNNER) as http:
        content, _ = await messages(http, False, tools=tools, dragoman={"steps": steps}, **more)
    return content, asked


async def test_found_tools_stay_found_in_later_rounds() -> None:
    tools = [BM25, *own("fetch", "submit"), *own("get_weather", "get_time", defer_loading=True)]
    search, weather = call(0, BM25["name"], query="weather"), call(0, "get_weather", city="Bern")
    content, asked = await asked_for(tools, {"required": "fetch", "terminal": "submit"}, search, weather)
    assert (content[-1]["type"], content[-1]["name"]) == ("tool_use", "get_weather")
    names = {"fetch": "listed", BM25["name"]: "search", "get_time": "deferred"}
    assert loading(asked[0]) == {**names, "get_weather": "deferred"}
    assert loading(asked[1]) == {**names, "get_weather": "found"}
    assert {tool.name: tool.loading for tool in asked[1].prompt_tools} == {**loading(asked[1]), "submit": "listed"}
    assert asked[1].tools[-1].name == "get_weather"


async def test_tools_that_steps_do_not_name_are_found_by_a_search() -> None:
    tools = own("fetch", "submit", "get_weather", "get_time", "get_news")
    search, weather = call(0, "tool_search", query="weather"), call(0, "get_weather", city="Bern")
    content, asked = await asked_for(tools, {"required": "fetch", "terminal": "submit"}, search, weather)
    assert [block["name"] for block in content] == ["get_weather"]
    names = {"fetch": "listed", "tool_search": "search", "get_time": "deferred", "get_news": "deferred"}
    assert loading(asked[0]) == {**names, "get_weather": "deferred"}
    assert loading(asked[1]) == {**names, "get_weather": "found"}


async def test_a_deferred_tool_that_steps_name_is_listed() -> None:
    tools = [BM25, *own("submit", "read"), *own("fetch", "get_time", defer_loading=True)]
    steps = {"required": "fetch", "ordered": True, "terminal": "submit"}
    _, asked = await asked_for(tools, steps, call(0, "fetch", city="Bern"))
    assert loading(asked[0]) == {"fetch": "listed"}


async def test_derived_steps_defer_no_tools() -> None:
    _, asked = await asked_for(own("fetch", "submit_report", "a", "b"), "derive", call(0, "fetch", city="Bern"))
    assert loading(asked[0]) == dict.fromkeys(("fetch", "a", "b"), "listed")


@pytest.mark.parametrize("name", ["tool_search", BM25["name"]])
async def test_a_search_for_tools_is_no_step(name: str) -> None:
    declared = [BM25] if name == BM25["name"] else []
    tools = [*declared, *own("submit"), *own("get_weather", "get_time", "get_news", defer_loading=bool(declared))]
    search, weather = call(0, name, query="weather"), call(0, "get_weather", city="Bern")
    _, asked = await asked_for(tools, {"required": "*", "terminal": "submit"}, search, weather)
    assert "submit" not in loading(asked[1])


@pytest.mark.parametrize("rounds", [(TEXT,), (SEARCHED, TEXT)])
@pytest.mark.parametrize("ordered", [False, True])
async def test_a_model_that_skips_a_step_in_any_round_is_reasked(rounds: tuple[Any, ...], ordered: bool) -> None:
    steps = {"required": ["web_search"] * (len(rounds) - 1) + ["fetch"], "ordered": ordered, "terminal": "submit"}
    tools = [*ONLY[API]["tools"], *own("fetch", "submit")]
    content, asked = await asked_for(tools, steps, *rounds, call(0, "fetch", city="Bern"))
    assert (content[-1]["type"], content[-1].get("name")) == ("tool_use", "fetch")
    assert len(asked) == len(rounds) + 1
    assert list(loading(asked[-1])) == ["fetch"]
    assert asked[-1].tool_choice.mode == ("named" if ordered else "required")
    assert asked[-1].messages[-1].role == "user"


async def test_steps_that_only_the_gateway_can_do_lead_to_no_reask() -> None:
    tools = [*ONLY[API]["tools"], *own("submit")]
    steps = {"required": "web_search", "ordered": True, "terminal": "submit"}
    content, asked = await asked_for(tools, steps, TEXT)
    assert ([block["type"] for block in content], len(asked)) == (["text"], 1)


async def test_a_named_tool_next_to_a_vendor_tool_is_required() -> None:
    tools = [*ONLY[API]["tools"], *own("fetch", "submit")]
    choice = {"type": "tool", "name": "fetch"}
    asked: list[Request] = []
    async with asking(scripted(TEXT, call(0, "fetch", city="Bern"), asked=asked), RUNNER) as http:
        content, _ = await messages(http, False, tools=tools, tool_choice=choice)
    assert (content[-1]["type"], len(asked)) == ("tool_use", 2)


async def test_a_reask_after_a_search_keeps_found_tools() -> None:
    tools = own("fetch", "get_weather", "get_time", "get_news")
    rounds = [
        call(0, "tool_search", query="weather"),
        call(0, "get_weather", town=[1]),
        call(0, "get_weather", city="B"),
    ]
    asked: list[Request] = []
    async with asking(scripted(*rounds, asked=asked), RUNNER) as http:
        await messages(http, False, tools=tools)
    assert [loading(each)["get_weather"] for each in asked] == ["deferred", "found", "found"]


async def test_a_reask_for_a_schema_does_not_start_the_steps_over() -> None:
    """The model is told in a message of the user, which begins no turn."""
    tools = [*ONLY[API]["tools"], *own("fetch")]
    steps = {"required": "web_search", "ordered": True, "after": "text"}
    schema = {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}
    rounds = (SEARCHED, [Notice("constraint_not_applied", "", detail="response_format"), *TEXT], [TextDelta("{}")])
    content, asked = await asked_for(tools, steps, *rounds, **schema)
    assert content[-1]["text"] == "{}"
    assert [each.tool_choice.mode for each in asked] == ["named", "none", "none"]
