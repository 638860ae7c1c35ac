"""The most common shape: one JSON object is the whole call.

    {"name": "get_weather", "arguments": {"city": "Paris"}}

Keys may come in any order; `arguments` may be missing, null, or wrapped (`text/unwrap_arguments.py`). Between tags,
other members are dropped with a warning. Without tags, another member before the arguments means that this is the
model's JSON answer, and arguments may be missing only if the tool requires none. Arguments are streamed as soon as the
name is known; text that cannot be a call emits nothing, so that the caller can pass the raw text through.
"""

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dragoman.core.errors import quote
from dragoman.core.messages import JsonText as Json
from dragoman.parsing.sink import ToolCallSink
from dragoman.text.scanner import CUT_OFF, Parser, Scanner, discard, markers
from dragoman.text.unwrap_arguments import read_wrapped_arguments

_KEY_ENDS: Final = markers(*":,{}[]\"'\n")
SEPARATORS: Final = (",", ";")
_BARE_KEY: Final = re.compile(r"[A-Za-z_]\w*[ \t]*")


@dataclass(frozen=True, slots=True)
class JsonCallKeys:
    """The meaning of the object's members."""

    name: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ("arguments", "parameters")
    id: tuple[str, ...] = ("id",)
    other: tuple[str, ...] = ("type",)
    """Members without information."""
    late_id: bool = True
    """True if an id after the arguments is kept, when calls are buffered until they are complete."""
    name_is_key: bool = False
    """True if the tool's name is the key of its arguments: `{"get_weather": {"city": "Paris"}}`."""


class Outcome(Enum):
    """The result of reading a call."""

    COMPLETE = "the call is out, complete"
    NOT_A_CALL = "nothing is out; the kept text is the answer's own"
    BROKEN = "the call had begun and has been marked incomplete"
    CUT_OFF = "so it has, and the text is at its end"
    UNKNOWN = "nothing is out; the kept text is a call of a tool that is not offered, to its end"


def read_json_call(
    s: Scanner, sink: ToolCallSink, keys: JsonCallKeys, tagged: bool = True, reads_unknown: bool = False
) -> Parser[Outcome]:
    """Reads one call object.

    Args:
        s: The scanner, before the `{`; it must be capturing the raw text.
        sink: Receives the call.
        keys: The names of the members of a call.
        tagged: Whether a marker announced the call.
        reads_unknown: Whether an object that calls a tool that is not offered is read to its end; without tags, only if
            it has nothing but the members of a call.
    """
    call = _Call(s, sink, keys, tagged, reads_unknown)
    if not (yield from s.literal("{", after_space=True)):
        return call.fail("expected '{'")
    # Early chat templates of Qwen2.5-Coder show the form with doubled braces, and the model writes them.
    doubled = call.doubled = bool((yield from s.literal("{")))
    if tagged and not (doubled or keys.name_is_key) and (yield from s.literal("}", after_space=True)):
        sink.warn("unnamed_call", "a call without a name and arguments stays text")
        return call.fail("the object is empty")
    while True:
        yield from s.skip_space()
        key = yield from _read_key(s)
        if key is None:
            return call.fail("expected a key of a call")
        if not (yield from s.literal(":", after_space=True)):
            return call.fail("expected ':'")
        yield from s.skip_space()
        problem = yield from call.member(key)
        separator = "" if problem else (yield from _separator(s))
        if separator == "}":
            if doubled:
                yield from s.literal("}", after_space=True)
            return call.close()
        if separator != ",":
            return call.fail(problem or "expected ',' or '}'")


def skip_unknown_call(s: Scanner, sink: ToolCallSink) -> Parser[bool]:
    """Emits a call of a tool that is not offered as text. Returns True if another call follows, which is read
    separately."""
    sink.text(s.captured())
    s.start_capture()
    yield from s.literal(*SEPARATORS, after_space=True)
    return (yield from s.peek(after_space=True)) == "{"


def _read_key(s: Scanner) -> Parser[str | None]:
    """Reads a key, with or without quotes."""
    if (yield from s.peek()) in ('"', "'"):
        return (yield from s.json_string())
    name_field = (yield from s.peek_field(_KEY_ENDS)) if "bare_keys" in s.enabled_repairs else None
    if not name_field or name_field[1] != ":" or not _BARE_KEY.fullmatch(name_field[0]):
        return None
    s.repairs["bare_keys"] = None
    yield from s.literal(name_field[0])
    return name_field[0].rstrip()


def _separator(s: Scanner) -> Parser[str]:
    """Reads a comma or the object's end after a member; a surplus comma before the end is repaired."""
    marker = yield from s.literal(",", "}", after_space=True)
    if marker == "}" or "commas" not in s.enabled_repairs:
        return marker
    next_char = yield from s.peek(after_space=True)
    if marker and next_char == "}":
        s.repairs["commas"] = None
        return (yield from s.literal("}", after_space=True))
    if not marker and next_char == '"':
        s.repairs["commas"] = None
        return ","
    return marker


class _Call:
    """State of one call object while it is read."""

    def __init__(self, s: Scanner, sink: ToolCallSink, keys: JsonCallKeys, tagged: bool, reads_unknown: bool) -> None:
        self._s = s
        self._sink = sink
        self._keys = keys
        self._tagged = tagged
        self._reads_unknown = reads_unknown
        self._unknown = False
        self.doubled = False
        self._name = ""
        self._id = self._late_id = ""
        self._early_arguments: str | None = None  # arguments that came before the name
        self._has_started = False
        self._is_complete = False
        self._dropped: list[tuple[str, Json]] = []  # members that have no place in a call

    def member(self, key: str) -> Parser[str]:
        """Reads the value of `key`. Returns "" or the reason why it is invalid."""
        if self._keys.name_is_key:
            return (yield from self._named_by_key(key))
        if self._unknown:
            return (yield from self._of_unknown(key))
        if key in self._keys.name and not self._name:
            return (yield from self._read_name())
        if key in self._keys.arguments and self._early_arguments is None and not self._has_started:
            return (yield from self._read_doubled_arguments())
        if self._takes_id(key) and (yield from self._s.peek()) in ('"', "'"):
            written = (yield from self._s.json_string()) or ""
            self._id, self._late_id = (self._id, written) if self._has_started else (written, "")
            return ""
        if key in self._keys.id or key in self._keys.other:
            return (yield from self._s.json_value(discard))
        if not (self._tagged or self._has_started):
            return f"unexpected key {key!r}"
        pieces: list[str] = []
        problem = yield from self._s.json_value(pieces.append)
        self._dropped.append((key, "".join(pieces)))
        return problem

    def _read_doubled_arguments(self) -> Parser[str]:
        """Reads the arguments, in double braces if those of the call are doubled."""
        doubled = self.doubled and (yield from self._s.peek(2)) == "{{" and (yield from self._s.literal("{"))
        problem = yield from self._read_arguments()
        if doubled and not problem:
            yield from self._s.literal("}", after_space=True)
        return problem

    def _takes_id(self, key: str) -> bool:
        """Returns True if this key is the id; after the arguments have begun, only if there was none before."""
        return key in self._keys.id and (not self._has_started or (self._keys.late_id and not self._id))

    def _of_unknown(self, key: str) -> Parser[str]:
        """Reads a member of a call whose tool is not offered; without tags, a member that calls do not have means it is
        not a call."""
        if key in self._keys.arguments:
            self._early_arguments = ""
        elif not (self._tagged or key in (*self._keys.id, *self._keys.other)):
            return f"unexpected key {key!r}"
        return (yield from self._s.json_value(discard))

    def _named_by_key(self, key: str) -> Parser[str]:
        """Reads a member whose key is a tool's name; if that tool is not offered, the other members are still read."""
        if key in (*self._keys.id, *self._keys.other) and (yield from self._s.peek()) != "{":
            return (yield from self._s.json_value(discard))
        self._next_in_object(key)
        self._unknown = False
        problem = self._resolve(key)
        if self._unknown:
            problem = yield from self._s.json_value(discard)
            if not problem:
                self._sink.text(self._s.captured())
                self._s.start_capture()
            return problem
        return problem or (yield from self._read_arguments())

    def _next_in_object(self, key: str) -> None:
        """Ends the previous call: with names as keys, one object can contain several calls."""
        if self._is_complete:
            self._end_object()
            self._s.start_capture(f", {json.dumps(key, ensure_ascii=False)}: ")
            self._has_started = self._is_complete = False

    def close(self) -> Outcome:
        """Handles the end of the object."""
        if self._unknown:
            is_tool_call = self._tagged or self._early_arguments is not None
            return Outcome.UNKNOWN if is_tool_call else self.fail("the object has no arguments")
        if not self._name:
            return self.fail("the object has no name")
        if not (self._is_complete or self._tagged) and self._sink.needs_arguments(self._name):
            return self.fail("the object has no arguments")
        if not self._is_complete:
            self._put("{}")
        return self._end_object()

    def fail(self, problem: str) -> Outcome:
        """Handles an object that is not a call, or is incomplete."""
        if self._is_complete and not self._s.consume_truncated(""):
            outcome = self._end_object()
            self._sink.warn("unclosed_call_object", f"{problem}, after the arguments were complete", self._s.captured())
            return outcome
        if self._has_started:
            self._sink.incomplete(self._s.captured())
            if self._s.truncated or problem == CUT_OFF:
                return Outcome.CUT_OFF
            self._sink.warn("malformed_arguments", problem, self._s.captured())
            return Outcome.BROKEN
        self._sink.note("problem", problem)
        return Outcome.NOT_A_CALL

    def _end_object(self) -> Outcome:
        """Ends the call and reports dropped members, except null and other empty values."""
        self._sink.end(self._late_id)
        nonempty = [(k, v) for k, v in self._dropped if v not in ("null", "{}", '""')]
        if nonempty:
            names = ", ".join(quote(k) for k, _ in nonempty)
            raw = ", ".join(f"{json.dumps(k, ensure_ascii=False)}: {v}" for k, v in nonempty)
            self._sink.warn(
                "unknown_member_dropped", f"expected a call's name and arguments only, dropped {names}", raw
            )
        return Outcome.COMPLETE

    def _read_name(self) -> Parser[str]:
        written = yield from self._s.json_string()
        if written is None:
            return "expected the tool's name as a string"
        problem = self._resolve(written)
        if self._name and self._early_arguments is not None:
            self._put(self._early_arguments)
        return problem

    def _resolve(self, written: str) -> str:
        name = self._sink.resolve(written)
        if name is None:
            self._sink.warn("unknown_tool", f"the model called {written!r}, which is not an offered tool")
            self._unknown = self._reads_unknown
            return "" if self._unknown else "not an offered tool"
        self._name = name
        return ""

    def _read_arguments(self) -> Parser[str]:
        first = yield from self._s.peek()
        if first == "{" and self._name:
            self._begin()
            problem = yield from self._s.json_value(self._sink.arguments)
            self._is_complete = not problem
            return problem
        if first == "{":
            pieces: list[str] = []
            problem = yield from self._s.json_value(pieces.append)
            text = "".join(pieces)
        else:
            text, _, problem = yield from read_wrapped_arguments(self._s)
        if problem:
            return problem
        if self._name:
            self._put(text)
        else:
            self._early_arguments = text
        return ""

    def _put(self, arguments: Json) -> None:
        self._begin()
        self._sink.arguments(arguments)
        self._is_complete = True

    def _begin(self) -> None:
        self._sink.start(self._name, self._id)
        self._has_started = True
