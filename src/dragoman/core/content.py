"""What a message holds, as all APIs write it: a string, or an array of blocks, each with its `type`."""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from dragoman.core.shape import Cursor, Fields
from dragoman.core.values import Media, Opaque, Text

P = TypeVar("P")


def read_parts(content: Cursor | None, readers: Mapping[str, Callable[[Fields], P]]) -> tuple[P | Text | Opaque, ...]:
    """The parts, one reader a type; a type that has none is carried as it is. Empty texts are left out.

    Raises: RequestError: what is wrong, and where.
    """
    if content is None:
        return ()
    if content.kind == "string":
        text = content.string()
        return (Text(text),) if text else ()
    if content.kind != "array":
        raise content.wrong("string, array or null")
    parts = (_part(item, readers) for item in content.items())
    return tuple(part for part in parts if part != Text(""))


def read_text(fields: Fields) -> Text:
    """A block of type `text`."""
    return Text(fields.need("text").string(), fields.rest())


def media_at(url: str) -> Media:
    """What an URL names: the data in it, where it begins with `data:`, else itself."""
    inline = re.match(r"data:([^,]*);base64,", url, re.IGNORECASE)
    return Media(media_type=inline[1], data=url[inline.end() :]) if inline else Media(url=url)


_PICTURES = {"iVBORw0KGgo": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}


def picture_type(data: str) -> str:
    """What the first bytes of a picture in base64 say that it is, or "": clients call a JPEG `image/png`."""
    return next((kind for begins, kind in _PICTURES.items() if data.startswith(begins)), "")


def _part(cursor: Cursor, readers: Mapping[str, Callable[[Fields], P]]) -> P | Opaque:
    fields = cursor.fields()
    kind = fields.need("type").string()
    return readers[kind](fields) if kind in readers else Opaque(kind, cursor.raw, cursor.path)
