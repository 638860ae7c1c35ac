"""The shape of calls and parameters that are named by attributes.

    <invoke name="get_weather">
    <parameter name="city" string="true">Paris</parameter>
    </invoke>

Many families write it, each with tags of its own; one record of those (`InvokeTags`) is all a format states. Quotes
may be single or missing. `string="true"` says that a value is raw, "false" that it is JSON; `type` names the JSON
type; without either the tool's schema decides.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.name_then_json import CallHead
from dragoman.parsing.shapes.tagged import ParameterKey, TaggedParameters, WrappedCalls
from dragoman.parsing.shapes.tagged_writer import TaggedWriter
from dragoman.text.scanner import Parser, Scanner, markers

ATTRIBUTE_LIMIT: Final = 8
"""The most attributes that a tag may have; vendors' have up to three."""
_NAME_ENDS: Final = markers(*"=<>{}[]()\"'`/,; \t\r\n")
_ENTITIES: Final = {"&amp;": "&", "&quot;": '"', "&lt;": "<", "&gt;": ">", "&apos;": "'"}
_ENTITY = re.compile("|".join(_ENTITIES))
_STRINGS: Final = ("true", "string", "str", "raw", "text")
_NOT_STATED: Final = ("", "schema", "any")

TypeAttribute: TypeAlias = Literal["schema", "string", "type"]
"""How a parameter's tag says what its value is: not at all, by `string="true"`, by `type="string"`."""


def read_attributes(s: Scanner, end: str) -> Parser[tuple[Mapping[str, str], bool] | None]:
    """The attributes of a tag, up to its end; and whether it closes itself. None: this is no tag."""
    found: dict[str, str] = {}
    while True:
        ended = yield from s.literal(end, "/" + end, after_space=True)
        if ended:
            return found, ended != end
        yield from s.skip_space()
        name = yield from s.field(_NAME_ENDS)
        if name is None or not name[0] or len(found) == ATTRIBUTE_LIMIT:
            return None
        s.pos -= len(name[1])
        if not (yield from s.literal("=", after_space=True)):
            return None
        quote = yield from s.literal('"', "'", after_space=True)
        value = yield from s.field(markers(quote) if quote else markers(" ", "\n", end))
        if value is None:
            return None
        s.pos -= 0 if quote else len(value[1])
        found[name[0]] = value[0]


def unescape_attribute(text: str) -> str:
    """An attribute's value without XML's five entities."""
    return _ENTITY.sub(lambda m: _ENTITIES[m[0]], text)


def escape_attribute(text: str) -> str:
    """A text as an attribute's value."""
    return text.replace("&", "&amp;").replace('"', "&quot;")


@dataclass(frozen=True, slots=True)
class InvokeTags:
    """The tags of one such format."""

    call: tuple[str, str]
    """`("<invoke", "</invoke>")`."""
    parameter: tuple[str, str]
    """`("<parameter", "</parameter>")`."""
    section: tuple[str, str] = ("", "")
    """What stands around all calls."""
    prefix: str = ""
    """What stands right before a call and belongs to it."""
    other_prefixes: tuple[str, ...] = ()
    """What else may stand there in its stead."""
    suffix: str = ""
    """What may stand behind a call and belongs to it."""
    name: str = "name"
    """The attribute with the tool's name."""
    key: str = "name"
    """The attribute with the parameter's name."""
    index: str = ""
    """What else a call's tag says; as it is written here, that it is the first."""
    end: str = ">"
    """What ends an opening tag."""
    type_attribute: TypeAttribute = "schema"
    section_optional: bool = False
    """A call without the section counts too: for tags that nobody talks about."""
    escapes: bool = False
    """Attributes hold XML's entities."""
    newlines: bool = False
    """One line break at each end of a value is framing."""
    quote: tuple[str, str] = ("", "")
    """What may stand around a raw value, such as CDATA."""
    json_wrappers: Mapping[str, str] = field(default_factory=dict)
    """What may stand around one JSON object in place of the parameters: what closes it, by what opens it."""
    lines: bool = True
    """Each tag stands on a line of its own."""
    blank: bool = False
    """Where a call has no parameters, an empty line stands in their place."""

    @property
    def written_section(self) -> tuple[str, str]:
        """What stands around all calls, as the format has it."""
        line = "\n" if self.lines else ""
        return self.section[0] + line, line + self.section[1]

    @property
    def openers(self) -> tuple[str, ...]:
        """What opens a call; the first is the format's own."""
        return tuple(f"{each}{self.call[0]}{space}" for each in (self.prefix, *self.other_prefixes) for space in " \n")

    def tagged(self) -> TaggedParameters:
        """The reader of one call."""
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
        """The reader of a reply; `sections` are others that mean the same."""
        call = self.tagged()
        openers = self.openers
        around = [s for s in (self.section, *sections) if s[0]]
        calls = {opened: WrappedCalls(call.read, openers, closed).read for opened, closed in around}
        if self.section_optional or not around:
            calls |= dict.fromkeys(openers, call.read)
        closers = tuple(filter(None, (self.call[1], self.suffix, *(closed for _, closed in around))))
        return Markup(calls=calls, reasoning_tags=reasoning_tags, closers=closers, keep_whitespace=keep_whitespace)

    def markers(self) -> tuple[str, ...]:
        """What must not stand in anything that the model did not write."""
        tags = (*self.section, *self.call, *self.parameter, self.prefix, self.suffix)
        return tuple(dict.fromkeys(filter(None, tags)))

    @property
    def writer(self) -> TaggedWriter:
        """How a call is written."""
        line = "\n" if self.lines else ""
        around = "\n" if self.newlines else ""
        shown = escape_attribute if self.escapes else str

        def call(name: str) -> tuple[str, str]:
            head = f'{self.prefix}{self.call[0]} {self.name}="{shown(name)}"{self.index}{self.end}{line}'
            return head, self.call[1] + self.suffix

        return TaggedWriter(
            call_wrapper=call,
            open=lambda name, kind: (
                f'{self.parameter[0]} {self.key}="{shown(name)}"{self._type_text(kind)}{self.end}{around}'
            ),
            end=around + self.parameter[1],
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
        found = yield from read_attributes(s, self.end)
        if found is None or self.name not in found[0]:
            return None
        return CallHead(self._read(found[0][self.name]), self._read(found[0].get("id", "")), found[1])

    def read_key(self, s: Scanner) -> Parser[ParameterKey | None]:
        """What follows a parameter's opener, up to its value."""
        found = yield from read_attributes(s, self.end)
        if found is None or self.key not in found[0] or found[1]:
            return None
        stated = found[0].get("string", found[0].get("type", ""))
        if stated in _NOT_STATED:
            return ParameterKey(self._read(found[0][self.key]))
        return ParameterKey(self._read(found[0][self.key]), "string" if stated in _STRINGS else "json")

    def names(self, name: str) -> tuple[str, ...]:
        """How a parameter's tag goes on where it has this name."""
        shown = escape_attribute(name) if self.escapes else name
        return tuple(f"{self.key}={quote}{shown}{behind}" for quote, behind in (('"', '"'), ("'", "'"), ("", self.end)))

    def _read(self, text: str) -> str:
        return unescape_attribute(text) if self.escapes else text
