"""Remembers what a scanner takes, from some place on, though its buffer moves on."""


class Recorder:
    """What has been taken since `begin`."""

    __slots__ = ("pieces", "since")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        """What stands before the buffer."""
        self.since = -1
        """The place in the buffer from which on all that is taken counts; -1 while nothing is remembered."""

    def begin(self, before: str, pos: int) -> None:
        """Remember what is taken from here on, as if `before` had been taken just now."""
        self.pieces = [before]
        self.since = pos

    def forget(self) -> None:
        """Stop remembering."""
        self.pieces.clear()
        self.since = -1

    def move(self, buf: str, pos: int) -> None:
        """The buffer will begin at `pos`."""
        if self.since >= 0:
            self.pieces.append(buf[self.since : pos])
            self.since = 0

    def pass_by(self, buf: str, pos: int, text: str) -> None:
        """This is taken too, though it never stands in the buffer, of which all has been taken."""
        if self.since >= 0:
            if self.since < pos:
                self.pieces.append(buf[self.since : pos])
                self.since = pos
            self.pieces.append(text)

    def text(self, buf: str, pos: int) -> str:
        """All of it; "" while nothing is remembered."""
        return "".join(self.pieces) + buf[self.since : pos] if self.since >= 0 else ""
