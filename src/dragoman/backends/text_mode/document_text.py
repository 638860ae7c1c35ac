"""Shows PDFs and text files to models that cannot read files: as their text, and as images of pages without text."""

import base64
import binascii
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from msgspec.structs import replace

from dragoman.core.messages import Document, Image, MediaSource, Message, Part, Request, ResultPart, Text, ToolResult
from dragoman.documents.pdf import MAX_CHARS, Pdf, PdfReader

_PDF: Final = "application/pdf"
_TEXT: Final = ("text/", "application/json", "application/xml", "application/yaml")
_CPU_S: Final = 30
_MAX_IMAGES: Final = 8
"""Images of one PDF: each is hundreds of tokens."""
_REMEMBERED: Final = 16
"""An agent sends the whole conversation again with each turn, with its files."""


class DocumentReader:
    """Reads the files in requests, and remembers the last ones."""

    def __init__(self, *, images: bool) -> None:
        """
        Args:
            images: Whether pages without text become images.
        """
        self._max_images = _MAX_IMAGES if images else 0
        self._pdfs = PdfReader(_CPU_S)
        self._read: OrderedDict[bytes, Sequence[Text | Image]] = OrderedDict()

    async def show(self, request: Request) -> Request:
        """Returns the request with text and images in place of files; a file that cannot be read stays."""
        if not any(_has_file(message) for message in request.messages):
            return request
        return replace(request, messages=tuple([await self._message(message) for message in request.messages]))

    async def _message(self, message: Message) -> Message:
        if not _has_file(message):
            return message
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                replaced = [piece for each in part.parts for piece in await self._replacements(each)]
                parts.append(replace(part, parts=tuple(replaced)))
            elif isinstance(part, Document):
                parts += await self._replacements(part)
            else:
                parts.append(part)
        return replace(message, parts=tuple(parts))

    async def _replacements(self, part: ResultPart) -> Sequence[ResultPart]:
        if not isinstance(part, Document) or not part.source.data:
            return [part]
        key = sha256(f"{part.source.media_type} {part.title}\n{part.source.data}".encode()).digest()
        if key not in self._read:
            self._read[key] = await self._parts(part)
            if len(self._read) > _REMEMBERED:
                self._read.popitem(last=False)
        self._read.move_to_end(key)
        return self._read[key] or [part]

    async def _parts(self, document: Document) -> Sequence[Text | Image]:
        try:
            content = base64.b64decode(document.source.data, validate=True)
        except binascii.Error:
            return []
        if document.source.media_type.startswith(_TEXT):
            return _titled(document.title, [Text(content.decode("utf-8", "replace")[:MAX_CHARS])])
        if document.source.media_type != _PDF and not content.startswith(b"%PDF-"):
            return []
        pdf = await self._pdfs.read(content, max_images=self._max_images)
        return _titled(document.title or (pdf.title if pdf else ""), _pages(pdf)) if pdf else []


def _has_file(message: Message) -> bool:
    parts = (each for part in message.parts for each in (part.parts if isinstance(part, ToolResult) else (part,)))
    return any(isinstance(part, Document) and part.source.data for part in parts)


def _pages(pdf: Pdf) -> list[Text | Image]:
    if not any(page.image for page in pdf.pages):
        return [Text(pdf.text)] if pdf.text else []
    images = (Image(MediaSource("image/png", page.image)) if page.image else None for page in pdf.pages)
    pages = [image or Text(page.text) for image, page in zip(images, pdf.pages, strict=True)]
    missing = pdf.page_count - len(pdf.pages)
    return [*pages, *([Text(f"[{missing} more pages]")] if missing else [])]


def _titled(title: str, parts: list[Text | Image]) -> Sequence[Text | Image]:
    return [Text(title), *parts] if title and parts else parts
