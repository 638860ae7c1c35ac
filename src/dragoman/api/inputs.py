"""Accepts the arguments of the public functions in all their forms: formats by name, tools in any API's shape."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, get_args

import msgspec

from dragoman import dialects, formats
from dragoman.core.errors import RequestError, UsageError, one_of
from dragoman.core.messages import Request, Tool, ToolChoice
from dragoman.parsing.format import Format
from dragoman.text import json_cursor
from dragoman.text.json_cursor import Cursor

AnyTool: TypeAlias = Tool | Mapping[str, Any]
"""A tool as a value, or in the shape of one of the APIs."""
_SHAPES: Final = '{"type": "function", "function": {"name": …, "parameters": …}} or {"name": …, "input_schema": …}'


def parse_request(request: Request | Mapping[str, Any] | bytes, api: str) -> Request:
    """Returns a request of this API as a value.

    Raises:
        ConfigError: The API is unknown.
        RequestError: The request is invalid in this API.
        UsageError: The argument is not a request.
    """
    if isinstance(request, Request):
        return request
    body = request if isinstance(request, bytes) else _body(request)
    try:
        return dialects.get(api).read_request(body)
    except RequestError as e:
        raise _with_hint(e, f"; with api={api!r} tools are as that API has them") from None


def _body(request: object) -> bytes:
    if not isinstance(request, Mapping):
        raise UsageError(f"expected a request's body, got {type(request).__name__} - at request")
    try:
        return msgspec.json.encode({"model": "-", "max_tokens": 1, **request})
    except TypeError as e:
        raise UsageError(f"expected a request as an API's JSON has it: {e} - at request") from None


def validate_choice(choice: object, tools: Sequence[Tool]) -> ToolChoice:
    """Returns a tool choice that is possible with these tools.

    Raises:
        UsageError: The argument is not a `ToolChoice`, or its mode or tool is unknown.
    """
    if not isinstance(choice, ToolChoice):
        raise UsageError(f"expected a ToolChoice such as ToolChoice('auto'), got {type(choice).__name__} - at choice")
    if choice.mode not in (modes := get_args(ToolChoice.__annotations__["mode"])):
        raise UsageError(f"unknown mode {choice.mode!r}{one_of(str(choice.mode), modes, 'expected ')} - at choice.mode")
    if choice.mode == "named" and choice.name not in (names := [tool.name for tool in tools]):
        raise UsageError(f"unknown tool {choice.name!r}{one_of(choice.name, names, 'offered: ')} - at choice.name")
    return choice


def resolve_format(format: str | Format) -> Format:
    """Returns the format of this name; a `Format` is returned unchanged.

    Raises:
        ConfigError: The format is unknown.
        UsageError: The argument is neither a name nor a `Format`.
    """
    resolved: object = formats.get(format) if isinstance(format, str) else format
    if not isinstance(resolved, Format):
        hint = "; take its `format`" if isinstance(getattr(resolved, "format", None), Format) else ""
        raise UsageError(f"expected a format or its name, got {type(resolved).__name__}{hint} - at format")
    return resolved


def parse_tools(tools: Iterable[AnyTool]) -> tuple[Tool, ...]:
    """Returns tools as values; each may be a value or a mapping in an API's shape.

    Raises:
        RequestError: A tool is invalid; the message says which, why and where.
        UsageError: The argument is not a list of tools.
    """
    if isinstance(tools, Mapping | str | bytes) or not isinstance(tools, Iterable):
        raise UsageError(f"expected a list of tools, got {type(tools).__name__} - at tools")
    tool_list = list(tools)
    for i, tool in enumerate(tool_list):
        for field in ("name", "description", "parameters"):
            if isinstance(tool, Tool) and not isinstance(value := getattr(tool, field), str):
                hint = "; write it with json.dumps" if field == "parameters" else ""
                raise UsageError(f"expected str, got {type(value).__name__}{hint} - at tools[{i}].{field}")
    in_api_shape = [tool for tool in tool_list if not isinstance(tool, Tool)]
    try:
        body = msgspec.json.encode(in_api_shape)
    except TypeError as e:
        raise UsageError(f"expected tools as an API's JSON has them: {e} - at tools") from None
    read = iter(parse_tools_json(body) if in_api_shape else ())
    return tuple(tool if isinstance(tool, Tool) else next(read) for tool in tool_list)


def parse_tools_json(body: bytes) -> tuple[Tool, ...]:
    """Returns the tools of a JSON text in any API's shape: a list, an object with `tools`, or one tool.

    Raises:
        RequestError: The text is not JSON or a tool is invalid; the message says why and where.
    """
    listed, body_path, caller_path = _tool_items(body)
    anthropic = any("input_schema" in tool.fields().remaining() for tool in listed)
    flat = any(tool.fields().remaining().keys() >= {"type", "name", "parameters"} for tool in listed)
    dialect = dialects.get("anthropic_messages" if anthropic else "openai_responses" if flat else "openai_chat")
    request = dialect.forms["tool"].request.replace("$", f"[{','.join(tool.text for tool in listed)}]", 1)
    try:
        return dialect.read_request(request.encode()).tools
    except RequestError as e:
        raise _with_hint(e, f"; a tool is {_SHAPES}", body_path, caller_path) from None


def _with_hint(error: RequestError, hint: str, body_path: str = "", caller_path: str = "") -> RequestError:
    """Returns the error with the caller's own path, and with the hint where a whole tool has another shape."""
    hint = hint if re.fullmatch(r"\$\.tools\[\d+\]", error.path) else ""
    return type(error)(
        str(error).removesuffix(f" - at {error.path}") + hint, error.path.replace(body_path, caller_path, 1)
    )


def _tool_items(body: bytes) -> tuple[list[Cursor], str, str]:
    """Returns the tools, their path as the dialect reports it, and their path in the text."""
    document = json_cursor.parse(body)
    if document.kind != "object":
        return document.items(), "$.tools", "$"
    if wrapped := document.fields().pop("tools"):
        return wrapped.items(), "$.tools", "$.tools"
    return [document], "$.tools[0]", "$"
