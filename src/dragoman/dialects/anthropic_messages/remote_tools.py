"""MCP servers that requests of Messages declare, and the blocks of their calls.

    request    "mcp_servers": [{"type": "url", "name": "books", "url": "https://…", "authorization_token": "…"}]
               "tools": [{"type": "mcp_toolset", "mcp_server_name": "books", "configs": {"add": {"enabled": false}}}]
    response   {"type": "mcp_tool_use", "id": "mcptoolu_…", "name": "add", "server_name": "books", "input": {…}}
               {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_…", "is_error": false, "content": […]}

Source: https://docs.anthropic.com/en/docs/agents-and-tools/mcp-connector, types of anthropic 2.13 (2026-11).
"""

from typing import Final

from msgspec import Raw

from dragoman.core.events import AnyEvent, VendorBlock
from dragoman.core.messages import Request, ToolCall, UnknownPart
from dragoman.text.json_cursor import Cursor, Fields
from dragoman.vendor_tools.codec import TurnBuilder, encode
from dragoman.vendor_tools.remote import RemoteServer, RemoteToolFilter, function_name
from dragoman.vendor_tools.tool import ToolRunResult, VendorTool, VendorToolCall

SERVERS: Final = "mcp_servers"
TOOLSET: Final = "mcp_toolset"
_NAME: Final = "anthropic_messages"
_CALL: Final = "mcp_tool_use"
_RESULT: Final = "mcp_tool_result"
_LISTING: Final = "mcp_tool_listing"
BLOCKS: Final = frozenset({_CALL, _RESULT, _LISTING})
_CALL_ID: Final = "mcptoolu_"


def declared_servers(request: Request) -> list[VendorTool]:
    """Returns the declared servers.

    Raises:
        RequestError: A field is wrong.
    """
    raw = request.extra.get(SERVERS)
    if raw is None or bytes(raw).strip() in (b"[]", b"null"):
        return []
    servers = []
    for item in Cursor(raw, f"$.{SERVERS}").items():
        fields = item.fields()
        server = _server(request, fields, item.path)
        servers.append(VendorTool("mcp", server.label, SERVERS, server=server))
    return servers


def _server(request: Request, fields: Fields, path: str) -> RemoteServer:
    name, url, token = fields.string("name"), fields.string("url"), fields.string("authorization_token")
    allowed, excluded = RemoteToolFilter(), tuple[str, ...]()
    options = fields.pop("tool_configuration")
    if options is not None and options.kind == "object":
        allowed = _configured(options.fields())
    for number, tool in enumerate(request.tools):
        if tool.kind == TOOLSET:
            toolset = Fields(dict(tool.extra), f"$.tools[{number}]", Raw(b"{}"))
            if toolset.string("mcp_server_name") == name:
                allowed, excluded = _of_toolset(toolset)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return RemoteServer(name or SERVERS, url, f"{path}.url", headers, allowed, excluded)


def _configured(options: Fields) -> RemoteToolFilter:
    if not options.flag("enabled", default=True):
        return RemoteToolFilter(())
    names = options.pop("allowed_tools")
    if names is None or names.kind == "null":
        return RemoteToolFilter()
    return RemoteToolFilter(tuple(item.string() for item in names.items()))


def _of_toolset(toolset: Fields) -> tuple[RemoteToolFilter, tuple[str, ...]]:
    """Returns which tools are allowed, and which are not."""
    default = toolset.pop("default_config")
    enabled = default is None or default.kind != "object" or default.fields().flag("enabled", default=True)
    configs = toolset.pop("configs")
    by_name: dict[str, bool] = {}
    if configs is not None and configs.kind == "object":
        fields = configs.fields()
        for name in tuple(fields.remaining()):
            by_name[name] = fields.require(name).fields().flag("enabled", default=enabled)
    if enabled:
        return RemoteToolFilter(), tuple(name for name, on in by_name.items() if not on)
    return RemoteToolFilter(tuple(name for name, on in by_name.items() if on)), ()


def begin(call: VendorToolCall) -> list[AnyEvent]:
    """Returns the events of a call; none for a list of tools, which the API does not show."""
    tool = call.tool
    if tool.remote is None or tool.server is None:
        return []
    block = {"type": _CALL, "id": _CALL_ID + call.id, "name": tool.remote.name, "server_name": tool.server.label}
    return [VendorBlock(_NAME, _CALL, encode({**block, "input": Raw(call.arguments.encode())}))]


def finish(call: VendorToolCall, result: ToolRunResult) -> list[AnyEvent]:
    """Returns the events of its result."""
    if call.tool.remote is None:
        return []
    content = [{"type": "text", "text": result.text, "citations": None}]
    block = {"type": _RESULT, "tool_use_id": _CALL_ID + call.id, "is_error": result.error is not None}
    return [VendorBlock(_NAME, _RESULT, encode({**block, "content": content}))]


def add_block(turn: TurnBuilder, part: UnknownPart) -> None:
    """Adds a block of a past response as a call or its result."""
    fields = Cursor(part.raw, part.path).fields()
    if part.type == _CALL:
        name = function_name(fields.string("server_name"), fields.string("name"))
        turn.add(ToolCall(fields.require("id").string(), name, fields.object("input") or "{}"))
    elif part.type == _RESULT:
        content = fields.pop("content")
        text = ""
        if content is not None and content.kind == "string":
            text = content.string()
        elif content is not None and content.kind == "array":
            text = "\n".join(item.fields().string("text") for item in content.items())
        turn.add_result(fields.require("tool_use_id").string(), text, is_error=fields.flag("is_error", default=False))
