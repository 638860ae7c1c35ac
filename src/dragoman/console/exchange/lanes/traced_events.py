"""The captured events of one stage, as runs of text and as calls with the warnings about each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

RECOVERED: Final = "leaked_call_recovered"
_TEXTS: Final = {"TextDelta": "text", "RefusalDelta": "text", "ReasoningDelta": "reasoning"}


@dataclass(frozen=True)
class Warned:
    """A warning of the reader, the guard or a backend."""

    code: str
    message: str
    raw: str = ""
    detail: str = ""


@dataclass
class TracedCall:
    """A call, and what is known about it."""

    index: int
    id: str
    name: str
    ms: int
    pieces: list[str] = field(default_factory=list)
    """The arguments as they arrived."""
    repairs: tuple[str, ...] = ()
    is_valid: bool | None = None
    is_reasked: bool = False
    is_whole: bool = False
    raw: str = ""
    """The model's text of a broken call."""
    warnings: list[Warned] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        """The arguments so far."""
        return "".join(self.pieces)

    @property
    def is_recovered(self) -> bool:
        """Whether the server had left the call in its text."""
        return any(warned.code == RECOVERED for warned in self.warnings)


@dataclass
class TextRun:
    """Text or reasoning without a call between."""

    kind: str
    ms: int
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All of the text."""
        return "".join(self.pieces)


class TracedEvents:
    """The events of one stage: of a backend, or those for the client."""

    def __init__(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """`lines` are those of an `events.jsonl`."""
        self.items: list[TextRun | TracedCall] = []
        """Runs and calls in their order."""
        self.warnings: list[Warned] = []
        """All warnings."""
        self.error: Mapping[str, Any] = {}
        """The error that ended the response."""
        self.finish = ""
        self._open: TracedCall | None = None
        self._waiting: list[Warned] = []
        """Warnings about the next call."""
        self._after: TracedCall | None = None
        """The call that has just ended."""
        for line in lines:
            self._feed(line)

    @property
    def calls(self) -> list[TracedCall]:
        """The calls in their order."""
        return [item for item in self.items if isinstance(item, TracedCall)]

    def texts(self, kind: str) -> list[str]:
        """Returns the runs of `text` or of `reasoning`."""
        return [item.text for item in self.items if isinstance(item, TextRun) and item.kind == kind]

    def _feed(self, line: Mapping[str, Any]) -> None:
        kind = line.get("event", "")
        if kind in _TEXTS:
            self._text(_TEXTS[kind], line)
        elif kind == "Notice":
            self._warn(line)
        elif kind.startswith("ToolCall"):
            self._call(kind, line)
        elif kind == "Failure":
            self.error = line.get("error", {})
        elif kind == "Finish":
            self.finish = str(line.get("reason", ""))
        if kind not in ("Notice", "ToolCallEnd", "ToolCallIncomplete"):
            self._after = None

    def _text(self, kind: str, line: Mapping[str, Any]) -> None:
        text = str(line.get("text", ""))
        last = self.items[-1] if self.items else None
        if not (isinstance(last, TextRun) and last.kind == kind):
            if not text:
                return
            last = TextRun(kind, line.get("ms", 0))
            self.items.append(last)
        last.pieces.append(text)

    def _warn(self, line: Mapping[str, Any]) -> None:
        text = {name: str(line.get(name, "")) for name in ("code", "message", "raw", "detail")}
        warned = Warned(**text)
        self.warnings.append(warned)
        if warned.code == RECOVERED:
            self._waiting.append(warned)
        elif self._open or self._after:
            (self._open or self._after).warnings.append(warned)  # type: ignore[union-attr]

    def _call(self, kind: str, line: Mapping[str, Any]) -> None:
        if kind == "ToolCallStart":
            index, id, name = line.get("index", 0), str(line.get("id", "")), str(line.get("name", ""))
            self._open = TracedCall(index, id, name, line.get("ms", 0), warnings=self._waiting)
            self._waiting = []
            self.items.append(self._open)
            return
        if self._open is None:
            return
        if kind == "ToolCallDelta":
            self._open.pieces.append(str(line.get("text", "")))
            return
        self._open.raw = str(line.get("raw", ""))
        self._open.repairs = tuple(line.get("repairs", ()))
        self._open.is_valid = line.get("schema_valid")
        self._open.is_reasked = bool(line.get("reasked"))
        self._open.is_whole = kind == "ToolCallEnd"
        self._after, self._open = self._open, None
