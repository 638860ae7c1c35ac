"""Records the text that a scanner consumes from some position on, across changes of its buffer."""


class TextCapture:
    """The text consumed since `begin`."""

    __slots__ = ("pieces", "start")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        """Recorded text that is no longer in the buffer."""
        self.start = -1
        """The index in the buffer at which the rest of the recorded text starts; -1 while nothing is recorded."""

    def begin(self, before: str, pos: int) -> None:
        """Record the text from buffer index `pos` on, preceded by `before`."""
        self.pieces = [before]
        self.start = pos

    def discard(self) -> None:
        """Stop recording and drop the recorded text."""
        self.pieces.clear()
        self.start = -1

    def rebase(self, buf: str, pos: int) -> None:
        """Prepare for a buffer that starts at index `pos` of this one."""
        if self.start >= 0:
            self.pieces.append(buf[self.start : pos])
            self.start = 0

    def add(self, buf: str, pos: int, text: str) -> None:
        """Record text that never enters the buffer, all of which (up to `pos`) is consumed."""
        if self.start >= 0:
            if self.start < pos:
                self.pieces.append(buf[self.start : pos])
                self.start = pos
            self.pieces.append(text)

    def text(self, buf: str, pos: int) -> str:
        """Returns the text recorded up to index `pos`; "" while nothing is recorded."""
        return "".join(self.pieces) + buf[self.start : pos] if self.start >= 0 else ""
