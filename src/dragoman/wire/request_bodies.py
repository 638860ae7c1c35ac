"""Request bodies of all APIs: typed decoding of their usual form, and the content of a message.

Typed decoding is the fast path of each dialect's `read_request`. It accepts a subset of what the dialect's cursors
accept, with the same result, and declines everything else.
The content of a message is a string, or an array of blocks, each with a `type`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Raw

from dragoman.core.errors import DragomanError
from dragoman.core.messages import ANY_ARGUMENTS, ExtraFields, JsonText, MediaSource, Text, UnknownPart
from dragoman.text.json_cursor import MAX_OBJECTS, MAX_VALUES, NULL, Cursor, Fields, without_null_members

B = TypeVar("B")
T = TypeVar("T")
P = TypeVar("P")

Name: TypeAlias = Annotated[str, Meta(min_length=1)]
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""Integers beyond these are left to the cursors."""
Count: TypeAlias = Annotated[int, Meta(ge=1, le=2**53)]

_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_TRUE: Final = Raw(b"true")
_FALSE: Final = Raw(b"false")
_string: Final = msgspec.json.Decoder(str).decode


class UnusualError(Exception):
    """The fast path does not support the body."""


DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
_DECLINED: Final = (*DECODE_ERRORS, DragomanError, UnusualError)


def read_typed_body(body: bytes | str, decode: Callable[[bytes], B], build: Callable[[B, bytes], T]) -> T | None:
    """Returns what `build` makes of the decoded body, or None if it is unusual, invalid or very large.

    Args:
        body: The body of a request.
        decode: Decoder of the usual form.
        build: Converts the decoded body, which it also receives as bytes; raises `UnusualError` for other values.
    """
    try:
        if isinstance(body, str):
            body = body.encode()
        if not isinstance(body, bytes) or _is_large(body):
            return None
        if not body.isascii():
            str(body, "utf-8")  # msgspec does not check strings that are not decoded
        return build(decode(body), body)
    except _DECLINED:
        return None


def _is_large(body: bytes) -> bool:
    """Whether the body may have too many objects or values; a short body has no room for them."""
    size = len(body)
    return size > MAX_OBJECTS and (body.count(b"{") > MAX_OBJECTS or body.count(b",") > MAX_VALUES)


def extra_of(names: Iterable[str], values: Iterable[Raw], json: bytes | Raw | None = None) -> ExtraFields:
    """Returns the fields that are not null, in the order of the object's JSON.

    Raises:
        UnusualError: There are several, and the order is not known because `json` is None.
    """
    extra = {name: raw for name, raw in zip(names, values, strict=True) if raw is not NULL and raw != NULL}
    if len(extra) > 1:
        if json is None:
            raise UnusualError
        return {name: extra[name] for name in _members(json) if name in extra}
    return extra


def one_extra(name: str, raw: Raw) -> ExtraFields:
    """Returns the field if it is not null."""
    return {} if raw is NULL or raw == NULL else {name: raw}


def schema_of(raw: Raw) -> JsonText:
    """Returns the JSON Schema of a tool's parameters, as `Fields.schema` does.

    Raises:
        UnusualError: It is not an object.
    """
    text = str(raw, "utf-8")
    if text[0] != "{":
        if text == "null":
            return ANY_ARGUMENTS
        raise UnusualError
    return without_null_members(raw) if "null" in text else text


def string_of(raw: Raw) -> str:
    """Returns a string; "" for any other value."""
    return _string(raw) if memoryview(raw)[0] == ord('"') else ""


def bool_of(raw: Raw) -> bool:
    """Returns a boolean.

    Raises:
        UnusualError: It is another value.
    """
    if raw in (_TRUE, _FALSE):
        return raw == _TRUE
    raise UnusualError


def object_of(raw: Raw) -> JsonText:
    """Returns the JSON of an object, `{}` for null.

    Raises:
        UnusualError: It is another value.
    """
    text = str(raw, "utf-8")
    if text[0] == "{":
        return text
    if text == "null":
        return "{}"
    raise UnusualError


def read_parts(
    content: Cursor | None, readers: Mapping[str, Callable[[Fields], P]]
) -> tuple[P | Text | UnknownPart, ...]:
    """Returns the parts of the content. Empty texts are omitted.

    A single object in place of the list is accepted as the only part. A part of a type without a reader becomes an
    `UnknownPart`, and one without a type an `UnknownPart` of type ""; the model reads their JSON as text.

    Args:
        content: A string, an array, an object or null.
        readers: One reader per block type.

    Raises:
        RequestError: The content is invalid; the message contains the problem and its position.
    """
    if content is None:
        return ()
    if content.kind == "string":
        text = content.string()
        return (Text(text),) if text else ()
    if content.kind not in ("array", "object"):
        raise content.wrong("string, array or null")
    items = content.items() if content.kind == "array" else [content]
    parts = (_part(item, readers) for item in items if item.kind != "null")
    return tuple(part for part in parts if part != Text(""))


def read_text(fields: Fields) -> Text:
    """Reads a block of type `text`."""
    return Text(fields.require("text").string(), fields.remaining())


def media_from_url(url: str) -> MediaSource:
    """Returns the source for a URL: inline data of a `data:` URL, else the URL itself."""
    inline = re.match(r"data:([^,]*);base64,", url, re.IGNORECASE)
    return MediaSource(media_type=inline[1], data=url[inline.end() :]) if inline else MediaSource(url=url)


_IMAGE_TYPES = {"iVBORw0KGgo": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}


def image_type(data: str) -> str:
    """Returns the MIME type by the first bytes of a base64 image, or "": clients send JPEG as `image/png`."""
    return next((kind for begins, kind in _IMAGE_TYPES.items() if data.startswith(begins)), "")


def _part(cursor: Cursor, readers: Mapping[str, Callable[[Fields], P]]) -> P | Text | UnknownPart:
    if cursor.kind == "string":
        return Text(cursor.string())
    fields = cursor.fields()
    named, text = fields.get("type"), fields.get("text")
    if named is None and text is not None and text.kind == "string":
        return read_text(fields)
    kind = named.string() if named is not None and named.kind == "string" else ""
    if kind in readers:
        fields.pop("type")
        return readers[kind](fields)
    return UnknownPart(kind, cursor.raw, cursor.path)
