"""The text of one member of a JSON object, taken out of it as it comes.

    m = StringMember("input")
    m.feed('{"input": "ls \\\\')     # "ls "
    m.feed('u00e9"}')               # "é"
    m.close()                       # "": all of it has been given

What comes is what a call's deltas are: at every moment the beginning of one object. The member has to be the first and
a string, as a schema of that one member has it. Of any other object nothing is given before `close`: then the member,
wherever it stands, or the object itself where it has none. Cuts do not matter: an escape is given once it is whole.
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
    """One object on its way."""

    __slots__ = ("_json", "_name", "_opening", "_raw", "_rest", "_state")

    def __init__(self, name: str) -> None:
        self._name = name
        self._json = JsonStream()
        self._rest = ""
        """What the recogniser has not taken yet."""
        self._raw: list[str] = []
        self._opening = ""
        """What stands before the text, without blanks."""
        self._state = "opening"
        """`opening`, then `inside` the string and `behind` it, or `other`: no object that begins with it."""

    def feed(self, text: str) -> str:
        """More of the object; more of the text."""
        self._raw.append(text)
        self._rest += text
        self._rest = self._rest[self._json.feed(self._rest, 0) :]
        said = self._json.drain()
        if self._state == "opening":
            said = self._open(said)
        if self._state != "inside":
            return ""
        run = _STRING.match(said)[0]  # type: ignore[index]
        if len(run) < len(said):
            self._state = "behind"
        return msgspec.json.decode(f'"{run}"', type=str)

    def close(self) -> str:
        """What is left to give: nothing, or all of an object that does not begin with the member."""
        if self._state != "other":
            return ""
        raw = "".join(self._raw)
        try:
            return json_cursor.parse(raw).fields().require(self._name).string()
        except RequestError:
            return raw

    def _open(self, said: str) -> str:
        """What stands behind the opening, once that has come."""
        wanted = f'{{"{self._name}":"'
        for at, char in enumerate(said):
            if char not in _BLANK or self._opening.count('"') % 2:
                self._opening += char
            if self._opening == wanted:
                self._state = "inside"
                return said[at + 1 :]
            if not wanted.startswith(self._opening):
                self._state = "other"
                break
        return ""


def string_member(json: str, name: str) -> str:
    """The text of this member of a whole object, or of one that was cut off; the object itself where it has none."""
    member = StringMember(name)
    return member.feed(json) + member.close()
