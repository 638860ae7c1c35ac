"""Child process that extracts the text of a web page or a PDF: such content can make a parser run or grow without end.

    standard input    {"kind": "html", "url": "…", "encoding": "", "max_chars": 1000, …}\\n and the content
    standard output   {"title": "…", "text": "…"}

It starts without the package, so it must import nothing of it.
"""

import contextlib
import io
import json
import re
import sys

_HTML_ENCODING = re.compile(rb"<meta[^>]+charset", re.IGNORECASE)


def main() -> None:
    """Reads one job, and writes its result."""
    source = sys.stdin.buffer
    job = json.loads(source.readline())
    _limit(job["memory_bytes"], job["cpu_s"])
    content = source.read()
    if job["kind"] == "pdf":
        title, text = _pdf(content, job["max_pages"], job["max_chars"])
    else:
        title, text = _html(content, job["encoding"], job["url"])
    result = {"title": title[:300], "text": text[: job["max_chars"]]}
    sys.stdout.buffer.write(json.dumps(result).encode())


def _limit(memory_bytes: int, cpu_s: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # Windows has no module, macOS not this memory limit
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def _html(content: bytes, encoding: str, url: str) -> tuple[str, str]:
    import trafilatura

    page = content.decode(encoding, "replace") if encoding else content
    if not encoding and not _HTML_ENCODING.search(content[:4096]):
        page = content.decode("utf-8", "replace")
    tree = trafilatura.load_html(page)
    if tree is None:
        return "", ""
    title = tree.findtext(".//title") or ""
    text = trafilatura.extract(
        tree,
        url=url,
        output_format="markdown",
        include_links=True,
        include_comments=False,
        favor_recall=True,
    )
    return " ".join(title.split()), text or trafilatura.html2txt(page)


def _pdf(content: bytes, max_pages: int, max_chars: int) -> tuple[str, str]:
    import pypdf

    reader = pypdf.PdfReader(io.BytesIO(content))
    title = str((reader.metadata.title if reader.metadata else "") or "")
    pages: list[str] = []
    chars = 0
    for number in range(min(len(reader.pages), max_pages)):
        pages.append(reader.pages[number].extract_text().strip())
        chars += len(pages[-1])
        if chars >= max_chars:
            break
    else:
        if len(reader.pages) > max_pages:
            pages.append(f"[The PDF has {len(reader.pages)} pages; this is the text of the first {max_pages}.]")
    return " ".join(title.split()), "\n\n".join(filter(None, pages))


if __name__ == "__main__":
    main()
