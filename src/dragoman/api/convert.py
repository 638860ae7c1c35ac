"""Converts tools, tool calls and tool results of one API to another, in code of the caller.

    tools = convert_tools(anthropic_tools, api="openai_chat")        {"name", "input_schema"} -> {"type": "function", …}
    blocks = convert_calls(message.tool_calls, api="anthropic_messages")           -> {"type": "tool_use", …}
    items = convert_results(blocks, api="openai_responses")

The source API is recognized by the fields of each object. There are no converters for pairs of APIs: objects are read
into the values of `core.messages` and written from those, by the code that reads and writes requests
(`dragoman.dialects`).
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec.structs import replace

from dragoman import dialects
from dragoman.core.errors import RequestError, UnsupportedError, UsageError, quote
from dragoman.core.events import Notice
from dragoman.core.identifiers import LONG_NAME_FORM, NAME_FORM, ToolNameMap
from dragoman.core.messages import Message, Part, Request, Text, Tool, ToolCall, ToolResult
from dragoman.dialects import Api
from dragoman.schema.targets import Target, get_target
from dragoman.wire.dialect import Dialect, ObjectForm, ObjectKind
from dragoman.wire.translation import adapt_request_schemas

Thing: TypeAlias = Tool | ToolCall | ToolResult
Values: TypeAlias = tuple[str, list[Any]]

_TYPES: Final[dict[ObjectKind, type[Thing]]] = {"tool": Tool, "call": ToolCall, "result": ToolResult}
_MAX_TOKENS: Final = 16
"""Tokens; the least that every API accepts. It is not part of what is converted."""


@runtime_checkable
class Model(Protocol):
    """An object of a vendor's SDK."""

    def model_dump_json(self, *, exclude_unset: bool = ...) -> str:
        """Returns the object as JSON text."""


ConvertedInput: TypeAlias = Thing | Mapping[str, Any] | Model
"""A value, JSON in the shape of an API, or an object of a vendor's SDK."""


class ConvertedItems(list[dict[str, Any]]):
    """The converted objects, as JSON of the target API."""

    warnings: tuple[Notice, ...] = ()
    """What the target API cannot express or expresses in another way; docs/warnings.md explains the codes."""


def convert_tools(
    tools: ConvertedInput | Iterable[ConvertedInput],
    *,
    api: Api,
    source_api: Api | None = None,
    schemas: str | None = None,
) -> ConvertedItems:
    """Converts tool definitions to another API.

    JSON Schemas are adapted to what the target API accepts; adaptation only relaxes a schema, and each change is
    reported in `warnings`. Names that the target API does not allow are encoded; `convert_calls(…, tools=tools)`
    restores them.

        convert_tools([{"name": "Read", "input_schema": {"type": "object"}}], api="openai_chat")

    Args:
        tools: One tool or several: mappings in any API's shape, `Tool` values, or objects of a vendor's SDK.
        api: The target API.
        source_api: The API of `tools`, where it must be checked. None: recognized by the fields.
        schemas: A server that accepts less of JSON Schema than the API: `llama_cpp`, `lm_studio`, `ollama`, `vllm`
            or `gemini`.

    Returns:
        The definitions in the order of `tools`.

    Raises:
        RequestError: A tool has no API's shape, or not that of `source_api`; the message says which tool, where, and
            the probable mistake.
        UnsupportedError: A tool is one that the vendor runs itself; leave it out.
        ConfigError: An API or `schemas` is unknown.
        UsageError: `tools` is not a list of tools.
    """
    return _converted(
        _values(tools, "tool", "tools", source_api), "tool", api, get_target(schemas) if schemas else None
    )


def convert_calls(
    calls: ConvertedInput | Iterable[ConvertedInput],
    *,
    api: Api,
    source_api: Api | None = None,
    tools: ConvertedInput | Iterable[ConvertedInput] = (),
) -> ConvertedItems:
    """Converts tool calls that a model made to their form in another API's conversation.

    Arguments keep their exact text where the target API has them as a string. Empty arguments become `{}`. An id that
    the target API does not allow is encoded such that it can be decoded later.

        convert_calls(message.tool_calls, api="anthropic_messages")

    Args:
        calls: One call or several: mappings, `ToolCall` values, or objects of a vendor's SDK.
        api: The target API.
        source_api: The API of `calls`, where it must be checked. None: recognized by the fields.
        tools: The tools before they were converted: restores names that `convert_tools` had to encode.

    Returns:
        The calls in their order.

    Raises:
        RequestError: A call has no API's shape, or its arguments are not a JSON object, such as those of a truncated
            call.
        UnsupportedError: A tool is one that the vendor runs itself.
        ConfigError: An API is unknown.
        UsageError: `calls` is not a list of calls.
    """
    offered = [tool for _, things in _values(tools, "tool", "tools", None) for tool in things]
    return _converted(_restore_names(_values(calls, "call", "calls", source_api), offered), "call", api)


def convert_results(
    results: ConvertedInput | Iterable[ConvertedInput], *, api: Api, source_api: Api | None = None
) -> ConvertedItems:
    """Converts tool results to another API; for Chat Completions to messages of role `tool`.

    Chat Completions has no place for images in a tool message: they follow all results in a message of role `user`.

        convert_results({"type": "tool_result", "tool_use_id": "call_1", "content": "18 °C"}, api="openai_chat")

    Args:
        results: One result or several: mappings, `ToolResult` values, or objects of a vendor's SDK.
        api: The target API.
        source_api: The API of `results`, where it must be checked. None: recognized by the fields.

    Returns:
        The results in their order.

    Raises:
        RequestError: A result has no API's shape, or not that of `source_api`.
        ConfigError: An API is unknown.
        UsageError: `results` is not a list of results.
    """
    return _converted(_values(results, "result", "results", source_api), "result", api)


def _converted(values: Iterable[Values], kind: ObjectKind, api: str, target: Target | None = None) -> ConvertedItems:
    dialect = dialects.get(api)
    converted, warnings = ConvertedItems(), dict[Notice, None]()
    for source_api, things in values:
        request, notices = _request(kind, things, source_api), tuple[Notice, ...]()
        if target is not None:
            request, notices = adapt_request_schemas(request, target)
        outgoing = dialect.write_request(request, "-")
        items: Any = json.loads(outgoing.body)
        for step in dialect.forms[kind].output_path:
            items = items[step]
        converted.extend(items)
        warnings.update(dict.fromkeys((*notices, *outgoing.warnings)))
    converted.warnings = tuple(warnings)
    return converted


def _values(caller_items: object, kind: ObjectKind, where: str, source_api: str | None) -> Iterator[Values]:
    """Yields runs of objects of one API as values, each run with the name of its API; "" for values."""
    start = 0
    for api, group in groupby(
        _recognize(_as_list(caller_items, kind, where), kind, where, source_api), key=lambda each: each[0]
    ):
        items = [item for _, item in group]
        things = _read(api, kind, items, where, start) if api else items
        for n, thing in enumerate(things, start):
            if isinstance(thing, Tool) and thing.kind != "function":
                raise _vendor_tool_error(thing.kind, f"{where}[{n}]")
        yield api.name if api else "", things
        start += len(items)


def _restore_names(values: Iterable[Values], tools: list[Any]) -> Iterator[Values]:
    """Restores the original tool names in calls."""
    names = [tool.name for tool in tools]
    tables = [ToolNameMap(names, form) for form in (NAME_FORM, LONG_NAME_FORM)]
    for api, calls in values:
        original = {call.name: [name for table in tables if (name := table.back(call.name)) in names] for call in calls}
        yield api, [replace(call, name=original[call.name][0]) if original[call.name] else call for call in calls]


def _as_list(items: object, kind: ObjectKind, where: str) -> list[object]:
    if isinstance(items, Mapping | Model | _TYPES[kind]):
        return [items]
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise UsageError(f"expected a list of {where}, got {type(items).__name__} - at {where}")
    return list(items)


def _recognize(
    items: list[object], kind: ObjectKind, where: str, source_api: str | None
) -> Iterator[tuple[Dialect | None, Any]]:
    """Yields each object as JSON text with its API; a value with None."""
    known = dialects.get(source_api) if source_api else None
    for n, each in enumerate(items):
        if isinstance(each, _TYPES[kind]):
            yield None, each
            continue
        text = as_json(each, f"{where}[{n}]")
        yield _api(json.loads(text), kind, f"{where}[{n}]", known), text


def as_json(item: object, path: str) -> str:
    """Returns the JSON text of a mapping, or of an object of a vendor's SDK.

    Raises:
        UsageError: The argument is neither.
    """
    if isinstance(item, Model):
        return item.model_dump_json(exclude_unset=True)
    if not isinstance(item, Mapping):
        raise UsageError(f"expected an object as an API's JSON has it, got {type(item).__name__} - at {path}")
    try:
        return msgspec.json.encode(item).decode()
    except TypeError as e:
        raise UsageError(f"expected an object as an API's JSON has it: {e} - at {path}") from None


def _api(fields: Mapping[str, Any], kind: ObjectKind, path: str, known: Dialect | None) -> Dialect:
    """Returns the API whose shape an object has.

    Raises:
        RequestError: It has no API's shape, or not that of `known`.
    """
    every = [dialects.get(name) for name in dialects.names()]
    matching = [api for api in every if _has_shape(fields, api.forms[kind])]
    matching.sort(key=lambda api: -len(api.forms[kind].discriminators))
    chosen = known or (matching[0] if matching else None)
    if chosen is not None and chosen in matching:
        if slip := _mistake(fields, chosen.forms[kind]):
            raise RequestError(f"{slip}; {chosen.name} has {chosen.forms[kind].example}", path)
        return chosen
    got = f"got an object of {', '.join(map(quote, list(fields)[:8])) or 'nothing'}"
    if known is not None:
        slip = f"; {mistake}" if (mistake := _mistake(fields, known.forms[kind])) else ""
        shape = f": this is the shape of {matching[0].name}; leave `source_api` out, or pass that" if matching else slip
        raise RequestError(f"expected {known.forms[kind].example} of {known.name}, {got}{shape}", path)
    if kind == "tool" and isinstance(type := fields.get("type"), str) and "function" not in type:
        raise _vendor_tool_error(type, path)
    mistakes = (f"; {slip} in {api.name}" for api in every if (slip := _mistake(fields, api.forms[kind])))
    shapes = ", or ".join(f"{api.forms[kind].example} of {api.name}" for api in every)
    raise RequestError(f"expected {shapes}, {got}{next(mistakes, '')}", path)


def _vendor_tool_error(type: str, path: str) -> UnsupportedError:
    return UnsupportedError(f"a tool of type {quote(type)} is run by its vendor; leave it out", path)


def _has_shape(fields: Mapping[str, Any], form: ObjectForm) -> bool:
    return all(name in fields and value in ("", fields[name]) for name, value in form.discriminators.items())


def _mistake(fields: Mapping[str, Any], form: ObjectForm) -> str:
    """Names a field of another API in place of a missing one; empty if there is none."""

    def is_field(path: str) -> bool:
        value: Any = fields
        for name in path.split("."):
            if not isinstance(value, Mapping) or name not in value:
                return False
            value = value[name]
        return True

    pairs = form.common_mistakes.items()
    return next(
        (f"{wrong!r} given, {right!r} expected" for wrong, right in pairs if is_field(wrong) and not is_field(right)),
        "",
    )


def _read(api: Dialect, kind: ObjectKind, items: list[str], where: str, start: int) -> list[Thing]:
    """Reads JSON texts of one API into values; a namespace of tools becomes several."""
    form = api.forms[kind]
    try:
        request = api.read_request(form.request.replace("$", f"[{','.join(items)}]", 1))
    except RequestError as e:
        message = str(e).removesuffix(f" - at {e.path}")
        raise type(e)(message, _path(e.path, form.path, where, start)) from None
    if kind == "tool":
        return list(request.tools)
    parts = [part for message in request.messages for part in message.parts if isinstance(part, _TYPES[kind])]
    for n, call in enumerate(parts, start):
        if isinstance(call, ToolCall):
            _check_arguments(call, f"{where}[{n}].{form.arguments}")
    return [part for part in parts if isinstance(part, ToolCall | ToolResult)]


def _path(path: str, path_prefix: str, caller_path: str, start: int) -> str:
    """Translates a path in the request into the path in the caller's list."""
    rest = path.removeprefix(path_prefix)
    return caller_path + re.sub(r"^\[(\d+)\]", lambda m: f"[{int(m[1]) + start}]", rest) if rest != path else path


def _check_arguments(call: ToolCall, path: str) -> None:
    """Checks the arguments of a call.

    Raises:
        RequestError: The arguments are not a JSON object.
    """
    try:
        msgspec.json.decode(call.arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as e:
        got = quote(call.arguments)
        raise RequestError(f"expected a JSON object for {quote(call.name)}, got {got}: {e}", path) from None


def _request(kind: ObjectKind, things: list[Any], api: str) -> Request:
    """Returns a request that contains only these objects and what every API requires."""
    text = Message("assistant", (Text("-"),))
    tools: tuple[Tool, ...] = ()
    messages: tuple[Message, ...] = (Message("user", (Text("-"),)),)
    if kind == "tool":
        tools = tuple(things)
    elif kind == "call":
        messages = (*messages, Message("assistant", tuple(things)))
    else:
        parts: list[Part] = things
        messages = (text, *(Message("tool", (part,)) for part in parts))
    return Request("-", messages, tools, max_tokens=_MAX_TOKENS, dialect=api)
