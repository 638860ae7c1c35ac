r"""Detects leaked tool calls: calls that a server left in the text of its response.

    TextDelta('Sure.\n<tool_call>\n{"name": "ping", …}\n</tool_call>')   →   TextDelta('Sure.'), ToolCallStart, …

It is not known that this model writes calls, so text that looks like one must be at a position where no other text is
expected, and must name an offered tool:

- A marker that opens a call of some format, at the very beginning of a line, is a call and is streamed.
- Anywhere else in a line, or indented, and if the whole response is plain JSON, a list of Python calls, or code fences
  around them: only if nothing but calls follows to the end of the response, so that the text waits for it. A response
  cut off by a limit shows nothing about what would have followed.
- The same holds in reasoning (`<think>`) at the beginning of the response; what follows it counts as the beginning.
- A code fence, or JSON without tags, at the start of a line is a call too if only such calls follow.
- In any other code fence, after marks of quotes and lists, in an open quotation of its line: never.
- If the caller's own text contains the marker, the text waits until the call is complete; if the caller's text contains
  the whole call, it is a quote.

Text that is not a tool call is passed through unchanged. Two more things that servers leave in the text are handled:

- Reasoning in `<think>` at the beginning of the response becomes reasoning.
- From a harmony message on, at the beginning of the response or after `<|end|>`, everything is read as harmony;
  `<|end|>` at the end of the response is dropped.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Final, Literal

from dragoman import formats
from dragoman.backends.text_mode.leak_candidate import LeakCandidate
from dragoman.backends.text_mode.line_context import LineContext
from dragoman.backends.text_mode.quoted_text import QuotedText
from dragoman.core.events import (
    AnyEvent,
    Notice,
    ReasoningDelta,
    TextDelta,
    ToolCallStart,
)
from dragoman.parsing.reply_reader import ReplyReader
from dragoman.parsing.untagged.code_fence import FENCE
from dragoman.parsing.untagged.trailing_json import (
    FIRST,
    OBJECTS,
    call_left_warning,
    call_recognized_warning,
    match_call_head,
    may_become_call_head,
)
from dragoman.text.scanner import SPACE, Markers

NewReader = Callable[[str], ReplyReader]
"""Makes a reader for a reply in the format of this name."""
UNTAGGED_READERS: Final[Mapping[str, tuple[str, ...]]] = {
    "{": ("auto", "llama3_json"),
    "[": ("auto", "xlam"),
    "```": ("auto", "xlam"),
    ">>>": ("functionary_v32",),
    "to=": ("muse_glimmer", "beam"),
    "<|python_tag|>": ("llama3_json",),
}
"""What a response can begin with that consists only of calls without a marker of their own, and the formats to try."""
REASONING_TAGS: Final = ("<think>", "</think>")
TRAILING_OPENERS: Final = (FENCE, *FIRST[1:])
"""Openers of calls in plain JSON, which count only at the end of the response."""
HARMONY_OPENERS: Final = ("<|channel|>", "<|start|>assistant")
"""Openers of a harmony message."""
_START_CHARS: Final = {"", *(opener[0] for opener in (*UNTAGGED_READERS, *HARMONY_OPENERS, REASONING_TAGS[0]))}
"""The first character of what a response can begin with; empty: it has only white space so far."""
HARMONY_END: Final = "<|end|>"
MAX_REJECTED: Final = 256
"""Limit of rejected candidates in a response; after that no more are looked for."""
MAX_SPACE_CHARS: Final = 256
"""White space up to this length waits for what follows it."""
_JSON_FENCE: Final = re.compile(r"`{3,}\w*\s*[{\[]")


@cache
def _openers() -> Markers:
    calls = (opener for format in formats.built_in() for opener in format.calls)
    return Markers(
        *calls,
        *(opener for opener in UNTAGGED_READERS if opener.startswith("<")),
        REASONING_TAGS[1],
        FENCE,
        *OBJECTS,
        HARMONY_END,
    )


class LeakDetector:
    """Finds the calls in the text of a response."""

    def __init__(
        self,
        new_reader: NewReader,
        quotes: QuotedText,
        *,
        begins: bool,
        waits: bool = False,
        calls: bool = True,
        is_json: bool = False,
    ) -> None:
        """
        Args:
            new_reader: makes a reader for a format.
            quotes: the caller's text.
            begins: whether the response begins here.
            waits: whether every candidate waits for the end.
            calls: whether tools are offered.
            is_json: whether the reply must be JSON, so that plain JSON is not a call.
        """
        self._new_reader, self._quotes, self._waits = new_reader, quotes, waits
        self._untagged = calls and not is_json
        self._at_start, self._in_reasoning = begins, False
        self._at_boundary = False
        """Reasoning in the text has begun or ended here."""
        self._buf = ""
        self._lines = LineContext()
        self._candidate: LeakCandidate | None = None
        self._reader: ReplyReader | None = None
        """Reads a call that was accepted, and everything after it."""
        self._rejected = 0 if calls else MAX_REJECTED
        self._has_text = self._is_example = False
        """Text followed a call in a code fence: the response shows what calls look like."""
        self._events: list[AnyEvent] = []

    @property
    def finished(self) -> bool:
        """Whether the rest of the text can be discarded."""
        return self._reader is not None and self._reader.finished

    @property
    def is_empty(self) -> bool:
        """Whether no text waits."""
        return not (self._buf or self._candidate or self._reader)

    def feed(self, text: str) -> list[AnyEvent]:
        """Returns the events that this text decides."""
        return [TextDelta(text)] if self.passes(text) else self.read(text)

    def read(self, text: str) -> list[AnyEvent]:
        """As `feed`, for text that does not pass."""
        if self._reader:
            return _with_warnings(self._reader.feed(text))
        self._buf += text
        while self._step(closed=False):
            pass
        return self._drain()

    def passes(self, text: str) -> bool:
        """Adds text that is emitted unchanged, as nothing waits and nothing in it can begin a call or belong to what
        follows. Returns False if `feed` must read it.
        """
        if self._buf or self._candidate or self._reader or self._in_reasoning or not text:
            return False
        if self._at_start and (self._at_boundary or text.lstrip(SPACE)[:1] in _START_CHARS):
            return False
        if self._rejected < MAX_REJECTED and (
            text[-1] in SPACE or _openers().find(text, 0, closed=False) != (len(text), -1)
        ):
            return False
        self._at_start = False
        self._has_text = True
        if self._rejected < MAX_REJECTED:
            self._lines.feed(text)
        return True

    def close(self, reason: Literal["stop", "length"] = "stop") -> list[AnyEvent]:
        """Returns the events that the end of the text decides."""
        while not self._reader and (self._step(closed=True) or self._close_candidate(reason)):
            pass
        if self._reader:
            return [*self._drain(), *_with_warnings(self._reader.close(reason))]
        self._emit_text(self._buf)
        return self._drain()

    def close_as_text(self) -> list[AnyEvent]:
        """Returns everything that waits, as text."""
        self._rejected = MAX_REJECTED
        return self.close()

    def _drain(self) -> list[AnyEvent]:
        out, self._events = self._events, []
        return out

    def _step(self, closed: bool) -> bool:
        """Handles the next part of the buffer; returns whether there may be more to handle."""
        if self._reader or not self._buf:
            return False
        if self._candidate:
            return self._feed_candidate(self._candidate)
        if self._at_start:
            return self._check_start(closed)
        if self._in_reasoning and self._at_boundary:
            self._buf = self._buf.lstrip(SPACE)
            self._at_boundary = not self._buf
        if self._rejected >= MAX_REJECTED and not self._in_reasoning:
            self._emit_text(self._buf)
            return False
        start, end = self._find_opener(closed)
        space = start - len(self._buf[:start].rstrip(SPACE))
        self._emit_text(self._buf[: start if space > MAX_SPACE_CHARS else start - space])
        if end < 0:
            return False
        opener = self._buf.lstrip(SPACE)[: end - start]
        self._handle_opener(opener, self._buf[: len(self._buf) - len(self._buf.lstrip(SPACE))])
        return True

    def _find_opener(self, closed: bool) -> tuple[int, int]:
        """Returns start and end of the next opener, as `Markers.find`; JSON without tags counts if it begins
        as a call.
        """
        at = 0
        while True:
            start, end = _openers().find(self._buf, at, closed)
            opened = self._buf[start:end] if end >= 0 else ""
            if opened == HARMONY_END:
                after = self._buf[end:].lstrip(SPACE)
                if (closed and not after) or after.startswith(HARMONY_OPENERS):
                    return start, end
                may_be_opener = any(opener.startswith(after) for opener in HARMONY_OPENERS)
            elif opened in OBJECTS:
                at = start + 1
                if match_call_head(self._buf, at):
                    return at, at + 1
                may_be_opener = may_become_call_head(self._buf, at)
            else:
                return start, end
            if may_be_opener and not closed:
                return start, -1
            at = max(at, start + 1)

    def _check_start(self, closed: bool) -> bool:
        """Checks whether the response begins with calls without markers, with reasoning, or as harmony."""
        text = self._buf.lstrip(SPACE)
        if text[:1] not in _START_CHARS:  # the most frequent case
            self._buf = text if self._at_boundary else self._buf
            self._at_start = self._at_boundary = False
            return True
        bare = tuple(UNTAGGED_READERS) if self._untagged else ()
        beginnings = (*bare, *HARMONY_OPENERS, REASONING_TAGS[0])
        if not closed and any(opener.startswith(text) and opener != text for opener in beginnings):
            return False
        is_reasoning = not self._at_boundary and text.startswith(REASONING_TAGS[0])
        self._at_start, was_at_boundary = False, self._at_boundary
        self._at_boundary = False
        if is_reasoning:
            self._in_reasoning = self._at_boundary = True
            self._buf = text[len(REASONING_TAGS[0]) :]
            return True
        self._buf = text if was_at_boundary else self._buf
        if text.startswith(HARMONY_OPENERS) and not self._quotes.contains(
            next(m for m in HARMONY_OPENERS if text.startswith(m))
        ):
            self._switch_to_harmony(text)
            return False
        opener = next((opener for opener in bare if text.startswith(opener)), "")
        if opener:
            self._candidate = LeakCandidate(
                opener, [self._new_reader(name) for name in UNTAGGED_READERS[opener]], waits=True
            )
        return True

    def _switch_to_harmony(self, text: str) -> None:
        """Reads everything from here on as harmony."""
        self._buf, self._candidate, self._in_reasoning = "", None, False
        self._reader = self._new_reader("harmony")
        self._events += _with_warnings(self._reader.feed(text))

    def _handle_opener(self, opener: str, space: str) -> None:
        """Handles an opener, at which a call may begin."""
        place = self._lines.position(space)
        ends_reasoning = opener == REASONING_TAGS[1]
        if ends_reasoning and self._in_reasoning:
            self._buf = self._buf.removeprefix(space + opener)
            self._at_start, self._in_reasoning, self._at_boundary, self._lines = True, False, True, LineContext()
            return
        if opener == HARMONY_END:
            self._handle_message_end(space)
            return
        if place == "talk" or ends_reasoning or self._rejected >= MAX_REJECTED:
            self._emit_text(space + opener)
            return
        if opener in TRAILING_OPENERS:
            if place == "begins" and not self._is_example:
                readers = [self._new_reader(name) for name in UNTAGGED_READERS[opener]]
                self._candidate = LeakCandidate(opener, readers, waits=True)
            else:
                self._emit_text(space + opener)
            return
        waits = self._waits or self._in_reasoning or place == "within"
        quoted = self._quotes.contains(opener)
        self._candidate = LeakCandidate(opener, [self._new_reader("auto")], waits=waits, compares=quoted)

    def _handle_message_end(self, space: str) -> None:
        """Handles the end of a harmony message, which another one or nothing follows."""
        if self._quotes.contains(HARMONY_END):
            self._emit_text(space + HARMONY_END)
            return
        text = self._buf.removeprefix(space + HARMONY_END).lstrip(SPACE)
        self._buf = text
        if text:
            self._switch_to_harmony(text)

    def _feed_candidate(self, candidate: LeakCandidate) -> bool:
        """Feeds the buffer to the candidate."""
        text, self._buf = self._buf, ""
        rest = candidate.feed(text)
        if candidate.is_rejected:
            self._reject(candidate, rest)
            return True
        if candidate.is_comparable:
            raw = candidate.raw
            call = raw[: candidate.last_call_end]
            if self._quotes.contains(call, whatever_space=True):
                self._emit_text(call)
                self._candidate, self._buf = None, raw[len(call) :] + rest
                return True
        if candidate.is_call:
            self._accept(candidate)
            self._events += _with_warnings(self._reader.feed(rest)) if self._reader and rest else []
        return False

    def _close_candidate(self, reason: Literal["stop", "length"]) -> bool:
        """Decides the waiting candidate at the end of the response; returns whether text is left to be handled."""
        candidate = self._candidate
        if candidate is None:
            return False
        is_reported = self._rejected < MAX_REJECTED and not (candidate.waits and reason == "length")
        calls = candidate.close(reason) if is_reported else None
        tagged = candidate.opener == FENCE and self._has_text and not _JSON_FENCE.match(candidate.raw.lstrip(SPACE))
        if (
            calls is None
            or tagged
            or any(self._quotes.contains(raw, whatever_space=True) for raw in candidate.call_texts)
        ):
            self._reject(candidate, "")
            return True
        if candidate.opener in TRAILING_OPENERS and self._has_text:
            self._events.append(call_recognized_warning(candidate.opener[0], candidate.raw))
        self._events += _with_warnings(calls)
        self._candidate = None
        return False

    def _accept(self, candidate: LeakCandidate) -> None:
        self._candidate, self._reader = None, candidate.reader
        self._events += _with_warnings(candidate.events)

    def _reject(self, candidate: LeakCandidate, rest: str) -> None:
        """Rejects the candidate: calls with text after them are an example; otherwise the text after the opener may be
        a call.
        """
        self._candidate = None
        self._rejected += 1
        raw = candidate.raw
        if candidate.unknown_tool and not (self._has_text and candidate.opener in TRAILING_OPENERS[1:]):
            self._events.append(candidate.unknown_tool)
        elif candidate.opener in TRAILING_OPENERS and candidate.last_call_end:
            self._is_example = True
            self._events.append(call_left_warning(candidate.opener[0], "text follows it"))
        known = candidate.last_call_end or len(raw) - len(raw.lstrip(SPACE)) + len(candidate.opener)
        self._emit_text(raw[:known])
        self._buf = raw[known:] + rest

    def _emit_text(self, text: str) -> None:
        """Emits this text and removes it from the buffer."""
        self._buf = self._buf.removeprefix(text)
        if text:
            self._lines.feed(text)
            if self._in_reasoning:
                self._events.append(ReasoningDelta(text))
                return
            self._has_text = self._has_text or bool(text.strip())
            self._events.append(TextDelta(text))


def _with_warnings(events: Iterable[AnyEvent]) -> list[AnyEvent]:
    """Returns the events with a warning before each call."""
    out: list[AnyEvent] = []
    for event in events:
        if isinstance(event, ToolCallStart):
            message = f"a call of {event.name} that the server had left in the text was recovered"
            out.append(Notice("leaked_call_recovered", message))
        out.append(event)
    return out
