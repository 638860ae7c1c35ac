"""The caller's stop strings, found in text that arrives in pieces.

They are about the text that the caller sees: one that happens to stand in the markup of a call ends nothing.
"""

from collections.abc import Iterable, Sequence

from dragoman.core.events import BREAK, AnyEvent, Detail, TextDelta
from dragoman.text.scanner import Markers


class StopStrings:
    """Passes text on up to the first stop string; what may be the beginning of one waits."""

    def __init__(self, strings: Sequence[str]) -> None:
        wanted = [s for s in strings if s]
        self._markers = Markers(*wanted) if wanted else None
        self._held = ""
        self.found = ""
        """The stop string that ended the text, once one has."""

    def pass_on(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        """The events before the first stop string; what waits goes out before anything but text."""
        if self._markers is None:
            return list(events)
        out: list[AnyEvent] = []
        for event in events:
            match event:
                case TextDelta(text):
                    out += _said(self.feed(text))
                case Detail() if event.name != BREAK:  # which may come between any two pieces of a text
                    out.append(event)
                case _:
                    out += _said(self.close())
                    out += [] if self.found else [event]
            if self.found:
                break
        return out

    def end(self) -> list[AnyEvent]:
        """What waited, now that no event follows."""
        return _said(self.close())

    def feed(self, text: str) -> str:
        """The text that can be passed on."""
        if self._markers is None:
            return text
        held = self._held + text
        start, end = self._markers.find(held, 0, closed=False)
        if end >= 0:
            self.found, self._held = held[start:end], ""
        else:
            self._held = held[start:]
        return held[:start]

    def close(self) -> str:
        """What waited, now that nothing follows."""
        held, self._held = self._held, ""
        if self._markers is None or self.found:
            return ""
        start, end = self._markers.find(held, 0, closed=True)
        self.found = held[start:end] if end >= 0 else ""
        return held[:start]


def _said(text: str) -> list[AnyEvent]:
    return [TextDelta(text)] if text else []
