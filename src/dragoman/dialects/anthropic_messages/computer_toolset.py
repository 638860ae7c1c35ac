"""The toolset for a computer, one declaration for many tools that the client runs.

    tools      {"type": "computer_toolset_20260801", "configs": {"zoom": {"enabled": false}}}
               →  the functions left_click, key, screenshot, …, without zoom
    response   {"type": "tool_use", "name": "left_click", "toolset_name": "computer", "input": {…}}

A server of this API gets the declaration unchanged.

Source: the types in the anthropic package 2.13 (2026-11).
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Raw

from dragoman.core.messages import Tool
from dragoman.text.json_cursor import Cursor, Fields

_TYPE: Final = "computer_toolset_20260801"
_NAME: Final = "computer"
_DECLARATION: Final = "toolset"
"""Key in a tool's `extra` for the declaration of its toolset."""
_TEXT: Final = {"type": "string"}
_INTEGER: Final = {"type": "integer"}


def _point(description: str) -> dict[str, Any]:
    return {"type": "array", "items": _INTEGER, "minItems": 2, "maxItems": 2, "description": description}


_AT: Final = _point("[x, y] in pixels from the upper left corner.")
_REGION: Final = {"type": "array", "items": _INTEGER, "minItems": 4, "maxItems": 4, "description": "[x0, y0, x1, y1]."}
_POINTER: Final = {"coordinate": _AT, "text": {**_TEXT, "description": "Keys to hold meanwhile, such as ctrl+shift."}}
_KEYS: Final = {**_TEXT, "description": "Keys, such as ctrl+s, Return or Page_Down."}
_SECONDS: Final = {**_INTEGER, "description": "Seconds."}
_DIRECTION: Final = {"type": "string", "enum": ["up", "down", "left", "right"]}
_WHERE: Final = "at a position, or where the pointer is."
_MEMBERS: Final[dict[str, tuple[str, dict[str, Any], tuple[str, ...]]]] = {
    "screenshot": ("Takes a screenshot.", {}, ()),
    "zoom": ("Shows a part of the screen enlarged.", {"region": _REGION}, ("region",)),
    "left_click": (f"Clicks {_WHERE}", _POINTER, ()),
    "right_click": (f"Clicks the right button {_WHERE}", _POINTER, ()),
    "middle_click": (f"Clicks the middle button {_WHERE}", _POINTER, ()),
    "double_click": (f"Clicks twice {_WHERE}", _POINTER, ()),
    "triple_click": (f"Clicks three times {_WHERE}", _POINTER, ()),
    "left_click_drag": (
        "Drags from `start_coordinate` to `coordinate`.",
        {**_POINTER, "start_coordinate": _AT},
        ("coordinate", "start_coordinate"),
    ),
    "left_mouse_down": ("Presses the left button.", {}, ()),
    "left_mouse_up": ("Releases the left button.", {}, ()),
    "mouse_move": ("Moves the pointer without a click.", {"coordinate": _AT}, ("coordinate",)),
    "cursor_position": ("Returns the position of the pointer.", {}, ()),
    "scroll": (
        f"Scrolls {_WHERE}",
        {
            **_POINTER,
            "scroll_direction": _DIRECTION,
            "scroll_amount": {**_INTEGER, "description": "Clicks of the wheel."},
        },
        ("scroll_direction", "scroll_amount"),
    ),
    "type": ("Types a text.", {"text": _TEXT}, ("text",)),
    "key": (
        "Presses keys.",
        {"text": _KEYS, "repeat": {**_INTEGER, "description": "How often; default 1."}},
        ("text",),
    ),
    "hold_key": ("Holds keys.", {"text": _KEYS, "duration": _SECONDS}, ("text", "duration")),
    "wait": ("Waits.", {"duration": _SECONDS}, ("duration",)),
}
"""By name: what the tool does, its arguments, and those that are required."""


def tools_of(cursor: Cursor) -> list[Tool] | None:
    """Returns the functions of a toolset's declaration; None for any other tool.

    Raises:
        RequestError: The configuration of a member is invalid.
    """
    fields = cursor.fields()
    kind = fields.get("type")
    if kind is None or kind.kind != "string" or kind.string() != _TYPE:
        return None
    configs = fields.pop("configs")
    disabled = set(_disabled(configs.fields())) if configs is not None else set[str]()
    extra = {"type": kind.raw, _DECLARATION: cursor.raw}
    return [
        Tool(name, about, json.dumps({"type": "object", "properties": known, "required": required}), extra)
        for name, (about, known, required) in _MEMBERS.items()
        if name not in disabled
    ]


def _disabled(configs: Fields) -> Iterator[str]:
    for name in _MEMBERS:
        config = configs.get(name)
        if config is not None and not config.fields().flag("enabled", default=True):
            yield name


def toolset_names(tools: Iterable[Tool]) -> Mapping[str, str]:
    """Returns the name of the toolset of each tool that belongs to one."""
    return {tool.name: _NAME for tool in tools if _DECLARATION in tool.extra}


def declaration_of(tool: Tool) -> Raw | None:
    """Returns the declaration of the tool's toolset; None: it belongs to none."""
    return tool.extra.get(_DECLARATION)
