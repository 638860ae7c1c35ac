"""`Format` describes one model family's tool-call format, for reading and for writing."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import msgspec

from dragoman.constraints.constraint import Constraint
from dragoman.core.messages import Tool, ToolCall, ToolChoice, ToolResult
from dragoman.parsing.markup import Markup
from dragoman.parsing.sink import ReadCall, ReadReply

ArgumentNotation: TypeAlias = Literal["JSON", "tagged", "notation", "Python"]
"""How a call contains its arguments: as one JSON object, which may contain any string; each between tags; in a notation
of the format's own; as Python keyword arguments."""

THINK: Final = {"<think>": "</think>"}
"""The reasoning tags of most formats."""


@dataclass(frozen=True, slots=True, repr=False)
class Format:
    """How a family of models writes tool calls, and how tools and results are written for it."""

    name: str
    model_families: str
    """The models that write it, for display."""
    source: str
    """The vendor's page or template that defines the format, with its date."""
    read: ReadReply
    markers: tuple[str, ...]
    """Strings with a meaning in this format; they are neutralised in all text that the model did not write."""
    write_tools: Callable[[Sequence[Tool], ToolChoice], str]
    """Writes the system text with the tools, the protocol and the tool-choice policy; "" without tools or with choice
    "none"."""
    write_call: Callable[[ToolCall], str]
    write_result: Callable[[ToolResult, str], str]
    """Writes a tool result for the prompt; its second argument is the name of the tool that was called."""
    constrain: Callable[[Sequence[Tool], ToolChoice], Constraint | None]
    """Returns the decoding constraint for this tool choice, or None if the model's output is not constrained."""
    section: tuple[str, str] = ("", "")
    """The text around all calls of a reply."""
    separator: str = "\n"
    """The text between two calls."""
    first_call_marker: str = ""
    """The text by which a call says that it is the first of its reply, such as ` index="1"`; later calls have their own
    number there."""
    calls: Mapping[str, ReadCall] = field(default_factory=dict)
    """Readers by opener of a call, or of the section of calls, anywhere in a reply; used where the format of a reply is
    not known."""
    reasoning_tags: Mapping[str, str] = field(default_factory=dict)
    """Closing marker of reasoning by its opening marker."""
    markup: Markup | None = None
    """All markers of a reply, for formats that `Markup` describes."""
    reasoning_wrapper: tuple[str, str] = ("", "")
    """The text around past reasoning that is shown to the model; empty strings if the format has no markup for it."""
    reasoning_markers: tuple[str, ...] = ()
    """The markers that begin reasoning, for display; also for formats that mark it by a message header."""
    arguments: ArgumentNotation = "JSON"
    id_prefix: str | None = None
    """The text before the number in ids that count the calls of a conversation, such as `functions.{name}:`; None if
    ids do not count."""
    aliases: tuple[str, ...] = ()
    """Other names of this format in use elsewhere."""

    def __repr__(self) -> str:
        """Returns only the name: all fields would fill a screen."""
        return f"<Format {self.name}>"

    def numbered(self, call: ToolCall, n: int) -> ToolCall:
        """Returns the call with the id that it has as number `n` of a conversation.

        An id that already has this form is kept, and so are all ids if `id_prefix` is None.
        """
        if self.id_prefix is None or re.fullmatch(
            re.escape(self.id_prefix).replace(r"\{name\}", ".+") + r"\d+", call.id
        ):
            return call
        return msgspec.structs.replace(call, id=self.id_prefix.replace("{name}", call.name) + str(n))

    def write_calls(self, calls: Iterable[ToolCall]) -> str:
        """Returns all calls of a reply, as the model writes them."""
        written = [self.write_call(self.numbered(call, n)) for n, call in enumerate(calls)]
        if self.first_call_marker:
            numbered = enumerate(written, 1)
            written = [
                text.replace(self.first_call_marker, self.first_call_marker.replace("1", str(n)), 1)
                for n, text in numbered
            ]
        return self.section[0] + self.separator.join(written) + self.section[1]
