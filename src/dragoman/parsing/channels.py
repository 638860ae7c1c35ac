"""The structure of a reply as messages, each with a header that says what it is.

    <|channel|>analysis<|message|>They want the weather.<|end|><|start|>assistant<|channel|>final<|message|>Sunny.

A header begins with a marker and ends where the body begins; `route` maps it to reasoning, text or a call. Text that is
not a valid header is part of the message that contains it. The prompt may contain the start of the first header.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from dragoman.parsing.sink import ReadCall, ToolCallSink, drop_partial_closer
from dragoman.parsing.untagged.trailing_json import OBJECTS, STARTS, read_trailing_calls
from dragoman.parsing.untagged.untagged_json import read_untagged_calls
from dragoman.text.scanner import FIELD_LIMIT_CHARS, Follows, Parser, Scanner, markers

ANYTHING: Final[Follows] = ((),)
"""The message ends regardless of what follows."""
NAME_CHARS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."


RouteKind: TypeAlias = Literal["text", "reasoning", "call", "builtin", "nothing"]


class ChannelRoute(NamedTuple):
    """What a message is."""

    kind: RouteKind
    """`builtin`: a call of one of the model's built-in tools; `nothing`: the text that follows has its own headers."""
    problem: str = ""
    """The unknown part of the header."""


Emit: TypeAlias = Callable[[str], None]
ReadRoute: TypeAlias = Callable[[str, str], ChannelRoute | None]
"""Returns the route by the header and the marker that begins the body; None if it is not a header."""


@dataclass(frozen=True, slots=True)
class Channels:
    """The markers of a format."""

    starts: tuple[str, ...]
    """Markers that begin a header; one that also begins a body is a header by itself."""
    bodies: tuple[str, ...]
    """Markers that end a header."""
    route: ReadRoute
    call: ReadCall
    """Reads the body of a call; its third argument is the whole header."""
    ends: Mapping[str, Follows] = field(default_factory=dict)
    """Markers that end a body, with what has to follow."""
    breaks: tuple[str, ...] = ()
    """Markers that cannot occur in a header."""
    read_opened_header: Callable[[Scanner], Parser[bool]] | None = None
    """Reads the beginning of a header that the prompt has opened. Returns True if it is one."""
    blocks: tuple[str, ...] = ()
    """Openers of a call at the start of a message that is addressed as an answer."""

    def read(self, s: Scanner, sink: ToolCallSink) -> Parser[None]:
        """Reads one reply."""
        s.start_capture()
        emit: Emit | None = None
        has_content = False
        if self.read_opened_header and (yield from self.read_opened_header(s)):
            emit, _ = yield from self._message(s, sink, "", None)
        else:
            has_content = bool(s.captured())
            sink.text(s.captured())
            if not has_content and sink.lenient:
                has_content = yield from read_untagged_calls(s, sink)
        yield from self._messages(s, sink, emit, has_content)

    def read_on(self, s: Scanner, sink: ToolCallSink, opener: str) -> Parser[bool]:
        """Reads the rest of a reply, after the beginning of a header. Returns True if it is a header."""
        s.start_capture(s.skipped_space + opener)
        emit, is_header = yield from self._message(s, sink, opener, None)
        if is_header:
            yield from self._messages(s, sink, emit)
        return is_header

    def _messages(self, s: Scanner, sink: ToolCallSink, emit: Emit | None, has_content: bool = False) -> Parser[None]:
        """Reads the rest of a message and all messages after it."""
        while marker := (yield from self._read_text(s, sink, emit, has_content)):
            has_content = False
            s.start_capture(s.skipped_space + marker)
            emit = None if marker in self.ends else (yield from self._message(s, sink, marker, emit))[0]

    def _message(
        self, s: Scanner, sink: ToolCallSink, opener: str, emit: Emit | None
    ) -> Parser[tuple[Emit | None, bool]]:
        """Reads a header, and the whole of a call. Returns the destination of the text that follows, and whether it is
        a header."""
        marker = opener if opener in self.bodies else (yield from self._header(s, sink))
        header = s.captured()
        s.stop_capture()
        route = self.route(header.removesuffix(marker), marker) if marker else None
        if route:
            return (yield from self._enter(s, sink, route, header)), True
        emit = emit or sink.text
        emit(header)
        return emit, False

    def _read_text(self, s: Scanner, sink: ToolCallSink, emit: Emit | None, has_content: bool = False) -> Parser[str]:
        """Reads the body of a message, or text between messages. Returns the marker that ends it."""
        s.skipped_space = ""
        if not (emit or has_content) and sink.calls:
            yield from drop_partial_closer(s, sink, *self.ends, *self.starts, *self.breaks)
        if sink.lenient and emit in (None, sink.text):
            return (yield from self._answer(s, sink, emit, has_content))
        if emit:
            return (yield from s.raw_until({**dict.fromkeys(self.starts, ANYTHING), **self.ends}, emit))
        return (yield from s.until(markers(*self.starts, *self.ends), sink.text, has_content))

    def _answer(self, s: Scanner, sink: ToolCallSink, emit: Emit | None, has_content: bool) -> Parser[str]:
        """Reads the body of an answer, and calls in plain JSON that end the reply. Returns the marker that ends it."""
        stops = markers(*self.starts, *self.ends, *STARTS)
        line = s.offset
        while True:
            marker = yield from s.until(stops, sink.text, has_content or emit is not None)
            if marker in STARTS:
                has_content = yield from self._plain_json(s, sink, marker, line)
            elif not emit:
                return marker
            else:
                while (ends := s.follows(self.ends.get(marker, ANYTHING))) is None:
                    yield None
                gap, s.skipped_space = s.skipped_space, ""
                sink.text(gap if ends else gap + marker)
                if ends:
                    return marker

    def _plain_json(self, s: Scanner, sink: ToolCallSink, marker: str, line: int) -> Parser[bool]:
        """Reads JSON or code in an answer: calls that end the reply, or text. Returns True if it is text."""
        gap, size = s.skipped_space, len(marker) - (marker in OBJECTS)
        if marker in OBJECTS or "\n" in gap or s.offset == line + len(gap) + size:
            s.pos -= size
            has_content = yield from read_trailing_calls(s, sink, gap + marker[:-size], tuple(self.ends))
            if has_content is not None:
                return has_content
            s.pos += size
        sink.text(gap + marker)
        return True

    def _header(self, s: Scanner, sink: ToolCallSink) -> Parser[str]:
        """Reads the rest of a header. Returns the marker that begins the body; "" if this is not a header."""
        name_field = yield from s.field(markers(*self.bodies, *self.ends, *self.breaks))
        if name_field and name_field[1] in self.bodies:
            return name_field[1]
        if name_field:
            s.pos -= len(name_field[1])
        elif s.closed and not s.stopped_by_model and len(s.buf) - s.pos <= FIELD_LIMIT_CHARS:
            s.pos = len(s.buf)
            sink.warn("truncated_call", "the reply was cut off in the header of a message", s.captured())
            s.start_capture()
        return ""

    def _enter(self, s: Scanner, sink: ToolCallSink, route: ChannelRoute, header: str) -> Parser[Emit | None]:
        """Begins a message, or reads all of a call. Returns the destination of the text that follows."""
        s.skipped_space = ""
        s.call_ends, s.after_call = (*self.ends,), (*self.starts, *self.ends)
        if route.problem:
            sink.warn("unknown_header", f"a message has {route.problem} in its header", header)
        match route.kind:
            case "text" if not (yield from self._begins_call(s)):
                return sink.text
            case "reasoning":
                return sink.reasoning
            case "call" | "text":
                header = header if route.kind == "call" else ""
                return None if (yield from self.call(s, sink, header)) else sink.text
            case "builtin":
                pieces: list[str] = []
                ended = yield from self._read_text(s, sink, pieces.append)
                s.pos -= len(ended)
                raw = header + "".join(pieces)
                sink.warn(
                    "builtin_tool_dropped", "dropped a call of a tool that the model knows but that is not offered", raw
                )
        return None

    def _begins_call(self, s: Scanner) -> Parser[bool]:
        """Returns True if a call comes next although the header does not announce it."""
        if not self.blocks:
            return False
        upcoming = yield from s.peek(max(map(len, self.blocks)), after_space=True)
        return upcoming.startswith(self.blocks)


def read_recipient(s: Scanner) -> Parser[bool]:
    """Reads the start of a header of which the prompt has opened `<|start|>assistant`: ` to=`. Returns whether it is
    there."""
    return bool((yield from s.literal("to=", after_space=True)))


def name_reader(*bodies: str) -> Callable[[Scanner], Parser[bool]]:
    """Returns a reader of the name in a header that the prompt has opened; one of `bodies` has to follow it."""

    def read_name(s: Scanner) -> Parser[bool]:
        name = [""]
        yield from s.run(NAME_CHARS, name.append)
        if not name[-1] or name[-1][-1] in ".-":  # the end of a sentence
            return False
        marker = yield from s.literal(*bodies)
        s.pos -= len(marker)
        return bool(marker)

    return read_name
