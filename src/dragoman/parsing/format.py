"""The record that describes one model family's tool-call format, in both directions."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from dragoman.constraints.constraint import Constraint
from dragoman.core.messages import Tool, ToolCall, ToolChoice, ToolResult
from dragoman.parsing.markup import Markup
from dragoman.parsing.sink import ReadCall, ReadReply

Notation: TypeAlias = Literal["JSON", "tagged", "notation", "Python"]
"""How arguments stand in a call: as one JSON object, in which any string may stand; each between tags; in a notation
of the format's own; as Python's keyword arguments."""


@dataclass(frozen=True, slots=True, repr=False)
class Format:
    """How a family of models writes tool calls, and wants tools and results written to it."""

    name: str
    models: str
    """Who writes it, for people."""
    source: str
    """The vendor's page or template that states the format, with its date."""
    read: ReadReply
    markers: tuple[str, ...]
    """Strings that mean something in this format, to be neutralised in anything the model did not write."""
    write_tools: Callable[[Sequence[Tool], ToolChoice], str]
    """The system text that states the tools, the protocol and the policy; "" for no tools or choice "none"."""
    write_call: Callable[[ToolCall], str]
    write_result: Callable[[ToolResult, str], str]
    """A result as the model is shown it; second, the name of the tool that was called."""
    constrain: Callable[[Sequence[Tool], ToolChoice], Constraint | None]
    """What to hold the model to under this choice; None where it may write what it likes."""
    section: tuple[str, str] = ("", "")
    """What stands around all calls of a reply."""
    separator: str = "\n"
    """What stands between two calls."""
    first: str = ""
    """What says of a call that it is the first of its reply, ` index="1"`; the others have their own number there."""
    calls: Mapping[str, ReadCall] = field(default_factory=dict)
    """What opens a call, or the section of all, anywhere in a reply; for a reader that does not know the format."""
    thoughts: Mapping[str, str] = field(default_factory=dict)
    """What opens thoughts, what closes them."""
    markup: Markup | None = None
    """All markers of a reply, where it has this shape."""
    thought: tuple[str, str] = ("", "")
    """What stands around thoughts where the model is shown its own; empty where it has no markup for them."""
    thinks: tuple[str, ...] = ()
    """What shows that thoughts begin, for people; also where a format tells them by a header."""
    arguments: Notation = "JSON"
    ids: str | None = None
    """What stands before the number in ids that count the calls of a conversation, `functions.{name}:`."""
    aliases: tuple[str, ...] = ()
    """Other names that the field uses for it."""

    def __repr__(self) -> str:
        """Its name: all that it is made of would fill a screen."""
        return f"<Format {self.name}>"

    def numbered(self, call: ToolCall, n: int) -> ToolCall:
        """The call under its id as number `n` of a conversation; under its own where that counts too."""
        if self.ids is None or re.fullmatch(re.escape(self.ids).replace(r"\{name\}", ".+") + r"\d+", call.id):
            return call
        return msgspec.structs.replace(call, id=self.ids.replace("{name}", call.name) + str(n))

    def write_calls(self, calls: Iterable[ToolCall]) -> str:
        """All calls of a reply, as the model writes them."""
        written = [self.write_call(self.numbered(call, n)) for n, call in enumerate(calls)]
        if self.first:
            numbered = enumerate(written, 1)
            written = [text.replace(self.first, self.first.replace("1", str(n)), 1) for n, text in numbered]
        return self.section[0] + self.separator.join(written) + self.section[1]
