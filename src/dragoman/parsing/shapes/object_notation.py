"""Values in a notation other than JSON, emitted as JSON while they arrive.

    call:set_alarm{hour:7,label:<|"|>wake<|"|>,days:[<|"|>mon<|"|>]}      {"hour": 7, "label": "wake", "days": ["mon"]}
    set_alarm(hour=7, label='wake', days=('mon',))                       the same

A notation defines what opens and closes its containers and how a key and a scalar are read. The nesting is handled
here, on an explicit stack of at most `DEPTH_LIMIT` levels. Numbers keep the digits that the model wrote.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from dragoman.core.messages import JsonText as Json
from dragoman.parsing.sink import ToolCallSink
from dragoman.text.scanner import CUT_OFF, Parser, Scanner

DEPTH_LIMIT: Final = 128
"""Maximum nesting depth of containers; no tool needs more, and JSON parsers may fail beyond it."""

CLOSED: Final = "the end of the value has closed its container too"
"""Returned by a part that is not invalid, but has closed its container too."""


class Container(NamedTuple):
    """A container of members."""

    close: str
    json: str
    """Its opening and closing bracket in JSON."""
    key: "ReadPart | None" = None
    """Reads a member's key and the text after it."""
    outer: str = ""
    """The closers of the enclosing containers, innermost first."""


ReadPart: TypeAlias = Callable[[Scanner, ToolCallSink, Container], Parser[str]]
"""Reads one key or scalar in this container and emits it. Returns "" or the reason why it is invalid."""


@dataclass(frozen=True, slots=True)
class ObjectNotation:
    """How values are written."""

    containers: Mapping[str, Container]
    """Containers by their opener."""
    scalar: ReadPart
    resolve_opener: "Callable[[Scanner, str], Parser[Container]] | None" = None
    """Returns the container after an opener that several share."""

    def call(self, s: Scanner, sink: ToolCallSink, name: str, first: Container) -> Parser[bool]:
        """Reads a call whose arguments are the members of `first`, which has been opened. Returns True if it is
        complete.

        Args:
            s: The scanner, after the opening of `first`. It must be capturing the call's text, which is emitted as text
                if the call is broken.
            sink: Receives the call.
            name: The name of an offered tool.
            first: The container of the arguments.
        """
        sink.start(name)
        problem = yield from self.members(s, sink, first)
        if not problem:
            sink.end()
            return True
        sink.incomplete(s.captured())
        if problem != CUT_OFF:
            sink.warn("malformed_arguments", problem, s.captured())
            sink.text(s.captured())
        return False

    def members(self, s: Scanner, sink: ToolCallSink, first: Container) -> Parser[str]:
        """Reads the members of an opened container and its end. Returns "" or the reason why they are invalid."""
        enclosing = [first]
        sink.arguments(first.json[0])
        after_value, comma = False, ""
        while enclosing:
            inner = enclosing[-1]
            expected = (inner.close, ",") if after_value else (inner.close,)
            marker = yield from s.literal(*expected, after_space=True)
            if marker == ",":
                after_value, comma = False, ", "
            elif marker:
                sink.arguments(enclosing.pop().json[1])
                after_value = True
            elif after_value:
                return expected_error(s, f"',' or '{inner.close}'")
            else:
                sink.arguments(comma)
                deeper, problem = yield from self._member(s, sink, inner, len(enclosing))
                if problem == CLOSED:
                    sink.arguments(enclosing.pop().json[1])
                elif problem:
                    return problem
                after_value, comma = deeper is None, ""
                enclosing += [deeper._replace(outer=inner.close + inner.outer)] if deeper else []
        return ""

    def _member(
        self, s: Scanner, sink: ToolCallSink, inner: Container, depth: int
    ) -> Parser[tuple[Container | None, str]]:
        """Reads a member up to the end of its value, or up to the opening of a container, which is returned."""
        yield from s.skip_space()
        problem = (yield from inner.key(s, sink, inner)) if inner.key else ""
        if problem:
            return None, problem
        opener = yield from s.literal(*self.containers, after_space=True)
        if not opener:
            yield from s.skip_space()
            return None, (yield from self.scalar(s, sink, inner))
        container = (yield from self.resolve_opener(s, opener)) if self.resolve_opener else self.containers[opener]
        sink.arguments(container.json[0])
        return container, f"expected no more than {DEPTH_LIMIT} levels" if depth >= DEPTH_LIMIT else ""


def expected_error(s: Scanner, expected: str) -> str:
    """Returns the reason why a value is invalid: the text has ended, or something else was expected."""
    return CUT_OFF if s.closed and not s.buf[s.pos :].strip() else f"expected {expected}"


def take_rest(s: Scanner) -> str:
    """Reads the rest of the text, which is the beginning of a value."""
    s.pos = len(s.buf)
    return CUT_OFF


def reject_call(s: Scanner, sink: ToolCallSink, name: str) -> None:
    """Emits the captured text as text, because it is not a call of an offered tool."""
    if s.truncated and not name:
        sink.warn("truncated_call", "the reply was cut off before the call had its arguments", s.captured())
        return
    if name:
        sink.warn("unknown_tool", f"the model called {name!r}, which is not an offered tool")
    else:
        sink.note("problem", "expected a name and named arguments")
    sink.text(s.captured())


class NumberText(str):
    """A number as it was written."""

    __slots__ = ()


def write_arguments(arguments: Json, write: Callable[[Any], str]) -> str:
    """Returns arguments in another notation, with numbers as their digits; no arguments if they are not a JSON object.

    `write` may call itself for nested values.
    """
    try:
        loaded = json.loads(arguments, parse_int=NumberText, parse_float=NumberText)
        return write(loaded if isinstance(loaded, dict) else {})
    except (ValueError, RecursionError):
        return write({})


def with_number_text(value: Any) -> Any:
    """Returns a JSON value with its numbers as `NumberText`."""
    return json.loads(json.dumps(value), parse_int=NumberText, parse_float=NumberText)
