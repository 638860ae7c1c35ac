"""The body of a request as parts: settings, tools, system prompt, messages; for the three APIs and prompts.

A part has all of the JSON that it stands for. The order is that in which servers read them, and so the order of what
prompt caches keep.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec

from dragoman.console.exchange.views import Segment, segments

_SYSTEM: Final = ("system", "developer")
_TEXTS: Final = ("text", "input_text", "output_text", "refusal", "summary_text", "reasoning_text")
_REASONING: Final = ("thinking", "reasoning", "reasoning_content")
_CALLS: Final = ("tool_use", "function_call", "custom_tool_call", "server_tool_use", "function")
_RESULTS: Final = ("tool_result", "function_call_output", "custom_tool_call_output")
MAX_DEPTH: Final = 100
"""Objects and arrays in one another; deeper requests are shown as they are, since handling values is recursive."""
_OPAQUE_CHARS: Final = 400
"""Longer strings that look like encoded data are shortened."""
_SHOWN_CHARS: Final = 60
_OPAQUE: Final = re.compile(r"(?:data:[\w/+.-]+;base64,)?[A-Za-z0-9+/_=-]+")
_MOVING: Final = ("cache_control",)
"""Members that agents move from message to message; caches do not depend on them."""


@dataclass(frozen=True)
class BodyPart:
    """A part of a request."""

    key: str
    """`settings`, `tool:NAME`, `system`, or `message:N`, by which it is found in another request."""
    title: str
    value: Any
    """The JSON value."""

    @property
    def kind(self) -> str:
        """The key without its number or name."""
        return self.key.partition(":")[0]

    @property
    def is_system(self) -> bool:
        """Whether it is of the system prompt, in any API."""
        return self.title.split(" ")[0] in _SYSTEM

    @cached_property
    def canonical(self) -> bytes:
        """The content by which two parts are compared."""
        return msgspec.json.encode(_without_moving(self.value), order="sorted")

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The content as it is parts."""
        link = self.key if self.kind in ("tool", "message") else ""
        if self.kind in ("settings", "tools", "tool", "messages"):
            return segments(to_text(self.value), "json", link)
        parts = _of_message(self.value, link) if isinstance(self.value, dict) else _of_content(self.value, link)
        return tuple(parts)

    @property
    def text(self) -> str:
        """What a person reads of the part."""
        return "".join(each.text for each in self.segments if each.kind != "role")


class ParsedRequest(NamedTuple):
    """The parts of a request in the order of caches; all its messages have keys with their index in the body."""

    settings: tuple[BodyPart, ...]
    tools: tuple[BodyPart, ...]
    system: tuple[BodyPart, ...]
    messages: tuple[BodyPart, ...]

    @property
    def all(self) -> tuple[BodyPart, ...]:
        """All parts, in the order of caches."""
        return self.settings + self.tools + self.system + self.messages


def parse_request(body: bytes) -> ParsedRequest | None:
    """Returns the parts of a body; None if it is not a JSON object, or is deeper than `MAX_DEPTH`."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, Any])
        return None if _is_too_deep(fields) else _parse(fields)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None


def _is_too_deep(fields: dict[str, Any]) -> bool:
    level: list[Any] = [fields]
    for _ in range(MAX_DEPTH):
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
        if not level:
            return False
    return True


def _parse(fields: dict[str, Any]) -> ParsedRequest:
    listed = next((name for name in ("messages", "input", "turns") if name in fields), "")
    own = [name for name in ("system", "instructions") if fields.get(name)]
    listed_values = fields.get(listed)
    if listed == "turns" and isinstance(listed_values, list):  # of the Claude Code CLI, as a capture writes them
        listed_values = [_without(each, "is") for each in listed_values]
    messages = list(_messages(listed_values))
    leading = next((n for n, part in enumerate(messages) if not part.is_system), len(messages))
    return ParsedRequest(
        settings=tuple(_settings({k: v for k, v in fields.items() if k not in (listed, "tools", *own)})),
        tools=tuple(_tools(fields.get("tools"))),
        system=(*(BodyPart("system", "system prompt", fields[name]) for name in own), *messages[:leading]),
        messages=tuple(messages[leading:]),
    )


def _without(value: Any, name: str) -> Any:
    return {key: each for key, each in value.items() if key != name} if isinstance(value, dict) else value


def _settings(fields: Mapping[str, Any]) -> Iterator[BodyPart]:
    if fields:
        yield BodyPart("settings", "settings", fields)


def _tools(tools: Any) -> Iterator[BodyPart]:
    if not isinstance(tools, list):
        if tools is not None:
            yield BodyPart("tools", "tools", tools)
        return
    for number, tool in enumerate(tools):
        name = tool_name(tool) or f"{number}"
        yield BodyPart(f"tool:{name}", f"tool {name}", tool)


def tool_name(tool: Any) -> str:
    """Returns the name of a tool in any API; empty if it has none."""
    if not isinstance(tool, dict):
        return ""
    inner = tool.get("function")
    name = tool.get("name") or (inner.get("name") if isinstance(inner, dict) else "") or tool.get("type")
    return name if isinstance(name, str) else ""


def _messages(messages: Any) -> Iterator[BodyPart]:
    if isinstance(messages, str):
        yield BodyPart("message:0", "user", messages)
    elif isinstance(messages, list):
        for number, message in enumerate(messages):
            yield BodyPart(f"message:{number}", f"{_role(message)} {number}", message)
    elif messages is not None:
        yield BodyPart("messages", "messages", messages)


def _role(message: Any) -> str:
    if not isinstance(message, dict):
        return "message"
    role = message.get("role") or message.get("type")
    return role if isinstance(role, str) and role else "message"


def _of_message(message: Mapping[str, Any], link: str) -> Iterator[Segment]:
    """Yields the content of a message, then its other members."""
    if message.get("type") in (*_CALLS, *_RESULTS) or ("type" in message and "role" not in message):
        yield from _of_block(message, link)
        return
    calls = message.get("tool_calls")
    own = ("role", "content", *_REASONING, *(("tool_calls",) if isinstance(calls, list | None) else ()))
    left = {k: v for k, v in message.items() if k not in own}
    for name in _REASONING:
        if name in message:
            yield from _labeled(name, message[name], "reasoning", link)
    yield from _of_content(message.get("content"), link)
    for call in calls if isinstance(calls, list) else ():
        yield from _of_block(call, link)
    yield from _rest(left, ("type",) if left.get("type") == "message" else (), link)


def _labeled(name: str, value: Any, kind: str, link: str) -> Iterator[Segment]:
    if isinstance(value, str):
        yield from segments(value, kind, link)
    else:
        yield from segments(f"\n{name}: {to_text(value)}", "json", link)


def _of_content(content: Any, link: str) -> Iterator[Segment]:
    if isinstance(content, str):
        yield from segments(content, "text", link)
    elif isinstance(content, list):
        for number, block in enumerate(content):
            if number:
                yield from segments("\n", "plain", link)
            yield from _of_block(block, link)
    elif content is not None:
        yield from segments(to_text(content), "json", link)


def _of_block(block: Any, link: str) -> Iterator[Segment]:
    """Yields a block of content: text, reasoning, a call, a result, or anything else as JSON."""
    kind = block.get("type") if isinstance(block, dict) else None
    if isinstance(block, str):
        yield from segments(block, "text", link)
    elif kind in _TEXTS and isinstance(block.get("text") or block.get("refusal"), str):
        name = "text" if isinstance(block.get("text"), str) else "refusal"
        yield from segments(block[name], "text", link)
        yield from _rest(block, ("type", name), link)
    elif kind in _REASONING and isinstance(block.get("thinking"), str):
        yield from segments(block["thinking"], "reasoning", link)
        yield from _rest(block, ("type", "thinking"), link)
    elif kind in _CALLS:
        yield from _of_call(block, link)
    elif kind in _RESULTS:
        yield from _of_result(block, link)
    else:
        yield from segments(to_text(block), "json", link)


def _of_call(block: Mapping[str, Any], link: str) -> Iterator[Segment]:
    """Yields a call: its name, its arguments, and the rest."""
    inner = block.get("function")
    fields = inner if isinstance(inner, dict) else block
    argument = next((name for name in ("arguments", "input") if name in fields), None)
    yield from segments(f"{block['type']} ", "role", link)
    name = fields.get("name", "")
    yield from segments(name if isinstance(name, str) else to_text(name), "name", link)
    if argument is not None:
        value = fields[argument]
        yield from segments(" ", "plain", link)
        yield from segments(value if isinstance(value, str) else to_text(value), "arguments", link)
    yield from _rest(fields, ("type", "name", argument), link)
    if fields is not block:
        yield from _rest(block, ("type", "function"), link)


def _of_result(block: Mapping[str, Any], link: str) -> Iterator[Segment]:
    content = "content" if "content" in block else "output"
    yield from segments(f"{block['type']}\n", "role", link)
    yield from _of_content(block.get(content), link)
    yield from _rest(block, ("type", content), link)


def _rest(fields: Mapping[str, Any], known: Collection[str | None], link: str) -> Iterator[Segment]:
    """Yields the members that nothing else shows."""
    if left := {name: value for name, value in fields.items() if name not in known}:
        yield from segments(f"\n{to_text(left)}", "json", link)


def to_text(value: Any) -> str:
    """Returns JSON as text of several lines, in which encoded data is shortened."""
    encoded = msgspec.json.encode(_with_short_data(value))
    return msgspec.json.format(encoded, indent=2).decode()


def _with_short_data(value: Any) -> Any:
    match value:
        case str() if len(value) > _OPAQUE_CHARS and _OPAQUE.fullmatch(value):
            return f"{value[:_SHOWN_CHARS]}… ({len(value):,} characters of data)"
        case dict():
            return {name: _with_short_data(each) for name, each in value.items()}
        case list():
            return [_with_short_data(each) for each in value]
        case _:
            return value


def _without_moving(value: Any) -> Any:
    match value:
        case dict():
            return {name: _without_moving(each) for name, each in value.items() if name not in _MOVING}
        case [dict(block)] if block.get("type") in _TEXTS and {*block} <= {"type", "text", *_MOVING}:
            return block.get("text")  # some agents write the same message as a string later
        case list():
            return [_without_moving(each) for each in value]
        case _:
            return value
