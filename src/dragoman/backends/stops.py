"""The caller's stop strings, found in text that arrives in pieces."""

from collections.abc import Sequence

from dragoman.core.scanner import Markers


class StopStrings:
    """Passes text on up to the first stop string; what may be the beginning of one waits."""

    def __init__(self, strings: Sequence[str]) -> None:
        wanted = [s for s in strings if s]
        self._markers = Markers(*wanted) if wanted else None
        self._held = ""
        self.found = ""
        """The stop string that ended the text, once one has."""

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
