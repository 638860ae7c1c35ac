r"""The shape of calls as a list of Python's dicts.

    [{'name': 'get_weather', 'arguments': {'city': "L'Aquila", 'now': True}}]

Values are those of `parsing/shapes/python_call.py`; an object in JSON's quotes is read as JSON. A list that nothing
opens is one of calls only where its first object begins as a call of an offered tool.
"""

from dataclasses import dataclass
from typing import Final

from dragoman.constraints import schema_values
from dragoman.constraints.constraint import HeldCall
from dragoman.core.messages import Tool, ToolCall
from dragoman.parsing.shapes.json_object import JsonCallKeys, Outcome, read_json_call
from dragoman.parsing.shapes.object_notation import reject_call, write_arguments
from dragoman.parsing.shapes.python_call import DICT, NOTATION, SPELLING, literal
from dragoman.parsing.sink import DISCARD, ToolCallSink
from dragoman.text.scanner import Parser, Scanner, markers

_NAME_END: Final = markers("'")


@dataclass(frozen=True, slots=True)
class PythonObjects:
    """How such a list stands in a reply."""

    tagged: bool = True
    """A marker opened it."""

    def read(self, s: Scanner, sink: ToolCallSink, opener: str) -> Parser[bool]:
        """What follows the opener; whether a whole call came last. What is no call goes on as text."""
        s.start_capture(s.skipped_space + opener)
        listed = bool((yield from s.literal("[", after_space=True)))
        if listed:
            sink.set_in_list(True)
        whole = False
        while (called := (yield from self._call(s, sink))) is not False:
            whole = bool(called)
            s.start_capture()
            comma = yield from s.literal(",", after_space=True)
            if comma and (yield from s.peek(after_space=True)) == "{":
                continue
            if called:
                yield from self._end(s, sink, listed)
            else:
                sink.text(s.captured())
            break
        whole = whole and called is not False
        s.stop_capture()
        if not s.truncated:
            sink.set_in_list(False)
        return whole

    def _end(self, s: Scanner, sink: ToolCallSink, listed: bool) -> Parser[None]:
        ended = listed and (yield from s.literal("]", after_space=True))
        if ended and (yield from s.literal("]", after_space=True)):
            sink.warn("stray_closing_tag", "dropped ] that closes nothing", "]")
        if listed and not ended and not s.consume_truncated("]"):
            sink.warn("missing_closing_tag", "expected ] after the calls")

    def _call(self, s: Scanner, sink: ToolCallSink) -> Parser[bool | None]:
        """One object; whether a whole call came of it. Where it is none, what was kept of it goes on as text.

        None: it is a whole call of a tool that is not offered.
        """
        quoted = yield from s.peek(2, after_space=True)
        if not quoted.startswith("{'"):
            outcome = yield from read_json_call(s, sink, JsonCallKeys(), self.tagged)
            if outcome is Outcome.NOT_A_CALL and self.tagged and s.consume_truncated(""):
                sink.warn("truncated_call", "the reply was cut off before the call had a name", s.captured())
            elif outcome in (Outcome.NOT_A_CALL, Outcome.BROKEN):
                sink.text(s.captured())
            return outcome is Outcome.WHOLE
        written = yield from self._head(s)
        name = sink.resolve(written) if written else None
        if name is None:
            ended = bool(written) and not (yield from NOTATION.members(s, DISCARD, DICT))
            ended = ended and bool((yield from s.literal("}", after_space=True)))
            reject_call(s, sink, written)
            return None if ended else False
        whole = yield from NOTATION.call(s, sink, name, DICT)
        if whole and not (yield from s.literal("}", after_space=True)) and not s.consume_truncated("}"):
            sink.warn("missing_closing_tag", "expected } after the arguments")
        return whole

    def _head(self, s: Scanner) -> Parser[str]:
        """All up to the arguments' own bracket; the name, "" where this is no call."""
        for part in ("{", "'name'", ":", "'"):
            if not (yield from s.literal(part, after_space=True)):
                return ""
        found = yield from s.field(_NAME_END)
        for part in (",", "'arguments'", ":", "{"):
            if not found or not (yield from s.literal(part, after_space=True)):
                s.consume_truncated_word()
                return ""
        return found[0] if found else ""


def write_call(call: ToolCall) -> str:
    """As Python shows a dict, strings in the arguments between double quotes, as a model that is held writes them."""
    return f"{_before(call.name)}{write_arguments(call.arguments, literal)}}}"


def constrain_call(tool: Tool) -> HeldCall:
    """The calls of this tool that there can be; strings in them are written as JSON has them, which Python has too."""
    body, relaxed = schema_values.hold(tool, SPELLING)
    return HeldCall(f"{_before(tool.name)}{{", body, "}}", relaxed)


def _before(name: str) -> str:
    return f"{{'name': {name!r}, 'arguments': "
