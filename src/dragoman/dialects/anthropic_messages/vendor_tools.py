"""Tools of Messages that the vendor runs, when Dragoman runs them or has to say that it cannot.

    tools      {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
    response   {"type": "server_tool_use", "id": "srvtoolu_…", "name": "web_search", "input": {…}}
               {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_…", "content": […] or an error}
               {"type": "tool_search_tool_result", …, "content": {…, "tool_references": [{"tool_name": …}]}}

To add a kind of tool, add its versions to `_VERSIONS` and its result to `_RESULTS`.

Source: https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/web-search-tool, …/code-execution-tool,
…/tool-search-tool, …/web-fetch-tool, and the types in the anthropic package 2.13 (2026-11).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, cast

import msgspec
from msgspec import Raw

from dragoman.core.events import AnyEvent, VendorBlock
from dragoman.core.messages import (
    Document,
    Message,
    Part,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    UnknownPart,
    Usage,
)
from dragoman.core.response_details import CITATIONS
from dragoman.dialects.anthropic_messages import remote_tools
from dragoman.dialects.anthropic_messages.request_reader import SEARCH_RESULT
from dragoman.redaction.opaque_text import opaque, read_opaque
from dragoman.text.json_cursor import Cursor, Fields
from dragoman.vendor_tools.codec import TurnBuilder, VendorToolCodec, encode, string_argument
from dragoman.vendor_tools.tool import (
    CodeOutput,
    SearchHit,
    ToolFilter,
    ToolRunResult,
    UrlSources,
    VendorTool,
    VendorToolCall,
    error_text,
    output_text,
    page_text,
    search_text,
    tools_text,
)

NAME: Final = "anthropic_messages"
_CALL: Final = "server_tool_use"
_CALL_ID: Final = "srvtoolu_"
_VERSIONS: Final = re.compile(
    r"(?:(web_search|web_fetch|code_execution)|(tool_search)_tool_(regex|bm25))_\d{8}|(tool_search)_tool_(regex|bm25)"
)
_FOUND: Final = "tool_search_tool_search_result"
_REFERENCE: Final = "tool_reference"
_MCP: Final = "mcp"


class _ResultBlock(NamedTuple):
    """The block of a kind's results."""

    type: str
    write: Callable[[VendorTool, ToolRunResult], object]
    """Returns its `content`, unless the call failed."""
    read: Callable[[Cursor, Mapping[str, Tool]], str]
    """Returns what the model reads of a `content`, unless the call failed; it also gets the client's tools by name."""
    common_errors: bool = False
    """It has an error code for calls beyond `max_uses`."""
    has_message: bool = False
    """An error has a text."""


def _hits(tool: VendorTool, result: ToolRunResult) -> object:
    return [
        {
            "type": "web_search_result",
            "url": hit.url,
            "title": hit.title,
            "encrypted_content": opaque(hit.text),
            "page_age": hit.age or None,
        }
        for hit in result.hits
    ]


def _read_hits(content: Cursor, tools: Mapping[str, Tool]) -> str:
    hits = []
    for item in content.items():
        fields = item.fields()
        text = read_opaque(fields.string("encrypted_content")) or ""
        hits.append(SearchHit(fields.string("url"), fields.string("title"), text))
    return search_text(hits)


def _output(tool: VendorTool, result: ToolRunResult) -> object:
    output = result.output or CodeOutput(result.text)
    printed = {"stdout": output.stdout, "stderr": output.stderr, "return_code": output.return_code}
    return {"type": "code_execution_result", **printed, "content": []}


def _bash_output(tool: VendorTool, result: ToolRunResult) -> object:
    return {**cast(dict[str, object], _output(tool, result)), "type": "bash_code_execution_result"}


def _read_output(content: Cursor, tools: Mapping[str, Tool]) -> str:
    fields = content.fields()
    return output_text(CodeOutput(fields.string("stdout"), fields.string("stderr"), fields.integer("return_code") or 0))


def _page(tool: VendorTool, result: ToolRunResult) -> object:
    page = result.page
    if page is None:
        return {}
    source = {"type": "text", "media_type": "text/plain", "data": page.text}
    document: dict[str, object] = {"type": "document", "source": source, "title": page.title or None}
    if tool.citations:
        document["citations"] = {"enabled": True}
    return {
        "type": "web_fetch_result",
        "url": page.url,
        "content": document,
        "retrieved_at": page.retrieved_at or None,
    }


def _read_page(content: Cursor, tools: Mapping[str, Tool]) -> str:
    fields = content.fields()
    document = fields.require("content").fields()
    source = document.require("source").fields()
    is_text = source.string("type") == "text"
    text = source.string("data") if is_text else "The content of this page is not text."
    return page_text(fields.string("url"), document.string("title"), text)


def _references(tool: VendorTool, result: ToolRunResult) -> object:
    return {"type": _FOUND, "tool_references": [{"type": _REFERENCE, "tool_name": t.name} for t in result.tools]}


def _read_references(content: Cursor, tools: Mapping[str, Tool]) -> str:
    return tools_text([tools[name] for name in _referenced(content) if name in tools])


def _referenced(content: Cursor) -> list[str]:
    items = content.fields().items("tool_references") if content.kind == "object" else []
    return [item.fields().string("tool_name") for item in items]


_RESULTS: Final[Mapping[str, _ResultBlock]] = {
    "web_search": _ResultBlock("web_search_tool_result", _hits, _read_hits, common_errors=True),
    "web_fetch": _ResultBlock("web_fetch_tool_result", _page, _read_page, common_errors=True),
    "code_execution": _ResultBlock("code_execution_tool_result", _output, _read_output),
    "tool_search": _ResultBlock("tool_search_tool_result", _references, _read_references, has_message=True),
}
_PAGE: Final = _RESULTS["web_fetch"].type
_BASH: Final = _ResultBlock("bash_code_execution_tool_result", _bash_output, _read_output)
"""Result of code execution in the version whose code is a shell's commands."""
_BASH_VERSION: Final = "code_execution_20250825"
_BASH_NAME: Final = "bash_code_execution"
_BLOCKS: Final = {block.type: block for block in (*_RESULTS.values(), _BASH)}


def _declared(request: Request) -> tuple[VendorTool, ...]:
    server_names = tuple(tool.name for tool in request.tools if tool.kind != "function")
    tools = [_vendor_tool(request, n, server_names) for n, tool in enumerate(request.tools) if tool.kind != "function"]
    return (*filter(None, tools), *remote_tools.declared_servers(request))


def _vendor_tool(request: Request, number: int, server_names: tuple[str, ...]) -> VendorTool | None:
    tool = request.tools[number]
    match = _VERSIONS.fullmatch(tool.kind)
    if match is None:
        return None
    options = Fields(dict(tool.extra), f"$.tools[{number}]", Raw(b"{}"))
    location = options.object("user_location")
    return VendorTool(
        kind := match[1] or match[2] or match[4],
        tool.name or kind,
        tool.kind,
        options.integer("max_uses", minimum=1),
        tuple(item.string() for item in options.items("allowed_domains")),
        tuple(item.string() for item in options.items("blocked_domains")),
        location,
        max_content_tokens=options.integer("max_content_tokens", minimum=1),
        citations=(cites := _citations(options)),
        earlier_documents=sum(map(_is_document, _parts(request.messages))) if cites and kind == "web_fetch" else 0,
        url_sources=_url_sources(options, server_names),
        by_pattern="regex" in (match[3], match[5]),
    )


def _is_bash(call: VendorToolCall) -> bool:
    return call.tool.declared == _BASH_VERSION and bool(string_argument(call.arguments, "code"))


def _citations(options: Fields) -> bool:
    citations = options.pop("citations")
    return citations is not None and citations.kind == "object" and citations.fields().flag("enabled")


def _parts(messages: Iterable[Message]) -> Iterator[Part]:
    """Yields all parts, also those in results of calls, before the result."""
    for message in messages:
        for part in message.parts:
            yield from part.parts if isinstance(part, ToolResult) else ()
            yield part


def _is_document(part: Part) -> bool:
    """Returns whether a citation can refer to this part by the number of its document."""
    if isinstance(part, UnknownPart) and part.type == _PAGE:
        return not _error(Cursor(part.raw, part.path).fields().require("content"))
    if isinstance(part, Document):
        return SEARCH_RESULT not in part.extra
    return isinstance(part, UnknownPart) and part.type == "document"


def _url_sources(options: Fields, server_names: tuple[str, ...]) -> UrlSources:
    sources = options.pop("url_sources")
    if sources is None or sources.kind == "null":
        return UrlSources()
    fields = sources.fields()
    user = fields.pop("user_input")
    is_user_input = user is None or user.fields().require("type").one_of(("all", "none"), "source") == "all"
    client, server = _filter(fields, "client_tool_results"), _filter(fields, "server_tool_results")
    return UrlSources(is_user_input, client, server, server_names)


def _filter(sources: Fields, name: str) -> ToolFilter:
    written = sources.pop(name)
    if written is None:
        return ToolFilter()
    fields = written.fields()
    kind = fields.require("type").one_of(("all", "none", "only", "except"), "source")
    names = tuple(item.fields().require("name").string() for item in fields.items("tools"))
    return ToolFilter(names if kind in ("only", "except") else (), are_excluded=kind in ("all", "except"))


def _begin(call: VendorToolCall) -> list[AnyEvent]:
    if call.tool.kind == _MCP:
        return remote_tools.begin(call)
    block = {"type": _CALL, "id": _CALL_ID + call.id, "name": call.tool.name, "input": Raw(call.arguments.encode())}
    if _is_bash(call):
        command = encode({"command": string_argument(call.arguments, "code")})
        block |= {"name": _BASH_NAME, "input": Raw(command.encode())}
    return [VendorBlock(NAME, _CALL, encode(block))]


def _finish(call: VendorToolCall, result: ToolRunResult) -> list[AnyEvent]:
    if call.tool.kind == _MCP:
        return remote_tools.finish(call, result)
    block = _BASH if _is_bash(call) else _RESULTS[call.tool.kind]
    content = block.write(call.tool, result)
    if result.error is not None:
        code = "unavailable" if result.error == "max_uses_exceeded" and not block.common_errors else result.error
        message = {"error_message": result.text} if block.has_message else {}
        content = {"type": f"{block.type}_error", "error_code": code, **message}
    written = {"type": block.type, "tool_use_id": _CALL_ID + call.id, "content": content}
    return [VendorBlock(NAME, block.type, encode(written))]


def _as_functions(request: Request) -> tuple[Message, ...]:
    if not any(map(_has_calls, request.messages)):
        return request.messages
    tools = {tool.name: tool for tool in request.tools if tool.kind == "function"}
    out: list[Message] = []
    for message in request.messages:
        out += _split(message, tools) if _has_calls(message) else [message]
    return tuple(out)


def _found_tools(request: Request) -> Iterator[str]:
    """Yields names in the results of the vendor's tool search and of the client's own."""
    for part in (part for message in request.messages for part in message.parts):
        if isinstance(part, ToolResult):
            found = (each for each in part.parts if isinstance(each, UnknownPart) and each.type == _REFERENCE)
            yield from (Cursor(each.raw, each.path).fields().string("tool_name") for each in found)
        elif isinstance(part, UnknownPart) and part.type == _RESULTS["tool_search"].type:
            yield from _referenced(Cursor(part.raw, part.path).fields().require("content"))


def _has_calls(message: Message) -> bool:
    return message.role == "assistant" and any(
        isinstance(part, UnknownPart)
        and (part.type == _CALL or part.type in _BLOCKS or part.type in remote_tools.BLOCKS)
        for part in message.parts
    )


def _split(message: Message, tools: Mapping[str, Tool]) -> list[Message]:
    turn = TurnBuilder(message)
    has_pages = any(isinstance(part, UnknownPart) and part.type == _PAGE for part in message.parts)
    for part in message.parts:
        if has_pages and isinstance(part, Text):  # a citation refers to a document that the model gets as a result
            turn.add(msgspec.structs.replace(part, extra={k: raw for k, raw in part.extra.items() if k != CITATIONS}))
            continue
        if isinstance(part, UnknownPart) and part.type in remote_tools.BLOCKS:
            remote_tools.add_block(turn, part)
            continue
        if not isinstance(part, UnknownPart) or (part.type != _CALL and part.type not in _BLOCKS):
            turn.add(part)
            continue
        fields = Cursor(part.raw, part.path).fields()
        if part.type == _CALL:
            arguments = fields.object("input") or "{}"
            name = fields.require("name").string()
            if name == _BASH_NAME:
                name, arguments = "code_execution", encode({"code": string_argument(arguments, "command")})
            turn.add(ToolCall(fields.require("id").string(), name, arguments))
        else:
            content = fields.require("content")
            error = _error(content)
            text = error or _BLOCKS[part.type].read(content, tools)
            turn.add_result(fields.require("tool_use_id").string(), text, is_error=bool(error))
    return turn.messages()


def _error(content: Cursor) -> str:
    """Returns what the model reads of an error; "" if there is none."""
    fields = content.fields() if content.kind == "object" else None
    code = fields.string("error_code") if fields else ""
    return (fields.string("error_message") or error_text(code)) if fields and code else ""


def _count_uses(usage: Usage, uses: Mapping[str, int]) -> Usage:
    counts = {"web_search_requests": uses.get("web_search", 0), "web_fetch_requests": uses.get("web_fetch", 0)}
    if not any(counts.values()):
        return usage
    extra = usage.extra if usage.dialect == NAME else {}
    return msgspec.structs.replace(
        usage, extra={**extra, "server_tool_use": Raw(msgspec.json.encode(counts))}, dialect=NAME
    )


VENDOR_TOOLS: Final = VendorToolCodec(
    declared=_declared,
    begin=_begin,
    finish=_finish,
    reported_kinds=frozenset(_RESULTS),
    as_functions=_as_functions,
    found_tools=_found_tools,
    count_uses=_count_uses,
    options=frozenset({remote_tools.SERVERS}),
    server_options=frozenset({remote_tools.TOOLSET}),
    can_pause=True,
    has_citations=True,
)
