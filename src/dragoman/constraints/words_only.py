"""Writes the grammar of a reply without tool calls, for a model that would call a tool where none fits.

A reply begins with text: neither with JSON, nor with tags or fences as of calls. Later, everything is allowed but what
begins a call of an offered tool, tagged or not, so that neither a call nor the JSON of one remains in the text.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

_ANY: Final = "(?s:.*)"
_SPACE: Final = r"[ \t\r\n]"
_QUOTE: Final = r"[\x{22}\x{27}]"
_START: Final = rf"([^ \t\r\n\x{{7b}}\x{{5b}}]{_ANY})"
"""The first character: no space, and neither `{` nor `[`."""
_CALL_TAGS: Final = r"\x{3c}[|]?(tool|function|call|invoke|[a-z_:]*think)"
"""Tags as of calls, and of reasoning, which the model would write in its place."""
_CALL_FENCES: Final = rf"\x{{60}}\x{{60}}\x{{60}}+(json|xml|tool|[a-z_]*{_SPACE}*[\x{{7b}}\x{{5b}}])"
"""Fences of JSON, and others with an object or a list in them."""


def words_only_grammar(call_markers: Sequence[str], tools: Sequence[str], reasoning: Mapping[str, str]) -> str:
    """Returns the grammar, for LLGuidance.

    Args:
        call_markers: texts that begin calls in the format of the model.
        tools: names of the offered tools.
        reasoning: closing marker of reasoning by its opening marker; a reply may begin with it.
    """
    forbidden = [*map(_marker, call_markers)]
    if tools:
        names = _one_of(tools)
        forbidden += [f"{_QUOTE}name{_QUOTE}[ \\t\\r\\n:,=]*{_QUOTE}{names}{_QUOTE}", rf"{names}[\x{{28}}\x{{7b}}]"]
    lines = [
        "%llguidance {}",
        f"start: {'(reasoning SPACE?)? ' if reasoning else ''}WORDS",
        f"WORDS: /{_START}/ & ~/({_CALL_TAGS}|{_CALL_FENCES}){_ANY}/ & ~/{_ANY}({'|'.join(forbidden)}){_ANY}/",
    ]
    if reasoning:
        spans = "|".join(f"{_escaped(opening)}{_ANY}{_escaped(closing)}" for opening, closing in reasoning.items())
        lines += [f"reasoning[lazy]: /({spans})/", r"SPACE: /[ \t\r\n]{1,8}/"]
    return "\n".join([*lines, ""])


def _marker(text: str) -> str:
    """Returns the regex of a marker; white space may precede a bracket at its end."""
    return f"{_escaped(text[:-1])}{_SPACE}*{_escaped(text[-1])}" if text[-1:] in ("[", "{", "(") else _escaped(text)


def _one_of(texts: Iterable[str]) -> str:
    return f"({'|'.join(map(_escaped, texts))})"


def _escaped(text: str) -> str:
    return "".join(f"\\x{{{ord(character):x}}}" for character in text)
