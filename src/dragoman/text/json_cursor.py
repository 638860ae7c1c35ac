"""Foreign JSON, read once at the edge: a cursor that knows its path and copies nothing it does not look into.

    body = at(b'{"messages": [{"role": "user"}]}')
    body.field("messages").items()[0].field("role").string()

Every error says what was expected, what was there and where:
`expected string, got integer - at $.messages[0].role`. What is not looked into stays bytes (`raw`), verbatim.
"""

import codecs
import re
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar, cast

import msgspec

from dragoman.core.errors import RequestError, UsageError, cut, one_of, quote
from dragoman.core.messages import JsonText

T = TypeVar("T")
S = TypeVar("S", bound=str)

_NULL: Final = msgspec.Raw(b"null")
# Made once: a decoder that is looked up for each value takes longer than the value.
_whole: Final = msgspec.json.Decoder(msgspec.Raw).decode
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_string: Final = msgspec.json.Decoder(str).decode
_number: Final = msgspec.json.Decoder(float).decode
_boolean: Final = msgspec.json.Decoder(bool).decode
_EXACT: Final = 2**53
"""Whole numbers below are exact as floats."""

OBJECTS: Final = 100_000
"""Most objects in a request: messages, parts, tools and what is in them. Each becomes objects of ours."""
VALUES: Final = 250_000
"""Most values in a request, as far as commas tell them apart."""
ITEMS: Final = 100_000
"""Most items of one array."""
TOOLS: Final = 10_000
"""Most tools of a request; the vendors take 128 and more."""
STOPS: Final = 1_000
"""Most stop strings of a request; the vendors take 4 and more."""
_OUTSIDE: Final = re.compile(rb'([^"]*+)(?:"[^"\\]*+(?:\\.[^"\\]*+)*+")?', re.DOTALL)
"""What stands between two strings of valid JSON, and the second of them."""

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
"""An escape in a string of JSON; `lone` is half of a surrogate pair."""


def at(body: bytes | str) -> "Cursor":
    """A cursor on the whole body.

    Half of a surrogate pair, as JavaScript writes it when it cuts a string inside a character (`"\\ud83d"`),
    is read as U+FFFD.

    Raises: RequestError: the body is not JSON in UTF-8, or nested deeper than about 500 levels.
        UsageError: it is no text at all.
    """
    if isinstance(body, str):
        body = body.encode(errors="surrogatepass")
    if not isinstance(body, bytes | bytearray | memoryview):
        raise UsageError(f"expected JSON as bytes or str, got {type(body).__name__}; json.dumps makes it")
    try:
        str(body, "utf-8")  # msgspec does not check text that nobody looks into
        return Cursor(_decode(body), "$")
    except RecursionError:
        raise RequestError("expected JSON of at most 500 levels, got deeper nesting", "$") from None
    except UnicodeDecodeError as e:
        got = f"the byte 0x{body[e.start]:02x} at position {e.start}, which is no part of it"
        raise RequestError(f"expected JSON in UTF-8, got {got}", "$") from None
    except msgspec.DecodeError as e:
        marked = bytes(body[:3]) == codecs.BOM_UTF8
        told = "got a byte order mark before it; send the body without" if marked else str(e)
        raise RequestError(f"expected JSON{',' if marked else ':'} {told}", "$") from None


def request(body: bytes | str) -> "Cursor":
    """A cursor on the body of a request, which a stranger may have sent: it has so many values at most.

    Raises: as `at`. RequestError: there are more.
    """
    cursor = at(body)
    json = bytes(cursor.raw)
    if json.count(b"{") > OBJECTS or json.count(b",") > VALUES:  # most of these stand in texts, where they are none
        objects = values = 0
        for found in _OUTSIDE.finditer(json):
            objects += found[1].count(b"{")
            values += found[1].count(b",")
            if objects > OBJECTS or values > VALUES:
                raise RequestError(f"expected at most {OBJECTS:,} objects and {VALUES:,} values, got more", "$")
    return cursor


def _decode(body: bytes) -> msgspec.Raw:
    try:
        return _whole(body)
    except msgspec.DecodeError:
        whole = mended(body)
        if whole == body:
            raise
        return _whole(whole)


def mended(body: bytes) -> bytes:
    """The JSON with U+FFFD for each escape that is half of a surrogate pair."""
    return ESCAPE.sub(lambda m: rb"\ufffd" if m["lone"] else m[0], body)


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
        """The members of an object; of a name that comes twice, the last."""
        return Fields(self._as("object", _members), self.path, self.raw)

    def items(self, limit: int = ITEMS) -> list["Cursor"]:
        """The items of an array, of at most so many."""
        items = self._as("array", _items)
        if len(items) > limit:
            raise RequestError(f"expected at most {limit:,} items, got {len(items):,}", self.path)
        return [Cursor(v, f"{self.path}[{i}]") for i, v in enumerate(items)]

    def string(self, limit_chars: int | None = None) -> str:
        """A string, of at most `limit_chars` where that is given."""
        value = self._as("string", _string)
        if limit_chars is not None and len(value) > limit_chars:
            raise RequestError(f"expected at most {limit_chars} characters, got {len(value)}", self.path)
        return value

    def word(self, limit_chars: int | None = None) -> str:
        """A string of at least one character."""
        value = self.string(limit_chars)
        if not value:
            raise RequestError("expected a string of at least 1 character, got an empty one", self.path)
        return value

    def object(self) -> JsonText:
        """An object's JSON, verbatim."""
        if self.kind != "object":
            raise self.wrong("object")
        return self.text

    def integer(self, least: int | None = None) -> int:
        """A whole number, `2.0` included."""
        number = self.number()
        whole = int(number)
        if number != whole:
            raise RequestError(f"expected a whole number, got {cut(self.text)}", self.path)
        if least is not None and number < least:
            raise RequestError(f"expected a number of at least {least}, got {cut(self.text)}", self.path)
        if abs(whole) < _EXACT:
            return whole
        # A float has no room for all digits of a 64-bit seed.
        return int(self.text) if self.text.lstrip("-").isdigit() else whole

    def number(self, least: float | None = None, most: float | None = None) -> float:
        """A number between the limits, both included."""
        value = self._as("number", _number)
        if (least is not None and value < least) or (most is not None and value > most):
            raise RequestError(f"expected a number from {least} to {most}, got {cut(self.text)}", self.path)
        return value

    def boolean(self) -> bool:
        """True or false."""
        return self._as("boolean", _boolean)

    def choice(self, known: Collection[S], what: str) -> S:
        """One of these strings; `what` names it in the error. Where many are looked up, `known` is no list."""
        value = self.string()
        if value in known:
            return cast("S", value)
        raise RequestError(f"unknown {what} {quote(value)}{one_of(value, known, 'expected ')}", self.path)

    def wrong(self, expected: str) -> RequestError:
        """The error for a value of a kind that has no place here."""
        return RequestError(f"expected {expected}, got {self.kind}", self.path)

    def _as(self, kind: str, decode: Callable[[msgspec.Raw], T]) -> T:
        if self.kind != kind:
            raise self.wrong(kind)
        try:
            return decode(self.raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as e:
            raise RequestError(f"expected {kind}: {e}", self.path) from None


class Fields:
    """An object's members, each taken once; what is left over is carried on as `rest`."""

    __slots__ = ("_left", "path", "raw")

    def __init__(self, members: dict[str, msgspec.Raw], path: str, raw: msgspec.Raw) -> None:
        self._left = members
        self.path = path
        self.raw = raw
        """The whole object's own bytes."""

    def take(self, name: str) -> Cursor | None:
        """The member, or None where it is absent or null."""
        raw = self._left.pop(name, None)
        return None if raw is None or raw == _NULL else Cursor(raw, f"{self.path}.{name}")

    def peek(self, name: str) -> Cursor | None:
        """The member, which stays; None as of `take`."""
        raw = self._left.get(name)
        return None if raw is None or raw == _NULL else Cursor(raw, f"{self.path}.{name}")

    def need(self, name: str) -> Cursor:
        """The member.

        Raises: RequestError: it is absent or null.
        """
        found = self.take(name)
        if found is None:
            raise RequestError(f"missing required field '{cut(name)}'", self.path)
        return found

    def string(self, name: str) -> str:
        """The string of that name, or "" where there is none."""
        found = self.take(name)
        return found.string() if found else ""

    def number(self, name: str, least: float, most: float) -> float | None:
        """The number of that name between the limits, or None."""
        found = self.take(name)
        return found.number(least, most) if found else None

    def integer(self, name: str, least: int | None = None) -> int | None:
        """The whole number of that name, or None."""
        found = self.take(name)
        return found.integer(least) if found else None

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false of that name."""
        found = self.take(name)
        return found.boolean() if found else default

    def object(self, name: str) -> JsonText:
        """The JSON of the object of that name, verbatim, or ""."""
        found = self.take(name)
        return found.object() if found else ""

    def schema(self, name: str) -> JsonText:
        """Returns the JSON Schema of that name, verbatim but for null members of its root; or ""."""
        found = self.take(name)
        if found is None or found.kind != "object" or b"null" not in bytes(found.raw):
            return found.object() if found else ""
        members = found.fields()
        kept = members.rest()
        return msgspec.json.encode(kept).decode() if len(kept) < len(members.left()) else found.text

    def items(self, name: str, limit: int = ITEMS) -> list[Cursor]:
        """The items of the array of that name, of at most so many; none where it is absent."""
        found = self.take(name)
        return found.items(limit) if found else []

    def left(self) -> Mapping[str, msgspec.Raw]:
        """Returns all members that have not been taken, nulls included."""
        return dict(self._left)

    def rest(self) -> Mapping[str, msgspec.Raw]:
        """Returns all members that have not been taken and are not null, to be carried on: null counts as absent."""
        return {name: raw for name, raw in self._left.items() if raw != _NULL}
