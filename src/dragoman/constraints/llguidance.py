"""What a model is held to, as a grammar of LLGuidance: Lark's notation with JSON Schema in it.

    %llguidance {}
    start: calls
    calls: "" call ("" "\\n" call)* "" ""
    call: "<tool_call>\\n{\\"name\\": \\"ping\\", \\"arguments\\": " rest_0

Required or named calls are held from the first token. With free choice the model writes what it likes until the
opening marker, and from there on a call that fits. Small models often leave the marker out; a reply that begins as a
bare call of an offered tool, fenced or not, is one to the lenient reader (`parsing/untagged_json.py`), and is held
from there on:

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
"""As models write JSON; flexible white space lets a small model write line breaks for ever."""
_ANY_STYLE: Final = {"whitespace_flexible": True, "whitespace_pattern": r"(\r?\n)?[ \t]{0,40}", "lenient": True}
"""As a model writes it that nobody told how: on one line or on many, up to twenty levels deep."""
_TEXT: Final = "(?s:.*)"
_SPACE: Final = r"[ \t\r\n]{0,40}"
_FENCE: Final = rf"```(json|tool_call|xml)?{_SPACE}"
_NAMED: Final = _SPACE.join((r"\{", '"name"', ":", "{name}", ",", '"(arguments|parameters)"', ":"))
"""How a bare call begins, up to its arguments."""


_SCALARS: Final = ("string", "number", "integer", "boolean")
_VALUES: Final = 16
"""In such a list."""


class UntaggedCalls(NamedTuple):
    """Calls that a lenient reader takes without the markers of their format."""

    tools: Sequence[Tool] = ()
    thoughts: Sequence[str] = ()
    """What ends the thoughts that may stand before them."""


_NO_BARE: Final = UntaggedCalls()


def llguidance_grammar(constraint: Constraint, answer: JsonText = "", bare: UntaggedCalls = _NO_BARE) -> str:
    """The grammar of these calls; with free choice of JSON of the schema `answer`, if given, or else of anything.

    `bare` are held too, where the choice is free.
    """
    opening, closing = constraint.wrapper
    # What both begin with stands by itself: the engine looks one character ahead to tell strings apart.
    lengths = range(len(closing) if constraint.parallel else 0, -1, -1)
    shared = next(closing[:i] for i in lengths if constraint.separator.startswith(closing[:i]))
    separator, end = (json.dumps(text[len(shared) :]) for text in (constraint.separator, closing))
    more = f"({json.dumps(shared)} {separator} call)* {json.dumps(shared)}" if constraint.parallel else ""
    lines = ["%llguidance {}"]
    if constraint.optional and not answer:
        # The model is free up to the opener, so that is no part of the first call.
        skipped = len(constraint.trigger)
        lines += [
            f"start: {'thoughts? ' if bare.thoughts else ''}reply",
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
        lines.append(f"rest_{i}: {rules.of(call.body)} {json.dumps(call.suffix)}")
    lines += (f"{name}: {body}" for name, body in rules.made.items())
    lines += (f"{name}: {_terminal(raw)}" for raw, name in raws.items())
    return "\n".join([*lines, ""])


def json_rule(schema: Any) -> str:
    """What stands for a JSON value of this schema."""
    return _json(schema, _STYLE)


def _any_of(rule: str, constraint: Constraint, before: Callable[[ConstrainedCall], str]) -> str:
    choices = (f"{json.dumps(before(call))} rest_{i}" for i, call in enumerate(constraint.calls))
    return f"{rule}: {' | '.join(choices)}"


def _bare(bare: UntaggedCalls, many: bool) -> Iterator[str]:
    """A reply of bare calls: it is one from where the first has named its tool and begins its arguments."""
    if bare.thoughts:
        yield f"thoughts[lazy]: /{_TEXT}({'|'.join(map(_escaped, bare.thoughts))})/"
    if not bare.tools:
        return
    heads = {"first": "", "fenced": _FENCE, "next": "", "again": rf"{_SPACE}```[ \t]*\r?\n{_SPACE}{_FENCE}"}
    first, fenced, after, again = (f"({_choice(f'bare_{head}', len(bare.tools))})" for head in heads)
    if many:
        first, fenced = f"{first} {after}*", f"{fenced} {after}* ({again} {after}*)*"
    yield f"bare: {first} BARE_LINE? | {fenced} BARE_END?"
    yield r"BARE_LINE: /[\r\n]{1,2}/"
    yield r"BARE_END: /[\r\n]{1,2}|[\r\n]{0,2}```\n?/"
    yield r"BARE_SPACE: /[ \t\r\n]{1,40}/"
    for i, tool in enumerate(bare.tools):
        named = _NAMED.replace("{name}", _escaped(json.dumps(tool.name, ensure_ascii=False)))
        for head, before in heads.items():
            yield f"bare_{head}_{i}[lazy]: /{_SPACE}{before}{named}/"
        arguments = _json(_forgiven(JsonValue(tool.parameters, arguments=True).value(), many), _ANY_STYLE)
        yield f'bare_rest_{i}: BARE_SPACE? {arguments} BARE_SPACE? "}}"'


def _forgiven(schema: dict[str, Any], many: bool) -> dict[str, Any]:
    """The schema of a call's arguments with what is set right where calls are checked (guard/repair_steps.py).

    That is null for a member that need not be, and, where several calls may be made, one for all of them: a list in the
    place of a value. A model that may write neither makes a value up, or calls once (docs/accuracy.md).
    """
    members, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(members, dict) or not isinstance(required, list) or has_refs(schema):
        return schema  # a reference may lead into what would be changed

    def forgiven(name: str, member: Any) -> Any:
        also: list[Any] = [] if name in required else [{"type": "null"}]
        if many and isinstance(member, dict) and member.get("type") in _SCALARS:
            also.append({"type": "array", "items": member, "minItems": 2, "maxItems": _VALUES})
        return {"anyOf": [member, *also]} if also else member

    return schema | {"properties": {name: forgiven(name, member) for name, member in members.items()}}


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
    """Text that no other text of these begins with, so that it is clear where it ends."""
    never = (_escaped(text) + ("(?s:.)" if raw.end.endswith(text) else "") for text in (raw.end, *raw.never))
    return f"/{_TEXT}{_escaped(raw.end)}/ & ~/{_TEXT}({'|'.join(never)}){_TEXT}/"


def _escaped(text: str) -> str:
    return "".join(c if c.isalnum() else f"\\x{{{ord(c):x}}}" for c in text)


def _json(schema: Any, style: dict[str, Any]) -> str:
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    return "%json " + json.dumps(_within_reach(schema) | {"x-guidance": style}, ensure_ascii=False)


def _within_reach(schema: Any) -> Any:
    """The schema with each bound let through that a number may come near to, but not reach.

    With 0 forbidden, a model that means 0 writes 0.0000 up to its limit of tokens, as nothing but a digit may follow
    (Qwen2.5-Coder 1.5B, docs/accuracy.md). So it is let through, and told where calls are checked.
    """
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for word, value in schema.items():
        if word in NAMED and isinstance(value, dict):
            made[word] = {name: _within_reach(part) for name, part in value.items()}
        elif word in LISTED and isinstance(value, list):
            made[word] = [_within_reach(part) for part in value]
        elif word in _HELD:
            made[word] = _within_reach(value)
        else:
            made[word] = value
    for word, wide in _BOUNDS:
        if isinstance(bound := made.get(word), int | float) and not isinstance(bound, bool) and wide not in made:
            made[wide] = made.pop(word)
    return made


_HELD: Final = SINGLE - {"not", "if"}
"""Where more let through is more in all; draft 4's `true` for a bound is no number."""
_BOUNDS: Final = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))
