"""Writes a constraint as a grammar for LLGuidance: Lark notation with embedded JSON Schema.

    %llguidance {}
    start: calls
    calls: "" call ("" "\\n" call)* "" ""
    call: "<tool_call>\\n{\\"name\\": \\"ping\\", \\"arguments\\": " rest_0

Required or named calls are constrained from the first token. If calls are optional, text is free up to the trigger, and
constrained to a valid call from there on. Small models often omit the trigger. A reply that starts with an untagged
call of an offered tool, in a code fence or not, is parsed as a call by the lenient reader
(`parsing/untagged/untagged_json.py`), so it is constrained from there on:

    ```json
    {"name": "ping", "arguments":

Source: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md (1.9, 2026-11).
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from dragoman.constraints.constraint import ConstrainedCall, Constraint
from dragoman.constraints.grammar import WORD_CHARS, Identifier, JsonValue, RawText, RuleWriter
from dragoman.core.messages import JsonText, Tool
from dragoman.schema.keywords import LISTED, NAMED, SINGLE, has_refs

_STYLE: Final = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": True}
"""The usual JSON style of models. With flexible white space, a small model may write line breaks endlessly."""
_ANY_STYLE: Final = {"whitespace_flexible": True, "whitespace_pattern": r"(\r?\n)?[ \t]{0,40}", "lenient": True}
"""JSON style of a model without instructions: on one line or on several, up to twenty levels deep."""
_TEXT: Final = "(?s:.*)"
_SPACE: Final = r"[ \t\r\n]{0,40}"
_FENCE: Final = rf"```(json|tool_call|xml)?{_SPACE}"
_NAMED: Final = _SPACE.join((r"\{", '"name"', ":", "{name}", ",", '"(arguments|parameters)"', ":"))
"""The start of an untagged call, up to its arguments."""


_SCALARS: Final = ("string", "number", "integer", "boolean")
_MAX_LIST_VALUES: Final = 16
"""Maximum length of a list in the place of a scalar argument."""


class UntaggedCalls(NamedTuple):
    """Calls that the lenient reader accepts without the markers of their format."""

    tools: Sequence[Tool] = ()
    reasoning: Sequence[str] = ()
    """The closers of the reasoning that may precede them."""


_NO_BARE: Final = UntaggedCalls()


def llguidance_grammar(
    constraint: Constraint, answer: JsonText = "", bare: UntaggedCalls = _NO_BARE, count: int = 0
) -> str:
    """Returns the grammar of a constraint.

    Args:
        constraint: The calls.
        answer: If calls are optional, the JSON Schema of a reply without calls; "" for any text.
        bare: Untagged calls that are constrained too, if calls are optional and `answer` is empty.
        count: Number of calls if they are required; 0: any.
    """
    opening, closing = constraint.wrapper
    # The common prefix is separate, because the engine looks only one character ahead to distinguish strings.
    may_be_many = constraint.parallel and count != 1
    lengths = range(len(closing) if may_be_many else 0, -1, -1)
    shared = next(closing[:i] for i in lengths if constraint.separator.startswith(closing[:i]))
    separator, end = (json.dumps(text[len(shared) :]) for text in (constraint.separator, closing))
    times = f"{{{count - 1}}}" if count else "*"
    more = f"({json.dumps(shared)} {separator} call){times} {json.dumps(shared)}" if may_be_many else ""
    lines = ["%llguidance {}"]
    if constraint.optional and not answer:
        # The trigger is matched as the end of the free text, so it is not part of the first call.
        skipped = len(constraint.trigger)
        lines += [
            f"start: {'reasoning? ' if bare.reasoning else ''}reply",
            f"reply: plain | begun{' | bare' if bare.tools else ''}",
            "plain: /(.|\\n)*/",
            f"begun: before first {more} {end}",
            f"before[suffix={json.dumps(constraint.trigger)}]: /(.|\\n)*/",
            _any_of("first", constraint, lambda call: f"{opening}{call.prefix}"[skipped:]),
            *_bare(bare, constraint.parallel),
        ]
    else:
        lines.append("start: answer | calls" if constraint.optional else "start: calls")
        lines.append(f"calls: {json.dumps(opening)} call {more} {end}")
    if constraint.optional and answer:
        lines.append(f"answer: {json_rule(json.loads(answer))}")
    lines.append(_any_of("call", constraint, lambda call: call.prefix))
    raws: dict[RawText, str] = {}
    rules = RuleWriter(lambda text: json.dumps(text) if text else "", lambda piece: _leaf(piece, raws))
    for i, call in enumerate(constraint.calls):
        lines.append(f"rest_{i}: {rules.sequence_text(call.body)} {json.dumps(call.suffix)}")
    lines += (f"{name}: {body}" for name, body in rules.rules_by_name.items())
    lines += (f"{name}: {_terminal(raw)}" for raw, name in raws.items())
    return "\n".join([*lines, ""])


def json_rule(schema: Any) -> str:
    """Returns the rule body for a JSON value of this schema."""
    return _json(schema, _STYLE)


def _any_of(rule: str, constraint: Constraint, before: Callable[[ConstrainedCall], str]) -> str:
    choices = (f"{json.dumps(before(call))} rest_{i}" for i, call in enumerate(constraint.calls))
    return f"{rule}: {' | '.join(choices)}"


def _bare(bare: UntaggedCalls, many: bool) -> Iterator[str]:
    """Writes the rules of untagged calls, recognised from the first call's name and the start of its arguments on."""
    if bare.reasoning:
        yield f"reasoning[lazy]: /{_TEXT}({'|'.join(map(_escaped, bare.reasoning))})/"
    if not bare.tools:
        return
    heads = {"first": "", "fenced": _FENCE, "next": "", "again": rf"{_SPACE}```[ \t]*\r?\n{_SPACE}{_FENCE}"}
    first, fenced, after, refenced = (f"({_choice(f'bare_{head}', len(bare.tools))})" for head in heads)
    if many:
        first, fenced = f"{first} {after}*", f"{fenced} {after}* ({refenced} {after}*)*"
    yield f"bare: {first} BARE_LINE? | {fenced} BARE_END?"
    yield r"BARE_LINE: /[\r\n]{1,2}/"
    yield r"BARE_END: /[\r\n]{1,2}|[\r\n]{0,2}```\n?/"
    yield r"BARE_SPACE: /[ \t\r\n]{1,40}/"
    for i, tool in enumerate(bare.tools):
        named = _NAMED.replace("{name}", _escaped(json.dumps(tool.name, ensure_ascii=False)))
        for head, before in heads.items():
            yield f"bare_{head}_{i}[lazy]: /{_SPACE}{before}{named}/"
        arguments = _json(_with_repairable_values(JsonValue(tool.parameters, arguments=True).value(), many), _ANY_STYLE)
        yield f'bare_rest_{i}: BARE_SPACE? {arguments} BARE_SPACE? "}}"'


def _with_repairable_values(schema: dict[str, Any], many: bool) -> dict[str, Any]:
    """Returns the schema of a call's arguments with additions that are repaired later (guard/repair_steps.py).

    These are null for an optional argument and, for parallel calls, a list of values in the place of a scalar. A model
    that may write neither invents a value, or makes only one call (docs/accuracy.md).
    """
    members, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(members, dict) or not isinstance(required, list) or has_refs(schema):
        return schema  # a reference may point to a changed part

    def add_alternatives(name: str, member: Any) -> Any:
        also: list[Any] = [] if name in required else [{"type": "null"}]
        if many and isinstance(member, dict) and member.get("type") in _SCALARS:
            also.append({"type": "array", "items": member, "minItems": 2, "maxItems": _MAX_LIST_VALUES})
        return {"anyOf": [member, *also]} if also else member

    return schema | {"properties": {name: add_alternatives(name, member) for name, member in members.items()}}


def _choice(rule: str, count: int) -> str:
    return " | ".join(f"{rule}_{i} bare_rest_{i}" for i in range(count))


def _leaf(piece: JsonValue | RawText | Identifier, raws: dict[RawText, str]) -> str:
    match piece:
        case JsonValue():
            return json_rule(piece.read())
        case RawText():
            return raws.setdefault(piece, f"RAW{len(raws)}")
        case Identifier():
            return f"/[A-Za-z_][0-9A-Za-z_]{{0,{WORD_CHARS - 1}}}/"


def _terminal(raw: RawText) -> str:
    """Writes text up to and including `end`, which occurs only at its end, so that the end is unambiguous."""
    excluded = (_escaped(text) + ("(?s:.)" if raw.end.endswith(text) else "") for text in (raw.end, *raw.excluded))
    return f"/{_TEXT}{_escaped(raw.end)}/ & ~/{_TEXT}({'|'.join(excluded)}){_TEXT}/"


def _escaped(text: str) -> str:
    return "".join(c if c.isalnum() else f"\\x{{{ord(c):x}}}" for c in text)


def _json(schema: Any, style: dict[str, Any]) -> str:
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    return "%json " + json.dumps(_with_inclusive_bounds(schema) | {"x-guidance": style}, ensure_ascii=False)


def _with_inclusive_bounds(schema: Any) -> Any:
    """Returns the schema with exclusive bounds of numbers replaced by inclusive ones.

    With 0 excluded, a model that means 0 writes 0.0000… up to its token limit, because only digits may follow
    (Qwen2.5-Coder 1.5B, docs/accuracy.md). The guard reports the value when it validates the call.
    """
    if not isinstance(schema, dict):
        return schema
    converted: dict[str, Any] = {}
    for word, value in schema.items():
        if word in NAMED and isinstance(value, dict):
            converted[word] = {name: _with_inclusive_bounds(part) for name, part in value.items()}
        elif word in LISTED and isinstance(value, list):
            converted[word] = [_with_inclusive_bounds(part) for part in value]
        elif word in _RELAXABLE:
            converted[word] = _with_inclusive_bounds(value)
        else:
            converted[word] = value
    for word, wide in _BOUNDS:
        if (
            isinstance(bound := converted.get(word), int | float)
            and not isinstance(bound, bool)
            and wide not in converted
        ):
            converted[wide] = converted.pop(word)
    return converted


_RELAXABLE: Final = SINGLE - {"not", "if"}
"""Keywords whose schema accepts more if its sub-schema does. (Draft 4's `true` is not a numeric bound.)"""
_BOUNDS: Final = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))
