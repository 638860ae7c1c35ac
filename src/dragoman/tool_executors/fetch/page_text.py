"""Extracts the text of a downloaded page: HTML as Markdown, PDF as text, other text as it is.

HTML and PDF are parsed in a child process with limits of memory and time, so that a hostile page can neither block the
event loop nor occupy a thread for ever.
"""

import asyncio
import codecs
import re
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from dragoman.documents.child import run_parser
from dragoman.documents.pdf import MAX_CHARS, PdfReader
from dragoman.tool_executors.fetch.fetch_url import RefusedUrlError
from dragoman.tool_executors.fetch.page_download import Download

_CHILD: Final = Path(__file__).with_name("page_text_worker.py")
_MAX_PROCESSES: Final = 2
_HTML: Final = ("text/html", "application/xhtml+xml")
_PDF: Final = "application/pdf"
_TEXT: Final = (
    "application/ecmascript",
    "application/javascript",
    "application/json",
    "application/ld+json",
    "application/rtf",
    "application/toml",
    "application/x-ndjson",
    "application/x-sh",
    "application/x-yaml",
    "application/xml",
    "application/yaml",
)
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9.+_-]{1,60}/[a-z0-9.+_-]{1,60}")
_TEXT_SUFFIXES: Final = ("+json", "+xml", "+yaml")
_ENCODINGS: Final = ("ascii", "big5", "cp125", "euc", "gb", "iso2022", "iso8859", "koi8", "shift", "utf-16", "utf-8")
"""Beginnings of the names of usable encodings; others can be slow, such as punycode, or are not encodings of text."""


class PageText(NamedTuple):
    """What a page contains."""

    title: str
    text: str


class _Extracted(msgspec.Struct):
    title: str
    text: str


_decode: Final = msgspec.json.Decoder(_Extracted).decode


class PageReader:
    """Extracts texts, in at most two child processes at once for each kind of file."""

    def __init__(self, timeout_s: float) -> None:
        """
        Args:
            timeout_s: Limit of the CPU time of one page; the caller limits the whole time.
        """
        self._cpu_s = max(1, int(timeout_s))
        self._free = asyncio.Semaphore(_MAX_PROCESSES)
        self._pdfs = PdfReader(self._cpu_s)

    async def read(self, page: Download) -> PageText:
        """Returns the text of a page.

        Raises:
            RefusedUrlError: Its content type is not supported, or its content is not valid.
        """
        media_type, charset = _content_type(page.content_type)
        if media_type in _HTML:
            return await self._html(charset, page)
        if media_type == _PDF:
            pdf = await self._pdfs.read(page.body)
            if pdf is None:
                raise _no_text("pdf")
            return PageText(pdf.title, pdf.text)
        if media_type.startswith("text/") or media_type in _TEXT or media_type.endswith(_TEXT_SUFFIXES):
            return PageText("", page.body.decode(charset or "utf-8", "replace")[:MAX_CHARS].removeprefix("\ufeff"))
        message = f"the page is neither HTML, PDF nor text, but {media_type or 'of unknown type'}"
        raise RefusedUrlError(message, "unsupported_content_type", f"{message}.")

    async def _html(self, charset: str, page: Download) -> PageText:
        job = {"url": str(page.url), "encoding": charset, "max_chars": MAX_CHARS}
        async with self._free:
            written = await run_parser(_CHILD, job, page.body, self._cpu_s)
        try:
            return PageText(*msgspec.structs.astuple(_decode(written)))
        except msgspec.DecodeError:
            raise _no_text("html") from None


def _no_text(kind: str) -> RefusedUrlError:
    return RefusedUrlError(f"a {kind} from which no text can be extracted", "url_not_accessible")


def _content_type(header: str) -> tuple[str, str]:
    """Returns media type and encoding of a `content-type`; "" for what it does not contain."""
    media_type, _, parameters = header.partition(";")
    charset = ""
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            charset = value.strip().strip("\"'")
    media_type = media_type.strip().lower()
    return media_type if _MEDIA_TYPE.fullmatch(media_type) else "", _encoding(charset)


def _encoding(charset: str) -> str:
    try:
        name = codecs.lookup(charset).name if charset else ""
    except (LookupError, ValueError):
        return ""
    return name if name.startswith(_ENCODINGS) else ""
