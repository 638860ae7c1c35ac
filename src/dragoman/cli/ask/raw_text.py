"""Shows the output of a model: its own text, or the JSON of a server that parses calls itself.

Such a server streams pieces of JSON, in which most of each piece repeats the previous one; only the differences are
shown.
"""

import json
from typing import Any, Final

from dragoman.core.events import Finish, ReasoningDelta, Start, TextDelta, UsageUpdate
from dragoman.wire import sse
from dragoman.wire.dialect import ResponseReader

_SAME: Final = object()


class RawTextReader:
    """Reads one response of a server, independently of the gateway's own reader."""

    def __init__(self, reader: ResponseReader) -> None:
        self._reader = reader
        self._decoder = sse.Decoder()
        self._before: Any = None
        self._line_open = False

    def feed(self, piece: bytes) -> str:
        """Returns what to show of this piece."""
        return "".join(self._content(event.data) for event in self._decoder.feed(piece))

    def _content(self, data: bytes) -> str:
        events = self._reader.feed(sse.encode(data))
        content = [event for event in events if not isinstance(event, Start | UsageUpdate | Finish)]
        try:
            value = json.loads(data)
        except ValueError:
            return ""
        new, self._before = difference(value, self._before), value
        if all(isinstance(event, TextDelta | ReasoningDelta) for event in content):
            text = "".join(event.text for event in content if isinstance(event, TextDelta | ReasoningDelta))
            self._line_open = not text.endswith("\n") if text else self._line_open
            return text
        if new is _SAME:
            return ""
        before, self._line_open = "\n" * self._line_open, False
        return f"{before}{json.dumps(new, ensure_ascii=False, separators=(',', ':'))}\n"


def difference(new: Any, old: Any) -> Any:
    """Returns the parts of this JSON that differ from the previous JSON at the same place."""
    if isinstance(new, dict) and isinstance(old, dict):
        members = {name: difference(value, old.get(name, _SAME)) for name, value in new.items()}
        return {name: value for name, value in members.items() if value is not _SAME} or _SAME
    if isinstance(new, list) and isinstance(old, list) and new != old:
        items = [difference(value, old[i] if i < len(old) else _SAME) for i, value in enumerate(new)]
        return [value for value in items if value is not _SAME]
    return _SAME if new == old and type(new) is type(old) else new
