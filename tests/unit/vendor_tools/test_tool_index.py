import json
import time

import pytest

from dragoman.core.messages import Tool
from dragoman.vendor_tools.tool import NO_TOOL_FOUND, definition_text, tools_result
from dragoman.vendor_tools.tool_index import MAX_KNOWN_CHARS, ToolIndex, known_weights, searched_texts, split_words


def tool(name: str, description: str = "", **parameters: str) -> Tool:
    properties = {key: {"type": "string", "description": about} for key, about in parameters.items()}
    return Tool(name, description, json.dumps({"type": "object", "properties": properties}))


TOOLS = [
    tool("github_create_issue", "Opens a new issue in a repository.", title="Its title"),
    tool("github_list_issues", "Lists issues of a repository.", state="open or closed"),
    tool("sendEmail", "Sends a message to a person.", recipient="Address"),
    tool("slack.post-message", "Posts to a channel.", channel="Where to post"),
    tool("HTTPGet", "Downloads a page.", url="Address of the page"),
    tool("weather", "Wetter: 天気を返す。", city="Ort"),
]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("create_pull_request", ["creat", "pull", "request"]),
        ("createPullRequest", ["creat", "pull", "request"]),
        ("HTTPServer2Go", ["http", "server", "2", "go"]),
        ("mcp__files.read-all", ["mcp", "fil", "read", "all"]),
        ("listing the issues", ["list", "issu"]),
        ("", []),
        ("天気 Zürich", ["天気", "zürich"]),
        ("_9_", ["9"]),
    ],
)
def test_names_are_split_into_words(text: str, words: list[str]) -> None:
    assert split_words(text) == words


def test_word_forms_have_one_stem() -> None:
    assert split_words("issues issue") == ["issu", "issu"]
    assert len(set(split_words("list lists listed listing"))) == 1
    assert len(set(split_words("query queries"))) == 1
    assert split_words("address") == ["address"]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("create an issue", "github_create_issue"),
        ("open issues listing", "github_list_issues"),
        ("send an email", "sendEmail"),
        ("post message", "slack.post-message"),
        ("recipient", "sendEmail"),
        ("http", "HTTPGet"),
        ("天気を返す", "weather"),
        ("slack.post-message", "slack.post-message"),
        ("WEATHER", "weather"),
    ],
)
def test_best_tool_is_first(query: str, best: str) -> None:
    assert ToolIndex(TOOLS).find(query, 5)[0].name == best


def test_named_tools_come_first_in_order_of_query() -> None:
    found = ToolIndex(TOOLS).find("sendEmail, github_create_issue", 2)
    assert [each.name for each in found] == ["sendEmail", "github_create_issue"]


@pytest.mark.parametrize("query", ["zebra", "", "the of a", "!?"])
def test_nothing_is_found(query: str) -> None:
    assert ToolIndex(TOOLS).find(query, 5) == []


def test_index_of_no_tools_finds_nothing() -> None:
    assert ToolIndex([]).find("issue", 5) == []


def test_limit_is_applied_and_order_is_stable() -> None:
    tools = [tool(f"paint_{n}") for n in range(10)]
    assert [each.name for each in ToolIndex(tools).find("paint", 3)] == ["paint_0", "paint_1", "paint_2"]


def test_nested_parameters_are_searched() -> None:
    inner = {"type": "object", "properties": {"postcode": {"description": "Zip"}}}
    schema = {"type": "object", "properties": {"places": {"type": "array", "items": inner}}}
    found = Tool("ship", "", json.dumps(schema))
    assert ToolIndex([*TOOLS, found]).find("postcode", 1) == [found]
    assert {"places", "postcode", "Zip"} <= set(searched_texts(found))


@pytest.mark.parametrize("schema", ["", "[]", "true", '{"properties": [1]}', "[" * 100_000, "9" * 10_000])
def test_unusual_schemas_are_ignored(schema: str) -> None:
    odd = Tool("odd_tool", "", schema)
    assert ToolIndex([odd]).find("odd", 1) == [odd]
    assert schema in definition_text(odd) or json.loads(definition_text(odd))["name"] == "odd_tool"


def test_cost_is_linear() -> None:
    """Twenty times the tools take less than a hundred times the CPU time, where the square would be four hundred."""

    def seconds(count: int) -> float:
        tools = [tool(f"tool_{n}_{n % 7}", "Does something with a file of the project. " * 5) for n in range(count)]
        best = float("inf")
        for _ in range(3):
            begun = time.process_time()
            ToolIndex(tools).find("file project tool", 5)
            best = min(best, time.process_time() - begun)
        return best

    assert seconds(4000) < 100 * seconds(200)


def test_result_has_whole_definitions_that_fit() -> None:
    result = tools_result(TOOLS, 300)
    assert 0 < len(result.tools) < len(TOOLS)
    heading, *lines = result.text.splitlines()
    assert [json.loads(line)["name"] for line in lines] == [each.name for each in result.tools]
    assert heading
    assert tools_result(TOOLS, 1).tools == (TOOLS[0],)
    assert tools_result([], 100).text == NO_TOOL_FOUND


def test_weights_of_large_definitions_are_not_kept() -> None:
    known_weights.cache_clear()
    small, large = tool("send", "Sends mail."), tool("report", "Writes " + "long " * MAX_KNOWN_CHARS)
    for _ in range(2):
        index = ToolIndex([small, large])
        assert [found.name for found in index.find("mail", 5)] == ["send"]
        assert [found.name for found in index.find("long", 5)] == ["report"]
    info = known_weights.cache_info()
    assert (info.currsize, info.hits) == (1, 1)
