"""One call of an upstream server's response, whose chunks are still arriving."""

from collections.abc import Collection

from dragoman.text.tolerant_json import TolerantJsonStream


class PartialCall:
    """The chunks of one call so far."""

    __slots__ = ("_buf", "_json", "closed", "id", "index", "is_object", "name", "named", "raw")

    def __init__(self, id: str, repairs: Collection[str]) -> None:
        self.id = id
        """Id from the server."""
        self.name = ""
        self.named = False
        """The name is complete."""
        self.index: int | None = None
        """Number of the call, once ToolCallStart was emitted."""
        self.closed = False
        """No more chunks will arrive."""
        self.raw: list[str] = []
        """The arguments as received."""
        self._json = TolerantJsonStream(repairs)
        self._buf = ""
        self.is_object: bool | None = None
        """The arguments begin with `{`; None before their first character."""

    @property
    def complete(self) -> bool:
        """Whether the arguments are one complete JSON object."""
        return self._json.done

    @property
    def problem(self) -> str:
        """Why the arguments are not an object; empty: no problem."""
        return "expected '{'" if self.is_object is False else self._json.problem

    def feed(self, text: str) -> str:
        """Adds a chunk of the arguments and returns the text after their end."""
        if self.complete or not text:
            return text
        self.raw.append(text)
        if self.is_object is None and text.strip():
            self.is_object = text.lstrip()[0] == "{"
        if not self.is_object or self._json.problem:
            return ""
        self._buf += text
        self._buf = self._buf[self._json.feed(self._buf, 0) :]
        return self._buf if self.complete else ""

    def drain(self) -> str:
        """Returns the arguments that can be emitted now."""
        return self._json.drain()

    def has_arguments(self, arguments: str) -> bool:
        """Returns whether these arguments are empty or repeat the call's own."""
        return not arguments.strip() or arguments.strip() == "".join(self.raw).strip()

    @property
    def repairs(self) -> tuple[str, ...]:
        """Names of the repairs that were applied to the arguments."""
        return tuple(self._json.repairs)
