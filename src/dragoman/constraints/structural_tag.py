"""Writes a constraint as a structural tag, the JSON of XGrammar, which vLLM, SGLang and TensorRT-LLM accept.

    {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<tool_call>"], "tags": […]}}

If calls are optional, text is free up to the trigger and, for calls without a wrapper, again after each call. If a call
is required, only calls are accepted. XGrammar limits objects to the properties that their schema states, in its order,
unless the schema allows others.

Source: https://xgrammar.mlc.ai/docs/ "Structural Tag Usage" (0.2.6, 2026-09); tested with 0.2.8.
"""

import json
from typing import Any, TypeAlias

from dragoman.constraints.constraint import Constraint
from dragoman.constraints.gbnf import expression_grammar, validate_constraint
from dragoman.constraints.grammar import (
    WORD_CHARS,
    Choice,
    Concat,
    GrammarExpr,
    Identifier,
    JsonValue,
    RawText,
    Repeat,
    has_rules,
)
from dragoman.core.messages import JsonText
from dragoman.schema.adapt import adapt
from dragoman.schema.targets import XGRAMMAR

_Json: TypeAlias = dict[str, Any]


def to_structural_tag(constraint: Constraint) -> JsonText:
    """Writes a constraint as a structural tag, for XGrammar in vLLM, SGLang and TensorRT-LLM.

        tag = to_structural_tag(build_constraint("hermes", tools, ToolChoice("required")))

    Args:
        constraint: What `build_constraint` returned, if not None.

    Returns:
        The structural tag as JSON text, for `response_format` or the engine's own parameter.

    Raises:
        UsageError: The argument is not a constraint, such as None.
    """
    validate_constraint(constraint)
    opening, closing = constraint.wrapper
    format = _listed(constraint)
    if constraint.optional and (opening or closing):
        # A model that has opened the wrapper must write a call.
        tag = _tag(opening, format, closing) if opening.startswith(constraint.trigger) else _from_trigger(constraint)
        format = _triggered(constraint, [tag], stop_after_first=True)
    elif constraint.optional:
        format = _triggered(constraint, _tags(constraint), stop_after_first=not constraint.parallel)
    elif opening or closing:
        format = _tag(opening, format, closing)
    return json.dumps({"type": "structural_tag", "format": format}, ensure_ascii=False)


def _tags(constraint: Constraint, opened: str = "") -> list[_Json]:
    """Returns one tag per tool; `opened` is the part of the call that was written already."""
    return [
        _tag(f"{opened and constraint.wrapper[0]}{call.prefix}"[len(opened) :], _body(call.body), call.suffix)
        for call in constraint.calls
    ]


def _listed(constraint: Constraint) -> _Json:
    """Returns a format of calls only."""
    tags, many = _tags(constraint), {"at_least_one": True, "stop_after_first": not constraint.parallel}
    return {"type": "tags_with_separator", "tags": tags, "separator": constraint.separator, **many}


def _triggered(constraint: Constraint, tags: list[_Json], *, stop_after_first: bool) -> _Json:
    """Returns a format of free text, and tags from the trigger on."""
    call_count = {"at_least_one": False, "stop_after_first": stop_after_first}
    return {"type": "triggered_tags", "triggers": [constraint.trigger], "tags": tags, **call_count}


def _from_trigger(constraint: Constraint) -> _Json:
    """Returns the tag for a wrapper that is shorter than the trigger, which includes a part of the first call."""
    calls: list[_Json] = [{"type": "or", "elements": _tags(constraint, constraint.trigger)}]
    if constraint.parallel:
        separator = {"type": "const_string", "value": constraint.separator}
        other = {"type": "or", "elements": _tags(constraint)}
        calls.append({"type": "star", "content": {"type": "sequence", "elements": [separator, other]}})
    return _tag(constraint.trigger, {"type": "sequence", "elements": calls}, constraint.wrapper[1])


def _body(piece: GrammarExpr) -> _Json:
    """Returns the format of a call's body; recursive expressions become an embedded grammar."""
    return {"type": "grammar", "grammar": expression_grammar(piece)} if has_rules(piece) else _format(piece)


def _format(piece: GrammarExpr) -> _Json:
    match piece:
        case JsonValue():
            return {"type": "json_schema", "json_schema": _accepted_schema(piece)}
        case RawText(end, excluded):
            return _tag("", {"type": "any_text", "excludes": list(excluded)}, end)
        case Identifier():
            return {"type": "regex", "pattern": f"[A-Za-z_][0-9A-Za-z_]{{0,{WORD_CHARS - 1}}}"}
        case Concat(parts):
            return {"type": "sequence", "elements": [_format(part) for part in parts if part] or [_format("")]}
        case Choice(parts):
            return {"type": "or", "elements": list(map(_format, parts))}
        case Repeat(part, least, most):
            return {"type": "repeat", "min": least, "max": -1 if most is None else most, "content": _format(part)}
        case _:
            return {"type": "const_string", "value": piece}


def _accepted_schema(piece: JsonValue) -> Any:
    """Returns the schema without invalid or unsupported parts, for which the engine would reject it."""
    return json.loads(adapt(json.dumps(piece.value()), XGRAMMAR).json)


def _tag(begin: str, content: _Json, end: str) -> _Json:
    return {"type": "tag", "begin": begin, "content": content, "end": end}
