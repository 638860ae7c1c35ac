"""Extracts the text of one string member from a JSON object while it streams.

    m = StringMember("input")
    m.feed('{"input": "ls \\\\')     # "ls "
    m.feed('u00e9"}')               # "é"
    m.close()                       # "": all of it was returned

The input is the arguments of a call in deltas. The member must be the first one and a string, as in the schema of an
object with only that member. For any other object nothing is returned before `close`, which returns the member, at any
position, or the object itself if it has no such member. The result does not depend on the chunks: an escape is returned
once it is complete.
"""

import re
from typing import Final

import msgspec

from dragoman.core.errors import RequestError
from dragoman.text import json_cursor
from dragoman.text.json_stream import JsonStream

_STRING: Final = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)
_BLANK: Final = " \t\r\n"


class StringMember:
    """Reads one JSON object incrementally."""

    __slots__ = ("_json", "_name", "_opening", "_raw", "_rest", "_state")

    def __init__(self, name: str) -> None:
        self._name = name
        self._json = JsonStream()
        self._rest = ""
        """Text that the recogniser has not accepted yet."""
        self._raw: list[str] = []
        self._opening = ""
        """The JSON before the member's text, without white space."""
        self._state = "opening"
        """`opening`, then `inside` the string and `after` it; or `other`: the object does not start with the member."""

    def feed(self, text: str) -> str:
        """Accepts more of the object. Returns more of the member's text."""
        self._raw.append(text)
        self._rest += text
        self._rest = self._rest[self._json.feed(self._rest, 0) :]
        accepted = self._json.drain()
        if self._state == "opening":
            accepted = self._open(accepted)
        if self._state != "inside":
            return ""
        run = _STRING.match(accepted)[0]  # type: ignore[index]
        if len(run) < len(accepted):
            self._state = "after"
        return msgspec.json.decode(f'"{run}"', type=str)

    def close(self) -> str:
        """Returns the rest: "", or the result for an object that does not start with the member."""
        if self._state != "other":
            return ""
        raw = "".join(self._raw)
        try:
            return json_cursor.parse(raw).fields().require(self._name).string()
        except RequestError:
            return raw

    def _open(self, accepted: str) -> str:
        """Returns the text after the opening, once the opening is complete."""
        expected = f'{{"{self._name}":"'
        for at, char in enumerate(accepted):
            if char not in _BLANK or self._opening.count('"') % 2:
                self._opening += char
            if self._opening == expected:
                self._state = "inside"
                return accepted[at + 1 :]
            if not expected.startswith(self._opening):
                self._state = "other"
                break
        return ""


def read_string_member(json: str, name: str) -> str:
    """Returns the text of this member of a complete or truncated object; the object itself if it has no such member."""
    member = StringMember(name)
    return member.feed(json) + member.close()
