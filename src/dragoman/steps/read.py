"""Reads steps from JSON: the field `dragoman` of a body, the header `x-dragoman-steps`, the settings of a route.

{"dragoman": {"steps": {"required": ["fetch", "analyze"], "ordered": true, "terminal": "submit_report"}}}
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dragoman.core.errors import RequestError, one_of, quote
from dragoman.core.identifiers import NAME_LIMIT_CHARS
from dragoman.core.messages import ANY_TOOL, Steps
from dragoman.steps.validate import MAX_STEPS, validate_steps
from dragoman.text import json_cursor
from dragoman.text.json_cursor import Cursor, Fields

FIELD: Final = "dragoman"
"""Field of a request body in all APIs; it is never sent upstream."""
HEADER: Final = "x-dragoman-steps"
DERIVE: Final = "derive"
"""Value that asks for steps that are derived from the tools."""
OFF: Final = "off"
"""Value of a client that wants no steps, nor those of a route."""
_MAX_CALLS: Final = 1000
_LIMITS: Final = ("text", "terminal")
_AFTER: Final = ("free", "text")
_DEFAULT: Final = Steps()


def read_extension(value: Cursor | None) -> Steps | None:
    """Returns the steps in the field `dragoman` of a request body; None if there are none.

    Raises:
        RequestError: The field is invalid; the message contains the problem and its position.
    """
    if value is None:
        return None
    fields = value.fields()
    steps = fields.pop("steps")
    _require_none_left(fields, ("steps",))
    return read_steps(steps) if steps else None


def read_header(text: str) -> Steps:
    """Returns the steps in the header, where "derive" and "off" need no quotes; raises as `read_extension`."""
    try:
        raw = json_cursor.parse(f'"{text}"' if text in (DERIVE, OFF) else text).raw
    except RequestError as error:
        message = f'expected JSON of steps, "{DERIVE}" or "{OFF}", got something else: {error}'
        raise RequestError(message, HEADER) from None
    return read_steps(Cursor(raw, HEADER))


def read_setting(value: str | Mapping[str, Any], path: str) -> Steps:
    """Returns the steps of a route, which apply to requests that offer all of their tools.

    Args:
        value: The setting.
        path: Its key.

    Raises:
        RequestError: The setting is invalid.
    """
    steps = read_steps(Cursor(msgspec.Raw(msgspec.json.encode(value)), path), texts=(DERIVE,))
    return replace(steps, is_default=True)


def read_steps(value: Cursor, texts: Collection[str] = (DERIVE, OFF)) -> Steps:
    """Returns the steps of an object, or of a text.

    Args:
        value: The steps.
        texts: The texts that are allowed in place of an object.

    Raises:
        RequestError: The value is invalid; the message contains the problem and its position.
    """
    if value.kind == "string":
        text = value.one_of(texts, "steps")
        return Steps(derive=text == DERIVE, is_off=text == OFF, path=value.path)
    if value.kind != "object":
        *others, last = ("object", *(f'"{text}"' for text in texts))
        raise value.wrong(f"{', '.join(others)} or {last}")
    fields = value.fields()
    at_limit, after = fields.pop("at_limit"), fields.pop("after")
    max_calls, max_failures = fields.pop("max_calls"), fields.pop("max_failures")
    terminal = _names(fields.pop("terminal"))
    steps = Steps(
        required=_names(fields.pop("required")),
        ordered=fields.flag("ordered"),
        prerequisites=_lists(fields.pop("prerequisites")),
        terminal=tuple(dict.fromkeys(terminal)),
        max_calls=_DEFAULT.max_calls if max_calls is None else _count(max_calls),
        max_calls_per_tool=_limits(fields.pop("max_calls_per_tool")),
        max_failures=_DEFAULT.max_failures if max_failures is None else _count(max_failures),
        path=value.path,
    )
    if at_limit is not None:
        limit = at_limit.one_of(_LIMITS, "at_limit")
        steps = replace(steps, at_limit="terminal" if limit == "terminal" else "text")
        if limit == "terminal" and not steps.terminal:
            raise RequestError("expected a terminal tool for at_limit 'terminal', got none", at_limit.path)
    if after is not None and after.one_of(_AFTER, "after") == "text":
        steps = replace(steps, after="text")
        if not steps.required:
            raise RequestError("expected required steps for after 'text', got none", after.path)
    _require_none_left(fields, Steps.__struct_fields__[:9])
    validate_steps(steps)
    return steps


def _names(value: Cursor | None) -> tuple[str, ...]:
    if value is None:
        return ()
    if value.kind not in ("string", "array"):
        raise value.wrong("string or array of strings")
    items = [value] if value.kind == "string" else value.items(MAX_STEPS)
    return tuple(item.nonempty_string(NAME_LIMIT_CHARS) for item in items)


def _lists(value: Cursor | None) -> Mapping[str, tuple[str, ...]]:
    return {} if value is None else {name: _names(item) for name, item in _members(value).items()}


def _limits(value: Cursor | None) -> Mapping[str, int]:
    if value is None:
        return {}
    if value.kind == "number":
        return {ANY_TOOL: _count(value)}
    if value.kind != "object":
        raise value.wrong("number or object")
    return {name: _count(item) for name, item in _members(value).items()}


def _members(value: Cursor) -> Mapping[str, Cursor]:
    fields = value.fields()
    names = fields.remaining()
    if len(names) > MAX_STEPS:
        raise RequestError(f"expected at most {MAX_STEPS} tools, got {len(names)}", value.path)
    return {name: member for name in names if (member := fields.pop(name)) is not None}


def _count(value: Cursor) -> int:
    count = value.integer(minimum=1)
    if count > _MAX_CALLS:
        raise RequestError(f"expected a number of at most {_MAX_CALLS}, got {count}", value.path)
    return count


def _require_none_left(fields: Fields, known: tuple[str, ...]) -> None:
    if unknown := next(iter(fields.remaining()), None):
        raise RequestError(f"unknown field {quote(unknown)}{one_of(unknown, known, 'known: ')}", fields.path)
