"""Child process that reads a PDF: such a file can make a parser run or grow without end.

    standard input    {"max_pages": 100, "max_chars": 1000, "max_images": 0, …}\\n and the file
    standard output   {"title": "…", "page_count": 2, "pages": [{"text": "…"}, {"image": "…"}]}

`image` is a PNG in base64 of a page without text. The process starts without the package, so it must import nothing
of it.
"""

import base64
import contextlib
import io
import json
import struct
import sys
import zlib
from typing import Any

_SIDE_PIXELS = 1024
"""Longer side of a image: letters of a page can be read, and vision models scale down what is larger."""


def main() -> None:
    """Reads one job, and writes its result."""
    source = sys.stdin.buffer
    job = json.loads(source.readline())
    _limit(job["memory_bytes"], job["cpu_s"])
    sys.stdout.buffer.write(json.dumps(_read(source.read(), job)).encode())


def _limit(memory_bytes: int, cpu_s: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # Windows has no module, macOS not this memory limit
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def _read(content: bytes, job: dict[str, Any]) -> dict[str, Any]:
    import pypdf

    reader = pypdf.PdfReader(io.BytesIO(content))
    title = str((reader.metadata.title if reader.metadata else "") or "")
    pages: list[dict[str, str]] = []
    left, images = job["max_chars"], job["max_images"]
    for number in range(min(len(reader.pages), job["max_pages"])):
        text = reader.pages[number].extract_text().strip()[:left]
        left -= len(text)
        page = {"text": text} if text else {}
        if not text and images:
            page = {"image": _page_image(content, number)}
            images -= 1
        pages.append(page)
        if not left:
            break
    return {"title": " ".join(title.split())[:300], "page_count": len(reader.pages), "pages": pages}


def _page_image(content: bytes, number: int) -> str:
    """Returns the page as PNG in base64; empty if it cannot be drawn."""
    try:
        import pypdfium2
    except ImportError:
        return ""
    page = pypdfium2.PdfDocument(content)[number]
    scale = _SIDE_PIXELS / max(*page.get_size(), 1)
    bitmap = page.render(scale=scale, rev_byteorder=True, prefer_bgrx=False, maybe_alpha=False)
    return base64.b64encode(_png(bytes(bitmap.buffer), bitmap.width, bitmap.height, bitmap.stride)).decode()


def _png(pixels: bytes, width: int, height: int, stride: int) -> bytes:
    """Returns an image of red, green and blue bytes as PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + pixels[row * stride : row * stride + 3 * width] for row in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


if __name__ == "__main__":
    main()
