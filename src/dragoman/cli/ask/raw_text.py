"""What comes back from a model, as people may read it: its own text, or the JSON that a server has in place of that.

A server that reads calls itself tells them in pieces of JSON, in which most of each piece repeats the one before; what
repeats is left out here, and nothing else.
"""

import json
from typing import Any, Final

from dragoman.core.events import Finish, ReasoningDelta, Start, TextDelta, UsageUpdate
from dragoman.wire import sse
from dragoman.wire.dialect import ResponseReader

_SAME: Final = object()


class RawTextReader:
    """Reads one answer of a server beside the one who has to."""

    def __init__(self, reader: ResponseReader) -> None:
        self._reader = reader
        self._decoder = sse.Decoder()
        self._before: Any = None
        self._line_open = False

    def feed(self, piece: bytes) -> str:
        """What this piece shows."""
        return "".join(self._shown(event.data) for event in self._decoder.feed(piece))

    def _shown(self, data: bytes) -> str:
        events = self._reader.feed(sse.encode(data))
        said = [event for event in events if not isinstance(event, Start | UsageUpdate | Finish)]
        try:
            value = json.loads(data)
        except ValueError:
            return ""
        new, self._before = difference(value, self._before), value
        if all(isinstance(event, TextDelta | ReasoningDelta) for event in said):
            text = "".join(event.text for event in said if isinstance(event, TextDelta | ReasoningDelta))
            self._line_open = not text.endswith("\n") if text else self._line_open
            return text
        if new is _SAME:
            return ""
        before, self._line_open = "\n" * self._line_open, False
        return f"{before}{json.dumps(new, ensure_ascii=False, separators=(',', ':'))}\n"


def difference(new: Any, old: Any) -> Any:
    """What of this JSON is not the same, at the same place, as in the JSON before it."""
    if isinstance(new, dict) and isinstance(old, dict):
        members = {name: difference(value, old.get(name, _SAME)) for name, value in new.items()}
        return {name: value for name, value in members.items() if value is not _SAME} or _SAME
    if isinstance(new, list) and isinstance(old, list) and new != old:
        items = [difference(value, old[i] if i < len(old) else _SAME) for i, value in enumerate(new)]
        return [value for value in items if value is not _SAME]
    return _SAME if new == old and type(new) is type(old) else new
