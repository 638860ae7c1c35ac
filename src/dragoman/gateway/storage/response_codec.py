"""Stored messages as JSON, for stores outside of this process.

A part is written as `[class name, fields]`, because the types of parts do not say in JSON which they are. JSON that is
not parsed (`msgspec.Raw`) is embedded verbatim, and read back byte for byte.
"""

from typing import Any, Final, TypeAlias, get_args

import msgspec

from dragoman.core.messages import ExtraFields, Message, Part, ResultPart, Role, ToolResult

_Tagged: TypeAlias = tuple[str, msgspec.Raw]


class _ResultRecord(msgspec.Struct, array_like=True):
    call_id: str
    parts: tuple[_Tagged, ...]
    is_error: bool
    extra: ExtraFields


class _MessageRecord(msgspec.Struct, array_like=True):
    role: Role
    parts: tuple[_Tagged, ...]
    extra: ExtraFields
    verbatim_text: str


class _Record(msgspec.Struct, array_like=True):
    messages: tuple[_MessageRecord, ...]
    parts: tuple[_Tagged | None, ...]


_DECODERS: Final[dict[str, "msgspec.json.Decoder[Any]"]] = {
    each.__name__: msgspec.json.Decoder(_ResultRecord if each is ToolResult else each) for each in get_args(Part)
}
_RECORDS: Final = msgspec.json.Decoder(_Record)


def encode(messages: tuple[Message, ...], parts: tuple[Part | None, ...]) -> bytes:
    """Returns the messages of a request and the parts of its response as JSON."""
    written = [(m.role, list(map(_tagged, m.parts)), m.extra, m.verbatim_text) for m in messages]
    return msgspec.json.encode((written, [part and _tagged(part) for part in parts]))


def decode(written: bytes) -> tuple[tuple[Message, ...], tuple[Part | None, ...]]:
    """Returns what `encode` wrote.

    Raises:
        msgspec.DecodeError: It was written by a version with other types.
    """
    record = _RECORDS.decode(written)
    messages = tuple(Message(m.role, tuple(map(_part, m.parts)), m.extra, m.verbatim_text) for m in record.messages)
    return messages, tuple(part and _part(part) for part in record.parts)


def _tagged(part: Part) -> tuple[str, object]:
    if not isinstance(part, ToolResult):
        return type(part).__name__, part
    return "ToolResult", (part.call_id, list(map(_tagged, part.parts)), part.is_error, part.extra)


def _part(tagged: _Tagged) -> Any:
    name, fields = tagged
    if name not in _DECODERS:
        raise msgspec.ValidationError(f"expected the name of a part, got {name!r}")
    part: Part | _ResultRecord = _DECODERS[name].decode(fields)
    if not isinstance(part, _ResultRecord):
        return part
    inner: tuple[ResultPart, ...] = tuple(map(_part, part.parts))
    return ToolResult(part.call_id, inner, part.is_error, part.extra)
