"""Calls as `<function=name>` and `<parameter=name>`, with a format's own tags around each call.

    <tool_call>
    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>

One line break at each end of a value is not part of it. The outer tags may be missing, and may contain JSON instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.json_block import with_json_fallback
from dragoman.parsing.shapes.name_then_json import CallHead
from dragoman.parsing.shapes.tagged import ParameterKey, TaggedParameters
from dragoman.parsing.shapes.tagged_writer import TaggedWriter
from dragoman.text.scanner import Parser, Scanner, markers

FUNCTION: Final = ("<function=", "</function>")
PARAMETER: Final = ("<parameter=", "</parameter>")
STRAY: Final = (FUNCTION[1], "</function_invocation>")
"""Surplus closing tags: Qwen3.6's own, and one of an earlier format that it never opened (QwenLM/Qwen3.8, issue 178).
"""


@dataclass(frozen=True, slots=True)
class FunctionTags:
    """The tags of one such format."""

    call_wrapper: tuple[str, str]
    """The tags around each call."""
    inline: bool = False
    """True if a value is written on the line of its tags, unless it begins or ends with a line break."""

    def tagged(self) -> TaggedParameters:
        """Returns the reader of one call."""
        return TaggedParameters(
            self._head,
            key_open=PARAMETER[0],
            key=_key,
            names=lambda name: (f"{name}>",),
            value_close=PARAMETER[1],
            call_close=(FUNCTION[1],),
            after=(self.call_wrapper[1],),
            openers=(self.call_wrapper[0],),
            newlines=True,
            json_body=True,
        )

    def markup(self, reasoning_tags: Mapping[str, str]) -> Markup:
        """Returns the markup of a reply."""
        opener, closer = self.call_wrapper
        call = self.tagged()
        return Markup(
            calls={opener: with_json_fallback(call.read, closer), FUNCTION[0]: call.read},
            reasoning_tags=reasoning_tags,
            closers=(closer, *STRAY),
        )

    def markers(self) -> tuple[str, ...]:
        """Returns the markers to neutralise in text that the model did not write."""
        return (*self.call_wrapper, *FUNCTION, *PARAMETER)

    @property
    def writer(self) -> TaggedWriter:
        """Writes and constrains calls."""
        opener, closer = self.call_wrapper
        frame = "" if self.inline else "\n"
        return TaggedWriter(
            call_wrapper=lambda name: (f"{opener}\n{FUNCTION[0]}{name}>\n", f"{FUNCTION[1]}\n{closer}"),
            open=lambda name, _: f"{PARAMETER[0]}{name}>{frame}",
            end=frame + PARAMETER[1],
            line="\n",
            closers=self.tagged().closers,
            inline=self.inline,
        )

    def _head(self, s: Scanner, opener: str) -> Parser[CallHead | None]:
        """Reads `<function=name>`; the opener may contain its beginning."""
        if opener == self.call_wrapper[0] and not (yield from s.literal(FUNCTION[0], after_space=True)):
            return None
        name_field = yield from s.field(markers(">"))
        return CallHead(name_field[0].strip()) if name_field else None


def _key(s: Scanner) -> Parser[ParameterKey | None]:
    """Reads `name>`."""
    name_field = yield from s.field(markers(">"))
    return ParameterKey(name_field[0].strip()) if name_field else None
