"""What an MCP server offers and returns, as values that need no package of MCP.

    {"content": [{"type": "text", "text": "4 files"}, {"type": "image", …}], "structuredContent": {"count": 4}}
    →  McpResult("4 files\\n[image/png, 12 kB, not shown]", …)

Texts are joined. Structured content is written as JSON, unless a text contains the same, as servers are asked to do.
"""

import base64
import binascii
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from dragoman.core.messages import FrozenStruct, Image, JsonText, MediaSource
from dragoman.vendor_tools.remote import RemoteTool

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ContentBlock

MAX_CHARS: Final = 200_000
"""Maximum characters of a result; the gateway cuts it further, to `tools.max_result_chars`."""
MAX_IMAGES_CHARS: Final = 8_000_000
"""Maximum characters of the base64 of all images of a result."""


class McpResult(FrozenStruct, frozen=True):
    """The result of a call."""

    text: str
    images: tuple[Image, ...] = ()
    is_error: bool = False
    structured: JsonText = ""
    """Its structured content, an object; empty: none."""


class McpServerError(Exception):
    """A server could not be started or asked, or it did not respond; the message names it and contains no secrets."""


def read_result(result: "CallToolResult", *, with_images: bool) -> McpResult:
    """Returns the result of a call as values."""
    texts: list[str] = []
    images: list[Image] = []
    size = 0
    for block in result.content:
        image = _image(block) if with_images else None
        if image is not None and image.source.data and size + len(image.source.data) <= MAX_IMAGES_CHARS:
            size += len(image.source.data)
            images.append(image)
        else:
            texts.append(_text(block))
    structured = ""
    if result.structured_content is not None:
        structured = json.dumps(result.structured_content, ensure_ascii=False)
        if not any(_same_json(text, result.structured_content) for text in texts):
            texts.append(structured)
    return McpResult(_cut("\n".join(texts)), tuple(images), bool(result.is_error), structured)


def _cut(text: str) -> str:
    if len(text) <= MAX_CHARS:
        return text
    return f"{text[:MAX_CHARS]}\n[The result was cut: {MAX_CHARS} of {len(text)} characters are shown.]"


def _same_json(text: str, value: dict[str, object]) -> bool:
    """Returns whether the text is this value, or its only member `result`, in which the SDK wraps other values."""
    if list(value) == ["result"] and text == value["result"]:
        return True
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return bool(read == value or [read] == list(value.values()))


def _image(block: "ContentBlock") -> Image | None:
    if block.type != "image":
        return None
    try:
        base64.b64decode(block.data, validate=True)
    except (binascii.Error, ValueError):
        return None
    return Image(MediaSource(media_type=block.mime_type, data=block.data))


def _text(block: "ContentBlock") -> str:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return _note(block.mime_type, len(block.data) * 3 // 4)
        case "resource_link":
            return f"[resource {block.name}: {block.uri}]"
        case _:
            text = getattr(block.resource, "text", None)
            return text if isinstance(text, str) else f"[resource {block.resource.uri}, not text]"


def _note(media_type: str, size: int) -> str:
    return f"[{media_type}, {max(1, size // 1000)} kB, not shown]"


def select_tools(tools: Iterable[RemoteTool], allowed: Iterable[str]) -> tuple[RemoteTool, ...]:
    """Returns the tools with these names; all if there are no names."""
    names = set(allowed)
    return tuple(tool for tool in tools if not names or tool.name in names)
