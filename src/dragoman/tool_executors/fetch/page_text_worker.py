"""Child process that extracts the text of a web page: such content can make a parser run or grow without end.

    standard input    {"url": "…", "encoding": "", "max_chars": 1000, …}\\n and the content
    standard output   {"title": "…", "text": "…"}

It starts without the package, so it must import nothing of it.
"""

import contextlib
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


if __name__ == "__main__":
    main()
