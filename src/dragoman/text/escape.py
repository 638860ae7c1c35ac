"""Escapes markers in text that the model did not write, so that it is not read as markup.

A web page, a file or a user's message may contain `</tool_call>` or `<|im_end|>`. In a prompt, the first character of
such a marker is replaced by its character reference (`&lt;/tool_call>`): a model still understands the text, and
neither the tokenizer nor the model's training treats it as markup. Only markers change, so ordinary text and code stay
the same. In JSON, it is written with a JSON escape (`\\u003c/tool_call>`), which keeps the value. If the strings
of the JSON are shown decoded, they are escaped like text (`escape_markers_in_strings`).

A format's marker is also recognised in characters that are equivalent in Unicode (`＜tool_call＞`), or with invisible
characters in between: some tokenizers normalise the former, and some clients remove the latter. The control tokens of
a tokenizer are recognised literally, because tokenizers search for them before they normalise.

Source: The Unicode Standard 16.0 (2024-09), Default_Ignorable_Code_Point, and UAX 15, NFKC; doc/normalization.md of
google/sentencepiece, whose default normalises so (2026-11).
"""

import json
import re
from collections.abc import Callable, Collection, Iterable
from functools import cache, partial
from itertools import chain, groupby
from typing import TypeAlias
from unicodedata import normalize

import msgspec

from dragoman.core.messages import (
    Document,
    JsonText,
    Message,
    Part,
    Reasoning,
    Refusal,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    UnknownPart,
)

_REFERENCE = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_BRACKET = re.compile(r"[<>\[\]|｜＜＞［］﹤﹥]")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_UNSEEN = (
    "[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]*+"
)
"""Invisible characters that may occur between two characters of a marker."""
_COMPATIBLE = (range(0x80, 0x3400), range(0xFB00, 0x10000), range(0x1D400, 0x1D800), range(0x1F100, 0x1F200))
"""The ranges in which Unicode has other forms of ordinary characters."""
_MAX_FORMAT_MARKERS = 64
"""A longer list of markers is that of a tokenizer, which is matched literally."""

MarkerSet: TypeAlias = Collection[str] | re.Pattern[str]
"""The markers to escape: exact strings, or a pattern that matches the first character of each."""


def escape_markers(text: str, markers: MarkerSet) -> str:
    """Returns the text with every marker escaped."""
    return _pattern(markers, text).sub(_reference, text) if markers else text


def escape_markers_json(text: JsonText, markers: MarkerSet) -> JsonText:
    """Returns JSON of the same value that contains no marker."""
    return _pattern(markers, text).sub(_json_escape, text) if markers else text


def escape_markers_in_strings(text: JsonText, markers: MarkerSet, suffix: str = "") -> JsonText:
    """Returns the JSON with every marker in its decoded strings escaped, for templates that show them decoded.

    Args:
        text: The JSON.
        markers: The strings to escape.
        suffix: Text that the template may write after each string. It must not complete a marker.
    """
    if not markers or not ("\\" in text or _pattern(markers, text).search(text.replace('"', suffix or '"'))):
        return text

    def escape_string(match: re.Match[str]) -> str:
        try:
            value = json.loads(match[0], strict=False)
        except ValueError:  # not valid JSON
            return escape_markers(match[0], markers)
        escaped = escape_markers(value + suffix, markers).removesuffix(suffix)
        return match[0] if escaped == value else json.dumps(escaped, ensure_ascii=False)

    return _STRING.sub(escape_string, text)


def escape_markers_in_request(
    request: Request, markers: MarkerSet, *, include_assistant: bool = False, keep_verbatim: tuple[str, ...] = ()
) -> Request:
    """Returns the request with markers escaped in everything that the model did not write.

    Tool names and call ids are always escaped.

    Args:
        request: The request.
        markers: The markers to escape.
        include_assistant: Escape in assistant messages too.
        keep_verbatim: The markers with which the model writes calls; they stay in its verbatim text.
    """
    own = _part if include_assistant else _labels
    messages = (_message(m, markers, own if m.role == "assistant" else _part, keep_verbatim) for m in request.messages)
    tools = (_tool(t, markers) for t in request.tools)
    choice = msgspec.structs.replace(request.tool_choice, name=_label(request.tool_choice.name, markers))
    return msgspec.structs.replace(request, messages=tuple(messages), tools=tuple(tools), tool_choice=choice)


def _tool(tool: Tool, markers: MarkerSet) -> Tool:
    name, description = _label(tool.name, markers), escape_markers(tool.description, markers)
    parameters = escape_markers_json(tool.parameters, markers)
    examples = tuple(escape_markers_json(each, markers) for each in tool.examples)
    return msgspec.structs.replace(tool, name=name, description=description, parameters=parameters, examples=examples)


def _message(
    message: Message, markers: MarkerSet, escape_part: Callable[[Part, MarkerSet], Part], keep_verbatim: tuple[str, ...]
) -> Message:
    written = message.verbatim_text
    if written and escape_part is _part:
        written = _pattern(markers, written).sub(partial(_unless, keep_verbatim), written)
    return msgspec.structs.replace(
        message, parts=tuple(escape_part(p, markers) for p in message.parts), verbatim_text=written
    )


def _labels(part: Part, markers: MarkerSet) -> Part:
    if not isinstance(part, ToolCall):
        return part
    return msgspec.structs.replace(part, id=_label(part.id, markers), name=_label(part.name, markers))


def _label(text: str, markers: MarkerSet) -> str:
    """Escapes a name or an id. A valid one has no brackets, and formats put their own around it."""
    return _BRACKET.sub(_reference, escape_markers(text, markers))


def _part(part: Part, markers: MarkerSet) -> Part:
    match part:
        case Text(text) | Reasoning(text) | Refusal(text):
            return msgspec.structs.replace(part, text=escape_markers(text, markers))
        case Document(source, title):
            source = msgspec.structs.replace(source, text=escape_markers(source.text, markers))
            return msgspec.structs.replace(part, source=source, title=escape_markers(title, markers))
        case ToolCall(arguments=arguments):
            part = msgspec.structs.replace(part, arguments=escape_markers_json(arguments, markers))
            return _labels(part, markers)
        case ToolResult(call_id, parts):
            inner = tuple(_part(p, markers) for p in parts)
            return msgspec.structs.replace(part, call_id=_label(call_id, markers), parts=inner)
        case UnknownPart(type=kind):
            return msgspec.structs.replace(part, type=escape_markers(kind, markers))
        case _:
            return part


def _pattern(markers: MarkerSet, text: str) -> re.Pattern[str]:
    if isinstance(markers, re.Pattern):
        return markers
    return _compiled(tuple(markers), len(markers) <= _MAX_FORMAT_MARKERS and not text.isascii())


@cache
def _compiled(markers: tuple[str, ...], normalised: bool) -> re.Pattern[str]:
    # Matches only the first character, so that a marker that starts inside another one is found too.
    char, separator = (_equivalents, _UNSEEN) if normalised else (re.escape, "")
    beginnings = (
        f"{char(first)}(?={separator}{_any_of(rest, char, separator)})" for first, rest in _by_first(markers, char)
    )
    return re.compile("|".join(beginnings))


def _any_of(strings: Collection[str], char: Callable[[str], str], separator: str) -> str:
    """Returns a pattern of all strings, as a prefix tree: a tokenizer may have thousands of similar special tokens."""
    if "" in strings:
        return ""  # the shortest string has matched
    branches = [char(first) + separator + _any_of(rest, char, separator) for first, rest in _by_first(strings, char)]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


@cache
def _equivalents(char: str) -> str:
    """Returns a pattern of all characters that are equivalent to this one, as tokenizers may normalise them (NFKC)."""
    return f"[{re.escape(''.join(_compatible().get(normalize_char(char), '')) + char)}]"


@cache
def _compatible() -> dict[str, list[str]]:
    alike: dict[str, list[str]] = {}
    for char in map(chr, chain.from_iterable(_COMPATIBLE)):
        if char != (plain := normalize_char(char)) and len(plain) == 1:
            alike.setdefault(plain, [plain]).append(char)
    return alike


def normalize_char(char: str) -> str:
    """Returns the NFKC form, such as `<` for its full-width form."""
    return normalize("NFKC", char)


def _by_first(strings: Iterable[str], char: Callable[[str], str]) -> list[tuple[str, set[str]]]:
    ordered = sorted(strings, key=lambda string: (char(string[:1]), string))
    groups = ([*group] for _, group in groupby(ordered, lambda string: char(string[0])))
    return [(group[0][0], {string[1:] for string in group}) for group in groups]


def _reference(match: re.Match[str]) -> str:
    return _REFERENCE.get(match[0], f"&#{ord(match[0])};")


def _unless(keep_verbatim: tuple[str, ...], match: re.Match[str]) -> str:
    return match[0] if match.string.startswith(keep_verbatim, match.start()) else _reference(match)


def _json_escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1] if ord(match[0]) > 127 else f"\\u{ord(match[0]):04x}"
