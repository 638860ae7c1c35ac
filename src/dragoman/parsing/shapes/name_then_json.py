"""Calls with the name outside and the arguments as one JSON object.

    [TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}

The format defines how the name (and an id) is written before the object; the object, its closing marker and all errors
in them are handled here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from dragoman.parsing.sink import ToolCallSink
from dragoman.parsing.untagged.code_fence import FENCE
from dragoman.text.scanner import CUT_OFF, Parser, Scanner, discard
from dragoman.text.unwrap_arguments import FIRST, read_wrapped_arguments


class CallHead(NamedTuple):
    """The tool that is called."""

    name: str
    id: str = ""
    closed: bool = False
    """True if the call ends here, `<invoke name="f"/>`: it has no arguments."""


ReadCallHead: TypeAlias = Callable[[Scanner, str], Parser[CallHead | None]]
"""Reads the text between the opener, which is its second argument, and the arguments; None if this is not a call."""


def head_in_header(find: Callable[[str], CallHead | None]) -> ReadCallHead:
    """Returns a reader of calls that are messages: the header that names the tool was read before and is the opener."""

    def read_head(_: Scanner, header: str) -> Parser[CallHead | None]:
        yield from ()
        return find(header)

    return read_head


@dataclass(frozen=True, slots=True)
class NameThenJson:
    """How such a call is written."""

    head: ReadCallHead
    closers: tuple[str, ...] = ()
    """Markers that end the call; if empty, the end of the object does."""
    fence: tuple[str, str] = ("", "")
    """Optional text around the object, such as a code fence; white space next to it is not part of the arguments."""
    may_stay_open: bool = False
    """True if the closer is a stop sequence, and so may be missing in the text."""

    def __post_init__(self) -> None:
        # White space before a closer is skipped when it is read.
        object.__setattr__(self, "closers", tuple(closer.lstrip() for closer in self.closers))

    def read(self, s: Scanner, sink: ToolCallSink, opener: str) -> Parser[bool]:
        """Reads what follows the opener. Returns True if it was a complete call. Text that is not a call is passed
        through."""
        s.start_capture(s.skipped_space + opener)
        head = yield from self.head(s, opener)
        name = sink.resolve(head.name) if head else None
        if head is None:
            return _no_call(s, sink, head)
        opened = self.fence[0]
        yield from s.skip_space()
        if opened and (yield from s.literal(opened)):
            yield from s.skip_space()
        if name is None:
            # The arguments may quote a whole call; that must not be run.
            if (yield from s.peek()) in ("{", '"') and not (yield from s.json_value(discard)):
                yield from self._skip_closers(s)
            return _no_call(s, sink, head)
        first = yield from s.peek()
        if first in FIRST:
            return (yield from self._wrapped(s, sink, name, head.id))
        if first != "{":
            return (yield from self._without_arguments(s, sink, name, head.id))
        sink.start(name, head.id)
        # The neutral suite wants no call of an object that its own code fence leaves open (docs/deviations.md).
        ends = None if self.fence[1].strip() == FENCE else (*self.closers, *self.fence[1:])
        problem = yield from s.json_value(sink.arguments, ends)
        if problem:
            return fail_call(s, sink, problem)
        sink.end()
        yield from self._close(s, sink)
        return True

    def _skip_closers(self, s: Scanner) -> Parser[None]:
        """Reads the closers of text that is not a call as a part of it, except those that also end a message."""
        for closers in (self.fence[1:], self.closers):
            if any(closers) and not self.may_stay_open:
                yield from s.literal(*filter(None, closers), after_space=True)

    def _wrapped(self, s: Scanner, sink: ToolCallSink, name: str, id: str) -> Parser[bool]:
        """Reads the object within a JSON string, as models that know OpenAI's API write it, or within a fence."""
        arguments, _, problem = yield from read_wrapped_arguments(s)
        if problem:
            return _no_call(s, sink, CallHead(name))
        sink.start(name, id)
        sink.arguments(arguments)
        sink.end()
        yield from self._close(s, sink)
        return True

    def _without_arguments(self, s: Scanner, sink: ToolCallSink, name: str, id: str) -> Parser[bool]:
        """Reads a call without the object; it has to be closed."""
        closed = self.closers and (yield from s.literal(*self.closers, after_space=True))
        if not closed:
            return _no_call(s, sink, CallHead(name))
        sink.start(name, id)
        sink.arguments("{}")
        sink.end()
        s.stop_capture()
        return True

    def _close(self, s: Scanner, sink: ToolCallSink) -> Parser[None]:
        if self.fence[1]:
            yield from s.literal(self.fence[1], after_space=True)
        closed = not self.closers or (yield from s.literal(*self.closers, after_space=True))
        if not (closed or self.may_stay_open):
            sink.warn("missing_closing_tag", f"expected {self.closers[0]} after the call")
        s.stop_capture()


def _no_call(s: Scanner, sink: ToolCallSink, head: CallHead | None) -> bool:
    is_unknown = head is not None and sink.resolve(head.name) is None
    if s.truncated and not is_unknown:
        sink.warn("truncated_call", "the reply was cut off before the call had its arguments", s.captured())
    else:
        if head and is_unknown:
            sink.warn("unknown_tool", f"the model called {head.name!r}, which is not an offered tool")
        else:
            sink.note("problem", "expected arguments" if head else "expected the head of a call")
        sink.text(s.captured())
    s.stop_capture()
    return False


def fail_call(s: Scanner, sink: ToolCallSink, problem: str) -> bool:
    """Ends the open call as incomplete; its text is also emitted as text, unless the reply was truncated."""
    sink.incomplete(s.captured())
    if problem != CUT_OFF:
        sink.warn("malformed_arguments", problem, s.captured())
        sink.text(s.captured())
    s.stop_capture()
    return False
