"""The markup in which a family's models are shown tools and tool results, as data.

    <tools>                                                          <tool_response>
    {"type": "function", "function": {"name": "ping", …}}            18 °C
    </tools>                                                         </tool_response>

The instructions around it are Dragoman's own (`parsing/define_format.py`). Content cannot close the markup: its tags
are among the format's markers, which are neutralised in all text that the model did not write.
"""

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from dragoman.core.messages import Tool, ToolResult, part_text
from dragoman.text.control_tokens import CONTROL_TOKEN_START
from dragoman.text.escape import escape_markers, escape_markers_json

_TAG = re.compile(r"</?[^\s<>{}]+>?|\[/?[A-Z_]+\]")
_FIELD = re.compile(r"\{(id|name|error)\}")


def _tags(texts: Iterable[str]) -> tuple[str, ...]:
    """Returns the tags in these texts; only their beginning, for tags with attributes and closing tags."""
    tags = (tag for text in texts for tag in _TAG.findall(text))
    return tuple(dict.fromkeys(tag.rstrip(">") if tag.startswith("</") else tag for tag in tags))


@dataclass(frozen=True, slots=True)
class ToolListMarkup:
    """Markup of the list of tools; the default is that of Hermes and most others."""

    list_wrapper: tuple[str, str] = ("<tools>\n", "\n</tools>")
    tool_wrapper: tuple[str, str] = ('{"type": "function", "function": {', "}}")
    """The text around a tool's `"name": …, "description": …, "parameters": …`."""
    separator: str = "\n"

    @property
    def markers(self) -> tuple[str, ...]:
        """The tags of the list."""
        return _tags((*self.list_wrapper, *self.tool_wrapper))

    def write(self, tools: Iterable[Tool], markers: Collection[str]) -> str:
        """Returns the list, with schemas verbatim except that markers in them are neutralised."""
        (before, after), (opened, closed) = self.list_wrapper, self.tool_wrapper
        listed = (f"{opened}{escape_markers_json(_members(tool), markers)}{closed}" for tool in tools)
        return f"{before}{self.separator.join(listed)}{after}"


@dataclass(frozen=True, slots=True)
class ToolResultMarkup:
    """Markup of a tool result; `{id}` and `{name}` stand for those of its call."""

    before: str
    after: str
    error: tuple[str, str] = ("", "")
    """Values of `{error}` for a success and a failure; if empty, the text itself begins with "Error: "."""
    quoted: bool = False
    """True if the text is written as a JSON string."""

    @property
    def markers(self) -> tuple[str, ...]:
        """The tags of a result, or its other markup; the opening one comes first."""
        other = (self.before.partition("{")[0].strip(), self.after.strip())
        return _tags((self.before, self.after)) or tuple(filter(None, other))

    @property
    def opener(self) -> str:
        """The opening tag, without attributes."""
        tag = self.markers[0]
        return tag if tag.endswith((">", "]")) or not tag.startswith("<") else f"{tag}>"

    def write(self, result: ToolResult, name: str, markers: Collection[str]) -> str:
        """Returns the result, with markers in it neutralised.

        Args:
            result: The result; its images and files are replaced by text.
            name: The name of the tool.
            markers: Strings to neutralise.
        """
        text = "\n".join(map(part_text, result.parts))
        if result.is_error and not self.error[1]:
            text = f"Error: {text}"
        text = escape_markers_json(_quoted(text), markers) if self.quoted else escape_markers(text, markers)
        fields = {"id": _label(result.call_id, markers), "name": _label(name, markers)}
        if self.quoted:
            fields = {field: _quoted(label)[1:-1] for field, label in fields.items()}
        fields["error"] = self.error[result.is_error]
        before, after = (_FIELD.sub(lambda match: fields[match[1]], side) for side in (self.before, self.after))
        return f"{before}{_with_newlines(before[-1:], text, after[:1])}{after}"


TOOLS: Final = ToolListMarkup()
RESULT: Final = ToolResultMarkup(
    '<tool_result id="{id}" name="{name}"{error}>\n', "\n</tool_result>", error=("", ' error="true"')
)
"""For models that were trained on no markup that can be part of a turn's text."""
GENERIC: Final = (*RESULT.markers, *TOOLS.markers)
"""The markers of these two, which belong to no model family."""
TOOL_RESPONSE: Final = ToolResultMarkup("<tool_response>\n", "\n</tool_response>")
"""The result markup of Hermes and many others."""


def _with_newlines(before: str, text: str, after: str) -> str:
    """Returns the text so that it forms no control token with the brackets around it."""
    text = escape_markers(text + after, CONTROL_TOKEN_START).removesuffix(after)
    return f" {text}" if CONTROL_TOKEN_START.match(before + text + after) else text


def _members(tool: Tool) -> str:
    schema = tool.parameters.replace("\n", " ")
    return f'"name": {_quoted(tool.name)}, "description": {_quoted(tool.description)}, "parameters": {schema}'


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _label(text: str, markers: Collection[str]) -> str:
    """Returns the text as the value of an attribute."""
    attribute = text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace("\n", " ")
    return escape_markers(attribute, markers)
