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

What is none goes on as it came, to the last blank. Two more things that servers leave in the text are read:

- Reasoning in `<think>` at the answer's beginning is reasoning.
- From a harmony message on, at the answer's beginning or behind `<|end|>`, all is harmony; `<|end|>` at the answer's
  end is dropped.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Final, Literal

from dragoman import formats
from dragoman.backends.text_mode.leak_candidate import Candidate
from dragoman.backends.text_mode.line_context import Lines
from dragoman.core.events import (
    AnyEvent,
    Notice,
    ReasoningDelta,
    TextDelta,
    ToolCallStart,
)
from dragoman.core.messages import Document, Message, Part, Request, Text, ToolResult
from dragoman.parsing.code_fence import FENCE
from dragoman.parsing.reply_reader import ReplyReader
from dragoman.parsing.trailing_json import (
    FIRST,
    OBJECTS,
    call_left_warning,
    call_taken_warning,
    match_call_head,
    may_become_call_head,
)
from dragoman.text.scanner import SPACE, Markers

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
MESSAGES: Final = ("<|channel|>", "<|start|>assistant")
"""What begins a message of harmony."""
END: Final = "<|end|>"
TRIES: Final = 256
"""Things of an answer that are looked into and turn out to be no call; behind them nothing more is looked for."""
SPACE_CHARS: Final = 256
"""The longest white space that waits for what comes behind it."""
_JSON_FENCE: Final = re.compile(r"`{3,}\w*\s*[{\[]")


@cache
def _openers() -> Markers:
    calls = (opener for name in formats.names() for opener in formats.get(name).calls)
    return Markers(
        *calls, *(opener for opener in BEGINNINGS if opener.startswith("<")), THOUGHTS[1], FENCE, *OBJECTS, END
    )


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

    def __init__(
        self,
        new_reader: NewReader,
        quotes: Quotes,
        *,
        begins: bool,
        waits: bool = False,
        calls: bool = True,
        is_json: bool = False,
    ) -> None:
        """`begins`: the answer begins here. `waits`: whatever is found waits for the end. `calls`: tools are offered.

        `is_json`: the answer is to be JSON, so that plain JSON is no call.
        """
        self._new_reader, self._quotes, self._waits = new_reader, quotes, waits
        self._bare = calls and not is_json
        self._begins, self._thinks = begins, False
        self._begun_anew = False
        """Reasoning in the text has begun or ended here."""
        self._buf = ""
        self._lines = Lines()
        self._candidate: Candidate | None = None
        self._reader: ReplyReader | None = None
        """Of a call that has been found, and of all behind it."""
        self._tries = 0 if calls else TRIES
        self._said = self._shows = False
        """Text followed a call in a fence: the answer shows how calls look."""
        self._out: list[AnyEvent] = []

    @property
    def over(self) -> bool:
        """Nothing that still comes can matter."""
        return self._reader is not None and self._reader.finished

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
        if self._begins:
            return self._begin(closed)
        if self._thinks and self._begun_anew:
            self._buf = self._buf.lstrip(SPACE)
            self._begun_anew = not self._buf
        if self._tries >= TRIES and not self._thinks:
            self._say(self._buf)
            return False
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
            found = self._buf[start:end] if end >= 0 else ""
            if found == END:
                behind = self._buf[end:].lstrip(SPACE)
                if (closed and not behind) or behind.startswith(MESSAGES):
                    return start, end
                begun = any(opener.startswith(behind) for opener in MESSAGES)
            elif found in OBJECTS:
                at = start + 1
                if match_call_head(self._buf, at):
                    return at, at + 1
                begun = may_become_call_head(self._buf, at)
            else:
                return start, end
            if begun and not closed:
                return start, -1
            at = max(at, start + 1)

    def _begin(self, closed: bool) -> bool:
        """Whether the answer begins as one that is nothing but calls without markers, or in another way that tells."""
        text = self._buf.lstrip(SPACE)
        bare = tuple(BEGINNINGS) if self._bare else ()
        beginnings = (*bare, *MESSAGES, THOUGHTS[0])
        if not closed and any(opener.startswith(text) and opener != text for opener in beginnings):
            return False
        thought = not self._begun_anew and text.startswith(THOUGHTS[0])
        self._begins, anew = False, self._begun_anew
        self._begun_anew = False
        if thought:
            self._thinks = self._begun_anew = True
            self._buf = text[len(THOUGHTS[0]) :]
            return True
        self._buf = text if anew else self._buf
        if text.startswith(MESSAGES) and not self._quotes.has(next(m for m in MESSAGES if text.startswith(m))):
            self._hand_over(text)
            return False
        opener = next((opener for opener in bare if text.startswith(opener)), "")
        if opener:
            self._candidate = Candidate(opener, [self._new_reader(name) for name in BEGINNINGS[opener]], waits=True)
        return True

    def _hand_over(self, text: str) -> None:
        """All from here on is harmony."""
        self._buf, self._candidate, self._thinks = "", None, False
        self._reader = self._new_reader("harmony")
        self._out += _told(self._reader.feed(text))

    def _found(self, opener: str, space: str) -> None:
        """A call may begin here."""
        place = self._lines.place(space)
        ends_thoughts = opener == THOUGHTS[1]
        if ends_thoughts and self._thinks:
            self._buf = self._buf.removeprefix(space + opener)
            self._begins, self._thinks, self._begun_anew, self._lines = True, False, True, Lines()
            return
        if opener == END:
            self._end(space)
            return
        if place == "talk" or ends_thoughts or self._tries >= TRIES:
            self._say(space + opener)
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

    def _end(self, space: str) -> None:
        """What ends a message of harmony, with another behind it or nothing."""
        if self._quotes.has(END):
            self._say(space + END)
            return
        text = self._buf.removeprefix(space + END).lstrip(SPACE)
        self._buf = text
        if text:
            self._hand_over(text)

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
            self._out.append(call_taken_warning(candidate.opener[0], candidate.raw))
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
            self._out.append(call_left_warning(candidate.opener[0], "text follows it"))
        known = candidate.ends or len(raw) - len(raw.lstrip(SPACE)) + len(candidate.opener)
        self._say(raw[:known])
        self._buf = raw[known:] + rest

    def _say(self, text: str) -> None:
        """This is text; what is left of the buffer stands behind it."""
        self._buf = self._buf.removeprefix(text)
        if text:
            self._lines.add(text)
            if self._thinks:
                self._out.append(ReasoningDelta(text))
                return
            self._said = self._said or bool(text.strip())
            self._out.append(TextDelta(text))


def _told(events: Iterable[AnyEvent]) -> list[AnyEvent]:
    """The events, with a word about each call."""
    out: list[AnyEvent] = []
    for event in events:
        if isinstance(event, ToolCallStart):
            told = f"a call of {event.name} that the server had left in the text was made one"
            out.append(Notice("leaked_call_recovered", told))
        out.append(event)
    return out
