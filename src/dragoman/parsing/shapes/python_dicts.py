r"""Calls as a list of Python dicts.

    [{'name': 'get_weather', 'arguments': {'city': "L'Aquila", 'now': True}}]

Values are those of `parsing/shapes/python_call.py`; an object in JSON quotes is read as JSON. A list without an opener
is read as calls only if its first object begins as a call of an offered tool.
"""

from dataclasses import dataclass
from typing import Final

from dragoman.constraints import schema_values
from dragoman.constraints.constraint import ConstrainedCall
from dragoman.core.messages import Tool, ToolCall
from dragoman.parsing.shapes.json_object import JsonCallKeys, Outcome, read_json_call
from dragoman.parsing.shapes.object_notation import reject_call, write_arguments
from dragoman.parsing.shapes.python_call import DICT, NOTATION
from dragoman.parsing.shapes.python_writer import SPELLING, literal
from dragoman.parsing.sink import DISCARD, ToolCallSink
from dragoman.text.scanner import Parser, Scanner, markers

_NAME_END: Final = markers("'")


@dataclass(frozen=True, slots=True)
class PythonObjects:
    """How such a list is written in a reply."""

    tagged: bool = True
    """True if a marker opened it."""

    def read(self, s: Scanner, sink: ToolCallSink, opener: str) -> Parser[bool]:
        """Reads what follows the opener. Returns True if a complete call came last. Text that is not a call is passed
        through."""
        s.start_capture(s.skipped_space + opener)
        listed = bool((yield from s.literal("[", after_space=True)))
        if listed:
            sink.set_in_list(True)
        is_complete = False
        while (is_call := (yield from self._call(s, sink))) is not False:
            is_complete = bool(is_call)
            s.start_capture()
            comma = yield from s.literal(",", after_space=True)
            if comma and (yield from s.peek(after_space=True)) == "{":
                continue
            if is_call:
                yield from self._end(s, sink, listed)
            else:
                sink.text(s.captured())
            break
        is_complete = is_complete and is_call is not False
        s.stop_capture()
        if not s.truncated:
            sink.set_in_list(False)
        return is_complete

    def _end(self, s: Scanner, sink: ToolCallSink, listed: bool) -> Parser[None]:
        ended = listed and (yield from s.literal("]", after_space=True))
        if ended and (yield from s.literal("]", after_space=True)):
            sink.warn("stray_closing_tag", "dropped ] that closes nothing", "]")
        if listed and not ended and not s.consume_truncated("]"):
            sink.warn("missing_closing_tag", "expected ] after the calls")

    def _call(self, s: Scanner, sink: ToolCallSink) -> Parser[bool | None]:
        """Reads one object. Returns True if it was a complete call; None if it is a complete call of a tool that is not
        offered.

        If it is not a call, the captured text is emitted as text.
        """
        quoted = yield from s.peek(2, after_space=True)
        if not quoted.startswith("{'"):
            outcome = yield from read_json_call(s, sink, JsonCallKeys(), self.tagged)
            if outcome is Outcome.NOT_A_CALL and self.tagged and s.consume_truncated(""):
                sink.warn("truncated_call", "the reply was cut off before the call had a name", s.captured())
            elif outcome in (Outcome.NOT_A_CALL, Outcome.BROKEN):
                sink.text(s.captured())
            return outcome is Outcome.COMPLETE
        written = yield from self._head(s)
        name = sink.resolve(written) if written else None
        if name is None:
            ended = bool(written) and not (yield from NOTATION.members(s, DISCARD, DICT))
            ended = ended and bool((yield from s.literal("}", after_space=True)))
            reject_call(s, sink, written)
            return None if ended else False
        is_complete = yield from NOTATION.call(s, sink, name, DICT)
        if is_complete and not (yield from s.literal("}", after_space=True)) and not s.consume_truncated("}"):
            sink.warn("missing_closing_tag", "expected } after the arguments")
        return is_complete

    def _head(self, s: Scanner) -> Parser[str]:
        """Reads up to the opening bracket of the arguments. Returns the name, "" if this is not a call."""
        for part in ("{", "'name'", ":", "'"):
            if not (yield from s.literal(part, after_space=True)):
                return ""
        name_field = yield from s.field(_NAME_END)
        for part in (",", "'arguments'", ":", "{"):
            if not name_field or not (yield from s.literal(part, after_space=True)):
                s.consume_truncated_word()
                return ""
        return name_field[0] if name_field else ""


def write_call(call: ToolCall) -> str:
    """Returns the call as Python writes a dict; strings in the arguments have double quotes, as under a constraint."""
    return f"{_before(call.name)}{write_arguments(call.arguments, literal)}}}"


def constrain_call(tool: Tool) -> ConstrainedCall:
    """Returns the constraint for calls of this tool; strings are written as in JSON, which is also valid Python."""
    body, relaxed = schema_values.arguments_grammar(tool, SPELLING)
    return ConstrainedCall(f"{_before(tool.name)}{{", body, "}}", relaxed)


def _before(name: str) -> str:
    return f"{{'name': {name!r}, 'arguments': "
