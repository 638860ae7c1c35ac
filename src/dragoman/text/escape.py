"""Keeps text that the model did not write from being read as markup that means something.

A web page, a file or a user may hold `</tool_call>` or `<|im_end|>`. In a prompt the first character of such
a marker becomes its character reference (`&lt;/tool_call>`): a model still understands it, and neither the
model's tokenizer nor its training takes it for the real thing. Only markers are touched, so ordinary text and
code pass unchanged. JSON is not touched but in how it is written (`\\u003c/tool_call>`); where its strings are to be
shown decoded, they are text (`neutralise_strings`).

A format's marker counts, too, in characters that are the same to Unicode (`＜tool_call＞`), or with such in between as
are not shown: there are tokenizers that fold the one, and people who take the others out. A tokenizer's own tokens
count as they are, since it looks for those before it folds anything.

Source: The Unicode Standard 16.0 (2024-09), Default_Ignorable_Code_Point, and UAX 15, NFKC; doc/normalization.md of
google/sentencepiece, whose default folds so (2026-11).
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
    r"[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]*+"
)
"""What is not shown, between two characters of a marker."""
_COMPATIBLE = (range(0x80, 0x3400), range(0xFB00, 0x10000), range(0x1D400, 0x1D800), range(0x1F100, 0x1F200))
"""Where Unicode has other forms of ordinary characters."""
_A_FORMATS = 64
"""Markers that a format may have; a tokenizer has more."""

Markers: TypeAlias = Collection[str] | re.Pattern[str]
"""What is to be made harmless: exact texts, or a pattern of the first character of each."""


def neutralise(text: str, markers: Markers) -> str:
    """The text with every marker in it made harmless."""
    return _pattern(markers, text).sub(_reference, text) if markers else text


def neutralise_json(text: JsonText, markers: Markers) -> JsonText:
    """The same JSON value, written without any marker."""
    return _pattern(markers, text).sub(_json_escape, text) if markers else text


def neutralise_strings(text: JsonText, markers: Markers, behind: str = "") -> JsonText:
    """The JSON with every marker in its strings made harmless, as they read where they are shown decoded.

    `behind` may then stand behind each, and must complete no marker.
    """
    if not markers or not ("\\" in text or _pattern(markers, text).search(text.replace('"', behind or '"'))):
        return text

    def shown(found: re.Match[str]) -> str:
        try:
            value = json.loads(found[0], strict=False)
        except ValueError:  # no JSON, then
            return neutralise(found[0], markers)
        harmless = neutralise(value + behind, markers).removesuffix(behind)
        return found[0] if harmless == value else json.dumps(harmless, ensure_ascii=False)

    return _STRING.sub(shown, text)


def neutralise_request(
    request: Request, markers: Markers, *, own_words: bool = False, spared: tuple[str, ...] = ()
) -> Request:
    """The request with markers made harmless in all that the model did not write: every turn but its own.

    Names of tools are never its own words, nor are ids of calls. `own_words`: in its own turns too; `spared` are the
    markers with which it writes calls, which stay in what it wrote word for word.
    """
    own = _part if own_words else _labels
    messages = (_message(m, markers, own if m.role == "assistant" else _part, spared) for m in request.messages)
    tools = (_tool(t, markers) for t in request.tools)
    choice = msgspec.structs.replace(request.tool_choice, name=_label(request.tool_choice.name, markers))
    return msgspec.structs.replace(request, messages=tuple(messages), tools=tuple(tools), tool_choice=choice)


def _tool(tool: Tool, markers: Markers) -> Tool:
    name, description = _label(tool.name, markers), neutralise(tool.description, markers)
    parameters = neutralise_json(tool.parameters, markers)
    return msgspec.structs.replace(tool, name=name, description=description, parameters=parameters)


def _message(
    message: Message, markers: Markers, shown: Callable[[Part, Markers], Part], spared: tuple[str, ...]
) -> Message:
    written = message.written
    if written and shown is _part:
        written = _pattern(markers, written).sub(partial(_unless, spared), written)
    return msgspec.structs.replace(message, parts=tuple(shown(p, markers) for p in message.parts), written=written)


def _labels(part: Part, markers: Markers) -> Part:
    if not isinstance(part, ToolCall):
        return part
    return msgspec.structs.replace(part, id=_label(part.id, markers), name=_label(part.name, markers))


def _label(text: str, markers: Markers) -> str:
    """A name or an id: no legal one has a bracket, and formats put their own around it."""
    return _BRACKET.sub(_reference, neutralise(text, markers))


def _part(part: Part, markers: Markers) -> Part:
    match part:
        case Text(text) | Reasoning(text) | Refusal(text):
            return msgspec.structs.replace(part, text=neutralise(text, markers))
        case Document(source, title):
            source = msgspec.structs.replace(source, text=neutralise(source.text, markers))
            return msgspec.structs.replace(part, source=source, title=neutralise(title, markers))
        case ToolCall(arguments=arguments):
            part = msgspec.structs.replace(part, arguments=neutralise_json(arguments, markers))
            return _labels(part, markers)
        case ToolResult(call_id, parts):
            inner = tuple(_part(p, markers) for p in parts)
            return msgspec.structs.replace(part, call_id=_label(call_id, markers), parts=inner)
        case UnknownPart(type=kind):
            return msgspec.structs.replace(part, type=neutralise(kind, markers))
        case _:
            return part


def _pattern(markers: Markers, text: str) -> re.Pattern[str]:
    if isinstance(markers, re.Pattern):
        return markers
    return _compiled(tuple(markers), len(markers) <= _A_FORMATS and not text.isascii())


@cache
def _compiled(markers: tuple[str, ...], widely: bool) -> re.Pattern[str]:
    # Matches the first character only, so that a marker is found that begins inside another one.
    char, between = (_alike, _UNSEEN) if widely else (re.escape, "")
    beginnings = (
        f"{char(first)}(?={between}{_any_of(rest, char, between)})" for first, rest in _by_first(markers, char)
    )
    return re.compile("|".join(beginnings))


def _any_of(words: Collection[str], char: Callable[[str], str], between: str) -> str:
    """A pattern of all of them as a tree: a tokenizer may have thousands of special tokens, most of them alike."""
    if "" in words:
        return ""  # whatever follows, the shortest has been found
    branches = [char(first) + between + _any_of(rest, char, between) for first, rest in _by_first(words, char)]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


@cache
def _alike(char: str) -> str:
    """A pattern of all characters that are this one to Unicode, as tokenizers may take them (NFKC)."""
    return f"[{re.escape(''.join(_compatible().get(folded(char), '')) + char)}]"


@cache
def _compatible() -> dict[str, list[str]]:
    alike: dict[str, list[str]] = {}
    for char in map(chr, chain.from_iterable(_COMPATIBLE)):
        if char != (plain := folded(char)) and len(plain) == 1:
            alike.setdefault(plain, [plain]).append(char)
    return alike


def folded(char: str) -> str:
    """What it is to Unicode, `<` for its wide form."""
    return normalize("NFKC", char)


def _by_first(words: Iterable[str], char: Callable[[str], str]) -> list[tuple[str, set[str]]]:
    ordered = sorted(words, key=lambda word: (char(word[:1]), word))
    groups = ([*same] for _, same in groupby(ordered, lambda word: char(word[0])))
    return [(same[0][0], {w[1:] for w in same}) for same in groups]


def _reference(match: re.Match[str]) -> str:
    return _REFERENCE.get(match[0], f"&#{ord(match[0])};")


def _unless(spared: tuple[str, ...], match: re.Match[str]) -> str:
    return match[0] if match.string.startswith(spared, match.start()) else _reference(match)


def _json_escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1] if ord(match[0]) > 127 else f"\\u{ord(match[0]):04x}"
