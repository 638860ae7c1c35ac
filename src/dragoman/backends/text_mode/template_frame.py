"""What a chat template puts between the words of a conversation, so that nobody's words can have it.

    <assistant>…</assistant>\\n<user>…</user>        →   <assistant>, </assistant>, <user>, </user>
    USER: … ASSISTANT: …\nUSER: …                  →   ASSISTANT:, and USER: at the beginning of a line

It is rendered with words that stand for those of each side. What else tokenizers know is in `text/control_tokens.py`.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

from dragoman import formats
from dragoman.core.errors import RequestError
from dragoman.text.control_tokens import find_control_tokens

Render: TypeAlias = Callable[[list[dict[str, Any]]], str]

_TAG: Final = re.compile(r"</?[A-Za-z][\w:.|-]{0,40}>|\[/?[A-Za-z_|]{2,30}\]")
_HEADER: Final = re.compile(r"(?:#+ ?)?[^\W\d_][\w ]{2,20}:(?!\S)")
_WORD: Final = re.compile("said[0-9]said")
_SYSTEM: Final[dict[str, Any]] = {"role": "system", "content": "said0said"}
_TURNS: Final[list[dict[str, Any]]] = [
    {"role": "user", "content": "said1said"},
    {"role": "assistant", "content": "said2said"},
    {"role": "user", "content": "said3said"},
]
_CALLED: Final[list[dict[str, Any]]] = [
    {"role": "user", "content": "said1said"},
    {
        "role": "assistant",
        "content": "said2said",
        "tool_calls": [
            {"type": "function", "function": {"name": "said3said", "arguments": {"said4said": "said5said"}}}
        ],
    },
    {"role": "tool", "content": "said6said", "tool_call_id": "said7said"},
    {"role": "user", "content": "said8said"},
]


def turns(render: Render) -> tuple[str, ...]:
    """What stands around turns."""
    return _between(render, _TURNS)


def calls(render: Render) -> tuple[str, ...]:
    """What stands around calls and results, too."""
    return _between(render, _CALLED)


def _between(render: Render, messages: list[dict[str, Any]]) -> tuple[str, ...]:
    for begins in ([_SYSTEM], []):
        try:
            text = render([*begins, *messages])
        except RequestError:
            continue
        first, *pieces = _WORD.split(text)
        # Before the first words may stand much of the template's own, behind the last only how the answer begins.
        found = {marker for piece in [first.rpartition("\n")[2], *pieces[:-1]] for marker in _markers(piece)}
        return tuple(sorted(found - _thoughts()))
    return ()


def _markers(piece: str) -> set[str]:
    tags = {*_TAG.findall(piece), *find_control_tokens(piece)}
    tags |= {f"<{tag.removeprefix('</')}" for tag in tags if tag.startswith("</")}
    lines = [(("\n" if i else "") + found[0]) for i, line in enumerate(piece.split("\n")) if (found := _header(line))]
    return tags | set(lines)


def _header(line: str) -> re.Match[str] | None:
    """What says by words alone who speaks."""
    return None if _TAG.search(line) or find_control_tokens(line) else _HEADER.match(line.lstrip())


@cache
def _thoughts() -> frozenset[str]:
    """A client may begin them for the model."""
    found = (formats.get(name).reasoning_tags.items() for name in formats.names())
    return frozenset(marker for pairs in found for pair in pairs for marker in pair)
