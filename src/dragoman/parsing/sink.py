"""The interface that format readers write their results to, and the types of those readers."""

from collections.abc import Callable
from typing import Final, Literal, Protocol, TypeAlias, cast

from dragoman.parsing.reasoning_draft import DraftSink, ReasoningDraft
from dragoman.schema.argument_types import Schema
from dragoman.text.scanner import Parser, Scanner


class ToolCallSink(DraftSink, Protocol):
    """Receives what a format's reader has read.

    The sink numbers tool calls, resolves tool names and merges adjacent text.
    """

    @property
    def lenient(self) -> bool:
        """True if calls without the format's own tags are accepted when they name an offered tool."""

    @property
    def calls(self) -> int:
        """Number of calls begun so far."""

    @property
    def finished(self) -> bool:
        """True once the rest of the model's output is to be ignored; see `end_reply`."""

    def text(self, text: str) -> None:
        """Adds answer text: the model's own text, which ends at the scanner's position."""

    def reasoning(self, text: str) -> None:
        """Adds reasoning text, which ends at the scanner's position."""

    def resolve(self, name: str) -> str | None:
        """Returns the name of the offered tool that `name` refers to, or None."""

    def needs_arguments(self, name: str) -> bool:
        """Returns True if a call of this offered tool is invalid without arguments."""

    def schema(self, name: str) -> Schema:
        """Returns the JSON Schema of this offered tool's arguments."""

    def start(self, name: str, id: str = "") -> None:
        """Starts a call.

        Args:
            name: a name that `resolve` returned.
            id: the id that the model wrote, or "".
        """

    def arguments(self, text: str) -> None:
        """Adds a piece of the open call's arguments, as JSON text."""

    def end(self, id: str = "") -> None:
        """Ends the open call, which is complete. `id` is the model's own id where it came after the arguments."""

    def incomplete(self, raw: str) -> None:
        """Ends the open call as incomplete; `raw` is its text."""

    def set_in_list(self, open: bool) -> None:
        """Reports that a list of calls begins or ends.

        With `buffering="all"`, no call of a truncated list is emitted.
        """

    def end_reply(self, code: str, message: str, raw: str = "") -> None:
        """Reports that everything the model writes from here on is fabricated, such as its own tool result; generation
        should end.

        Args:
            code: The code of the warning.
            message: The text of the warning.
            raw: The fabricated text as far as it was read.
        """

    def warn(self, code: str, message: str, raw: str = "") -> None:
        """Reports input that deviates from the format."""

    def note(self, about: Literal["format", "problem"], text: str) -> None:
        """Records how the reply was read, for diagnostics: which format's reader takes over, or why this text is not a
        call."""


class _DiscardingSink:
    """Discards all output."""

    def arguments(self, text: str) -> None:
        """Discards the text."""

    def warn(self, code: str, message: str, raw: str = "") -> None:
        """Discards the warning."""


DISCARD: Final = cast(ToolCallSink, _DiscardingSink())
"""Receives the arguments of text that is not a call of an offered tool.

They are parsed to their end all the same, because they may quote a whole call, which must not be run.
"""


ReadReply: TypeAlias = Callable[[Scanner, ToolCallSink], Parser[None]]
"""Reads one reply."""
ReadCall: TypeAlias = Callable[[Scanner, ToolCallSink, str], Parser[bool]]
"""Reads a call. It starts after the opener, which is its third argument, and returns True if a complete call was read.
"""


class ForwardingSink:
    """Forwards every call to `sink`. Base class for sinks that change some of them."""

    sink: ToolCallSink
    """The receiving sink; set before anything is read."""

    @property
    def lenient(self) -> bool:
        """See `ToolCallSink.lenient`; forwarded like all members below."""
        return self.sink.lenient

    @property
    def calls(self) -> int:
        """Forwards to the wrapped sink."""
        return self.sink.calls

    @property
    def finished(self) -> bool:
        """Forwards to the wrapped sink."""
        return self.sink.finished

    @property
    def current_draft(self) -> ReasoningDraft | None:
        """Forwards to the wrapped sink."""
        return self.sink.current_draft

    def text(self, text: str) -> None:
        """Forwards to `sink`, as all methods below."""
        self.sink.text(text)

    def reasoning(self, text: str) -> None:
        """Forwards to `sink`."""
        self.sink.reasoning(text)

    def resolve(self, name: str) -> str | None:
        """Forwards to `sink`."""
        return self.sink.resolve(name)

    def needs_arguments(self, name: str) -> bool:
        """Forwards to `sink`."""
        return self.sink.needs_arguments(name)

    def schema(self, name: str) -> Schema:
        """Forwards to `sink`."""
        return self.sink.schema(name)

    def start(self, name: str, id: str = "") -> None:
        """Forwards to `sink`."""
        self.sink.start(name, id)

    def arguments(self, text: str) -> None:
        """Forwards to `sink`."""
        self.sink.arguments(text)

    def end(self, id: str = "") -> None:
        """Forwards to `sink`."""
        self.sink.end(id)

    def incomplete(self, raw: str) -> None:
        """Forwards to `sink`."""
        self.sink.incomplete(raw)

    def set_in_list(self, open: bool) -> None:
        """Forwards to `sink`."""
        self.sink.set_in_list(open)

    def begin_draft(self, closer: str) -> None:
        """Forwards to `sink`."""
        self.sink.begin_draft(closer)

    def settle_draft(self, is_reply: bool) -> None:
        """Forwards to `sink`."""
        self.sink.settle_draft(is_reply)

    def end_reply(self, code: str, message: str, raw: str = "") -> None:
        """Forwards to `sink`."""
        self.sink.end_reply(code, message, raw)

    def warn(self, code: str, message: str, raw: str = "") -> None:
        """Forwards to `sink`."""
        self.sink.warn(code, message, raw)

    def note(self, about: Literal["format", "problem"], text: str) -> None:
        """Forwards to `sink`."""
        self.sink.note(about, text)


class ReasoningSink(ForwardingSink):
    """The sink within reasoning: text is reasoning until a call has begun."""

    def __init__(self, sink: ToolCallSink) -> None:
        self.sink = sink
        self.has_started = False

    def start(self, name: str, id: str = "") -> None:
        """Starts a call; text after it is answer text."""
        self.has_started = True
        self.sink.start(name, id)

    def text(self, text: str) -> None:
        """Adds text that is not a call."""
        if self.has_started:
            self.sink.text(text)
        else:
            self.sink.reasoning(text)


def drop_partial_closer(s: Scanner, sink: ToolCallSink, *closers: str) -> Parser[None]:
    """Drops the beginning of a call's closing marker, and the white space before it, if the reply ends within it."""
    longest = max(map(len, closers), default=0)
    while True:
        start = s.space_end()
        rest = s.buf[start : start + longest]
        if rest in closers or not any(closer.startswith(rest) for closer in closers):
            return
        if s.closed and rest:
            s.pos = len(s.buf)
            sink.warn("stray_closing_tag", f"dropped {rest} at the end of the reply", rest)
        if s.closed:
            return
        yield None
