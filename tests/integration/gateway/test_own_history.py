"""Results that the gateway wrote, in requests to a server that runs vendor tools itself: as text, never opaque."""

import json
from typing import Any, Final

import pytest

from dragoman import dialects
from dragoman.core import messages as v
from dragoman.core.events import TextDelta
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.redaction.opaque_text import OPAQUE_PREFIX
from dragoman.vendor_tools.executor import ToolExecutor
from dragoman.vendor_tools.tool import SearchHit, ToolRunResult, VendorToolCall, search_result
from support.http_client import http_client
from support.scenarios import call
from support.scripted_backend import Scripted, serving
from support.vendor_tools import ONLY, OWN, QUESTION, asking, body, items, messages, scripted

HIT: Final = SearchHit("https://example.com/news", "News", "Release of Dragoman 1.0: May 5.")
ANSWER: Final = f"It was May ({HIT.url}): Release of Dragoman 1.0: May 5."
VENDORS: Final[dict[str, list[dict[str, Any]]]] = {
    "anthropic_messages": [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [
                {"type": "web_search_result", "url": "https://x", "title": "X", "encrypted_content": "Eqcj3"},
            ],
        },
    ],
    "openai_responses": [
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"},
    ],
}
"""Calls and results of the vendor itself."""


class Found(ToolExecutor):
    """Always finds the same."""

    async def run(self, call: VendorToolCall) -> ToolRunResult:
        return search_result([HIT], 1000)


class Vendor(Scripted):
    """A server of the client's API, the vendor's own or another."""

    support: bool | None = True

    def edits_context(self, request: v.Request) -> bool:
        return True

    def runs_vendor_tools(self) -> bool | None:
        return self.support


async def written(dialect: str, *, stream: bool) -> list[dict[str, Any]]:
    """What a client got of a search that the gateway made."""
    script = scripted(call(0, "web_search", query="dragoman"), [TextDelta(ANSWER)], asked=[])
    async with asking(script, VendorToolRunner({"web_search": Found()})) as http:
        if dialect == "anthropic_messages":
            return (await messages(http, stream, **ONLY[dialect]))[0]
        return (await items(http, stream, **ONLY[dialect]))[0]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("support", "executors"), [(True, True), (True, False), (None, False), (None, True)])
@pytest.mark.parametrize("dialect", sorted(VENDORS))
async def test_own_results_are_text_for_server_that_runs_tools(
    dialect: str, support: bool | None, executors: bool, stream: bool
) -> None:
    own = await written(dialect, stream=stream)
    asked: list[v.Request] = []
    backend = Vendor(scripted([TextDelta("Bye.")], asked=asked))
    backend.support = support
    question = {"role": "user", "content": QUESTION}
    past = [*VENDORS[dialect], *own]
    if dialect == "anthropic_messages":
        asking_again: dict[str, Any] = {
            "messages": [question, {"role": "assistant", "content": past}, {"role": "user", "content": "Thanks."}]
        }
    else:
        asking_again = {"input": [question, *past, {"role": "user", "content": "Thanks."}]}
    runner = VendorToolRunner({"web_search": Found()} if executors else {})
    gateway = Gateway([backend], vendor_tools=runner)
    tools = [OWN[dialect]] if executors else [*ONLY[dialect]["tools"], OWN[dialect]]
    async with serving(gateway) as (_, url), http_client(url) as http:
        path = dialects.get(dialect).path
        answer = await http.post(path, json=body(dialect, stream, tools=tools, **asking_again))
    assert answer.status_code == 200, answer.text
    (request,) = asked
    sent = json.dumps([part for message in request.messages for part in message.parts], default=str)
    assert OPAQUE_PREFIX not in sent
    assert [tool.kind == "function" for tool in request.tools] == ([True] if executors else [False, True])
    parts = [part for message in request.messages if message.role == "assistant" for part in message.parts]
    vendors = parts[:2]
    assert [isinstance(part, v.UnknownPart | v.Reasoning) for part in vendors] == [True, True]
    texts = [part.text for part in parts[2:] if isinstance(part, v.Text)]
    assert len(texts) == len(parts[2:])
    assert HIT.text in texts[0]
    assert texts[0].startswith('[Result of web_search {"query"')
    assert "".join(texts[1:]) == ANSWER
