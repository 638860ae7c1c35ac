"""Calls whose parameters are pairs of tags: one around the name, one around the value.

    <tool_call>get_weather
    <arg_key>city</arg_key>
    <arg_value>Paris</arg_value>
    </tool_call>

Strings are raw, including trailing spaces; other values are JSON. White space between the tags is ignored. Also
accepted: a value without its opening tag, JSON instead of the pairs or of the whole call.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.json_block import with_json_fallback
from dragoman.parsing.shapes.name_then_json import CallHead
from dragoman.parsing.shapes.tagged import ParameterKey, TaggedParameters, WrappedCalls
from dragoman.parsing.shapes.tagged_writer import TaggedWriter
from dragoman.text.scanner import Parser, Scanner, markers


@dataclass(frozen=True, slots=True)
class KeyValueTags:
    """The tags of one such format."""

    call: tuple[str, str] = ("<tool_call>", "</tool_call>")
    key: tuple[str, str] = ("<arg_key>", "</arg_key>")
    value: tuple[str, str] = ("<arg_value>", "</arg_value>")
    """The first is empty if the end of the name begins the value."""
    name_end: str = ""
    """Optional marker after the tool's name."""
    type: tuple[str, str] = ("", "")
    """Optional tags around the value's type, between name and value."""
    section: tuple[str, str] = ("", "")
    """Optional tags around all calls."""
    line: str = "\n"
    """The text between the tags."""

    @property
    def written_section(self) -> tuple[str, str]:
        """The text around all calls, as the format writes it."""
        return self.section[0] + self.line, self.line + self.section[1]

    def tagged(self) -> TaggedParameters:
        """Returns the reader of one call."""
        return TaggedParameters(
            self._head,
            key_open=self.key[0],
            key=self._key,
            value_close=self.value[1],
            call_close=(self.call[1],),
            openers=(self.call[0],),
            section_close=self.section[1],
            json_body=True,
            names=lambda name: (name + self.key[1],),
        )

    def markup(self, reasoning_tags: Mapping[str, str]) -> Markup:
        """Returns the markup of a reply."""
        opener, closer = self.call
        call = self.tagged()
        calls = {opener: with_json_fallback(call.read, closer)}
        if self.section[0]:
            calls[self.section[0]] = WrappedCalls(calls[opener], (opener,), self.section[1]).read
        return Markup(
            calls=calls, reasoning_tags=reasoning_tags, closers=tuple(filter(None, (closer, self.section[1])))
        )

    def markers(self) -> tuple[str, ...]:
        """Returns the markers to neutralise in text that the model did not write."""
        tags = (*self.section, *self.call, self.name_end, *self.key, *self.type, *self.value)
        return tuple(filter(None, tags))

    @property
    def writer(self) -> TaggedWriter:
        """Writes and constrains calls."""
        line = self.line

        def key_opening(name: str, kind: str) -> str:
            typed = f"{self.type[0]}{kind}{self.type[1]}{line}" if self.type[0] else ""
            between = line if self.value[0] else ""
            return f"{self.key[0]}{name}{self.key[1]}{between}{typed}{self.value[0]}"

        return TaggedWriter(
            call_wrapper=lambda name: (f"{self.call[0]}{name}{self.name_end}{line}", self.call[1]),
            open=key_opening,
            end=self.value[1],
            line=line,
            closers=self.tagged().closers,
            typed=bool(self.type[0]),
        )

    def _head(self, s: Scanner, _: str) -> Parser[CallHead | None]:
        """Reads the name, which directly follows the opener."""
        ends = tuple(filter(None, (self.name_end, self.key[0], self.call[1], "{", ">")))
        name_field = yield from s.peek_field(markers(*ends, "<"))
        # Text that cannot be a name is prose about the tag; a real call may follow it.
        if name_field is None or name_field[1] == "<" or len(name_field[0].split()) != 1:
            return None
        # GLM-5.3-Flash closes the name, `get_weather>{"city": "Paris"}`.
        yield from s.literal("".join(name_field) if name_field[1] in (self.name_end, ">") else name_field[0])
        return CallHead(name_field[0].strip())

    def _key(self, s: Scanner) -> Parser[ParameterKey | None]:
        """Reads `name</arg_key>` and the opening tag of the value."""
        name_field = yield from s.peek_field(markers(*filter(None, (*self.key, *self.type, *self.value, *self.call))))
        if (
            name_field and name_field[1] == self.value[1] and "=" in name_field[0]
        ):  # GLM-5.3-Flash: `<arg_key>city=Paris</arg_value>`
            name = name_field[0].partition("=")[0]
            yield from s.literal(f"{name}=")
            return ParameterKey(name.strip())
        # The value's opening tag, or its type's, shows that the name lacks its closing tag.
        unclosed = name_field is not None and name_field[1] in filter(None, (self.type[0], self.value[0]))
        if name_field is None or not (unclosed or name_field[1] == self.key[1]):
            return None
        yield from s.literal(name_field[0] if unclosed else "".join(name_field))
        if not self.value[0]:
            return ParameterKey(name_field[0].strip())
        stated: tuple[str, str] | None = None
        if self.type[0] and (yield from s.literal(self.type[0], after_space=True)):
            stated = yield from s.field(markers(self.type[1], "<"))
            if stated is None or stated[1] == "<":
                return None
        if not (yield from s.literal(self.value[0], after_space=True)):
            ends = (self.key[0], self.call[1])
            upcoming = yield from s.peek(max(map(len, ends)), after_space=True)
            if upcoming.startswith(ends):
                return ParameterKey(name_field[0].strip(), "none")
            # GLM-5.2 leaves it out under load (vLLM, issue 49248).
            yield from s.literal("\n")
        if stated is None:
            return ParameterKey(name_field[0].strip())
        return ParameterKey(name_field[0].strip(), "string" if stated[0].strip() == "string" else "json")
