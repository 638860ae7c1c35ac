"""Finds tools whose definitions are not in the prompt; needs no settings and no network.

    {"query": "create an issue"}       by words: BM25 (`vendor_tools/tool_index.py`)
    {"query": "(?i)issue|ticket"}      by a regular expression, for `tool_search_tool_regex`

The function's description lists the tools, and their definitions are in the results, at the end of the prompt. So what
precedes the conversation never changes, and a prompt cache stays valid. Regular expressions come from the model; the
validator's engine matches them in linear time.

Source: https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/tool-search-tool,
https://developers.openai.com/api/docs/guides/tools-tool-search (2026-11).
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final

from dragoman.core.errors import ConfigError
from dragoman.core.messages import JsonText, Tool
from dragoman.off_loop import off_loop
from dragoman.vendor_tools.codec import string_argument
from dragoman.vendor_tools.executor import ToolExecutor
from dragoman.vendor_tools.tool import (
    TOOL_SEARCH,
    ToolRunResult,
    VendorTool,
    VendorToolCall,
    error_result,
    invalid_input,
    tools_result,
)
from dragoman.vendor_tools.tool_index import ToolIndex, searched_texts

MAX_FOUND: Final = 5
"""Maximum tools of a result, as Anthropic's search returns."""
MAX_PATTERN_CHARS: Final = 200
MAX_QUERY_CHARS: Final = 1000
MAX_LIST_CHARS: Final = 20_000
"""Maximum characters of the list of tools in the function's description."""
MAX_LINE_CHARS: Final = 80
"""Maximum characters of a tool's description in that list."""
_MAX_CHARS: Final = 100_000
"""Maximum characters of a result; the gateway's own limit is usually lower."""
_MAX_ON_LOOP: Final = 50
"""Number of tools up to which a search takes less than about 5 ms, so that no thread is needed."""
_SENTENCE_END: Final = re.compile(r"[.!?](?=\s|$)|\n|。")
_WORDS_ABOUT: Final = (
    "Finds tools by name or by words about what they do, and returns their parameters. Each tool of this list has to "
    "be found once before it can be called:"
)
_PATTERN_ABOUT: Final = (
    "Finds tools by a regular expression that is searched for in their names, descriptions and parameters, and returns "
    "their parameters. Each tool of this list has to be found once before it can be called:"
)
_WORDS_QUERY: Final = "Names of tools, or words about what is needed."
_PATTERN_QUERY: Final = "A regular expression, such as (?i)issue|ticket."


class ToolSearch(ToolExecutor):
    """Searches among the deferred tools of a request."""

    def function(self, tool: VendorTool) -> Tool:
        """Returns the function, whose description lists the tools."""
        query = {"type": "string", "description": _PATTERN_QUERY if tool.by_pattern else _WORDS_QUERY}
        parameters = {"type": "object", "properties": {"query": query}, "required": ["query"]}
        about = _PATTERN_ABOUT if tool.by_pattern else _WORDS_ABOUT
        listed = _list(tool.deferred, described=tool.is_internal)
        return Tool(tool.name, f"{about}\n{listed}", json.dumps(parameters))

    async def run(self, call: VendorToolCall) -> ToolRunResult:
        """Searches for the query of the call."""
        query = query_of(call.arguments)
        most = MAX_PATTERN_CHARS if call.tool.by_pattern else MAX_QUERY_CHARS
        if not query.strip():
            return invalid_input('Expected a text in "query".')
        if len(query) > most:
            return invalid_input(f"Expected a query of at most {most} characters, got {len(query)}.")
        search = _search_by_pattern if call.tool.by_pattern else _search_by_words
        return await off_loop(len(call.tool.deferred) > _MAX_ON_LOOP, search, query, call.tool.deferred)


BUILT_IN: Final[Mapping[str, ToolExecutor]] = {TOOL_SEARCH: ToolSearch()}
"""Executors that need no settings, by kind of tool."""


def query_of(arguments: JsonText) -> str:
    """Returns what a call searches for; also under the names that models use for it."""
    return string_argument(arguments, "query", "pattern", "name", "tool_name")


def _search_by_words(query: str, tools: Sequence[Tool]) -> ToolRunResult:
    return tools_result(ToolIndex(tools).find(query, MAX_FOUND), _MAX_CHARS)


def _search_by_pattern(query: str, tools: Sequence[Tool]) -> ToolRunResult:
    try:
        is_match = _matcher(query)
    except ConfigError:  # the validator is not installed
        return error_result("unavailable")
    if is_match is None:
        return invalid_input("The query is not a valid regular expression. Lookarounds are not supported.")
    found = (tool for tool in tools if any(map(is_match, searched_texts(tool))))
    return tools_result([*islice(found, MAX_FOUND)], _MAX_CHARS)


def _list(tools: Sequence[Tool], *, described: bool) -> str:
    """Returns names, and first sentences if they are wanted and fit; as many tools as fit."""
    if described:
        lines = [
            f"- {tool.name}: {line}" if (line := _first_sentence(tool.description)) else tool.name for tool in tools
        ]
        if sum(map(len, lines)) <= MAX_LIST_CHARS:
            return "\n".join(lines)
    names, chars = list[str](), 0
    for tool in tools:
        chars += len(tool.name) + 2
        if chars > MAX_LIST_CHARS:
            return f"{', '.join(names)} and {len(tools) - len(names)} more"
        names.append(tool.name)
    return ", ".join(names)


def _first_sentence(text: str) -> str:
    text = text.strip()
    end = _SENTENCE_END.search(text)
    line = text[: end.start()] if end else text
    return line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS].rpartition(' ')[0]} …"


def _matcher(pattern: str) -> Callable[[str], bool] | None:
    """Returns what matches the pattern; None if it is invalid.

    Raises:
        ConfigError: The validator is not installed.
    """
    from dragoman.guard.validation.validator import regular_matcher  # needs an extra

    return regular_matcher(pattern)
