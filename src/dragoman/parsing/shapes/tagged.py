"""Tagged parameters: each argument between its own tags, with a raw value.

    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>

A value ends only at a closer that is followed by something valid, so a value may contain text about tags. Types come
from the tool's schema (`schema/argument_types.py`), or from the tag if the format states them there.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from dragoman.core.messages import JsonText as Json
from dragoman.core.tool_name_match import is_name
from dragoman.parsing.shapes.json_block import KEYS, JsonBlock
from dragoman.parsing.shapes.name_then_json import ReadCallHead, fail_call
from dragoman.parsing.sink import DISCARD, ReadCall, ToolCallSink, drop_partial_closer
from dragoman.schema.argument_types import ALL, Schema, as_json, as_string, string_writer
from dragoman.text.scanner import CUT_OFF, Follows, Parser, Scanner, discard, markers


class ParameterKey(NamedTuple):
    """A parameter's name, and how its value is written if the tag states it."""

    name: str
    type: Literal["schema", "string", "json", "none"] = "schema"
    """"none": there is no value."""


WRAPPERS: Final = frozenset({"args", "arguments", "input", "kwargs", "parameters", "params", "tool_input"})
"""Names under which models write all arguments as one parameter."""
_AHEAD_CHARS: Final = 4096
"""Maximum lookahead, in characters, to detect that a parameter's tag is quoted in the value before it."""
NOTHING_YET: Final = "the text ended before the first value"
_TYPES: Final = {"string": frozenset({"string"}), "json": ALL - {"string"}}

_KINDS: Final = {'"': "string", "{": "object", "[": "array", "t": "boolean", "f": "boolean", "n": "null"}

ReadKey: TypeAlias = Callable[[Scanner], Parser[ParameterKey | None]]
"""Reads the text between a parameter's opener and its value; None if it is not a parameter."""
ReadBody: TypeAlias = Callable[[Scanner, ToolCallSink, Schema], Parser[str]]
"""Reads the arguments and their end. Returns "" or the reason why they are incomplete."""


@dataclass(frozen=True, slots=True)
class TaggedParameters:
    """How such a call is written."""

    head: ReadCallHead
    key_open: str
    key: ReadKey
    value_close: str
    call_close: tuple[str, ...]
    """Markers that end the parameters; the first is the format's own."""
    after: tuple[str, ...] = ()
    """Optional text after that marker which belongs to the call."""
    newlines: bool = False
    """True if one line break at each end of a value is not part of it."""
    openers: tuple[str, ...] = ()
    """Openers of the next call: after a call's end, one shows that the value before lacked its closer."""
    section_close: str = ""
    """The end of all calls; at the end of the reply, it shows the same."""
    names: Callable[[str], tuple[str, ...]] = lambda _: ()
    """Returns how the tag of a parameter continues; a known parameter that has not been read yet shows the same."""
    json_body: bool = False
    """True if one JSON object may be written instead of the parameters."""
    json_wrappers: Mapping[str, str] = field(default_factory=dict)
    """Optional closing text around that object by its opening text."""
    quote: tuple[str, str] = ("", "")
    """Optional quotes around a value in which no other marker has a meaning, such as CDATA."""

    @property
    def _after_parameters(self) -> tuple[str, ...]:
        """Markers that come next if a call lacks its own end."""
        return tuple(filter(None, (*self.after, *self.openers, self.section_close)))

    @property
    def closers(self) -> tuple[str, ...]:
        """Markers that may end a raw value, without line breaks."""
        return (self.value_close, *self.call_close, *((self.key_open,) if self.names("") else ()))

    def read(self, s: Scanner, sink: ToolCallSink, opener: str) -> Parser[bool]:
        """Reads what follows the opener. Returns True if it was a complete call. Text that is not a call is passed
        through."""
        return (yield from read_call(s, sink, opener, self.head, self.body, self.after))

    def body(self, s: Scanner, sink: ToolCallSink, schema: Schema) -> Parser[str]:
        """Reads the parameters, or an object instead. Returns "" or the reason why they are incomplete."""
        block = (yield from s.literal(*self.json_wrappers, after_space=True)) if self.json_wrappers else ""
        if not self.json_body or (yield from s.peek(after_space=True)) != "{":
            return (yield from self._parameters(s, sink, schema))
        yield from s.skip_space()
        problem = yield from s.json_value(sink.arguments, self.call_close)
        if block and not problem:
            yield from s.literal(self.json_wrappers[block], after_space=True)
        if problem or (yield from s.literal(*self.call_close, after_space=True)):
            return problem
        # As in all formats, the end of the object ends the call.
        if not s.consume_truncated(self.call_close[0]):
            sink.warn("missing_closing_tag", f"expected {self.call_close[0]} after the arguments")
        return ""

    def _parameters(self, s: Scanner, sink: ToolCallSink, schema: Schema) -> Parser[str]:
        """Reads all parameters. Returns "" or the reason why they are incomplete."""
        names_read: set[str] = set()
        marker = ""
        while True:
            marker = marker or (
                yield from s.literal(self.key_open, *self.call_close, *self._after_parameters, after_space=True)
            )
            if marker != self.key_open:
                return (yield from self._end_parameters(s, sink, marker, bool(names_read)))
            key = yield from self.key(s)
            if key is None:
                s.pos = len(s.buf) if s.closed and len(s.buf[s.pos :].split()) < 2 else s.pos
                return CUT_OFF if s.closed else "expected a parameter's name"
            emit: Callable[[str], None] = sink.arguments
            if key.name in names_read:
                sink.warn("duplicate_parameter", f"expected each parameter once, dropped another {key.name!r}")
                emit = discard
            if key.type == "none":
                sink.warn("missing_value", f"expected a value of {key.name!r}, dropped the name")
                marker = ""
                continue
            if not names_read and schema.names() and key.name in WRAPPERS - schema.names():
                closer = yield from self._wrapped(s, sink, key, schema, names_read)
            else:
                emit(f"{', ' if names_read else '{'}{as_string(key.name)}: ")
                names_read.add(key.name)
                closer = yield from self._value(s, emit, key, schema, names_read)
            if not closer:
                return CUT_OFF if s.closed else f"expected {self.value_close}"
            marker = next((each for each in (self.key_open, *self.call_close) if closer.endswith(each)), "")
            if marker:
                sink.warn("missing_closing_tag", f"expected {self.value_close} after {key.name!r}")

    def _end_parameters(self, s: Scanner, sink: ToolCallSink, found: str, any_value: bool) -> Parser[str]:
        """Ends the arguments at this marker, or where no marker follows. Returns "" or why they are incomplete."""
        if not found:
            yield from s.skip_space()
            return (yield from end_unclosed_call(s, sink, any_value, self.call_close[0], self.key_open))
        s.pos -= 0 if found in self.call_close else len(found)
        sink.arguments("}" if any_value else "{}")
        if found not in self.call_close:
            sink.warn("missing_closing_tag", f"expected {self.call_close[0]} before {found}")
        return ""

    def _wrapped(
        self, s: Scanner, sink: ToolCallSink, key: ParameterKey, schema: Schema, names_read: set[str]
    ) -> Parser[str]:
        """Reads a first parameter that the tool does not have and that may contain all its arguments. Returns what
        closed it."""
        pieces: list[str] = []
        closer = yield from self._value(s, pieces.append, key, schema, names_read)
        value = "".join(pieces)
        members = _inner(value) if closer else {}
        if members.keys() & schema.names():
            sink.warn("unwrapped_arguments", f"expected the arguments themselves, took them out of {key.name!r}")
            sink.arguments("{" + ", ".join(f"{as_string(name)}: {text}" for name, text in members.items()))
            names_read.update(members)
        else:
            sink.arguments(f"{{{as_string(key.name)}: {value}")
            names_read.add(key.name)
        return closer

    def _after_value(self) -> Follows:
        ends = tuple((end,) for end in self.call_close)
        return ((self.key_open,), *ends, *((each,) for each in self._after_parameters), ("",))

    def _closers(self, others: Collection[str], framed: str) -> Mapping[str, Follows]:
        """Returns the markers that end a raw value, with what has to follow; `framed` is the line break before the
        value."""
        lines = tuple(dict.fromkeys(("", "\n", framed)))
        closers: dict[str, Follows] = {
            line + self.value_close: self._after_value() for line in (lines if framed else ("",))
        }
        after = tuple((*self.after, each) for each in (*self.openers, ""))
        after += ((*self.after, self.section_close, ""),) if self.section_close else ()
        # The next tag is on its own line, whether or not the value is.
        closers |= {line + end: after for end in self.call_close for line in lines}
        begins = tuple((start,) for name in sorted(others) for start in self.names(name))
        return closers | ({line + self.key_open: begins for line in lines} if begins else {})

    def _raw(self, s: Scanner, closers: Mapping[str, Follows], emit: Callable[[str], None]) -> Parser[str]:
        """Reads a raw value up to its closer, which is returned; a tag quoted in the value does not close it."""
        while True:
            closer = yield from s.raw_until(closers, emit)
            if not closer.endswith(self.key_open) or (yield from self._begins_parameter(s)):
                return closer
            emit(closer)

    def _begins_parameter(self, s: Scanner) -> Parser[bool]:
        """Returns True if the tag just read begins a parameter: as far as can be seen, that ends where a parameter may
        end."""
        ends = markers(self.value_close, self.key_open, *self.call_close)
        closer_field = yield from s.peek_field(ends, _AHEAD_CHARS)
        if closer_field is None or closer_field[1] != self.value_close:
            return True
        while (is_parameter := s.follows(self._after_value(), len("".join(closer_field)))) is None:
            yield None
        return is_parameter

    def _value(
        self, s: Scanner, emit: Callable[[str], None], key: ParameterKey, schema: Schema, names_read: Collection[str]
    ) -> Parser[str]:
        """Reads one value. Returns what closed it, "" if nothing did."""
        types = _TYPES.get(key.type) or schema.types_at(key.name)
        framed = (yield from s.literal("\n", "\r\n")) if self.newlines else ""
        closers = self._closers(schema.names() - {*names_read}, framed)
        quoted = self.quote[0] and (yield from s.literal(self.quote[0]))
        if quoted:
            closers = {self.quote[1] + each: closers[each] for each in (self.value_close,)}
        if types == {"string"}:
            emit('"')
            closer = yield from self._raw(s, closers, string_writer(emit))
            emit('"' if closer else "")
            return closer
        if "string" not in types and (yield from s.peek(after_space=True)) in ("{", "["):
            yield from s.skip_space()
            problem = yield from s.json_value(emit, (self.value_close, *self.call_close))
            ends = tuple(closers) if quoted else (self.value_close, self.key_open, *self.call_close)
            return "" if problem else (yield from s.literal(*ends, after_space=True))
        pieces: list[str] = []
        closer = yield from self._raw(s, closers, pieces.append)
        if closer:
            text = "".join(pieces)
            types = ALL if key.type == "json" and text.lstrip().startswith('"') else types
            emit(as_json(text, types, schema.constants(key.name) if key.type == "schema" else ()))
        return closer


def _inner(value: Json) -> dict[str, Json]:
    """Returns the members of an object, or of one in a JSON string; {} if it is neither."""
    try:
        text = json.loads(value) if value.startswith('"') else value
        members = msgspec.json.decode(text.encode("utf-8", "replace"), type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError):
        return {}
    return {name: bytes(raw).decode() for name, raw in members.items()}


def end_unclosed_call(s: Scanner, sink: ToolCallSink, any_value: bool, close: str, value: str) -> Parser[str]:
    """Returns why arguments without an end are incomplete; "" if they are complete. White space after them is ignored.

    They are complete if the model ended the reply after a closed value, or within the closing marker. Without a value
    (`NOTHING_YET`), they are complete if the tool needs none.

    Args:
        s: The scanner, after the last value.
        sink: Receives the end of the arguments.
        any_value: Whether a value was read.
        close: The marker that closes the arguments.
        value: What else was expected, for the message.
    """
    rest = yield from s.peek(len(close))
    if not close.startswith(rest):
        return f"expected {value} or {close}"
    s.pos += len(rest)
    if not s.stopped_by_model:
        return CUT_OFF
    if not any_value:
        return NOTHING_YET
    sink.arguments("}")
    sink.warn("missing_closing_tag", f"expected {close} before the end of the reply")
    return ""


def read_call(
    s: Scanner,
    sink: ToolCallSink,
    opener: str,
    read_head: ReadCallHead,
    read_body: ReadBody,
    after: tuple[str, ...] = (),
) -> Parser[bool]:
    """Reads a call: head, body and optional text after it. Returns True if it is complete. Text that is not a call is
    passed through.

    Args:
        s: The scanner, after the opener.
        sink: Receives the call.
        opener: The marker that was read.
        read_head: Reads the name, and the id if there is one.
        read_body: Reads the arguments. Returns "", or why they are incomplete.
        after: Optional strings after the call that belong to it.
    """
    s.start_capture(s.skipped_space + opener)
    head = yield from read_head(s, opener)
    if head and not is_name(head.name):
        head = None
    name = sink.resolve(head.name) if head else None
    if head is None or name is None:
        if head and not head.closed:
            yield from read_body(s, DISCARD, Schema("{}"))
            for closer in after:
                yield from s.literal(closer, after_space=True)
        return _no_call(s, sink, head.name if head else "")
    sink.start(name, head.id)
    problem = "" if head.closed else (yield from read_body(s, sink, sink.schema(name)))
    empty = problem == NOTHING_YET and not sink.needs_arguments(name)
    if empty:
        sink.warn("missing_closing_tag", "expected the end of the call before the end of the reply")
    elif problem:
        return fail_call(s, sink, CUT_OFF if problem == NOTHING_YET else problem)
    sink.arguments("{}" if head.closed or empty else "")
    sink.end()
    for closer in after:
        yield from s.literal(closer, after_space=True)
    s.stop_capture()
    return True


def typed_values(arguments: Json) -> Iterator[tuple[str, str, str]]:
    """Yields each argument as such formats write it, and its JSON type.

    Strings are raw, other values are their original JSON.

    Yields nothing if the arguments are not a JSON object.
    """
    try:
        members = msgspec.json.decode(arguments.encode("utf-8", "replace"), type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return
    for name, raw in members.items():
        text = bytes(raw).decode()
        kind = _KINDS.get(text[0], "number")
        yield name, json.loads(text) if kind == "string" else text, kind


@dataclass(frozen=True, slots=True)
class WrappedCalls:
    """Calls with tags around all of them: `<tools><call …>…</call><call …>…</call></tools>`.

    The opening tag is text if no call follows, so that it can be mentioned.
    """

    call: ReadCall
    openers: tuple[str, ...]
    """Openers of a call; the first is the format's own."""
    close: str

    def read(self, s: Scanner, sink: ToolCallSink, opener: str) -> Parser[bool]:
        """Reads what follows the opener. Returns True if a complete call came last."""
        s.start_capture(s.skipped_space + opener)
        marker = yield from s.literal(*self.openers, self.close, after_space=True)
        if not marker and (yield from s.peek(after_space=True)) in ("{", "["):
            s.skipped_space = s.captured()
            return (yield from JsonBlock(KEYS, self.close).read(s, sink, ""))
        if marker not in self.openers:
            return self._empty(s, sink, marker)
        s.skipped_space = s.captured().removesuffix(marker)
        is_complete = True
        while marker in self.openers:
            is_complete = yield from self.call(s, sink, marker)
            s.start_capture()
            marker = yield from s.literal(*self.openers, *([self.close] if is_complete else []), after_space=True)
            s.skipped_space = "" if is_complete else s.captured().removesuffix(marker)
            s.stop_capture()
            if is_complete and not marker:
                yield from drop_partial_closer(s, sink, self.close)
        return is_complete

    def _empty(self, s: Scanner, sink: ToolCallSink, marker: str) -> bool:
        if marker:
            sink.warn("empty_call_section", f"dropped a section with no call in it, up to {marker}", s.captured())
        elif any(s.consume_truncated(each) for each in (*self.openers, self.close)):
            sink.warn("truncated_call", "the reply was cut off before the call had a name", s.captured())
        else:
            sink.text(s.captured())
        s.stop_capture()
        return bool(marker)


def _no_call(s: Scanner, sink: ToolCallSink, name: str) -> bool:
    if not name and s.consume_truncated_word():
        sink.warn("truncated_call", "the reply was cut off before the call had a name", s.captured())
    else:
        if name:
            sink.warn("unknown_tool", f"the model called {name!r}, which is not an offered tool")
        else:
            sink.note("problem", "expected the head of a call")
        sink.text(s.captured())
    s.stop_capture()
    return False
