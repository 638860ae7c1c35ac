r"""Finds the markers that a chat template puts around turns, so that they can be escaped in all other text.

    <assistant>…</assistant>\n<user>…</user>        →   <assistant>, </assistant>, <user>, </user>
    USER: … ASSISTANT: …\nUSER: …                  →   ASSISTANT:, and USER: at the beginning of a line

The template is rendered with a placeholder for each text. `text/control_tokens.py` has the tokens that tokenizers know.
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
_PLACEHOLDER: Final = re.compile("said[0-9]said")
_SYSTEM: Final[dict[str, Any]] = {"role": "system", "content": "said0said"}
_TURNS: Final[list[dict[str, Any]]] = [
    {"role": "user", "content": "said1said"},
    {"role": "assistant", "content": "said2said"},
    {"role": "user", "content": "said3said"},
]
_TURNS_WITH_CALL: Final[list[dict[str, Any]]] = [
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


def turn_markers(render: Render) -> tuple[str, ...]:
    """Returns the markers around turns."""
    return _markers_between(render, _TURNS)


def call_markers(render: Render) -> tuple[str, ...]:
    """Returns the markers around turns, tool calls and results."""
    return _markers_between(render, _TURNS_WITH_CALL)


def _markers_between(render: Render, messages: list[dict[str, Any]]) -> tuple[str, ...]:
    for begins in ([_SYSTEM], []):
        try:
            text = render([*begins, *messages])
        except RequestError:
            continue
        first, *pieces = _PLACEHOLDER.split(text)
        # Before the first placeholder there may be text of the template's own; after the last, only the beginning of
        # the reply.
        markers = {marker for piece in [first.rpartition("\n")[2], *pieces[:-1]] for marker in _markers(piece)}
        return tuple(sorted(markers - _reasoning_markers()))
    return ()


def _markers(piece: str) -> set[str]:
    tags = {*_TAG.findall(piece), *find_control_tokens(piece)}
    tags |= {f"<{tag.removeprefix('</')}" for tag in tags if tag.startswith("</")}
    lines = [
        (("\n" if i else "") + label[0]) for i, line in enumerate(piece.split("\n")) if (label := _speaker_label(line))
    ]
    return tags | set(lines)


def _speaker_label(line: str) -> re.Match[str] | None:
    """Matches a plain-text label of a speaker."""
    return None if _TAG.search(line) or find_control_tokens(line) else _HEADER.match(line.lstrip())


@cache
def _reasoning_markers() -> frozenset[str]:
    """Returns the markers of reasoning, which a client may begin for the model."""
    tags = (format.reasoning_tags.items() for format in formats.built_in())
    return frozenset(marker for pairs in tags for pair in pairs for marker in pair)
