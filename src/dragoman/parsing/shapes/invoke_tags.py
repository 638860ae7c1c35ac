"""Calls and parameters that are named in attributes.

    <invoke name="get_weather">
    <parameter name="city" string="true">Paris</parameter>
    </invoke>

Many families write this with their own tags; a format supplies only one record of those (`InvokeTags`). Quotes may be
single or missing. `string="true"` marks a value as raw, "false" as JSON; `type` states the JSON type; without either,
the tool's schema decides.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, Unpack

from dragoman.parsing.define_format import FormatFields, text_format
from dragoman.parsing.format import THINK, Format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.name_then_json import CallHead
from dragoman.parsing.shapes.tagged import ParameterKey, TaggedParameters, WrappedCalls
from dragoman.parsing.shapes.tagged_writer import TaggedWriter
from dragoman.text.scanner import Parser, Scanner, markers

ATTRIBUTE_LIMIT: Final = 8
"""The maximum number of attributes of a tag; vendors' tags have up to three."""
_NAME_ENDS: Final = markers(*"=<>{}[]()\"'`/,; \t\r\n")
_ENTITIES: Final = {"&amp;": "&", "&quot;": '"', "&lt;": "<", "&gt;": ">", "&apos;": "'"}
_ENTITY = re.compile("|".join(_ENTITIES))
_STRINGS: Final = ("true", "string", "str", "raw", "text")
_NOT_STATED: Final = ("", "schema", "any")

TypeAttribute: TypeAlias = Literal["schema", "string", "type"]
"""How a parameter's tag states the value's type: not at all, by `string="true"`, by `type="string"`."""


def read_attributes(s: Scanner, end: str) -> Parser[tuple[Mapping[str, str], bool] | None]:
    """Reads the attributes of a tag up to its end. Returns them, and whether the tag closes itself; None if it is not a
    tag."""
    attributes: dict[str, str] = {}
    while True:
        ended = yield from s.literal(end, "/" + end, after_space=True)
        if ended:
            return attributes, ended != end
        yield from s.skip_space()
        name = yield from s.field(_NAME_ENDS)
        if name is None or not name[0] or len(attributes) == ATTRIBUTE_LIMIT:
            return None
        s.pos -= len(name[1])
        if not (yield from s.literal("=", after_space=True)):
            return None
        quote = yield from s.literal('"', "'", after_space=True)
        value = yield from s.field(markers(quote) if quote else markers(" ", "\n", end))
        if value is None:
            return None
        s.pos -= 0 if quote else len(value[1])
        attributes[name[0]] = value[0]


def unescape_attribute(text: str) -> str:
    """Returns an attribute's value with XML's five entities decoded."""
    return _ENTITY.sub(lambda m: _ENTITIES[m[0]], text)


def escape_attribute(text: str) -> str:
    """Returns the text as an attribute's value."""
    return text.replace("&", "&amp;").replace('"', "&quot;")


@dataclass(frozen=True, slots=True)
class InvokeTags:
    """The tags of one such format."""

    call: tuple[str, str] = ("<invoke", "</invoke>")
    """The beginning of the opening tag of a call, and the closing tag."""
    parameter: tuple[str, str] = ("<parameter", "</parameter>")
    """The same of a parameter."""
    section: tuple[str, str] = ("", "")
    """The tags around all calls."""
    prefix: str = ""
    """Text directly before a call that belongs to it."""
    other_prefixes: tuple[str, ...] = ()
    """Texts that may be there instead."""
    suffix: str = ""
    """Optional text after a call that belongs to it."""
    name: str = "name"
    """The attribute with the tool's name."""
    key: str = "name"
    """The attribute with the parameter's name."""
    index: str = ""
    """The attribute with a call's number, written for the first call."""
    end: str = ">"
    """The end of an opening tag."""
    type_attribute: TypeAttribute = "schema"
    section_optional: bool = False
    """True if a call outside a section is accepted: for tags that do not occur in prose."""
    escapes: bool = False
    """True if attributes contain XML entities."""
    newlines: bool = False
    """True if one line break at each end of a value is not part of it."""
    quote: tuple[str, str] = ("", "")
    """Optional quotes around a raw value, such as CDATA."""
    json_wrappers: Mapping[str, str] = field(default_factory=dict)
    """Optional closing text by opening text, around one JSON object instead of the parameters."""
    lines: bool = True
    """True if each tag is on its own line."""
    blank: bool = False
    """True if a call without parameters contains an empty line."""

    @property
    def written_section(self) -> tuple[str, str]:
        """The text around all calls, as the format writes it."""
        line = "\n" if self.lines else ""
        return self.section[0] + line, line + self.section[1]

    @property
    def openers(self) -> tuple[str, ...]:
        """The openers of a call; the first is the format's own."""
        return tuple(f"{each}{self.call[0]}{space}" for each in (self.prefix, *self.other_prefixes) for space in " \n")

    def tagged(self) -> TaggedParameters:
        """Returns the reader of one call."""
        return TaggedParameters(
            self._head,
            key_open=self.parameter[0],
            key=self.read_key,
            value_close=self.parameter[1],
            call_close=(self.call[1],),
            after=(self.suffix,) if self.suffix else (),
            openers=tuple(each + self.call[0] for each in (self.prefix, *self.other_prefixes)),
            section_close=self.section[1],
            newlines=self.newlines,
            json_body=True,
            json_wrappers=self.json_wrappers,
            quote=self.quote,
            names=self.names,
        )

    def markup(
        self,
        reasoning_tags: Mapping[str, str],
        sections: tuple[tuple[str, str], ...] = (),
        keep_whitespace: bool = False,
    ) -> Markup:
        """Returns the markup of a reply.

        Args:
            reasoning_tags: Closing marker of reasoning by its opening marker.
            sections: Other section tags with the same meaning.
            keep_whitespace: Whether white space next to a marker is the model's own text.
        """
        call = self.tagged()
        openers = self.openers
        sections_used = [s for s in (self.section, *sections) if s[0]]
        calls = {opened: WrappedCalls(call.read, openers, closed).read for opened, closed in sections_used}
        if self.section_optional or not sections_used:
            calls |= dict.fromkeys(openers, call.read)
        closers = tuple(filter(None, (self.call[1], self.suffix, *(closed for _, closed in sections_used))))
        return Markup(calls=calls, reasoning_tags=reasoning_tags, closers=closers, keep_whitespace=keep_whitespace)

    def markers(self) -> tuple[str, ...]:
        """Returns the markers to neutralise in text that the model did not write."""
        tags = (*self.section, *self.call, *self.parameter, self.prefix, self.suffix)
        return tuple(dict.fromkeys(filter(None, tags)))

    @property
    def writer(self) -> TaggedWriter:
        """Writes and constrains calls."""
        line = "\n" if self.lines else ""
        newline = "\n" if self.newlines else ""
        escape = escape_attribute if self.escapes else str

        def call(name: str) -> tuple[str, str]:
            head = f'{self.prefix}{self.call[0]} {self.name}="{escape(name)}"{self.index}{self.end}{line}'
            return head, self.call[1] + self.suffix

        return TaggedWriter(
            call_wrapper=call,
            open=lambda name, kind: (
                f'{self.parameter[0]} {self.key}="{escape(name)}"{self._type_text(kind)}{self.end}{newline}'
            ),
            end=newline + self.parameter[1],
            line=line,
            closers=self.tagged().closers,
            typed=self.type_attribute != "schema",
            quote=self.quote,
            blank="\n" if self.blank else "",
        )

    def _type_text(self, kind: str) -> str:
        if self.type_attribute == "string":
            return f' string="{str(kind == "string").lower()}"'
        return f' type="{kind}"' if self.type_attribute == "type" else ""

    def _head(self, s: Scanner, _: str) -> Parser[CallHead | None]:
        attributes = yield from read_attributes(s, self.end)
        if attributes is None or self.name not in attributes[0]:
            return None
        return CallHead(self._read(attributes[0][self.name]), self._read(attributes[0].get("id", "")), attributes[1])

    def read_key(self, s: Scanner) -> Parser[ParameterKey | None]:
        """Reads a parameter's tag after its opener, up to its value."""
        attributes = yield from read_attributes(s, self.end)
        if attributes is None or self.key not in attributes[0] or attributes[1]:
            return None
        stated = attributes[0].get("string", attributes[0].get("type", ""))
        if stated in _NOT_STATED:
            return ParameterKey(self._read(attributes[0][self.key]))
        return ParameterKey(self._read(attributes[0][self.key]), "string" if stated in _STRINGS else "json")

    def names(self, name: str) -> tuple[str, ...]:
        """Returns how the tag of a parameter with this name continues."""
        escaped = escape_attribute(name) if self.escapes else name
        return tuple(f"{self.key}={quote}{escaped}{end}" for quote, end in (('"', '"'), ("'", "'"), ("", self.end)))

    def _read(self, text: str) -> str:
        return unescape_attribute(text) if self.escapes else text


def dsml_tags(prefix: str, section: str, *, blank: bool = True) -> InvokeTags:
    """Returns tags as in DeepSeek's DSML: `string="true"` marks strings, and the section may be missing.

    Args:
        prefix: The beginning of the name of each tag, such as `｜DSML｜`.
        section: The rest of the name of the tags around all calls.
        blank: Whether a call without parameters contains an empty line.
    """
    return InvokeTags(
        call=(f"<{prefix}invoke", f"</{prefix}invoke>"),
        parameter=(f"<{prefix}parameter", f"</{prefix}parameter>"),
        section=(f"<{prefix}{section}>", f"</{prefix}{section}>"),
        type_attribute="string",
        section_optional=True,
        blank=blank,
    )


def invoke_format(
    tags: InvokeTags, *, other_sections: tuple[tuple[str, str], ...] = (), **fields: Unpack[FormatFields]
) -> Format:
    """Returns the format of a model family that writes such tags, and its reasoning in `<think>`.

    Args:
        tags: The family's tags.
        other_sections: Other tags that the model may write around all calls.
        fields: See `FormatFields`.
    """
    return text_format(
        read=tags.markup(THINK, sections=other_sections),
        write_call=tags.writer.write_call,
        constrain_call=tags.writer.constrain_call,
        opener=tags.section[0] or tags.call[0],
        markers=(*tags.markers(), *THINK, *THINK.values()),
        section=tags.written_section,
        **fields,
    )
