"""What a format's reader puts its results into, and the shape of such readers."""

from collections.abc import Callable
from typing import Final, Literal, Protocol, TypeAlias, cast

from dragoman.parsing.reasoning_draft import Draft, Drafts
from dragoman.schema.argument_types import Schema
from dragoman.text.scanner import Parser, Scanner


class CallSink(Drafts, Protocol):
    """Where a format's reader puts what it has read; it numbers calls and checks names."""

    @property
    def lenient(self) -> bool:
        """Calls without the format's own tags count too, where they name an offered tool."""

    @property
    def calls(self) -> int:
        """Calls begun so far."""

    @property
    def is_over(self) -> bool:
        """Whatever still comes is made up; see `over`."""

    def text(self, text: str) -> None:
        """More of the answer: the model's own text, ending where the scanner stands."""

    def reasoning(self, text: str) -> None:
        """More of the thoughts; as `text`."""

    def resolve(self, name: str) -> str | None:
        """The offered tool that is meant, or None."""

    def needs_arguments(self, name: str) -> bool:
        """Whether a call of this offered tool without arguments cannot be meant."""

    def schema(self, name: str) -> Schema:
        """What the arguments of this offered tool may be."""

    def start(self, name: str, id: str = "") -> None:
        """A call begins; `name` is one that `resolve` gave, `id` the model's own or empty."""

    def arguments(self, text: str) -> None:
        """More of the open call's arguments."""

    def end(self, id: str = "") -> None:
        """The open call is whole; `id` is the model's own where it came after the arguments."""

    def incomplete(self, raw: str) -> None:
        """The open call is broken."""

    def listed(self, open: bool) -> None:
        """A list of calls begins, or has come to its end: one cut off within is, with atomic delivery, none at all."""

    def over(self, code: str, message: str, raw: str = "") -> None:
        """Whatever the model writes from here on is made up (a tool result of its own): end generation."""

    def warn(self, code: str, message: str, raw: str = "") -> None:
        """Something was not as the format has it."""

    def note(self, about: Literal["format", "problem"], text: str) -> None:
        """For those who ask how a reply was read: whose reader takes what comes, or why this is no call."""


class _Muted:
    """Passes nothing on."""

    def arguments(self, text: str) -> None:
        """Drop it."""

    def warn(self, code: str, message: str, raw: str = "") -> None:
        """Drop it."""


MUTED: Final = cast(CallSink, _Muted())
"""For the arguments of a call that is none: they are read, as they may quote a whole call, which must not be run."""


ReadReply: TypeAlias = Callable[[Scanner, CallSink], Parser[None]]
"""Reads one reply."""
ReadCall: TypeAlias = Callable[[Scanner, CallSink, str], Parser[bool]]
"""Reads from behind an opener, which it is given; whether a whole call came of it."""


class ForwardingSink:
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
