"""Content of a message in all APIs: a string, or an array of blocks, each with a `type`."""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from dragoman.core.messages import MediaSource, Text, UnknownPart
from dragoman.text.json_cursor import Cursor, Fields

P = TypeVar("P")


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
