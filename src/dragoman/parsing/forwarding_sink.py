"""Something between a format's reader and where it puts what it has read: a base that passes everything on."""

from typing import Literal

from dragoman.parsing.reasoning_draft import Draft
from dragoman.parsing.sink import CallSink
from dragoman.schema.argument_types import Schema


class Relay:
    """A sink that says whatever it is told to the one behind it."""

    sink: CallSink
    """The one behind; set before the first word."""

    @property
    def lenient(self) -> bool:
        """As behind."""
        return self.sink.lenient

    @property
    def calls(self) -> int:
        """As behind."""
        return self.sink.calls

    @property
    def is_over(self) -> bool:
        """As behind."""
        return self.sink.is_over

    @property
    def drafting(self) -> Draft | None:
        """As behind."""
        return self.sink.drafting

    def text(self, text: str) -> None:
        """Pass on; so with all that follow."""
        self.sink.text(text)

    def reasoning(self, text: str) -> None:
        """Pass on."""
        self.sink.reasoning(text)

    def resolve(self, name: str) -> str | None:
        """Ask."""
        return self.sink.resolve(name)

    def needs_arguments(self, name: str) -> bool:
        """Ask."""
        return self.sink.needs_arguments(name)

    def schema(self, name: str) -> Schema:
        """Ask."""
        return self.sink.schema(name)

    def start(self, name: str, id: str = "") -> None:
        """Pass on."""
        self.sink.start(name, id)

    def arguments(self, text: str) -> None:
        """Pass on."""
        self.sink.arguments(text)

    def end(self, id: str = "") -> None:
        """Pass on."""
        self.sink.end(id)

    def incomplete(self, raw: str) -> None:
        """Pass on."""
        self.sink.incomplete(raw)

    def listed(self, open: bool) -> None:
        """Pass on."""
        self.sink.listed(open)

    def draft(self, closer: str) -> None:
        """Pass on."""
        self.sink.draft(closer)

    def settle(self, meant: bool) -> None:
        """Pass on."""
        self.sink.settle(meant)

    def over(self, code: str, message: str, raw: str = "") -> None:
        """Pass on."""
        self.sink.over(code, message, raw)

    def warn(self, code: str, message: str, raw: str = "") -> None:
        """Pass on."""
        self.sink.warn(code, message, raw)

    def note(self, about: Literal["format", "problem"], text: str) -> None:
        """Pass on."""
        self.sink.note(about, text)
