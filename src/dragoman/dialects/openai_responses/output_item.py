"""An item of the output of a Responses response, whose parts are still arriving."""


class OutputItem:
    """One item of the output, as far as it has arrived."""

    __slots__ = (
        *("closed", "done", "done_chars", "has_phase", "id", "index", "is_probable", "key", "kind"),
        *("named", "part", "place", "received", "sources"),
    )

    def __init__(self, kind: str, key: int, id: str, index: int | None) -> None:
        self.kind, self.key, self.id, self.index = kind, key, id, index
        self.place = ""
        """For reasoning: the place of its text."""
        self.part = 0
        """For a summary: the open part."""
        self.received: dict[str, list[str]] = {}
        """Its text so far, by place."""
        self.done_chars: dict[str, int] = {}
        """Number of characters of that text that a `done` event has ended."""
        self.named = self.closed = self.done = self.is_probable = self.has_phase = False
        self.sources = 0
        """Number of annotations that were forwarded."""

    @property
    def has_content(self) -> bool:
        """Whether some content has arrived that must not be repeated."""
        return bool(self.received) or self.named or self.done

    def rest(self, place: str, full_text: str, *, part: bool) -> str:
        """Returns the new text of a whole: of the open `part`, or of everything at that place."""
        before = "".join(self.received.get(place, ()))
        open = before[self.done_chars.get(place, 0) :] if part else before
        repeated = part and before.endswith(full_text)
        rest = full_text[len(open) :] if full_text.startswith(open) and not repeated else ""
        if part:
            self.done_chars[place] = len(before) + len(rest)
        return rest
