"""Calls that a server left in the text of its answer, though its API has a place of their own for them.

    TextDelta('Sure.\\n<tool_call>\\n{"name": "ping", …}\\n</tool_call>')   →   TextDelta('Sure.'), ToolCallStart, …

Nobody has said that this model writes calls, so what looks like one must stand where no other text would, and name an
offered tool:

- What opens a call of some format at the very beginning of a line is one, and is passed on as it comes.
- Anywhere else on a line, or indented, and where the whole answer is plain JSON, a list of Python calls, or code fences
  around them: only if nothing but calls follows up to the answer's end, so that this is waited for. An end that a limit
  has made tells nothing of what would have followed.
- So it is in thoughts (`<think>`) at the answer's beginning; what follows them counts as its beginning.
- A code fence, or bare JSON, at the start of a line, too, is one if it and others like it are all that follows.
- In any other code fence, behind marks of quotes and lists, in an open quotation of its line: never.
- Where the caller's own text has what opens the call, it is held until it is whole; where that text has all of it, it
  is a quote.

What is none goes on as it came, to the last blank.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Final, Literal

from dragoman import formats
from dragoman.backends.candidate import Candidate
from dragoman.core.events import (
    AnyEvent,
    TextDelta,
    ToolCallStart,
    Warning,
)
from dragoman.core.fence import FENCE
from dragoman.core.reader import ReplyReader
from dragoman.core.scanner import SPACE, Markers
from dragoman.core.trailing import FIRST, OBJECTS, head_at, left, may_be_head, taken
from dragoman.core.values import Document, Message, Part, Request, Text, ToolResult

NewReader = Callable[[str], ReplyReader]
"""For a reply in the format of this name."""
BEGINNINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "{": ("auto", "llama3_json"),
    "[": ("auto", "xlam"),
    "```": ("auto", "xlam"),
    ">>>": ("functionary_v32",),
    "to=": ("muse_glimmer", "beam"),
    "<|python_tag|>": ("llama3_json",),
}
"""What an answer may begin with that is nothing but calls without a marker of their own, and who may read it."""
THOUGHTS: Final = ("<think>", "</think>")
TRAILING: Final = (FENCE, *FIRST[1:])
"""What begins calls in plain JSON, which count at the answer's end only."""
TRIES: Final = 256
"""Things of an answer that are looked into and turn out to be no call; behind them nothing more is looked for."""
SPACE_CHARS: Final = 256
"""The longest white space that waits for what comes behind it."""
LINE_CHARS: Final = 256
"""As much of a line as one looks at."""
_FENCE: Final = re.compile(r"[\s>*+-]*(?:\d+[.)]\s*)?(`{3,}(?=[^`]*\Z)|~{3,})")
_MARKS: Final = re.compile(r"[\s>|#*+/\-\d.)]*[>|#*+/\-\d.)]\s*")
"""Before what is quoted, listed, or a comment."""
_JSON_FENCE: Final = re.compile(r"`{3,}\w*\s*[{\[]")
_QUOTES: Final = ("`", '"')
"""What begins a quotation within a line, and ends it."""


@cache
def _openers() -> Markers:
    calls = (opener for name in formats.names() for opener in formats.get(name).calls)
    return Markers(*calls, *(opener for opener in BEGINNINGS if opener.startswith("<")), THOUGHTS[1], FENCE, *OBJECTS)


def caller_text(request: Request) -> str:
    """What the model was shown that it did not write: of the system, the user and the tools' results."""
    shown = (part for message in request.messages for part in _shown(message))
    return "\n".join(shown)


def _shown(message: Message) -> Iterable[str]:
    for part in message.parts if message.role != "assistant" else ():
        yield _words(part)
        yield from map(_words, part.parts if isinstance(part, ToolResult) else ())


def _words(part: Part) -> str:
    return part.text if isinstance(part, Text) else part.source.text if isinstance(part, Document) else ""


class Quotes:
    """What the caller's text holds, looked at only where there is need to."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._text: str | None = None
        self._squeezed = ""

    def has(self, text: str, *, whatever_space: bool = False) -> bool:
        """Whether this stands in it."""
        if self._text is None:
            self._text = caller_text(self._request)
            self._squeezed = _squeezed(self._text)
        return _squeezed(text) in self._squeezed if whatever_space else text in self._text


def _squeezed(text: str) -> str:
    return "".join(text.split())


class Leaks:
    """Reads the text of an answer, and finds the calls in it."""

    def __init__(self, new_reader: NewReader, quotes: Quotes, *, begins: bool, waits: bool = False) -> None:
        """`begins`: the answer begins here, and need not be JSON. `waits`: whatever is found waits for the end."""
        self._new_reader, self._quotes, self._waits = new_reader, quotes, waits
        self._begins, self._thinks = begins, False
        self._buf = ""
        self._lines = _Lines()
        self._candidate: Candidate | None = None
        self._reader: ReplyReader | None = None
        """Of a call that has been found, and of all behind it."""
        self._tries = 0
        self._said = self._shows = False
        """Text followed a call in a fence: the answer shows how calls look."""
        self._out: list[AnyEvent] = []

    @property
    def over(self) -> bool:
        """Nothing that still comes can matter."""
        return self._reader is not None and self._reader.over

    @property
    def holds(self) -> bool:
        """Something waits that may be a call."""
        return self._candidate is not None

    def feed(self, text: str) -> list[AnyEvent]:
        """The events that this piece decides."""
        if self._reader:
            return _told(self._reader.feed(text))
        self._buf += text
        while self._step(closed=False):
            pass
        return self._taken()

    def close(self, reason: Literal["stop", "length"] = "stop") -> list[AnyEvent]:
        """The events that the end decides."""
        while not self._reader and (self._step(closed=True) or self._settle(reason)):
            pass
        if self._reader:
            return [*self._taken(), *_told(self._reader.close(reason))]
        self._say(self._buf)
        return self._taken()

    def give_up(self) -> list[AnyEvent]:
        """All that waits, as text."""
        self._tries = TRIES
        return self.close()

    def _taken(self) -> list[AnyEvent]:
        out, self._out = self._out, []
        return out

    def _step(self, closed: bool) -> bool:
        """Look at what there is; whether there may be more to see."""
        if self._reader or not self._buf:
            return False
        if self._candidate:
            return self._try(self._candidate)
        if self._tries >= TRIES:
            self._say(self._buf)
            return False
        if self._begins:
            return self._begin(closed)
        start, end = self._opener(closed)
        space = start - len(self._buf[:start].rstrip(SPACE))
        self._say(self._buf[: start if space > SPACE_CHARS else start - space])
        if end < 0:
            return False
        opener = self._buf.lstrip(SPACE)[: end - start]
        self._found(opener, self._buf[: len(self._buf) - len(self._buf.lstrip(SPACE))])
        return True

    def _opener(self, closed: bool) -> tuple[int, int]:
        """Where the next opener starts and ends, as `Markers.find`; bare JSON is one where it begins as a call."""
        at = 0
        while True:
            start, end = _openers().find(self._buf, at, closed)
            if end < 0 or self._buf[start:end] not in OBJECTS:
                return start, end
            at = start + 1
            if head_at(self._buf, at):
                return at, at + 1
            if not closed and may_be_head(self._buf, at):
                return start, -1

    def _begin(self, closed: bool) -> bool:
        """Whether the answer begins as one that is nothing but calls without markers."""
        text = self._buf.lstrip(SPACE)
        beginnings = (*BEGINNINGS, THOUGHTS[0])
        if not closed and any(opener.startswith(text) and opener != text for opener in beginnings):
            return False
        self._begins, self._thinks = False, text.startswith(THOUGHTS[0])
        opener = next((opener for opener in BEGINNINGS if text.startswith(opener)), "")
        if opener:
            self._candidate = Candidate(opener, [self._new_reader(name) for name in BEGINNINGS[opener]], waits=True)
        return True

    def _found(self, opener: str, space: str) -> None:
        """A call may begin here."""
        place = self._lines.place(space)
        ends_thoughts = opener == THOUGHTS[1]
        if place == "talk" or ends_thoughts:
            self._say(space + opener)
            self._begins, self._thinks = self._thinks and ends_thoughts, self._thinks and not ends_thoughts
            return
        if opener in TRAILING:
            if place == "begins" and not self._shows:
                readers = [self._new_reader(name) for name in BEGINNINGS[opener]]
                self._candidate = Candidate(opener, readers, waits=True)
            else:
                self._say(space + opener)
            return
        waits = self._waits or self._thinks or place == "within"
        quoted = self._quotes.has(opener)
        self._candidate = Candidate(opener, [self._new_reader("auto")], waits=waits, compares=quoted)

    def _try(self, candidate: "Candidate") -> bool:
        """Have what there is read as the call that it may be."""
        text, self._buf = self._buf, ""
        rest = candidate.feed(text)
        if candidate.is_none:
            self._drop(candidate, rest)
            return True
        if candidate.is_whole:
            raw = candidate.raw
            call = raw[: candidate.ends]
            if self._quotes.has(call, whatever_space=True):
                self._say(call)
                self._candidate, self._buf = None, raw[len(call) :] + rest
                return True
        if candidate.is_call:
            self._take(candidate)
            self._out += _told(self._reader.feed(rest)) if self._reader and rest else []
        return False

    def _settle(self, reason: Literal["stop", "length"]) -> bool:
        """The answer is over, and with it what waits; whether something is left to be looked at."""
        candidate = self._candidate
        if candidate is None:
            return False
        told = self._tries < TRIES and not (candidate.waits and reason == "length")
        calls = candidate.close(reason) if told else None
        tagged = candidate.opener == FENCE and self._said and not _JSON_FENCE.match(candidate.raw.lstrip(SPACE))
        if calls is None or tagged or any(self._quotes.has(raw, whatever_space=True) for raw in candidate.raws):
            self._drop(candidate, "")
            return True
        if candidate.opener in TRAILING and self._said:
            self._out.append(taken(candidate.opener[0], candidate.raw))
        self._out += _told(calls)
        self._candidate = None
        return False

    def _take(self, candidate: "Candidate") -> None:
        self._candidate, self._reader = None, candidate.reader
        self._out += _told(candidate.events)

    def _drop(self, candidate: "Candidate", rest: str) -> None:
        """It is none: calls with something behind them are talk; else what stands behind the opener may be one."""
        self._candidate = None
        self._tries += 1
        raw = candidate.raw
        if candidate.unknown and not (self._said and candidate.opener in TRAILING[1:]):
            self._out.append(candidate.unknown)
        elif candidate.opener in TRAILING and candidate.ends:
            self._shows = True
            self._out.append(left(candidate.opener[0], "text follows it"))
        known = candidate.ends or len(raw) - len(raw.lstrip(SPACE)) + len(candidate.opener)
        self._say(raw[:known])
        self._buf = raw[known:] + rest

    def _say(self, text: str) -> None:
        """This is text; what is left of the buffer stands behind it."""
        self._buf = self._buf.removeprefix(text)
        if text:
            self._said = self._said or bool(text.strip())
            self._lines.add(text)
            self._out.append(TextDelta(text))


class _Lines:
    """Where in its lines a text stands."""

    def __init__(self) -> None:
        self._line = ""
        self._fence = ""
        self._quotes = [0] * len(_QUOTES)
        """How many of each the line has."""

    def add(self, text: str) -> None:
        """The text goes on."""
        *ended, line = text.split("\n")
        for each in ended:
            self._end((self._line + each)[:LINE_CHARS])
            self._line = ""
        self._line = (self._line + line)[:LINE_CHARS]
        before = [0] * len(_QUOTES) if ended else self._quotes
        self._quotes = [count + line.count(mark) for count, mark in zip(before, _QUOTES, strict=True)]

    def place(self, space: str) -> Literal["begins", "within", "talk"]:
        """Where what comes behind this white space would stand."""
        if "\n" in space:
            self.add("\n")  # the white space itself is told of with the text
            line, self._line = space.rpartition("\n")[2], ""
        else:
            line = self._line + space
        if self._fence or _MARKS.fullmatch(line) or any(count % 2 for count in self._quotes):
            return "talk"
        return "within" if line else "begins"

    def _end(self, line: str) -> None:
        found = _FENCE.match(line)
        if not self._fence:
            self._fence = found[1] if found else ""
        elif (bare := line.strip("\r\t >")).startswith(self._fence) and not bare.strip(self._fence[0]):
            self._fence = ""


def _told(events: Iterable[AnyEvent]) -> list[AnyEvent]:
    """The events, with a word about each call."""
    out: list[AnyEvent] = []
    for event in events:
        if isinstance(event, ToolCallStart):
            told = f"a call of {event.name} that the server had left in the text was made one"
            out.append(Warning("rescued_call", told))
        out.append(event)
    return out
