"""How a family's models are shown their tools and what came of a call: the markup alone, as data.

    <tools>                                                          <tool_response>
    {"type": "function", "function": {"name": "ping", …}}            18 °C
    </tools>                                                         </tool_response>

The words around it are Dragoman's own (`parsing/define_format.py`). What stands in it cannot close it: its tags are
among the format's markers, which are made harmless in all that the model did not write.
"""

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from dragoman.core.messages import Tool, ToolResult
from dragoman.core.part_text import part_text
from dragoman.text.control_tokens import CONTROL_TOKEN_START
from dragoman.text.escape import escape_markers, escape_markers_json

_TAG = re.compile(r"</?[^\s<>{}]+>?|\[/?[A-Z_]+\]")
_FIELD = re.compile(r"\{(id|name|error)\}")


def _tags(texts: Iterable[str]) -> tuple[str, ...]:
    """The tags in these texts; their beginning, of one with attributes, and of one that closes."""
    found = (tag for text in texts for tag in _TAG.findall(text))
    return tuple(dict.fromkeys(tag.rstrip(">") if tag.startswith("</") else tag for tag in found))


@dataclass(frozen=True, slots=True)
class ToolListMarkup:
    """How the list of tools is framed; its default is that of Hermes and most others."""

    list_wrapper: tuple[str, str] = ("<tools>\n", "\n</tools>")
    tool_wrapper: tuple[str, str] = ('{"type": "function", "function": {', "}}")
    """What stands around a tool's `"name": …, "description": …, "parameters": …`."""
    separator: str = "\n"

    @property
    def markers(self) -> tuple[str, ...]:
        """Its tags."""
        return _tags((*self.list_wrapper, *self.tool_wrapper))

    def write(self, tools: Iterable[Tool], markers: Collection[str]) -> str:
        """The list: schemas verbatim, with markers in them made harmless."""
        (before, behind), (opened, closed) = self.list_wrapper, self.tool_wrapper
        listed = (f"{opened}{escape_markers_json(_members(tool), markers)}{closed}" for tool in tools)
        return f"{before}{self.separator.join(listed)}{behind}"


@dataclass(frozen=True, slots=True)
class ToolResultMarkup:
    """How a result is framed; `{id}` and `{name}` stand for those of its call."""

    before: str
    behind: str
    error: tuple[str, str] = ("", "")
    """What `{error}` stands for where all went well, and where not; unless given, the text says so."""
    quoted: bool = False
    """The text is written as a JSON string."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Its tags, the one that begins it first."""
        return _tags((self.before, self.behind))

    @property
    def opener(self) -> str:
        """The tag that begins it, without attributes."""
        tag = self.markers[0]
        return tag if tag.endswith((">", "]")) else f"{tag}>"

    def write(self, result: ToolResult, name: str, markers: Collection[str]) -> str:
        """The result, with markers in it made harmless."""
        text = "\n".join(map(part_text, result.parts))
        if result.is_error and not self.error[1]:
            text = f"Error: {text}"
        text = escape_markers_json(_quoted(text), markers) if self.quoted else escape_markers(text, markers)
        fields = {"id": _label(result.call_id, markers), "name": _label(name, markers)}
        if self.quoted:
            fields = {field: _quoted(label)[1:-1] for field, label in fields.items()}
        fields["error"] = self.error[result.is_error]
        before, behind = (_FIELD.sub(lambda found: fields[found[1]], side) for side in (self.before, self.behind))
        return f"{before}{_apart(before[-1:], text, behind[:1])}{behind}"


TOOLS: Final = ToolListMarkup()
RESULT: Final = ToolResultMarkup(
    '<tool_result id="{id}" name="{name}"{error}>\n', "\n</tool_result>", error=("", ' error="true"')
)
"""For models that were trained on none that can stand in the text of a turn."""
GENERIC: Final = (*RESULT.markers, *TOOLS.markers)
"""The markers of these two, which are no family's own."""
TOOL_RESPONSE: Final = ToolResultMarkup("<tool_response>\n", "\n</tool_response>")
"""That of Hermes and many others."""


def _apart(before: str, text: str, behind: str) -> str:
    """The text, so that it makes no control token with the brackets around it."""
    text = escape_markers(text + behind, CONTROL_TOKEN_START).removesuffix(behind)
    return f" {text}" if CONTROL_TOKEN_START.match(before + text + behind) else text


def _members(tool: Tool) -> str:
    schema = tool.parameters.replace("\n", " ")
    return f'"name": {_quoted(tool.name)}, "description": {_quoted(tool.description)}, "parameters": {schema}'


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _label(text: str, markers: Collection[str]) -> str:
    """As it can stand in an attribute."""
    attribute = text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace("\n", " ")
    return escape_markers(attribute, markers)
