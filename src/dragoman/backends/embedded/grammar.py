"""What the embedded model is held to: a grammar (`constraints/llguidance.py`) that the engine is sure to take.

JSON Schema features that the engine lacks are relaxed, and so is what is wrong in a schema; one that it cannot take at
all is replaced by "any object". The engine itself goes unheld without a word on one that is wrong, so each is checked.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from dragoman import extras
from dragoman.constraints.constraint import UNREADABLE
from dragoman.constraints.llguidance import UntaggedCalls, json_rule, llguidance_grammar
from dragoman.core.errors import ConfigError
from dragoman.core.events import Notice
from dragoman.core.messages import JsonText, Request, Tool, ToolChoice
from dragoman.parsing.format import Format
from dragoman.schema.adapt import adapt
from dragoman.schema.targets import LLGUIDANCE

try:
    from llguidance import LLMatcher
except ImportError as e:
    raise ConfigError(f"the embedded model needs the embedded extra: {extras.to_type('embedded')}") from e

_BEYOND_PYTHON = (ValueError, RecursionError)
"""What its JSON reader raises at thousands of digits, and code over schemas at hundreds of levels."""
KNOWN_LIMIT: Final = 8192
"""Grammars remembered as good or bad; about a megabyte."""
_ANY_OBJECT = '{"type": "object"}'


class Grammar(NamedTuple):
    """A grammar that the engine can take, and what had to be given up for it."""

    text: str
    relaxed: Mapping[str, str]
    """By tools' names, what their arguments are not held to."""


def for_tools(format: Format, tools: Sequence[Tool], choice: ToolChoice, answer: JsonText = "") -> Grammar | None:
    """The grammar for these tools under this choice; None where nothing is to be held.

    With free choice, `answer` is a schema that `for_json` takes: the reply is JSON of it, or else calls.
    """
    taken = [_taken(format, t) for t in tools if t.kind == "function"]
    kept, relaxed = [tool for tool, _ in taken], {tool.name: lost for tool, lost in taken if lost}
    constraint = format.constrain(kept, choice)
    if constraint is None:
        return None
    text = llguidance_grammar(constraint, answer, _bare(format, kept))
    return Grammar(text, relaxed) if _valid(text) else None


def held(format: Format, request: Request, *, has_tools: bool) -> tuple[str, list[Notice]]:
    """What the engine holds the model to, if anything, and what is given up for it."""
    choice = request.tool_choice
    schema = request.response_schema if not has_tools or choice.mode == "auto" else ""
    text = for_json(schema) if schema else None
    warnings = []
    if schema and text is None:
        warnings.append(Notice("constraint_not_applied", "the engine cannot take the response schema"))
    if not has_tools:
        return text or "", warnings
    grammar = for_tools(format, request.tools, choice, schema if text else "")
    if grammar is None:
        return "", [*warnings, Notice("constraint_not_applied", "no grammar can hold the model to these tools")]
    warnings += [
        Notice("schema_relaxed", f"{name} is not held to all of its schema: {lost}")
        for name, lost in grammar.relaxed.items()
    ]
    return grammar.text, warnings


def for_json(schema: JsonText) -> str | None:
    """The grammar of a reply that is one JSON value; None where the engine cannot take the schema."""
    try:
        text = f"%llguidance {{}}\nstart: {json_rule(json.loads(schema))}\n"
    except _BEYOND_PYTHON:
        return None
    return text if _valid(text) else None


def _bare(format: Format, tools: Sequence[Tool]) -> UntaggedCalls:
    """The lenient reader's calls in addition to the format's own; nothing if the format has them itself."""
    if format.markup and "{" in format.markup.untagged_calls:
        return UntaggedCalls()
    return UntaggedCalls(tools, [*format.reasoning_tags.values()])


def _taken(format: Format, tool: Tool) -> tuple[Tool, str]:
    """The tool with a schema that the engine takes, and what that has lost."""
    made = adapt(tool.parameters, LLGUIDANCE)
    fit = msgspec.structs.replace(tool, parameters=made.json) if made.changes else tool
    if _takes(format, fit):
        return fit, "; ".join(f"{change.what} at {change.path}" for change in made.changes)
    return msgspec.structs.replace(tool, parameters=_ANY_OBJECT), "any object is let through"


def _takes(format: Format, tool: Tool) -> bool:
    constraint = format.constrain([tool], ToolChoice("required"))
    if constraint is None or UNREADABLE in constraint.calls[0].relaxed:
        return False
    try:
        return _valid(llguidance_grammar(constraint))
    except _BEYOND_PYTHON:
        return False


_known: Final[dict[bytes, bool]] = {}
"""Grammars that have been checked, by their digest: they may be megabytes long."""


def _valid(grammar: str) -> bool:
    """Whether the engine can take it: over a millisecond a tool, and an agent sends the same ones every turn."""
    key = sha256(grammar.encode("utf-8", "surrogatepass")).digest()
    valid = _known.get(key)
    if valid is None:
        if len(_known) >= KNOWN_LIMIT:
            _known.clear()
        valid = _known[key] = not LLMatcher.validate_grammar(grammar)
    return valid
