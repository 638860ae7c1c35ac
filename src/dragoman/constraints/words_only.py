"""Writes the grammar of a reply without tool calls, for a model that would call a tool where none fits.

A reply begins with text: neither markup, nor a code fence, nor JSON. Later, everything is allowed but what begins a
call, tagged or not, so that neither a call nor the JSON of one remains in the text.
"""

from collections.abc import Mapping, Sequence
from typing import Final

_ANY: Final = "(?s:.*)"
_START: Final = r"[^ \t\r\n\x{7b}\x{5b}\x{3c}\x{60}]"
"""The first character: no space, and none of `{`, `[`, `<` and `` ` ``."""
_JSON_CALL: Final = r'"(arguments|parameters)"[ \t\r\n]*:'


def words_only_grammar(call_markers: Sequence[str], reasoning: Mapping[str, str]) -> str:
    """Returns the grammar, for LLGuidance.

    Args:
        call_markers: texts that begin calls in the format of the model.
        reasoning: closing marker of reasoning by its opening marker; a reply may begin with it.
    """
    forbidden = "|".join((*map(_escaped, call_markers), _JSON_CALL))
    lines = [
        "%llguidance {}",
        f"start: {'(reasoning SPACE?)? ' if reasoning else ''}WORDS",
        f"WORDS: /{_START}{_ANY}/ & ~/{_ANY}({forbidden}){_ANY}/",
    ]
    if reasoning:
        spans = "|".join(f"{_escaped(opening)}{_ANY}{_escaped(closing)}" for opening, closing in reasoning.items())
        lines += [f"reasoning[lazy]: /({spans})/", r"SPACE: /[ \t\r\n]{1,8}/"]
    return "\n".join([*lines, ""])


def _escaped(text: str) -> str:
    return "".join(f"\\x{{{ord(character):x}}}" for character in text)
