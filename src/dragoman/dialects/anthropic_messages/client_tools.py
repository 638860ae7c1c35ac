"""Tools that the vendor defines and the client runs: requests contain only their type, vendor models know the rest.

They are offered as functions with the schemas below, so that any model can call them; calls and results are the same as
for other tools. A computer tool needs a model that sees images (`gateway/vendor_tools/screen_tools.py`). Tools that the
vendor runs itself (`web_search_…`, `code_execution_…`) are not included, nor is the toolset for browsers.

Source: https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/bash-tool, …/text-editor-tool, …/memory-tool and
…/computer-use-tool (2026-11).
"""

import json
import re
from typing import Any, Final

from msgspec.structs import replace

from dragoman.core.messages import Request, Tool
from dragoman.text.json_cursor import Fields

NAME: Final = "anthropic_messages"
_TYPE: Final = re.compile(r"(bash|text_editor|memory|computer)_(\d{8})")
_BASH: Final = {
    "command": {"type": "string", "description": "The command to run; required unless restart is true."},
    "restart": {"type": "boolean", "description": "Restart the shell."},
}
_PATH: Final = {"type": "string", "description": "Path of a file or directory."}
_LINE: Final = {"type": "integer", "description": "For insert: the line after which the text goes; 0 for the start."}
_EDIT: Final = {
    "path": _PATH,
    "file_text": {"type": "string", "description": "For create: the content of the file."},
    "old_str": {"type": "string", "description": "For str_replace: the text to replace, which must occur once."},
    "new_str": {"type": "string", "description": "For str_replace: the text in its place."},
    "insert_line": _LINE,
    "view_range": {
        "type": "array",
        "items": {"type": "integer"},
        "description": "For view: first and last line, from 1; -1 for the end of the file.",
    },
}
_INSERT: Final = {"insert_text": {"type": "string", "description": "For insert: the text."}}
_RENAME: Final = {
    "old_path": {"type": "string", "description": "For rename: the path."},
    "new_path": {"type": "string", "description": "For rename: the new path."},
}
_EDITS: Final = ("view", "create", "str_replace", "insert")
_NEWER_EDITOR: Final = "20250429"
"""From this version on the text editor has no `undo_edit`."""

_ACTIONS: Final = (
    *("key", "type", "mouse_move", "left_click", "left_click_drag", "right_click", "middle_click", "double_click"),
    *("screenshot", "cursor_position"),
)
_NEWER_ACTIONS: Final = ("scroll", "wait", "hold_key", "triple_click", "left_mouse_down", "left_mouse_up")
_NEWER_COMPUTER: Final = "20250124"
"""From this version on the computer tool has `_NEWER_ACTIONS`."""


def _integers(count: int, description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "integer"}, "minItems": count, "maxItems": count} | {
        "description": description
    }


_POINTER: Final = {
    "coordinate": _integers(2, "[x, y] in pixels from the upper left corner: where to click, move, drag to or scroll."),
    "start_coordinate": _integers(2, "For left_click_drag: [x, y] where the drag begins."),
    "text": {
        "type": "string",
        "description": "For type: the text. For key and hold_key: keys such as ctrl+s or Return. For clicks and "
        "scroll: keys to hold meanwhile.",
    },
}
_NEWER_POINTER: Final = {
    "scroll_direction": {"type": "string", "enum": ["up", "down", "left", "right"], "description": "For scroll."},
    "scroll_amount": {"type": "integer", "description": "For scroll: clicks of the wheel."},
    "duration": {"type": "number", "description": "For wait and hold_key: seconds."},
}
_ZOOM: Final = {"region": _integers(4, "For zoom: [x0, y0, x1, y1], the part of the screen to show enlarged.")}


def as_functions(request: Request) -> Request:
    """Returns the request with such tools as any other function, for a server of this API that does not know them."""
    tools = tuple(_as_function(tool) for tool in request.tools)
    return request if tools == request.tools else replace(request, tools=tools)


def _as_function(tool: Tool) -> Tool:
    if tool.kind != "function" or "type" not in tool.extra:
        return tool
    return replace(tool, extra={name: raw for name, raw in tool.extra.items() if name == "cache_control"})


def client_tool(type: str, name: str, options: Fields) -> Tool | None:
    """Returns the function for a tool of this type; None for other types.

    Raises:
        RequestError: The size of a display is not a number of pixels.
    """
    match = _TYPE.fullmatch(type)
    if match is None:
        return None
    if match[1] == "bash":
        return Tool(name or "bash", "Runs commands in a shell that stays open.", _schema(_BASH))
    if match[1] == "computer":
        return _computer(name, match[2], options)
    if match[1] == "memory":
        known = {"command": _one_of(*_EDITS, "delete", "rename"), **_EDIT, **_INSERT, **_RENAME}
        return Tool(name or "memory", "Keeps files under /memories between conversations.", _schema(known, "command"))
    return _editor(name, is_new=match[2] >= _NEWER_EDITOR)


def _editor(name: str, *, is_new: bool) -> Tool:
    known: dict[str, Any] = {"command": _one_of(*_EDITS, *(() if is_new else ("undo_edit",))), **_EDIT}
    known |= _INSERT if is_new else {}
    usual = "str_replace_based_edit_tool" if is_new else "str_replace_editor"
    return Tool(name or usual, "Views, creates and edits files.", _schema(known, "command", "path"))


def _computer(name: str, version: str, options: Fields) -> Tool:
    width, height = (options.integer(f"display_{side}_px", minimum=1) for side in ("width", "height"))
    actions, known = [*_ACTIONS], dict[str, Any](_POINTER)
    if version >= _NEWER_COMPUTER:
        actions += _NEWER_ACTIONS
        known |= _NEWER_POINTER
    if options.flag("enable_zoom"):
        actions.append("zoom")
        known |= _ZOOM
    size = f" of {width} x {height} pixels" if width and height else ""
    about = (
        f"Uses mouse and keyboard of a computer with a screen{size}. Take a screenshot to see the result of an action."
    )
    return Tool(name or "computer", about, _schema({"action": _one_of(*actions), **known}, "action"))


def _one_of(*commands: str) -> dict[str, Any]:
    return {"type": "string", "enum": commands}


def _schema(properties: dict[str, Any], *required: str) -> str:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return json.dumps({**schema, "required": list(required)} if required else schema)
