"""A reply that repeats something is read in linear time, in every format.

The test counts the characters that a reader searches or copies, so it does not depend on the machine: a reply of twice
the length has about twice as many.
"""

import re
from collections.abc import Iterator

import pytest

from dragoman import formats
from dragoman.core.messages import Tool, ToolCall
from dragoman.parsing.format import Format
from dragoman.parsing.reader_options import ReaderOptions
from dragoman.parsing.reply_reader import ReplyReader
from dragoman.text.scanner import Markers, Scanner
from support.sampling import sample

CHARS = 1200
"""Length of the repeated text in the smaller run: longer than any window of characters that a reader looks at."""
MAX_RATIO = 2.5
"""Allowed ratio of the work for twice the text."""
TOOLS = [Tool("search", "", '{"type": "object", "properties": {"query": {"type": "string"}}}')]
CALL = ToolCall("call00001", "search", '{"query": "news"}')
BARE = '{"name": "search", "arguments": {"query": "news"}}'


class Work:
    """Counts the characters that are searched, copied or read again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.characters = 0
        find, feed, rewind = Markers.find, Scanner.feed, Scanner.rewind

        def counted_find(markers: Markers, buf: str, pos: int, closed: bool) -> tuple[int, int]:
            found = find(markers, buf, pos, closed)
            self.characters += 8 + max(found) - pos
            return found

        def counted_feed(s: Scanner, text: str) -> None:
            self.characters += len(s.buf) - s.pos if s.pos else 0
            feed(s, text)

        def counted_rewind(s: Scanner) -> None:
            self.characters += len(s.draft()) + len(s.buf) - s.pos
            rewind(s)

        monkeypatch.setattr(Markers, "find", counted_find)
        monkeypatch.setattr(Scanner, "feed", counted_feed)
        monkeypatch.setattr(Scanner, "rewind", counted_rewind)

    def of(self, format: Format, text: str, size: int) -> int:
        """Returns the work for one reply, read in pieces of this size."""
        self.characters = 0
        reader = ReplyReader(format, TOOLS, new_id=lambda: "x", options=ReaderOptions(lenient=True))
        for at in range(0, len(text), size):
            reader.feed(text[at : at + size])
        reader.close()
        return self.characters


def repeated(format: Format) -> Iterator[tuple[str, str]]:
    """Yields (text at the start, text that is repeated)."""
    whole, one = format.write_calls([CALL]), format.write_call(CALL)
    value = re.search(r'"?news"?', whole)
    assert value
    opener, closer = whole[: value.start()], whole[value.end() :]
    yield "", f"{whole}\n"
    yield format.section[0], one + format.separator
    yield "", opener
    yield "", format.section[0] + one.partition("search")[0]
    yield whole, closer or "}"
    yield "Sure!\n", f"```json\n{BARE}\n```\n"
    yield "", f"```json\n{BARE}\n"
    yield "Sure!\n", f"{BARE}\n"
    yield "Sure!\n", '[{"name": "search", "arguments": {\n'
    yield opener, "<"
    for thought, end in {"<think>": "</think>", **format.reasoning_tags}.items():
        yield "", thought
        yield whole, end
        yield thought, whole
        yield "", f"{thought}Hm.{end}{whole}"
    for marker in format.markers:
        yield opener, marker
        yield "", marker


@pytest.mark.parametrize("name", formats.names())
def test_read_work_is_linear_in_reply_length(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    format, work = formats.get(name), Work(monkeypatch)
    for before, again in sample(list(repeated(format)), 5, name):
        n = max(8, CHARS // len(again))
        one, two = (before + again * each for each in (n, 2 * n))
        for size in (64, len(two)):
            allowed = MAX_RATIO * work.of(format, one, size) + 2048
            taken = work.of(format, two, size)
            assert taken <= allowed, (before, again, size, taken / allowed * MAX_RATIO)
