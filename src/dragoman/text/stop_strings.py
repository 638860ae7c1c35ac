"""Stop strings of the request, found in text that arrives in chunks.

Stop strings apply to the text that the client receives: one that occurs inside the markup of a tool call ends nothing.
"""

from collections.abc import Sequence

from dragoman.core.events import TEXT_BREAK, AnyEvent, Detail, Notice, TextDelta, UsageUpdate
from dragoman.core.stage import EventStage
from dragoman.text.scanner import Markers


class StopStrings(EventStage):
    """Passes the events up to the first stop string. Text that may be the start of one is held back."""

    def __init__(self, strings: Sequence[str]) -> None:
        nonempty = [s for s in strings if s]
        self._markers = Markers(*nonempty) if nonempty else None
        self._buffered = ""
        self.found = ""
        """The stop string that ended the text; empty until one has."""

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events before the first stop string. Held-back text is emitted before other content."""
        if self._markers is None:
            return events
        out: list[AnyEvent] = []
        for event in events:
            match event:
                case TextDelta(text):
                    out += _text_events(self.feed_text(text))
                case Notice() | UsageUpdate():  # these may occur between any two chunks of a text
                    out.append(event)
                case Detail() if event.name != TEXT_BREAK:
                    out.append(event)
                case _:
                    out += _text_events(self.close_text())
                    out += [] if self.found else [event]
            if self.found:
                self.finished = True
                break
        return out

    def close(self) -> Sequence[AnyEvent]:
        """Returns the held-back text, after the last event."""
        return _text_events(self.close_text())

    def feed_text(self, text: str) -> str:
        """Returns the text that is not held back."""
        if self._markers is None:
            return text
        buf = self._buffered + text
        start, end = self._markers.find(buf, 0, closed=False)
        if end >= 0:
            self.found, self._buffered = buf[start:end], ""
        else:
            self._buffered = buf[start:]
        return buf[:start]

    def close_text(self) -> str:
        """Returns the held-back text, after the last chunk."""
        buf, self._buffered = self._buffered, ""
        if self._markers is None or self.found:
            return ""
        start, end = self._markers.find(buf, 0, closed=True)
        self.found = buf[start:end] if end >= 0 else ""
        return buf[:start]


def _text_events(text: str) -> list[AnyEvent]:
    return [TextDelta(text)] if text else []
