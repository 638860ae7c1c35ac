"""Tools of Responses that the vendor runs, when Dragoman runs them or has to say that it cannot.

    tools      {"type": "web_search"}
    response   {"type": "web_search_call", "id": "ws_…", "status": "completed", "action": {"type": "search", …}}
               {"type": "reasoning", "id": "rs_…", "summary": [], "encrypted_content": "…"}

The vendor's items do not contain what the model read of the results. A reasoning item after the call does: clients send
both back, so the model reads the results again. To add a kind of tool, add its types to `_KINDS` and its item to
`_ITEMS`.

Source: the types in the openai package 3.57, https://developers.openai.com/api/docs/guides/tools-web-search (2026-11).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from msgspec import Raw
from msgspec.structs import replace

from dragoman.core.events import AnyEvent, ReasoningDelta, VendorBlock, VendorBlockStart
from dragoman.core.messages import Message, Part, Reasoning, Request, Tool, ToolCall, UnknownPart
from dragoman.dialects.openai_responses import remote_tools
from dragoman.dialects.openai_responses.request_reader import NAME
from dragoman.dialects.openai_responses.tool_items import (
    SEARCH_OUTPUT,
    found_tools,
    is_client_search,
    is_of_client,
    write_tools,
)
from dragoman.redaction.opaque_text import opaque, read_opaque
from dragoman.text.json_cursor import Cursor, Fields
from dragoman.vendor_tools.codec import TurnBuilder, VendorToolCodec, encode, string_argument
from dragoman.vendor_tools.tool import (
    TOOL_SEARCH,
    SearchHit,
    ToolRunResult,
    VendorTool,
    VendorToolCall,
    error_text,
    search_text,
    tools_text,
)

Json: TypeAlias = dict[str, object]

_EMPTY: Final = Raw(b"{}")
_KINDS: Final[Mapping[str, str]] = {
    "web_search": "web_search",
    "web_search_2025_08_26": "web_search",
    "web_search_preview": "web_search",
    "web_search_preview_2025_03_11": "web_search",
    "code_interpreter": "code_execution",
    "file_search": "file_search",
    "image_generation": "image_generation",
    "mcp": "mcp",
    "tool_search": TOOL_SEARCH,
}
_MCP: Final = "mcp"
_NAMES: Final[Mapping[str, str]] = {"code_execution": "code_interpreter", "web_fetch": "open_page"}
"""Names for the model, where they differ from the kind."""


class _Item(NamedTuple):
    """The item of a kind's calls."""

    type: str
    prefix: str
    """Beginning of its id."""
    fields: Callable[[VendorToolCall, ToolRunResult | None], Json]
    """Returns its own fields; the result is None while the call runs."""
    arguments: Callable[[Fields], Json]
    """Returns the arguments of a past call."""
    began: tuple[str, ...] = ("in_progress",)
    ended: tuple[str, ...] = ("completed",)
    """Last part of the names of the events."""
    failed_status: str = "failed"


def _search(call: VendorToolCall, result: ToolRunResult | None) -> Json:
    query = string_argument(call.arguments, "query")
    action: Json = {"type": "search", "query": query, "queries": [query]}
    if result is not None and result.hits:
        action["sources"] = [{"type": "url", "url": hit.url} for hit in result.hits]
    return {"action": action}


def _search_arguments(fields: Fields) -> Json:
    action = fields.pop("action")
    inner = action.fields() if action is not None and action.kind == "object" else None
    return {"query": inner.string("query")} if inner else {}


def _page(call: VendorToolCall, result: ToolRunResult | None) -> Json:
    url, pattern = (string_argument(call.arguments, name) for name in ("url", "pattern"))
    if pattern.strip():
        return {"action": {"type": "find_in_page", "url": url, "pattern": pattern}}
    return {"action": {"type": "open_page", "url": url}}


def _page_arguments(fields: Fields) -> Json:
    action = fields.pop("action")
    if action is None or action.kind != "object":
        return {}
    inner = action.fields()
    pattern = inner.string("pattern")
    return {"url": inner.string("url"), **({"pattern": pattern} if pattern else {})}


def _file_search(call: VendorToolCall, result: ToolRunResult | None) -> Json:
    return {"queries": [string_argument(call.arguments, "query")], "results": None}


def _queries(fields: Fields) -> Json:
    return {"query": " ".join(item.string() for item in fields.items("queries"))}


def _code(call: VendorToolCall, result: ToolRunResult | None) -> Json:
    printed = None if result is None or result.error is not None else [{"type": "logs", "logs": result.text}]
    return {"code": string_argument(call.arguments, "code") or None, "container_id": "", "outputs": printed}


def _code_arguments(fields: Fields) -> Json:
    return {"code": fields.string("code")}


def _image(call: VendorToolCall, result: ToolRunResult | None) -> Json:
    return {"result": None}


def _tool_search(call: VendorToolCall, result: ToolRunResult | None) -> Json:
    return {"call_id": None, "execution": "server", "arguments": Raw(call.arguments.encode())}


def _tool_search_arguments(fields: Fields) -> Json:
    arguments = fields.pop("arguments")
    if arguments is None or arguments.kind != "object":
        return {}
    return dict(arguments.fields().remaining_with_nulls())


def _none(fields: Fields) -> Json:
    return {}


_ITEMS: Final[Mapping[str, _Item]] = {
    "web_search": _Item("web_search_call", "ws", _search, _search_arguments, ("in_progress", "searching")),
    "web_fetch": _Item("web_search_call", "ws", _page, _page_arguments, ("in_progress", "searching")),
    "code_execution": _Item("code_interpreter_call", "ci", _code, _code_arguments, ("in_progress", "interpreting")),
    "file_search": _Item("file_search_call", "fs", _file_search, _queries, ("in_progress", "searching")),
    "image_generation": _Item("image_generation_call", "ig", _image, _none),
    TOOL_SEARCH: _Item(
        "tool_search_call", "tsc", _tool_search, _tool_search_arguments, (), (), failed_status="incomplete"
    ),
}
_KIND_OF_ITEM: Final = {item.type: kind for kind, item in _ITEMS.items() if kind != "web_fetch"}
"""A fetch has the item of a search, with another action."""


def _declared(request: Request) -> tuple[VendorTool, ...]:
    declared = [
        _vendor_tool(request, tool, n)
        for n, tool in enumerate(request.tools)
        if tool.kind in _KINDS and not is_client_search(tool)
    ]
    search = next((tool for tool in declared if tool.kind == "web_search"), None)
    if search is None:
        return tuple(declared)
    name = _NAMES["web_fetch"]
    page = VendorTool("web_fetch", name, name, search.max_uses, search.allowed_domains, next_to="web_search")
    return (*declared, replace(page, can_find=True))


def _vendor_tool(request: Request, tool: Tool, number: int) -> VendorTool:
    kind = _KINDS[tool.kind]
    path = f"$.tools[{number}]"
    options = Fields(dict(tool.extra), path, _EMPTY)
    label = (options.string("server_label") or _MCP) if kind == _MCP else ""
    filters = options.pop("filters")
    domains = filters.fields().items("allowed_domains") if filters is not None and kind == "web_search" else []
    return VendorTool(
        kind,
        label if kind == _MCP else _NAMES.get(kind, kind),
        tool.kind,
        Fields(dict(request.extra), "$", _EMPTY).integer("max_tool_calls", minimum=1),
        allowed_domains=tuple(item.string() for item in domains),
        user_location=options.object("user_location") if kind == "web_search" else "",
        server=remote_tools.read_server(label, options, path) if kind == _MCP else None,
    )


def _item(call: VendorToolCall, status: str, result: ToolRunResult | None) -> str:
    item = _ITEMS[call.tool.kind]
    return encode({"type": item.type, "id": f"{item.prefix}_{call.id}", "status": status, **item.fields(call, result)})


def _begin(call: VendorToolCall) -> list[AnyEvent]:
    if call.tool.kind == _MCP:
        return remote_tools.begin(call)
    item = _ITEMS[call.tool.kind]
    return [VendorBlockStart(NAME, item.type, _item(call, "in_progress", None), item.began)]


def _finish(call: VendorToolCall, result: ToolRunResult) -> list[AnyEvent]:
    if call.tool.kind == _MCP:
        return remote_tools.finish(call, result)
    item = _ITEMS[call.tool.kind]
    status = "completed" if result.error is None else item.failed_status
    if call.tool.kind == TOOL_SEARCH:
        output = {"type": SEARCH_OUTPUT, "id": f"tso_{call.id}", "call_id": None, "execution": "server"}
        found = encode({**output, "status": status, "tools": write_tools(result.tools)})
        return [VendorBlock(NAME, item.type, _item(call, status, result)), VendorBlock(NAME, SEARCH_OUTPUT, found)]
    if result.error is not None:
        return [VendorBlock(NAME, item.type, _item(call, status, result))]
    done = VendorBlock(NAME, item.type, _item(call, "completed", result), item.ended)
    return [done, ReasoningDelta("", signature=opaque(result.text))]


def _as_functions(request: Request) -> tuple[Message, ...]:
    if not any(map(_has_calls, request.messages)):
        return request.messages
    tools = {tool.name: tool for tool in request.tools}
    out: list[Message] = []
    approvals = remote_tools.read_approvals(request.messages)
    for number, message in enumerate(request.messages):
        out += _split(message, number, tools, approvals) if _has_calls(message) else [message]
    return tuple(out)


def _found_tools(request: Request) -> Iterator[str]:
    for part in (part for message in request.messages for part in message.parts):
        if isinstance(part, UnknownPart) and part.type == SEARCH_OUTPUT:
            yield from (tool.name for tool in found_tools(part))


def _has_calls(message: Message) -> bool:
    if message.role != "assistant":
        return any(isinstance(part, UnknownPart) and part.type == remote_tools.ANSWER for part in message.parts)
    return any(
        _kind_of(part) is not None or _is_remote(part) or _result_text(part, {}) is not None for part in message.parts
    )


def _kind_of(part: Part) -> str | None:
    """Returns the kind of the tool that the vendor ran for this part; None: the vendor ran nothing."""
    kind = _KIND_OF_ITEM.get(part.type) if isinstance(part, UnknownPart) else None
    return None if kind == TOOL_SEARCH and isinstance(part, UnknownPart) and is_of_client(part) else kind


def _result_text(part: Part, tools: Mapping[str, Tool]) -> str | None:
    """Returns what the model read of a result, if it is in this part."""
    if isinstance(part, UnknownPart) and part.type == SEARCH_OUTPUT and not is_of_client(part):
        return tools_text([tools.get(tool.name, tool) for tool in found_tools(part)])
    return read_opaque(part.signature) if isinstance(part, Reasoning) and part.signature else None


def _is_remote(part: Part) -> bool:
    return isinstance(part, UnknownPart) and part.type in remote_tools.ITEMS


def _split(
    message: Message, number: int, tools: Mapping[str, Tool], approvals: remote_tools.Approvals
) -> list[Message]:
    if message.role != "assistant":
        rest = [p for p in message.parts if not isinstance(p, UnknownPart) or p.type != remote_tools.ANSWER]
        return [replace(message, parts=tuple(rest))] if rest else []
    turn = TurnBuilder(message)
    for n, part in enumerate(message.parts):
        if _result_text(part, tools) is not None:
            continue
        if isinstance(part, UnknownPart) and part.type in remote_tools.ITEMS:
            remote_tools.add_item(turn, part, approvals, f"mcp_{number}_{n}")
            continue
        if not isinstance(part, UnknownPart) or (kind := _kind_of(part)) is None:
            turn.add(part)
            continue
        fields = Cursor(part.raw, part.path).fields()
        kind = _kind(part.type, fields)
        call_id = fields.string("id") or f"ws_{number}_{n}"  # some clients omit it
        turn.add(ToolCall(call_id, _NAMES.get(kind, kind), encode(_ITEMS[kind].arguments(fields))))
        status = fields.get("status")
        failed = status is not None and status.string() == _ITEMS[kind].failed_status
        text = _result_text(message.parts[n + 1], tools) if n + 1 < len(message.parts) else None
        if failed and kind == TOOL_SEARCH:
            text = error_text("invalid_tool_input")
        elif text is not None:
            failed = False
        turn.add_result(call_id, _known_result(fields) if text is None else text, is_error=failed)
    return turn.messages()


def _kind(item_type: str, fields: Fields) -> str:
    action = fields.get("action")
    inner = action.fields() if action is not None and action.kind == "object" else None
    is_page = inner is not None and inner.string("type") in ("open_page", "find_in_page")
    return "web_fetch" if is_page else _KIND_OF_ITEM[item_type]


def _known_result(fields: Fields) -> str:
    """Returns what is known of a result without the text that the model read."""
    if fields.string("status") == "failed":
        return error_text("unavailable")
    action = fields.get("action")
    inner = action.fields() if action is not None and action.kind == "object" else None
    sources = [item.fields().string("url") for item in inner.items("sources")] if inner else []
    if sources:
        return search_text([SearchHit(url, url) for url in sources])
    return "The result of this call is no longer part of the conversation."


VENDOR_TOOLS: Final = VendorToolCodec(
    has_annotations=True,
    declared=_declared,
    begin=_begin,
    finish=_finish,
    reported_kinds=frozenset({*_ITEMS, _MCP}),
    as_functions=_as_functions,
    ask_approval=remote_tools.ask_approval,
    approved=remote_tools.approved,
    listed=remote_tools.listed,
    counts_together=True,
    found_tools=_found_tools,
)
