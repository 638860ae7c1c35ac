"""Steps that are tools which the gateway runs: each round is restricted again."""

from dragoman.core.messages import Request
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.vendor_tools.executor import ToolExecutor
from dragoman.vendor_tools.tool import SearchHit, ToolRunResult, VendorToolCall, search_result
from support.scenarios import call
from support.vendor_tools import ONLY, OWN, asking, body, scripted, whole


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
