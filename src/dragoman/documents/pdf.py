"""Reads PDFs: their text, and images of pages that have none, such as scans."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from dragoman.documents.child import run_parser

_CHILD: Final = Path(__file__).with_name("pdf_worker.py")
MAX_CHARS: Final = 500_000
"""Maximum characters of a text."""
MAX_PAGES: Final = 100
_MAX_PROCESSES: Final = 2


class PdfPage(msgspec.Struct, frozen=True):
    """One page: its text, or a image of it, or neither."""

    text: str = ""
    image: str = ""
    """A PNG in base64."""


class Pdf(msgspec.Struct, frozen=True):
    """What was read of a PDF."""

    title: str
    page_count: int
    """Number of pages, also of those that were not read."""
    pages: Sequence[PdfPage]

    @property
    def text(self) -> str:
        """The text of all pages that were read, and a note if there are more."""
        texts = [page.text for page in self.pages if page.text]
        if len(self.pages) < self.page_count:
            texts.append(f"[The PDF has {self.page_count} pages; this is the text of the first {len(self.pages)}.]")
        return "\n\n".join(texts)


_decode: Final = msgspec.json.Decoder(Pdf).decode


class PdfReader:
    """Reads PDFs in child processes, at most two at once."""

    def __init__(self, cpu_s: int) -> None:
        """
        Args:
            cpu_s: Limit of the CPU time of one PDF; the caller limits the whole time.
        """
        self._cpu_s = cpu_s
        self._free = asyncio.Semaphore(_MAX_PROCESSES)

    async def read(self, content: bytes, *, max_chars: int = MAX_CHARS, max_images: int = 0) -> Pdf | None:
        """Returns what is in the file; None if it is damaged, encrypted, or too much to read.

        Args:
            content: The file.
            max_chars: Maximum characters of the text.
            max_images: Maximum images of pages without text.
        """
        job = {"max_chars": max_chars, "max_pages": MAX_PAGES, "max_images": max_images}
        async with self._free:
            written = await run_parser(_CHILD, job, content, self._cpu_s)
        try:
            return _decode(written)
        except msgspec.DecodeError:
            return None
