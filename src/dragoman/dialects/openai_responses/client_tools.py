"""Tools of Responses that the client runs (`shell`, `apply_patch`, `computer`, `tool_search`), for other servers.

    tools    {"type": "shell"}                                    → a function `shell` with commands
    past     {"type": "shell_call", "call_id": "c1", "action": {…}}         → a call of that function
             {"type": "shell_call_output", "call_id": "c1", "output": […]}  → its result, as JSON
    response a call of that function          → {"type": "shell_call", "action": {"commands": […]}, …}

    tools    {"type": "tool_search", "execution": "client", …}              → a function `tool_search`
    past     {"type": "tool_search_output", "call_id": "c1", "tools": […]}  → its result, and tools that can be called

A server of this API receives all of them unchanged. A `shell` whose environment is a container is run by the vendor and
is not included. `computer` has several `actions` in a call, `computer_use_preview` one `action`; the result is a
screenshot. In a stream an item begins empty and arrives whole in `response.output_item.done`.

Source: the types in the openai package 3.57, https://developers.openai.com/api/docs/guides/tools-shell,
…/tools-apply-patch and …/tools-computer-use (2026-11).
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dragoman.core.errors import RequestError
from dragoman.core.messages import (
    Image,
    JsonText,
    MediaSource,
    Message,
    Part,
    Request,
    ResultPart,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from dragoman.dialects.openai_responses.tool_items import (
    SEARCH,
    SEARCH_OUTPUT,
    found_tools,
    is_client_search,
    is_of_client,
)
from dragoman.text import json_cursor
from dragoman.text.json_cursor import Cursor, Fields
from dragoman.vendor_tools.tool import tools_text
from dragoman.wire.request_bodies import media_from_url

NAME: Final = "openai_responses"
_TIMEOUT: Final = {"type": "integer", "description": "Time limit in milliseconds."}
_STRINGS: Final = {"type": "array", "items": {"type": "string"}}
_INTEGER: Final = {"type": "integer"}
_KEYS: Final = {**_STRINGS, "description": "Keys, such as CTRL."}


def _action(kind: str, optional: dict[str, Any] | None = None, **required: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of an action on a computer."""
    known = {"type": {"type": "string", "enum": [kind]}, **required, **(optional or {})}
    return {"type": "object", "properties": known, "required": ["type", *required]}


_BUTTON: Final = {"type": "string", "enum": ["left", "right", "wheel", "back", "forward"]}
_MODIFIER_KEYS: Final = {"keys": {**_KEYS, "description": "Keys to hold meanwhile."}}
_AT: Final = {"x": _INTEGER, "y": _INTEGER}
_PATH: Final = {"type": "array", "items": {"type": "object", "properties": _AT, "required": ["x", "y"]}}
_ACTIONS: Final = {
    "anyOf": [
        _action("screenshot"),
        _action("click", {"button": _BUTTON, **_MODIFIER_KEYS}, **_AT),
        _action("double_click", _MODIFIER_KEYS, **_AT),
        _action("move", _MODIFIER_KEYS, **_AT),
        _action("drag", _MODIFIER_KEYS, path=_PATH),
        _action("scroll", _MODIFIER_KEYS, **_AT, scroll_x=_INTEGER, scroll_y=_INTEGER),
        _action("type", text={"type": "string"}),
        _action("keypress", keys=_KEYS),
        _action("wait"),
    ]
}
_SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "shell": {
        "type": "object",
        "properties": {
            "commands": {**_STRINGS, "description": "Shell commands to run, each in a shell of its own."},
            "timeout_ms": _TIMEOUT,
            "max_output_length": {"type": "integer", "description": "Most characters of output of each command."},
        },
        "required": ["commands"],
    },
    "local_shell": {
        "type": "object",
        "properties": {
            "command": {**_STRINGS, "description": 'The command and its arguments, ["ls", "-l"].'},
            "working_directory": {"type": "string", "description": "Where to run it."},
            "timeout_ms": _TIMEOUT,
            "env": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Variables to set."},
        },
        "required": ["command"],
    },
    "apply_patch": {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            "path": {"type": "string", "description": "Path of the file, relative to the workspace."},
            "diff": {
                "type": "string",
                "description": "For create_file all lines, each after +; for update_file hunks that begin with @@, "
                "of lines after a space, + or -.",
            },
        },
        "required": ["type", "path"],
    },
    "computer": {
        "type": "object",
        "properties": {"actions": {"type": "array", "items": _ACTIONS, "description": "Actions, in order."}},
        "required": ["actions"],
    },
    "computer_use_preview": {"type": "object", "properties": {"action": _ACTIONS}, "required": ["action"]},
    SEARCH: {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
_COMPUTER: Final = ("computer", "computer_use_preview")
_ABOUT: Final = {
    "shell": "Runs shell commands on the user's machine.",
    "local_shell": "Runs a command on the user's machine.",
    "apply_patch": "Creates, updates or deletes a file by a diff.",
    "computer": "Uses mouse and keyboard of a computer{}. The result is a screenshot. x and y are pixels from the "
    "upper left corner, scroll_x and scroll_y pixels to the right and down.",
    SEARCH: "Finds tools, which can be called after that.",
}
_PLACES: Final = {"shell": "action", "local_shell": "action", "apply_patch": "operation", SEARCH: "arguments"}
"""Field of each item type that contains the action."""
_EMPTY: Final[dict[str, dict[str, Any]]] = {
    "shell": {"commands": []},
    "local_shell": {"type": "exec", "command": [], "env": {}},
    "apply_patch": {"type": "update_file", "path": "", "diff": ""},
    SEARCH: {},
}
_IDS: Final = {"shell": "sh", "local_shell": "lsh", "apply_patch": "apc", "computer": "cu", SEARCH: "tsc"}


def client_kinds(tools: Sequence[Tool]) -> frozenset[str]:
    """Returns the names of the functions for offered tools of these types, except names of the client's functions."""
    function_names = {tool.name for tool in tools if tool.kind == "function"}
    return frozenset(_name(tool.kind) for tool in tools if _is_client_run(tool)) - function_names


def as_functions(request: Request) -> Request:
    """Returns the request with such tools, calls and results as functions; other content is not changed.

    Raises:
        RequestError: An item lacks a required field.
    """
    if request.dialect != NAME:
        return request
    kinds = client_kinds(request.tools)
    tools = tuple(
        _function(tool) if _name(tool.kind) in kinds and _is_client_run(tool) else tool for tool in request.tools
    )
    tools = (*tools, *found_by_client(request))
    messages = tuple(map(_message, request.messages))
    if tools == request.tools and messages == request.messages:
        return request
    choice, extra = request.tool_choice, request.extra
    if choice.mode == "named" and _name(choice.name) in kinds:
        choice = replace(choice, name=_name(choice.name))
        extra = {name: raw for name, raw in extra.items() if name != "tool_choice"}
    return replace(request, tools=tools, messages=messages, tool_choice=choice, extra=extra)


def found_by_client(request: Request) -> tuple[Tool, ...]:
    """Returns the tools that searches of the client have found, without those that the request offers anyway."""
    found: dict[str, Tool] = {}
    for part in (part for message in request.messages for part in message.parts):
        if isinstance(part, UnknownPart) and part.type == SEARCH_OUTPUT and is_of_client(part):
            found |= {tool.name: tool for tool in found_tools(part)}
    offered = {tool.name for tool in request.tools if tool.kind == "function"} if found else set()
    return tuple(replace(tool, loading="found") for name, tool in found.items() if name not in offered)


def item_of(kind: str, name: str, call: ToolCall, state: str) -> dict[str, object]:
    """Returns the item of a call.

    Args:
        kind: The kind of the tool, such as `shell`.
        name: The end of the item's id.
        call: The call.
        state: The item's `status`.
    """
    if kind == "apply_patch" and state == "incomplete":
        state = "in_progress"  # the only status for an incomplete call
    done: dict[str, object] = (
        _on_computer(call.arguments) if kind == "computer" else {_PLACES[kind]: _done(kind, call.arguments)}
    )
    if kind == SEARCH:
        done["execution"] = "client"
    return {"id": f"{_IDS[kind]}_{name}", "type": f"{kind}_call", "status": state, "call_id": call.id, **done}


def _on_computer(arguments: JsonText) -> dict[str, Any]:
    """Returns the fields of a call of a computer: its action, or its actions."""
    try:
        values: dict[str, Any] = json.loads(json_cursor.parse(arguments).object())
    except RequestError:
        values = {}
    listed = values.get("actions")
    for action in [values.get("action"), *(listed if isinstance(listed, list) else [])]:
        if isinstance(action, dict) and action.get("type") == "click":
            action.setdefault("button", "left")
    return {name: values[name] for name in ("action", "actions") if name in values} | {"pending_safety_checks": []}


def _done(kind: str, arguments: JsonText) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(json_cursor.parse(arguments).object())
    except RequestError:  # has only begun, or was cut off
        return _EMPTY[kind]
    if kind == "shell" and isinstance(values.get("commands"), str):
        values["commands"] = [values["commands"]]
    if kind == "local_shell" and isinstance(values.get("command"), str):
        values["command"] = ["bash", "-lc", values["command"]]
    if kind == "apply_patch" and values.get("type") == "delete_file":
        return {"type": "delete_file", "path": "", **values}
    return {**_EMPTY[kind], **values, **({"type": "exec"} if kind == "local_shell" else {})}


def _name(kind: str) -> str:
    """Returns the name of the function for a kind of tool."""
    return "computer" if kind in _COMPUTER else kind


def _is_client_run(tool: Tool) -> bool:
    if tool.kind == SEARCH:
        return is_client_search(tool)
    if tool.kind != "shell":
        return tool.kind in _SCHEMAS
    environment = tool.extra.get("environment", msgspec.Raw(b"null"))
    fields = Cursor(environment, "$.tools").fields() if bytes(environment).startswith(b"{") else None
    kind = fields.get("type") if fields else None
    return kind is None or kind.kind != "string" or kind.string() == "local"


def _function(tool: Tool) -> Tool:
    about, schema = _ABOUT[_name(tool.kind)], json.dumps(_SCHEMAS[tool.kind])
    if tool.kind != SEARCH:
        return Tool(_name(tool.kind), about.format(_screen(tool)), schema)
    fields = Fields(dict(tool.extra), "$.tools", msgspec.Raw(b"{}"))
    return Tool(SEARCH, fields.string("description") or about, fields.schema("parameters") or schema, loading="search")


def _screen(tool: Tool) -> str:
    """Returns what is known of the tool's computer, such as ` (browser, 1024 x 768 pixels)`; "" if nothing is."""
    fields = Fields(dict(tool.extra), "$.tools", msgspec.Raw(b"{}"))
    width, height = fields.integer("display_width", minimum=1), fields.integer("display_height", minimum=1)
    known = [fields.string("environment")] if tool.kind in _COMPUTER else []
    known += [f"{width} x {height} pixels"] if width and height else []
    return f" ({', '.join(known)})" if any(known) else ""


def _message(message: Message) -> Message:
    if not any(isinstance(part, UnknownPart) for part in message.parts):
        return message
    parts = tuple(map(_part, message.parts))
    if parts == message.parts:
        return message
    results = all(isinstance(part, ToolResult) for part in parts)
    return replace(message, role="tool" if results else message.role, parts=parts)


def _part(part: Part) -> Part:
    if not isinstance(part, UnknownPart):
        return part
    if part.type in (f"{SEARCH}_call", SEARCH_OUTPUT) and not is_of_client(part):
        return part
    if part.type == SEARCH_OUTPUT:
        call_id = Cursor(part.raw, part.path).fields().require("call_id").nonempty_string()
        return ToolResult(call_id, (Text(tools_text([*found_tools(part)])),))
    kind, call, rest = part.type.rpartition("_call")
    if not call or kind not in _SCHEMAS or rest not in ("", "_output"):
        return part
    fields = Cursor(part.raw, part.path).fields()
    id = fields.pop("call_id") or fields.require("id")
    if rest:
        result = _screenshot(fields) if kind == "computer" else Text(_output(fields))
        return ToolResult(id.nonempty_string(), (result,), is_error=_failed(fields))
    if kind == "computer":
        place = "actions" if fields.get("actions") else "action"
        return ToolCall(id.nonempty_string(), kind, f'{{"{place}":{fields.require(place).text}}}')
    return ToolCall(id.nonempty_string(), kind, fields.require(_PLACES[kind]).object())


def _screenshot(fields: Fields) -> ResultPart:
    output = fields.require("output").fields()
    url, file_id = output.string("image_url"), output.string("file_id")
    return Image(media_from_url(url) if url else MediaSource(file_id=file_id)) if url or file_id else Text("")


def _failed(fields: Fields) -> bool:
    state = fields.get("status")
    return state is not None and state.kind == "string" and state.string() == "failed"


def _output(fields: Fields) -> str:
    """Returns a string unchanged, other values as JSON; if there is no output, how the call ended."""
    output = fields.pop("output") or fields.pop("status")
    if output is None:
        return ""
    return output.string() if output.kind == "string" else output.text
