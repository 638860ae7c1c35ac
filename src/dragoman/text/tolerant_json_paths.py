r"""Detects strings that may be unescaped Windows paths: in `C:\data\new`, `\n` is a line break, or starts `new`.

A backslash that is followed by a possible name, and is not a JSON escape, is read as a literal backslash. Once a string
has one, an escape such as `\n` in the same string is ambiguous, so it is reported as an error.
"""

import re
from typing import Final

from dragoman.text.json_stream import ESCAPE, JsonStream

_RUN: Final = re.compile(r"[^'\"\\\x00-\x1f\ud800-\udfff]*")
_PATH_ESCAPE: Final = re.compile(r"[^\\]*+(?:\\[^bfnrt][^\\]*+)*+\\[bfnrt]")


class WindowsPathDetector(JsonStream):
    """Reads one JSON value incrementally and detects ambiguous backslashes in its strings."""

    __slots__ = ("_has_path_backslash", "has_path_escape")

    def __init__(self) -> None:
        super().__init__()
        self._has_path_backslash = False  # this string has a literal backslash before a possible name
        self.has_path_escape = False
        r"""This string has an escape that may also be a backslash before a name: `\b`, `\f`, `\n`, `\r` or `\t`."""

    def _string(self, buf: str, pos: int) -> int:
        if not self._has_path_backslash:
            stop = super()._string(buf, pos)
            self.has_path_escape = self.has_path_escape or _PATH_ESCAPE.match(buf, pos, stop) is not None
            return stop
        stop = _RUN.match(buf, pos).end()  # type: ignore[union-attr]
        stop += buf.startswith("'", stop)
        self._out.append(buf[pos:stop])
        if stop > pos:
            return stop
        return self._one_escape(buf, pos) if buf[pos] == "\\" else super()._string(buf, pos)

    def _one_escape(self, buf: str, pos: int) -> int:
        escape = ESCAPE.match(buf, pos)
        if not escape:
            return self._odd_escape(buf, pos)
        if escape[0][1] in "bfnrt":
            if self._has_path_backslash:
                self.problem = "expected a JSON escape"
                return pos
            self.has_path_escape = True
        self._out.append(escape[0])
        return escape.end()
