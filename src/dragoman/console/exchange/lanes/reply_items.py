"""The response that a client got, as items: text, reasoning, calls, and everything else, in the client's own API.

Text that arrives in several pieces is one item with the number of pieces. All else is kept as it arrived.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from dragoman.console.exchange.lanes.request_parts import to_text

_EVENT_END: Final = re.compile(rb"\r?\n\r?\n")
_REASONING: Final = ("reasoning_content", "reasoning")
_NAMES: Final = ("type", "role", "id", "name", "model", "object", "status")
"""Members that contain no text of a response."""
_RECENT: Final = 64
"""Items among which the one is searched that a piece continues."""
_CALL_TYPES: Final = ("tool_use", "function_call", "custom_tool_call")
_RESPONSES_DELTAS: Final = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.function_call_arguments.delta": "call",
    "response.custom_tool_call_input.delta": "call",
}


@dataclass
class ReplyItem:
    """A part of the response."""

    kind: str
    """`text`, `reasoning`, `call`, or `other`."""
    key: object
    """Identifies the block that later pieces belong to."""
    name: str = ""
    """The tool of a call; of others the name of the event."""
    id: str = ""
    pieces: list[str] = field(default_factory=list)
    """The text as it arrived; of `other` the events."""
    ms: int = 0
    last_ms: int = 0

    @property
    def text(self) -> str:
        """All of the text."""
        return "".join(self.pieces)


class _Delta(NamedTuple):
    kind: str
    key: object
    text: str = ""
    name: str = ""
    id: str = ""


def stream_items(chunks: Sequence[tuple[int, bytes]]) -> list[ReplyItem]:
    """Returns the items of a stream of server-sent events.

    Args:
        chunks: The bytes, with the milliseconds of their arrival.
    """
    items: list[ReplyItem] = []
    for ms, raw in _events(chunks):
        name, data = _parse_event(raw)
        deltas = list(_deltas(name, data)) if isinstance(data, dict) else []
        for delta in deltas:
            _add(items, delta, ms)
        if not deltas or _has_more(data):
            _add_other(items, name, raw, ms)
    return items


def body_items(body: bytes, ms: int) -> list[ReplyItem]:
    """Returns the items of a response without streaming.

    Args:
        body: The response.
        ms: The milliseconds of its arrival.
    """
    try:
        fields = msgspec.json.decode(body, type=dict[str, Any])
        items: list[ReplyItem] = []
        for delta in _body_deltas(fields):
            _add(items, delta, ms)
        texts = {item.text for item in items if item.text}
        rest = ReplyItem("other", None, "response", pieces=[to_text(_without(fields, texts))], ms=ms, last_ms=ms)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return [ReplyItem("other", None, "body", pieces=[body.decode("utf-8", "replace")], ms=ms, last_ms=ms)]
    return [*items, rest]


def _events(chunks: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, str]]:
    """Yields each event or comment as it was sent, with the time of its last byte."""
    left = bytearray()
    for ms, chunk in chunks:
        searched = max(0, len(left) - 3)
        left += chunk
        start = 0
        for end in _EVENT_END.finditer(left, searched):
            yield ms, left[start : end.start()].decode("utf-8", "replace")
            start = end.end()
        del left[:start]
    if left.strip() and chunks:
        yield chunks[-1][0], left.decode("utf-8", "replace")


def _parse_event(raw: str) -> tuple[str, Any]:
    """Returns name and JSON of an event; of one that is not JSON, the text after its first colon."""
    name, data = "", []
    for line in raw.splitlines():
        part, _, value = line.partition(":")
        if part == "event":
            name = value.strip()
        elif part == "data":
            data.append(value.removeprefix(" "))
    if not data:
        return ("comment" if raw.startswith(":") else name or "event"), None
    text = "\n".join(data)
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return name or text[:20], None
    if isinstance(fields, dict):
        name = name or str(fields.get("type") or fields.get("object") or "event")
    return name or "event", fields


def _deltas(name: str, data: Mapping[str, Any]) -> Iterator[_Delta]:
    """Yields the pieces of content in an event of any of the three APIs."""
    if isinstance(data.get("choices"), list):
        for choice in data["choices"]:
            if isinstance(choice, dict) and isinstance(choice.get("delta"), dict):
                yield from _chat(choice["delta"], choice.get("index", 0))
    elif name.startswith("content_block_"):
        yield from _anthropic(name, data)
    elif name.startswith("response."):
        yield from _responses(name, data)


def _chat(message: Mapping[str, Any], choice: object) -> Iterator[_Delta]:
    for name in _REASONING:
        if isinstance(message.get(name), str) and message[name]:
            yield _Delta("reasoning", (choice, "reasoning"), message[name])
    for name in ("content", "refusal"):
        if isinstance(message.get(name), str) and message[name]:
            yield _Delta("text", (choice, name), message[name])
    for number, call in enumerate(_dicts(message.get("tool_calls"))):
        if isinstance(function := call.get("function") or {}, dict):
            key = (choice, "call", call.get("index", number))
            arguments = function.get("arguments")
            text = arguments if isinstance(arguments, str) else ""
            yield _Delta("call", key, text, str(function.get("name") or ""), str(call.get("id") or ""))


def _anthropic(event: str, data: Mapping[str, Any]) -> Iterator[_Delta]:
    key = data.get("index")
    block, delta = data.get("content_block"), data.get("delta")
    if event == "content_block_start" and isinstance(block, dict):
        kind = block.get("type")
        if kind in _CALL_TYPES:
            yield _Delta("call", key, "", str(block.get("name", "")), str(block.get("id", "")))
        elif kind in ("text", "thinking") and isinstance(block.get(kind), str):
            yield _Delta("text" if kind == "text" else "reasoning", key, block[kind])
    elif event == "content_block_delta" and isinstance(delta, dict):
        texts = {"text_delta": ("text", "text"), "thinking_delta": ("reasoning", "thinking")}
        kinds = {**texts, "input_json_delta": ("call", "partial_json")}
        kind, member = kinds.get(str(delta.get("type", "")), ("", ""))
        if kind and isinstance(delta.get(member), str):
            yield _Delta(kind, key, delta[member])


def _responses(event: str, data: Mapping[str, Any]) -> Iterator[_Delta]:
    item = data.get("item")
    if event == "response.output_item.added" and isinstance(item, dict) and item.get("type") in _CALL_TYPES:
        yield _Delta("call", ("call", item.get("id")), "", str(item.get("name", "")), str(item.get("call_id", "")))
    elif (kind := _RESPONSES_DELTAS.get(event)) and isinstance(delta := data.get("delta"), str):
        part = () if kind == "call" else (data.get("content_index"), data.get("summary_index"))
        yield _Delta(kind, (kind, data.get("item_id"), *part), delta)


def _has_more(data: Any) -> bool:
    """Whether an event has more than pieces of content: how the response ended, counts, an error."""
    if not isinstance(data, dict):
        return True
    if isinstance(choices := data.get("choices"), list):
        is_end = any(isinstance(each, dict) and each.get("finish_reason") for each in choices)
        return bool(is_end or data.get("usage") or data.get("error"))
    return False


def _body_deltas(fields: Mapping[str, Any]) -> Iterator[_Delta]:
    """Yields the content of a response without streaming."""
    for choice in _dicts(fields.get("choices")):
        if isinstance(choice.get("message"), dict):
            yield from _chat(choice["message"], choice.get("index", 0))
    for number, block in enumerate(_dicts(fields.get("content"))):
        yield from _block_delta(block, number)
    for number, item in enumerate(_dicts(fields.get("output"))):
        if item.get("type") in _CALL_TYPES:
            yield _call_delta(item, number)
        for part, block in enumerate([*_dicts(item.get("summary")), *_dicts(item.get("content"))]):
            text = block.get("text") or block.get("refusal")
            if isinstance(text, str):
                kind = "reasoning" if item.get("type") == "reasoning" else "text"
                yield _Delta(kind, (number, part), text)


def _block_delta(block: Mapping[str, Any], number: int) -> Iterator[_Delta]:
    kind = block.get("type")
    if kind in _CALL_TYPES:
        yield _call_delta(block, number)
    elif kind in ("text", "thinking") and isinstance(block.get(kind), str):
        yield _Delta("text" if kind == "text" else "reasoning", number, block[kind])


def _call_delta(block: Mapping[str, Any], number: int) -> _Delta:
    arguments = block.get("arguments", block.get("input", {}))
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return _Delta("call", number, text, str(block.get("name", "")), str(block.get("call_id") or block.get("id") or ""))


def _dicts(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _without(value: Any, texts: Collection[str]) -> Any:
    """Returns JSON without the texts that are items of their own."""
    match value:
        case str():
            return "…" if value in texts else value
        case list():
            return [_without(each, texts) for each in value]
        case dict():
            return {name: _without(each, texts) if name not in _NAMES else each for name, each in value.items()}
        case _:
            return value


def _add(items: list[ReplyItem], delta: _Delta, ms: int) -> None:
    """Adds a piece to the item that it continues: pieces of calls may alternate, text after a call is a new item."""
    recent = [each for each in items[-_RECENT:] if each.kind != "other"]
    own = [each for each in recent if each.kind == "call"] if delta.kind == "call" else recent[-1:]
    item = next((each for each in reversed(own) if (each.kind, each.key) == (delta.kind, delta.key)), None)
    if item is None:
        item = ReplyItem(delta.kind, delta.key, ms=ms)
        items.append(item)
    item.name, item.id = item.name or delta.name, item.id or delta.id
    item.last_ms = ms
    if delta.text:
        item.pieces.append(delta.text)


def _add_other(items: list[ReplyItem], name: str, raw: str, ms: int) -> None:
    if not items or items[-1].kind != "other":
        items.append(ReplyItem("other", None, name, ms=ms))
    item = items[-1]
    if name not in item.name.split(", "):
        item.name += f", {name}"
    item.pieces.append(f"{raw}\n\n")
    item.last_ms = ms
