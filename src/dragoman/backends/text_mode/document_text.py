"""Shows PDFs and text files to models that cannot read files: as their text, and as pictures of pages without text."""

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
_MAX_PICTURES: Final = 8
"""Pictures of one PDF: each is hundreds of tokens."""
_REMEMBERED: Final = 16
"""An agent sends the whole conversation again with each turn, with its files."""


class DocumentReader:
    """Reads the files in requests, and remembers the last ones."""

    def __init__(self, *, pictures: bool) -> None:
        """
        Args:
            pictures: Whether pages without text are shown as pictures.
        """
        self._max_pictures = _MAX_PICTURES if pictures else 0
        self._pdfs = PdfReader(_CPU_S)
        self._read: OrderedDict[bytes, Sequence[Text | Image]] = OrderedDict()

    async def show(self, request: Request) -> Request:
        """Returns the request with text and pictures in place of files; a file that cannot be read stays."""
        if not any(_has_file(message) for message in request.messages):
            return request
        return replace(request, messages=tuple([await self._message(message) for message in request.messages]))

    async def _message(self, message: Message) -> Message:
        if not _has_file(message):
            return message
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                shown = [piece for each in part.parts for piece in await self._shown(each)]
                parts.append(replace(part, parts=tuple(shown)))
            elif isinstance(part, Document):
                parts += await self._shown(part)
            else:
                parts.append(part)
        return replace(message, parts=tuple(parts))

    async def _shown(self, part: ResultPart) -> Sequence[ResultPart]:
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
        pdf = await self._pdfs.read(content, max_pictures=self._max_pictures)
        return _titled(document.title or (pdf.title if pdf else ""), _pages(pdf)) if pdf else []


def _has_file(message: Message) -> bool:
    parts = (each for part in message.parts for each in (part.parts if isinstance(part, ToolResult) else (part,)))
    return any(isinstance(part, Document) and part.source.data for part in parts)


def _pages(pdf: Pdf) -> list[Text | Image]:
    if not any(page.picture for page in pdf.pages):
        return [Text(pdf.text)] if pdf.text else []
    pictures = (Image(MediaSource("image/png", page.picture)) if page.picture else None for page in pdf.pages)
    pages = [picture or Text(page.text) for picture, page in zip(pictures, pdf.pages, strict=True)]
    unread = pdf.page_count - len(pdf.pages)
    return [*pages, *([Text(f"[{unread} more pages]")] if unread else [])]


def _titled(title: str, parts: list[Text | Image]) -> Sequence[Text | Image]:
    return [Text(title), *parts] if title and parts else parts
