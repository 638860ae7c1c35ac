"""Validating reader for JSON from clients and upstream servers. A cursor knows its path and decodes only on access.

    body = parse(b'{"messages": [{"role": "user"}]}')
    body.field("messages").items()[0].field("role").string()

Every error contains what was expected, what was found, and the path:
`expected string, got integer - at $.messages[0].role`. Values that are not decoded stay verbatim bytes (`raw`).
"""

import codecs
import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar, cast

import msgspec

from dragoman.core.errors import RequestError, UsageError, cut, one_of, quote
from dragoman.core.messages import JsonText

T = TypeVar("T")
S = TypeVar("S", bound=str)

NULL: Final = msgspec.Raw(b"null")
# Created once: looking up a decoder for each value takes longer than decoding the value.
_raw_value: Final = msgspec.json.Decoder(msgspec.Raw).decode
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_string: Final = msgspec.json.Decoder(str).decode
_number: Final = msgspec.json.Decoder(float).decode
_boolean: Final = msgspec.json.Decoder(bool).decode
_EXACT: Final = 2**53
"""Smaller whole numbers are exact as floats."""

MAX_OBJECTS: Final = 100_000
"""Maximum number of objects in a request: messages, parts, tools and their contents. Each becomes Python objects."""
MAX_VALUES: Final = 250_000
"""Maximum number of values in a request, counted by commas."""
MAX_ITEMS: Final = 100_000
"""Maximum number of items in one array."""
MAX_TOOLS: Final = 10_000
"""Maximum number of tools in a request. The vendors accept 128 or more."""
MAX_STOPS: Final = 1_000
"""Maximum number of stop strings in a request. The vendors accept 4 or more."""
_OUTSIDE: Final = re.compile(rb'([^"]*+)(?:"[^"\\]*+(?:\\.[^"\\]*+)*+")?', re.DOTALL)
"""Matches the text between two strings of valid JSON, and the second string."""

_KINDS = {
    ord("{"): "object",
    ord("["): "array",
    ord('"'): "string",
    ord("t"): "boolean",
    ord("f"): "boolean",
    ord("n"): "null",
}


ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair: one character
    rb"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\\."  # any other escape, so that the second of two backslashes never begins one
)
"""An escape in a JSON string; the group `lone` is half of a surrogate pair."""


def parse(body: bytes | str) -> "Cursor":
    """Returns a cursor on the whole body.

    Half of a surrogate pair (`"\\ud83d"`), which JavaScript writes if a string is cut inside a character, is read as
    U+FFFD.

    Raises:
        RequestError: The body is not JSON in UTF-8, or is nested deeper than about 500 levels.
        UsageError: The body is neither bytes nor str.
    """
    if isinstance(body, str):
        body = body.encode(errors="surrogatepass")
    if not isinstance(body, bytes | bytearray | memoryview):
        raise UsageError(f"expected JSON as bytes or str, got {type(body).__name__}; json.dumps makes it")
    try:
        str(body, "utf-8")  # msgspec does not check strings that are not decoded
        return Cursor(_decode(body), "$")
    except RecursionError:
        raise RequestError("expected JSON of at most 500 levels, got deeper nesting", "$") from None
    except UnicodeDecodeError as e:
        got = f"the byte 0x{body[e.start]:02x} at position {e.start}, which is not UTF-8"
        raise RequestError(f"expected JSON in UTF-8, got {got}", "$") from None
    except msgspec.DecodeError as e:
        marked = bytes(body[:3]) == codecs.BOM_UTF8
        reason = "got a byte order mark before it; send the body without" if marked else str(e)
        raise RequestError(f"expected JSON{',' if marked else ':'} {reason}", "$") from None


def parse_request(body: bytes | str) -> "Cursor":
    """Returns a cursor on the body of a request, which is untrusted, so that its size is limited.

    Raises:
        RequestError: As `parse`, or the body has more than `MAX_OBJECTS` objects or `MAX_VALUES` values.
        UsageError: As `parse`.
    """
    cursor = parse(body)
    json = bytes(cursor.raw)
    if json.count(b"{") > MAX_OBJECTS or json.count(b",") > MAX_VALUES:  # many of these may be inside strings
        objects = values = 0
        for match in _OUTSIDE.finditer(json):
            objects += match[1].count(b"{")
            values += match[1].count(b",")
            if objects > MAX_OBJECTS or values > MAX_VALUES:
                raise RequestError(f"expected at most {MAX_OBJECTS:,} objects and {MAX_VALUES:,} values, got more", "$")
    return cursor


def _decode(body: bytes) -> msgspec.Raw:
    try:
        return _raw_value(body)
    except msgspec.DecodeError:
        repaired = replace_lone_surrogates(body)
        if repaired == body:
            raise
        return _raw_value(repaired)


def replace_lone_surrogates(body: bytes) -> bytes:
    """Returns the JSON with U+FFFD in place of each escape that is half of a surrogate pair."""
    return ESCAPE.sub(lambda m: rb"\ufffd" if m["lone"] else m[0], body)


def load_json(text: str) -> Any:
    """Returns the value of a JSON text as the module `json` does, with U+FFFD for half of a surrogate pair.

    Raises:
        ValueError: The text is not JSON, or has a number of thousands of digits.
        RecursionError: It is nested too deep.
    """
    if "\\u" in text:
        text = replace_lone_surrogates(text.encode("utf-8", "replace")).decode()
    return json.loads(text)


class Cursor:
    """One JSON value and the path to it."""

    __slots__ = ("kind", "path", "raw")

    def __init__(self, raw: msgspec.Raw, path: str) -> None:
        self.raw = raw
        """The value's own bytes."""
        self.path = path
        self.kind = _KINDS.get(memoryview(raw)[0], "number")
        """object, array, string, number, boolean or null."""

    @property
    def text(self) -> str:
        """The value's JSON, verbatim."""
        return bytes(self.raw).decode()

    def fields(self) -> "Fields":
        """Returns the members of an object; of a repeated name, the last member."""
        return Fields(self._as("object", _members), self.path, self.raw)

    def items(self, limit: int = MAX_ITEMS) -> list["Cursor"]:
        """Returns the items of an array of at most `limit` items."""
        items = self._as("array", _items)
        if len(items) > limit:
            raise RequestError(f"expected at most {limit:,} items, got {len(items):,}", self.path)
        return [Cursor(v, f"{self.path}[{i}]") for i, v in enumerate(items)]

    def string(self, limit_chars: int | None = None) -> str:
        """Returns a string, of at most `limit_chars` characters if given."""
        value = self._as("string", _string)
        if limit_chars is not None and len(value) > limit_chars:
            raise RequestError(f"expected at most {limit_chars} characters, got {len(value)}", self.path)
        return value

    def nonempty_string(self, limit_chars: int | None = None) -> str:
        """Returns a string of at least one character, and at most `limit_chars` if given."""
        value = self.string(limit_chars)
        if not value:
            raise RequestError("expected a string of at least 1 character, got an empty one", self.path)
        return value

    def object(self) -> JsonText:
        """Returns the JSON of an object, verbatim."""
        if self.kind != "object":
            raise self.wrong("object")
        return self.text

    def integer(self, minimum: int | None = None) -> int:
        """Returns a whole number; `2.0` is one too."""
        number = self.number()
        integer = int(number)
        if number != integer:
            raise RequestError(f"expected a whole number, got {cut(self.text)}", self.path)
        if minimum is not None and number < minimum:
            raise RequestError(f"expected a number of at least {minimum}, got {cut(self.text)}", self.path)
        if abs(integer) < _EXACT:
            return integer
        # A float cannot represent all digits of a 64-bit seed.
        return int(self.text) if self.text.lstrip("-").isdigit() else integer

    def number(self, minimum: float | None = None, maximum: float | None = None) -> float:
        """Returns a number from `minimum` to `maximum`, both included."""
        value = self._as("number", _number)
        if (minimum is not None and value < minimum) or (maximum is not None and value > maximum):
            raise RequestError(f"expected a number from {minimum} to {maximum}, got {cut(self.text)}", self.path)
        return value

    def boolean(self) -> bool:
        """Returns a boolean."""
        return self._as("boolean", _boolean)

    def one_of(self, known: Collection[S], what: str) -> S:
        """Returns a string that is in `known`; `what` names it in the error. Use a set for many look-ups."""
        value = self.string()
        if value in known:
            return cast("S", value)
        raise RequestError(f"unknown {what} {quote(value)}{one_of(value, known, 'expected ')}", self.path)

    def wrong(self, expected: str) -> RequestError:
        """Returns the error for a value of the wrong kind."""
        return RequestError(f"expected {expected}, got {self.kind}", self.path)

    def _as(self, kind: str, decode: Callable[[msgspec.Raw], T]) -> T:
        if self.kind != kind:
            raise self.wrong(kind)
        try:
            return decode(self.raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as e:
            raise RequestError(f"expected {kind}: {e}", self.path) from None


class Fields:
    """The members of an object. Members that are not popped are forwarded from `remaining`."""

    __slots__ = ("_left", "path", "raw")

    def __init__(self, members: dict[str, msgspec.Raw], path: str, raw: msgspec.Raw) -> None:
        self._left = members
        self.path = path
        self.raw = raw
        """The bytes of the whole object."""

    def pop(self, name: str) -> Cursor | None:
        """Removes and returns the member; None if it is absent or null."""
        raw = self._left.pop(name, None)
        return None if raw is None or raw == NULL else Cursor(raw, f"{self.path}.{name}")

    def get(self, name: str) -> Cursor | None:
        """Returns the member without removing it; None if it is absent or null."""
        raw = self._left.get(name)
        return None if raw is None or raw == NULL else Cursor(raw, f"{self.path}.{name}")

    def has(self, name: str) -> bool:
        """Returns whether the member is left, also if it is null."""
        return name in self._left

    def require(self, name: str) -> Cursor:
        """Removes and returns the member.

        Raises:
            RequestError: It is absent or null.
        """
        value = self.pop(name)
        if value is None:
            raise RequestError(f"missing required field '{cut(name)}'", self.path)
        return value

    def string(self, name: str) -> str:
        """Pops the string `name`; "" if absent."""
        value = self.pop(name)
        return value.string() if value else ""

    def number(self, name: str, minimum: float, maximum: float) -> float | None:
        """Pops the number `name`, from `minimum` to `maximum`; None if absent."""
        value = self.pop(name)
        return value.number(minimum, maximum) if value else None

    def integer(self, name: str, minimum: int | None = None) -> int | None:
        """Pops the whole number `name`; None if absent."""
        value = self.pop(name)
        return value.integer(minimum) if value else None

    def flag(self, name: str, default: bool = False) -> bool:
        """Pops the boolean `name`; `default` if absent."""
        value = self.pop(name)
        return value.boolean() if value else default

    def object(self, name: str) -> JsonText:
        """Pops the JSON of the object `name`, verbatim; "" if absent."""
        value = self.pop(name)
        return value.object() if value else ""

    def schema(self, name: str) -> JsonText:
        """Pops the JSON Schema `name`, verbatim except for null members of its root; "" if absent."""
        value = self.pop(name)
        if value is None or value.kind != "object" or b"null" not in bytes(value.raw):
            return value.object() if value else ""
        return without_null_members(value.raw)

    def items(self, name: str, limit: int = MAX_ITEMS) -> list[Cursor]:
        """Pops the items of the array `name` of at most `limit` items; empty if absent."""
        value = self.pop(name)
        return value.items(limit) if value else []

    def remaining_with_nulls(self) -> Mapping[str, msgspec.Raw]:
        """Returns all members that were not popped, nulls included."""
        return dict(self._left)

    def remaining(self) -> Mapping[str, msgspec.Raw]:
        """Returns all members that were not popped and are not null (null counts as absent), to be forwarded."""
        return {name: raw for name, raw in self._left.items() if raw != NULL}


def without_null_members(raw: msgspec.Raw) -> JsonText:
    """Returns the JSON of an object without the members of its root that are null; verbatim if there are none."""
    members = _members(raw)
    rest = {name: member for name, member in members.items() if member != NULL}
    return msgspec.json.encode(rest).decode() if len(rest) < len(members) else bytes(raw).decode()
