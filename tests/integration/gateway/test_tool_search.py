"""Tool search that the gateway runs for a scripted model: blocks, history and hidden definitions in all three APIs."""

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

import pytest

from dragoman import dialects, formats
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.text_mode.request import for_parse_mode
from dragoman.core import messages as v
from dragoman.core.events import TextDelta, UsageUpdate
from dragoman.gateway.gateway import NO_VENDOR_TOOLS, Gateway
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.prompting.chat_renderer import render_chat
from dragoman.vendor_tools.tool import NO_TOOL_FOUND
from support.fake_upstream import Server, server
from support.fake_upstream import whole as whole_body
from support.http_client import http_client
from support.scenarios import call
from support.scripted_backend import serving
from support.vendor_tools import asking, body, items, messages, scripted, whole

each_stream = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
BM25: Final = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
REGEX: Final = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
PARAMETERS: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Final[Mapping[str, str]] = {
    "get_weather": "Returns the weather of a city.",
    "createIssue": "Opens a ticket in the tracker.",
    "list_files": "Lists files in a folder.",
}
WEATHER: Final = call(0, "get_weather", city="Bern")
INTERNAL: Final = VendorToolRunner({}, search_above=2)


def deferred(*names: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "description": TOOLS[name], "input_schema": PARAMETERS, "defer_loading": True} for name in names
    ]


def functions(dialect: str) -> list[dict[str, Any]]:
    """All tools, as a client of this API offers them."""
    shown = [{"name": name, "description": about} for name, about in TOOLS.items()]
    match dialect:
        case "anthropic_messages":
            return [{**tool, "input_schema": PARAMETERS} for tool in shown]
        case "openai_chat":
            return [{"type": "function", "function": {**tool, "parameters": PARAMETERS}} for tool in shown]
    return [{"type": "function", **tool, "parameters": PARAMETERS} for tool in shown]


def loading(request: v.Request) -> dict[str, str]:
    return {tool.name: tool.loading for tool in request.tools}


def result_of(request: v.Request) -> str:
    """The text of the last result."""
    (result,) = (part for part in request.messages[-1].parts if isinstance(part, v.ToolResult))
    return "".join(part.text for part in result.parts if isinstance(part, v.Text))


def prompt(request: v.Request) -> str:
    """What a model reads that gets its tools in the prompt."""
    return "\n".join(f"{turn.role}: {turn.text}" for turn in render_chat(request, formats.get("hermes")))


def without_spaces(text: str) -> str:
    """The text as it is compared: clients write arguments with other spaces than the model."""
    return text.replace(" ", "")


@each_stream
@pytest.mark.parametrize(("declared", "query"), [(BM25, "weather in a city"), (REGEX, "(?i)WEATHER"), (REGEX, "^get_")])
async def test_messages_client_gets_references_and_then_call(
    declared: dict[str, Any], query: str, stream: bool
) -> None:
    asked: list[v.Request] = []
    script = scripted([TextDelta("I search."), *call(0, declared["name"], query=query)], WEATHER, asked=asked)
    async with asking(script) as http:
        content, reason = await messages(http, stream, tools=[declared, *deferred(*TOOLS)])
    text, use, result, own = content
    assert (text["text"], reason) == ("I search.", "tool_use")
    assert (use["type"], use["name"], use["input"]) == ("server_tool_use", declared["name"], {"query": query})
    assert (result["type"], result["tool_use_id"]) == ("tool_search_tool_result", use["id"])
    assert result["content"] == {
        "type": "tool_search_tool_search_result",
        "tool_references": [{"type": "tool_reference", "tool_name": "get_weather"}],
    }
    assert (own["type"], own["name"], own["input"]) == ("tool_use", "get_weather", {"city": "Bern"})
    assert loading(asked[0]) == {**dict.fromkeys(TOOLS, "deferred"), declared["name"]: "search"}
    assert loading(asked[1])["get_weather"] == "found"
    assert '"required": ["city"]' in result_of(asked[1])
    assert '"city"' not in prompt(asked[0])
    assert prompt(asked[1]).startswith(prompt(asked[0]))


@each_stream
async def test_results_are_read_back_and_tool_stays_callable(stream: bool) -> None:
    asked: list[v.Request] = []
    script = scripted(call(0, BM25["name"], query="weather"), WEATHER, [TextDelta("Sunny.")], asked=asked)
    fields = {"tools": [BM25, *deferred(*TOOLS)]}
    async with asking(script) as http:
        content, _ = await messages(http, stream, **fields)
        history = [
            *body("anthropic_messages", stream)["messages"],
            {"role": "assistant", "content": content},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": content[-1]["id"], "content": "20 °C"}],
            },
        ]
        (answer,), _ = await messages(http, stream, **fields, messages=history)
    assert answer["text"] == "Sunny."
    assert without_spaces(prompt(asked[2])).startswith(without_spaces(prompt(asked[1])))
    assert loading(asked[2]) == loading(asked[1])


@pytest.mark.parametrize(
    ("declared", "query", "message"),
    [
        (REGEX, "(unclosed", "not a valid regular expression"),
        (REGEX, "(?=x)y", "not a valid regular expression"),
        (REGEX, "x" * 201, "at most 200 characters"),
        (BM25, " ", "Expected a text"),
        (BM25, "x" * 1001, "at most 1000 characters"),
    ],
)
async def test_invalid_query_is_error_block_that_model_reads_again(
    declared: dict[str, Any], query: str, message: str
) -> None:
    asked: list[v.Request] = []
    script = scripted(call(0, declared["name"], query=query), [TextDelta("Sorry.")], [TextDelta("Bye.")], asked=asked)
    fields = {"tools": [declared, *deferred(*TOOLS)]}
    async with asking(script) as http:
        content, _ = await messages(http, False, **fields)
        error = content[1]["content"]
        assert (error["type"], error["error_code"]) == ("tool_search_tool_result_error", "invalid_tool_input")
        assert message in error["error_message"]
        history = [*body("", False)["messages"], {"role": "assistant", "content": content}]
        await messages(http, False, **fields, messages=[*history, {"role": "user", "content": "Thanks."}])
    assert without_spaces(prompt(asked[2])).startswith(without_spaces(prompt(asked[1])))
    result = asked[1].messages[-1].parts[0]
    assert isinstance(result, v.ToolResult)
    assert result.is_error


@pytest.mark.parametrize(("declared", "query"), [(BM25, "zebra"), (REGEX, "zebra")])
async def test_nothing_found_is_empty_list(declared: dict[str, Any], query: str) -> None:
    asked: list[v.Request] = []
    script = scripted(call(0, declared["name"], query=query), [TextDelta("No tool.")], asked=asked)
    async with asking(script) as http:
        content, _ = await messages(http, False, tools=[declared, *deferred(*TOOLS)])
    assert content[1]["content"]["tool_references"] == []
    assert result_of(asked[1]) == NO_TOOL_FOUND


async def test_backtracking_pattern_ends_at_once() -> None:
    asked: list[v.Request] = []
    script = scripted(call(0, REGEX["name"], query="^(a+)+$"), [TextDelta("None.")], asked=asked)
    tools = [REGEX, {"name": "f", "description": "a" * 5000 + "b", "input_schema": PARAMETERS, "defer_loading": True}]
    async with asking(script) as http:
        content, _ = await messages(http, False, tools=tools)
    assert content[1]["content"]["tool_references"] == []


@each_stream
async def test_call_without_search_is_valid(stream: bool) -> None:
    script = scripted(WEATHER, asked=[])
    async with asking(script) as http:
        content, reason = await messages(http, stream, tools=[BM25, *deferred(*TOOLS)])
    assert [(block["type"], block["name"]) for block in content] == [("tool_use", "get_weather")]
    assert reason == "tool_use"


async def test_model_is_reasked_with_schema_of_deferred_tool() -> None:
    asked: list[v.Request] = []
    script = scripted(call(0, "get_weather", town=[1]), WEATHER, asked=asked)
    async with asking(script) as http:
        content, _ = await messages(http, False, tools=[BM25, *deferred(*TOOLS)])
    assert content[-1]["input"] == {"city": "Bern"}
    assert json.dumps(PARAMETERS, separators=(",", ":")) in result_of(asked[1])
    assert loading(asked[1])[BM25["name"]] == "search"


async def test_tool_that_must_be_called_is_in_prompt() -> None:
    asked: list[v.Request] = []
    choice = {"type": "tool", "name": "get_weather"}
    async with asking(scripted(WEATHER, asked=asked)) as http:
        content, _ = await messages(http, False, tools=[BM25, *deferred(*TOOLS)], tool_choice=choice)
    assert content[0]["name"] == "get_weather"
    assert loading(asked[0])["get_weather"] == "listed"
    assert asked[0].tool_choice.name == "get_weather"


async def test_required_call_is_still_required_after_search() -> None:
    asked: list[v.Request] = []
    script = scripted(call(0, BM25["name"], query="weather"), WEATHER, asked=asked)
    async with asking(script) as http:
        tools = [BM25, *deferred(*TOOLS)]
        content, _ = await messages(http, False, tools=tools, tool_choice={"type": "any"})
    assert content[-1]["name"] == "get_weather"
    assert [request.tool_choice.mode for request in asked] == ["required", "required"]


async def test_choice_of_search_is_free_after_it() -> None:
    asked: list[v.Request] = []
    script = scripted(call(0, BM25["name"], query="weather"), [TextDelta("Found.")], asked=asked)
    async with asking(script) as http:
        choice = {"type": "tool", "name": BM25["name"]}
        await messages(http, False, tools=[BM25, *deferred(*TOOLS)], tool_choice=choice)
    assert [request.tool_choice.mode for request in asked] == ["named", "auto"]


async def test_search_without_deferred_tools_is_hidden() -> None:
    asked: list[v.Request] = []
    tools = [BM25, {"name": "read", "input_schema": PARAMETERS}]
    async with asking(scripted([TextDelta("Hi.")], asked=asked)) as http:
        await messages(http, False, tools=tools)
    assert [tool.name for tool in asked[0].tools if tool.kind == "function"] == ["read"]


async def test_long_results_contain_whole_definitions() -> None:
    asked: list[v.Request] = []
    tools = [BM25] + [
        {"name": f"paint_{n}", "description": "x" * 400, "input_schema": PARAMETERS, "defer_loading": True}
        for n in range(5)
    ]
    script = scripted(call(0, BM25["name"], query="paint"), [TextDelta("Ok.")], asked=asked)
    async with asking(script, VendorToolRunner({}, max_result_chars=1200)) as http:
        content, _ = await messages(http, False, tools=tools)
    assert [each["tool_name"] for each in content[1]["content"]["tool_references"]] == ["paint_0", "paint_1"]
    definitions = [json.loads(line) for line in result_of(asked[1]).splitlines()[1:]]
    assert [each["name"] for each in definitions] == ["paint_0", "paint_1"]


@each_stream
@pytest.mark.parametrize("dialect", ["anthropic_messages", "openai_chat", "openai_responses"])
async def test_client_does_not_see_internal_search(dialect: str, stream: bool) -> None:
    asked: list[v.Request] = []
    first = [TextDelta("I look."), *call(0, "tool_search", query="weather"), UsageUpdate(v.Usage(100, 10))]
    second = [TextDelta("Found."), *WEATHER, UsageUpdate(v.Usage(150, 20))]
    async with asking(scripted(first, second, asked=asked), INTERNAL) as http:
        reply = await whole(http, dialect, body(dialect, stream, tools=functions(dialect)))
    written = json.dumps(reply)
    assert "get_weather" in written
    assert not any(word in written for word in ('"tool_search', "server_tool_use", "tool_reference"))
    assert [tool.name for tool in asked[0].tools if tool.loading == "search"] == ["tool_search"]
    (about,) = (tool.description for tool in asked[0].tools if tool.loading == "search")
    assert "- get_weather: Returns the weather of a city" in about
    assert loading(asked[1])["get_weather"] == "found"
    if not stream:
        usage = reply["usage"]
        assert 250 in usage.values()
        assert 30 in usage.values()
    if dialect == "anthropic_messages" and not stream:
        assert reply["content"][0]["text"] == "I look.\n\nFound."
        assert reply["content"][1]["id"] == "call_0"


@pytest.mark.parametrize(("count", "is_deferred"), [(2, False), (3, True)])
async def test_internal_search_begins_above_limit(count: int, is_deferred: bool) -> None:
    asked: list[v.Request] = []
    async with asking(scripted([TextDelta("Hi.")], asked=asked), INTERNAL) as http:
        await whole(http, "openai_chat", body("openai_chat", False, tools=functions("openai_chat")[:count]))
    assert ("deferred" in loading(asked[0]).values()) is is_deferred


async def test_internal_search_has_name_of_its_own() -> None:
    asked: list[v.Request] = []
    own = {"type": "function", "function": {"name": "tool_search", "parameters": PARAMETERS}}
    async with asking(scripted(call(0, "tool_search", city="x"), asked=asked), INTERNAL) as http:
        tools = [*functions("openai_chat"), own]
        reply = await whole(http, "openai_chat", body("openai_chat", False, tools=tools))
    assert reply["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "tool_search"
    assert loading(asked[0])["tool_search_1"] == "search"


async def test_internal_search_that_never_ends_is_incomplete() -> None:
    asked: list[v.Request] = []
    search = call(0, "tool_search", query="weather")
    runner = VendorToolRunner({}, max_rounds=2, search_above=2)
    async with asking(scripted(search, search, asked=asked), runner) as http:
        content, reason = await messages(http, False, tools=functions("anthropic_messages"))
    assert (content, reason, len(asked)) == ([], "max_tokens", 2)


async def test_prompt_of_twenty_turns_only_grows_at_its_end() -> None:
    """Also in modes in which the server renders the tools: those that it gets do not change."""
    asked: list[v.Request] = []
    names = [*TOOLS, *(f"tool_{n}" for n in range(17))]
    tools = [
        {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": PARAMETERS}}
        for name in names
    ]
    script = scripted(*(call(0, name, city="Bern") for name in names), asked=asked)
    history: list[dict[str, Any]] = [{"role": "user", "content": "Begin."}]
    async with asking(script, INTERNAL) as http:
        for _ in names:
            reply = await whole(http, "openai_chat", body("openai_chat", False, tools=tools, messages=history))
            message = reply["choices"][0]["message"]
            result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "done"}
            history += [message, result]
    prompts = [prompt(request) for request in asked]
    assert len(prompts) == len(names)
    assert all(later.startswith(earlier) for earlier, later in pairwise(prompts))
    shown = [for_parse_mode(request).tools for request in asked]
    assert all(each == shown[0] for each in shown)
    assert [tool.name for tool in asked[-1].tools if tool.loading == "found"] == names[:-1]


@pytest.mark.parametrize("dialect", ["anthropic_messages", "openai_chat", "openai_responses"])
async def test_server_gets_found_tools_last(dialect: str) -> None:
    asked: list[v.Request] = []
    script = scripted(call(0, "tool_search", query="ticket"), [TextDelta("Ok.")], asked=asked)
    async with asking(script, INTERNAL) as http:
        await whole(http, "openai_chat", body("openai_chat", False, tools=functions("openai_chat")))
    sent = [json.loads(dialects.get(dialect).write_request(request, "m").body)["tools"] for request in asked]
    names = [[tool.get("function", tool)["name"] for tool in tools] for tools in sent]
    assert names == [["tool_search"], ["tool_search", "createIssue"]]


async def test_nothing_changes_without_declaration_and_setting() -> None:
    asked: list[v.Request] = []
    tools = [{key: value for key, value in tool.items() if key != "defer_loading"} for tool in deferred(*TOOLS)]
    async with asking(scripted([TextDelta("Hi.")], asked=asked)) as http:
        await messages(http, False, tools=tools)
    assert loading(asked[0]) == dict.fromkeys(TOOLS, "listed")


def deferred_functions(*, in_namespace: bool = False) -> list[dict[str, Any]]:
    tools = [{**tool, "defer_loading": True} for tool in functions("openai_responses")]
    return (
        [{"type": "namespace", "name": "crm", "description": "Customers.", "tools": tools}] if in_namespace else tools
    )


@each_stream
@pytest.mark.parametrize("in_namespace", [False, True])
async def test_responses_client_gets_search_items_and_sends_them_back(in_namespace: bool, stream: bool) -> None:
    asked: list[v.Request] = []
    name = "crm__get_weather" if in_namespace else "get_weather"
    script = scripted(
        call(0, "tool_search", query="weather"), call(0, name, city="Bern"), [TextDelta("Sunny.")], asked=asked
    )
    fields = {"tools": [{"type": "tool_search"}, *deferred_functions(in_namespace=in_namespace)]}
    async with asking(script) as http:
        output, events = await items(http, stream, **fields)
        search, found, own = output
        question = body("openai_responses", stream)["input"]
        result = {"type": "function_call_output", "call_id": own["call_id"], "output": "20 °C"}
        (answer,), _ = await items(http, stream, **fields, input=[*question, *output, result])
    assert (search["type"], search["execution"], search["arguments"]) == (
        *("tool_search_call", "server"),
        {"query": "weather"},
    )
    assert (found["type"], found["status"]) == ("tool_search_output", "completed")
    (tool,) = found["tools"][0]["tools"] if in_namespace else found["tools"]
    assert (tool["name"], tool["parameters"]) == ("get_weather", PARAMETERS)
    assert (own["type"], own["name"]) == ("function_call", "get_weather")
    assert answer["content"][0]["text"] == "Sunny."
    assert without_spaces(prompt(asked[2])).startswith(without_spaces(prompt(asked[1])))
    assert loading(asked[2]) == loading(asked[1])
    assert loading(asked[1])[name] == "found"
    assert not stream or events.count("response.output_item.done") == 3


async def test_responses_error_is_incomplete_search() -> None:
    asked: list[v.Request] = []
    script = scripted(call(0, "tool_search", query=""), [TextDelta("Sorry.")], [TextDelta("Bye.")], asked=asked)
    fields = {"tools": [{"type": "tool_search"}, *deferred_functions()]}
    async with asking(script) as http:
        output, _ = await items(http, False, **fields)
        question = body("openai_responses", False)["input"]
        await items(http, False, **fields, input=[*question, *output, {"role": "user", "content": "Thanks."}])
    assert [(item["type"], item["status"]) for item in output[:2]] == [
        ("tool_search_call", "incomplete"),
        ("tool_search_output", "incomplete"),
    ]
    past = asked[2].messages[2].parts[0]
    assert isinstance(past, v.ToolResult)
    assert past.is_error


@each_stream
@pytest.mark.parametrize("mode", ["native", "parse", "prompt", "constrained"])
@pytest.mark.parametrize("internal", [False, True])
async def test_search_works_in_each_tool_mode(internal: bool, mode: str, stream: bool) -> None:
    """What the server is sent in both rounds: the tools before the conversation, and the found definition."""
    name = "tool_search" if internal else BM25["name"]
    search, weather = {"name": name, "arguments": {"query": "weather"}}, {"name": "get_weather"}
    rounds = [search, {**weather, "arguments": {"city": "Bern"}}]

    async def play(far: Server, writer: Any) -> None:
        written = rounds[len(far.asked) - 1]
        if mode == "native":
            function = {"name": written["name"], "arguments": json.dumps(written["arguments"])}
            message: dict[str, Any] = {
                "tool_calls": [{"index": 0, "id": f"c{len(far.asked)}", "type": "function", "function": function}]
            }
        else:
            message = {"content": f"<tool_call>\n{json.dumps(written)}\n</tool_call>"}
        choice = {"index": 0, "delta": message, "finish_reason": None}
        end = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if mode == "native" else "stop"}
        if json.loads(far.asked[-1][2]).get("stream"):
            data = [json.dumps({"id": "x", "choices": [each]}) for each in (choice, end)]
            said = "".join(f"data: {each}\n\n" for each in [*data, "[DONE]"])
            await whole_body(200, said, "text/event-stream")(far, writer)
        else:
            complete = {"index": 0, "message": message, "finish_reason": end["finish_reason"]}
            await whole_body(200, json.dumps({"id": "x", "choices": [complete]}))(far, writer)

    fields: dict[str, Any] = {"tool_mode": "prompt" if mode == "constrained" else mode}
    if mode == "constrained":
        fields["provider"] = "sglang"
    tools = functions("anthropic_messages") if internal else [BM25, *deferred(*TOOLS)]
    async with server(play) as far:
        config = HttpConfig(
            f"{far.url}/v1", models=("m",), call_format="hermes", max_retries=0, auto_probe=False, **fields
        )
        gateway = Gateway([HttpBackend("far", config, {})], vendor_tools=INTERNAL if internal else NO_VENDOR_TOOLS)
        async with serving(gateway) as (_, url), http_client(url) as http:
            content, reason = await messages(http, stream, tools=tools)
    own = [block for block in content if block["type"] == "tool_use"]
    assert [(block["name"], block["input"]) for block in own] == [("get_weather", {"city": "Bern"})]
    assert ("tool_search_tool_result" in str(content)) is not internal
    assert (reason, len(far.asked)) == ("tool_use", 2)
    sent = [json.loads(text) for _, _, text in far.asked]
    names = [[tool["function"]["name"] for tool in each.get("tools", ())] for each in sent]
    assert names == {"native": [[name], [name, "get_weather"]], "parse": [[name], [name]]}.get(mode, [[], []])
    first, second = ([message["content"] for message in each["messages"]] for each in sent)
    assert second[: len(first)] == first
    assert "You can call these tools now" in str(second[len(first) :])
    if mode == "constrained":
        first_schema, second_schema = (json.dumps(each["response_format"]) for each in sent)
        assert ("get_weather" in first_schema, "get_weather" in second_schema) == (False, True)
        assert "createIssue" not in second_schema


async def test_example_in_found_definition_is_not_copied_call() -> None:
    """The definition is the client's own, as if it were listed before the conversation."""
    about = 'Returns the weather. Example: {"name": "get_weather", "arguments": {"city": "Bern"}}'
    tools = [BM25, {**deferred("get_weather")[0], "description": about}]
    warnings = []
    for declared in (True, False):
        asked: list[v.Request] = []
        name = BM25["name"] if declared else "tool_search"
        offered = tools if declared else [*functions("anthropic_messages")[1:], {**tools[1], "defer_loading": False}]
        script = scripted(call(0, name, query="weather"), WEATHER, asked=asked)
        async with asking(script, INTERNAL) as http:
            answer = await http.post("/v1/messages", json=body("anthropic_messages", False, tools=offered))
        assert about.partition("{")[0] in result_of(asked[1])
        warnings.append(answer.headers.get("x-dragoman-warnings"))
    assert warnings == ["estimated_usage"] * 2


async def test_stored_response_is_continued_with_found_tools() -> None:
    asked: list[v.Request] = []
    script = scripted(call(0, "tool_search", query="weather"), [TextDelta("Found.")], [TextDelta("Bye.")], asked=asked)
    tools = [{"type": "tool_search"}, *deferred_functions()]
    async with asking(script) as http:
        first = await whole(http, "openai_responses", body("openai_responses", False, tools=tools))
        await items(http, False, tools=tools, previous_response_id=first["id"], input="Thanks.")
    assert loading(asked[2])["get_weather"] == "found"
    assert without_spaces(prompt(asked[2])).startswith(without_spaces(prompt(asked[1])))


async def test_summary_of_conversation_does_not_list_deferred_tools() -> None:
    asked: list[v.Request] = []
    tools = functions("openai_responses")
    async with asking(scripted([TextDelta("Summary.")], asked=asked), INTERNAL) as http:
        history = [{"role": "user", "content": "Hello."}, {"type": "compaction_trigger"}]
        answer = await http.post(
            "/v1/responses", json=body("openai_responses", False, tools=tools, input=history, store=False)
        )
    assert answer.status_code == 200, answer.text
    assert asked[0].tool_choice.mode == "none"
    assert loading(asked[0]) == {**dict.fromkeys(TOOLS, "deferred"), "tool_search": "search"}
