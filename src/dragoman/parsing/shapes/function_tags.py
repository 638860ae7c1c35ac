"""The shape of `<function=name>` and `<parameter=name>`, with something of its own around each call.

    <tool_call>
    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>

One line break at each end of a value is framing. What stands around the call may be missing, and JSON may stand in it.
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
"""What Qwen3.6 closes once too often, and an earlier format's that it never opened (QwenLM/Qwen3.8, issue 178)."""


@dataclass(frozen=True, slots=True)
class FunctionTags:
    """The tags of one such format."""

    call_wrapper: tuple[str, str]
    """What stands around each call."""
    inline: bool = False
    """A value is written in the line of its tags, but where it begins or ends with a line break of its own."""

    def tagged(self) -> TaggedParameters:
        """The reader of one call."""
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
        """The reader of a reply."""
        opener, closer = self.call_wrapper
        call = self.tagged()
        return Markup(
            calls={opener: with_json_fallback(call.read, closer), FUNCTION[0]: call.read},
            reasoning_tags=reasoning_tags,
            closers=(closer, *STRAY),
        )

    def markers(self) -> tuple[str, ...]:
        """What must not stand in anything that the model did not write."""
        return (*self.call_wrapper, *FUNCTION, *PARAMETER)

    @property
    def writer(self) -> TaggedWriter:
        """How a call is written."""
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
        """`<function=name>`, of which the opener may hold the beginning."""
        if opener == self.call_wrapper[0] and not (yield from s.literal(FUNCTION[0], after_space=True)):
            return None
        found = yield from s.field(markers(">"))
        return CallHead(found[0].strip()) if found else None


def _key(s: Scanner) -> Parser[ParameterKey | None]:
    """`name>`."""
    found = yield from s.field(markers(">"))
    return ParameterKey(found[0].strip()) if found else None
