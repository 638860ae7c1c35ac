r"""JSON whose strings are watched for paths that are not escaped: `C:\data\new` has a line break, or a folder `new`.

Where a backslash that escapes nothing is taken for itself, before what may be a name, an escape that may as well be
such a backslash is none of JSON's in the same string: what is meant cannot be told.
"""

import re
from typing import Final

from dragoman.text.json_stream import ESCAPE, JsonText

_RUN: Final = re.compile(r"[^'\"\\\x00-\x1f\ud800-\udfff]*")
_BREAKS: Final = re.compile(r"[^\\]*+(?:\\[^bfnrt][^\\]*+)*+\\[bfnrt]")


class PathWise(JsonText):
    """Recognises one JSON value, piece by piece, and what may be a path in it."""

    __slots__ = ("_names", "breaks")

    def __init__(self) -> None:
        super().__init__()
        self._names = False  # this string has a backslash that stands for itself before a name
        self.breaks = False
        """This string has an escape that may as well be a backslash before a name: of b, f, n, r or t."""

    def _string(self, buf: str, pos: int) -> int:
        if not self._names:
            stop = super()._string(buf, pos)
            self.breaks = self.breaks or _BREAKS.match(buf, pos, stop) is not None
            return stop
        stop = _RUN.match(buf, pos).end()  # type: ignore[union-attr]
        stop += buf.startswith("'", stop)
        self._out.append(buf[pos:stop])
        if stop > pos:
            return stop
        return self._one_escape(buf, pos) if buf[pos] == "\\" else super()._string(buf, pos)

    def _one_escape(self, buf: str, pos: int) -> int:
        whole = ESCAPE.match(buf, pos)
        if not whole:
            return self._odd_escape(buf, pos)
        if whole[0][1] in "bfnrt":
            if self._names:
                self.problem = "expected a JSON escape"
                return pos
            self.breaks = True
        self._out.append(whole[0])
        return whole.end()
