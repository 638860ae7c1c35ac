"""Writes a constraint as a GBNF grammar, for llama.cpp's server and other engines based on llama.cpp.

    root ::= call ("\\n" call)*
    call ::= "<tool_call>\\n{\\"name\\": \\"ping\\", \\"arguments\\": " r1 "}\\n</tool_call>"

Objects have the properties that their schema states, in its order, and others only if it states none. GBNF cannot
express all of JSON Schema: the keywords that are not enforced are reported in `relaxed`.

Source: llama.cpp, grammars/README.md (2026-10) and the server's `grammar`, `grammar_lazy` and `grammar_triggers`
(tools/server/server-task.cpp, 2026-10).
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dragoman.constraints.constraint import Constraint
from dragoman.constraints.grammar import WORD_CHARS, Concat, GrammarExpr, Identifier, JsonValue, RawText, RuleWriter
from dragoman.constraints.schema_values import JSON, UNENFORCED, ValueGrammar, repeat_bounds
from dragoman.core.errors import UsageError

_RULES: Final = {
    "sp": '" "?',
    "value": "object | array | string | number | boolean | null",
    "object": '"{" (string ":" sp value ("," sp string ":" sp value)*)? "}"',
    "array": '"[" (value ("," sp value)*)? "]"',
    "string": '"\\"" char* "\\""',
    "char": r'[^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})',
    "number": 'integer ("." [0-9]{1,24})? ([eE] [-+]? [0-9]{1,3})?',
    "integer": '"-"? ("0" | [1-9] [0-9]{0,18})',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "word": f"[A-Za-z_] [0-9A-Za-z_]{{0,{WORD_CHARS - 1}}}",
}
"""Any JSON, with at most one space between tokens. Digits are limited, because a model could write them endlessly."""
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_IN_CLASSES: Final = '[]^-"'
"""Characters with a special meaning in a character class."""
_WORD: Final = 1
"""The type of a trigger in llama.cpp: a literal string, which is matched by the grammar too."""


class Gbnf(NamedTuple):
    """A grammar, and the fields to send with it."""

    grammar: str
    trigger: str
    """If the calls are optional, the text from which on (inclusive) the grammar is enforced; else ""."""
    relaxed: tuple[str, ...]
    """Keywords of the schemas that the grammar does not enforce."""

    def body(self) -> dict[str, Any]:
        """Returns the fields for a request to llama.cpp's server."""
        if not self.trigger:
            return {"grammar": self.grammar}
        triggers = [{"type": _WORD, "value": self.trigger}]
        lazy = {"grammar_lazy": True, "grammar_triggers": triggers, "preserved_tokens": [self.trigger]}
        return {"grammar": self.grammar, **lazy}


def to_gbnf(constraint: Constraint) -> Gbnf:
    """Writes a constraint as a GBNF grammar, for llama.cpp and engines based on it.

        body |= to_gbnf(build_constraint("hermes", tools, ToolChoice("required"))).body()

    Args:
        constraint: What `build_constraint` returned, if not None.

    Returns:
        The grammar, its trigger, and the JSON Schema keywords that it cannot express.

    Raises:
        UsageError: The argument is not a constraint, such as None.
    """
    validate_constraint(constraint)
    written = _GbnfWriter({word for call in constraint.calls for word in call.relaxed})
    calls = [written.rules.sequence_text(Concat((call.prefix, call.body, call.suffix))) for call in constraint.calls]
    more = f"({_sequence(_literal(constraint.separator), 'call')})*" if constraint.parallel else ""
    opening, closing = map(_literal, constraint.wrapper)
    heads = {"root": _sequence(opening, "call", more, closing), "call": " | ".join(calls)}
    return Gbnf(
        written.grammar(heads), constraint.trigger if constraint.optional else "", tuple(sorted(written.relaxed))
    )


def validate_constraint(constraint: object) -> None:
    """Checks the type of a constraint.

    Raises:
        UsageError: It is not a `Constraint`; send the request without one.
    """
    if not isinstance(constraint, Constraint):
        hint = "; where `build_constraint` returns None, nothing is to be held or can be" if constraint is None else ""
        raise UsageError(f"expected a Constraint, got {type(constraint).__name__}{hint} - at constraint")


def expression_grammar(piece: GrammarExpr) -> str:
    """Returns the grammar of one expression."""
    written = _GbnfWriter(set())
    return written.grammar({"root": written.rules.sequence_text(piece)})


class _GbnfWriter:
    """Writes expressions as GBNF."""

    def __init__(self, relaxed: set[str]) -> None:
        self.relaxed = relaxed
        self.rules = RuleWriter(_literal, self._leaf)
        self._raws: dict[tuple[str, tuple[str, ...]], str] = {}

    def grammar(self, heads: Mapping[str, str]) -> str:
        """Returns all rules as text, `heads` first."""
        rules = {**heads, **self.rules.rules_by_name, **_RULES}
        return "".join(f"{name} ::= {body}\n" for name, body in rules.items())

    def _leaf(self, piece: JsonValue | RawText | Identifier) -> str:
        match piece:
            case RawText(end, excluded):
                return self._raw(end, excluded)
            case Identifier():
                return "word"
        schema = piece.value()
        if schema == {} or not isinstance(schema, dict):
            return "value"
        if schema.get("type") in ("string", "number", "integer") and not schema.keys() & {"const", "enum", "$ref"}:
            return self._scalar(schema)
        rule = self.rules.sequence_text(ValueGrammar(JSON, schema, self.relaxed).value(schema))
        return "object" if piece.arguments and rule == "value" else rule

    def _scalar(self, schema: Mapping[str, Any]) -> str:
        self.relaxed |= schema.keys() & UNENFORCED
        least, most = repeat_bounds(schema, "minLength", "maxLength", self.relaxed)
        if schema["type"] != "string" or (least, most) == (0, None):
            return str(schema["type"])
        return f'"\\"" char{{{least},{"" if most is None else most}}} "\\""'

    def _raw(self, end: str, excluded: tuple[str, ...]) -> str:
        """Writes text up to `end`: one rule for each prefix of the searched strings that may have been written."""
        prefixes = sorted({text[:i] for text in (end, *excluded) for i in range(len(text))}, key=len)
        names = {text: f"raw{len(self.rules.rules_by_name) + i}" for i, text in enumerate(prefixes)}
        if (end, excluded) not in self._raws:
            self._raws[end, excluded] = names[""]
            for text in prefixes:
                self.rules.define(names[text], _next(text, names, end, excluded))
        return self._raws[end, excluded]


def _next(text: str, names: Mapping[str, str], end: str, excluded: tuple[str, ...]) -> str:
    """Returns the rule body after `text`, the longest prefix of a searched string that was written last."""
    next_chars = dict.fromkeys(
        s[len(t)] for t in names if text.endswith(t) for s in (end, *excluded) if s.startswith(t)
    )
    branches = []
    for char in next_chars:
        written = text + char
        if written.endswith(end):
            branches.append(_literal(char))
        elif not written.endswith(excluded):
            longest = max((t for t in names if written.endswith(t)), key=len)
            branches.append(f"{_literal(char)} {names[longest]}")
    others = "".join(f"\\u{ord(c):04X}" if c in _IN_CLASSES else _escaped(c) for c in next_chars)
    return " | ".join([*branches, f"[^{others}] {names['']}"])


def _literal(text: str) -> str:
    """Returns the text as a GBNF string; "" for the empty string."""
    return f'"{"".join(map(_escaped, text))}"' if text else ""


def _escaped(char: str) -> str:
    # XGrammar would read a digit after `\x00` as a part of the escape.
    return _ESCAPES.get(char) or (f"\\u{ord(char):04X}" if char < " " or char == "\x7f" else char)


def _sequence(*parts: str) -> str:
    return " ".join(part for part in parts if part)
