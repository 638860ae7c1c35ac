"""The engine that checks values, made ready for one schema: its draft, and patterns that cannot keep it busy.

Regular patterns take linear time (the engine has Rust's `regex` for them), up to a size. Those that look around are
matched by trying: a short one takes minutes for 100 KB. What people mostly write so, conditions in front of all else,
is linear again:

    ^(?!\\s*$)(?=.*[A-Z]).{8,}$

Others, and what is no pattern at all, are left out of the schema where that can only make more fit.

Source: https://docs.rs/regex, "Untrusted input"; https://docs.rs/fancy-regex (both 2026-11), and times measured.
"""

import re
from typing import Any, Final

from dragoman import extras
from dragoman.core.errors import ConfigError

try:
    from jsonschema_rs import (
        Draft4Validator,
        Draft7Validator,
        Draft202012Validator,
        FancyRegexOptions,
        RegexOptions,
        ValidationError,
        ValidationErrorKind,
        Validator,
        validator_for,
    )
except ImportError as e:
    raise ConfigError(f"checking calls needs the guard extra: {extras.to_type('guard')}") from e

__all__ = ["ValidationError", "ValidationErrorKind", "Validator", "linear", "made"]

PATTERN_LIMIT: Final = 200
"""Different patterns in one schema; each may take half a millisecond to compile."""
SIZE_LIMIT_BYTES: Final = 200_000
"""Of a compiled pattern: `[a-z]{1,1000}` has half of that."""

REGULAR: Final = RegexOptions(size_limit=SIZE_LIMIT_BYTES, dfa_size_limit=SIZE_LIMIT_BYTES)
LOOKING: Final = FancyRegexOptions(
    size_limit=SIZE_LIMIT_BYTES,
    dfa_size_limit=SIZE_LIMIT_BYTES,
    backtrack_limit=10_000,  # what has no need to go back needs none
)
_CONTRARY: Final = frozenset({"not", "if", "oneOf", "maxContains"})
"""With these, less to hold a value to may mean that less fits."""
_DRAFTS: Final = (Draft202012Validator, Draft7Validator, Draft4Validator)
"""Tried in this order where a schema names no draft: in the second `items` may be a list, in the third, which OpenAPI
3.0 is near to, `exclusiveMinimum` may be true."""
_TOKEN: Final = re.compile(r"\\.|\[\^?\]?(?:[^\]\\]|\\.)*+(?:\]|\\?\Z)|\(\?<?[=!]|[()|]|.", re.DOTALL)


def made(root: Any) -> "tuple[Validator | None, str, tuple[str, ...]]":
    """The schema made ready, or why it cannot be; and the patterns that it is checked without."""
    texts, names, words = _stated(root)
    if len(texts | names) > PATTERN_LIMIT:
        return None, f"the schema has more than {PATTERN_LIMIT} patterns", ()
    engine, why = _of_draft(root, REGULAR)
    if engine is not None or not texts | names:
        return engine, why, ()
    dear = {pattern for pattern in texts | names if not linear(pattern)}
    if dear & names or (dear and words & _CONTRARY):
        return None, f"the schema has a pattern that is none, or takes too long: {min(dear)[:100]!r}", ()
    try:
        engine, why = _of_draft(without(root, dear), LOOKING)
    except RecursionError:
        return None, "the schema has too many levels", ()
    return engine, why, tuple(sorted(dear)) if engine is not None else ()


def _of_draft(root: Any, options: "RegexOptions | FancyRegexOptions") -> "tuple[Validator | None, str]":
    why = ""
    for number, draft in enumerate(_DRAFTS[:1] if isinstance(root, dict) and "$schema" in root else _DRAFTS):
        make = validator_for if number == 0 else draft
        try:
            # `mask` saves writing the values into messages that nobody reads.
            return make(root, validate_formats=True, offline=True, mask="it", pattern_options=options), ""
        except ValidationError as e:
            at = "/".join(map(str, e.instance_path))
            why = why or f"the schema cannot be used: {e.message[:200]}" + (f" at {at[:200]}" if at else "")
            if not isinstance(e.kind, ValidationErrorKind.Type):  # as such a list or such a flag are to 2020-12
                break
        except (ValueError, RecursionError) as e:
            return None, f"the schema cannot be used: {e}"
    return None, why


def _stated(root: Any) -> tuple[set[str], set[str], set[str]]:
    """The patterns of texts, those of names, and all words."""
    texts, names, words = set[str](), set[str](), set[str]()
    left = [root]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            left += value.values()
            words.update(value)
            if isinstance(pattern := value.get("pattern"), str):
                texts.add(pattern)
            if isinstance(named := value.get("patternProperties"), dict):
                names.update(named)
    return texts, names, words


def linear(pattern: str) -> bool:
    """Whether it is regular, or regular behind conditions that are."""
    return _regular(pattern) or all(map(_regular, _conditions(pattern)))


def without(schema: Any, patterns: set[str]) -> Any:
    """The schema without the patterns of texts that are among these."""
    if isinstance(schema, list):
        return [without(each, patterns) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {word: without(value, patterns) for word, value in schema.items() if word != "pattern"}
    if "pattern" in schema and not (isinstance(schema["pattern"], str) and schema["pattern"] in patterns):
        kept["pattern"] = without(schema["pattern"], patterns)
    return kept


def _regular(pattern: str) -> bool:
    try:
        Draft202012Validator({"pattern": pattern}, pattern_options=REGULAR)
    except (ValidationError, ValueError):
        return False
    return True


def _conditions(pattern: str) -> list[str]:
    """The conditions in front, and all behind them; itself where it is not of that kind."""
    parts, depth, start, front = list[str](), 0, 1, pattern.startswith("^")
    for token in _TOKEN.finditer(pattern, 1):
        text = token.group()
        if depth == 0 and text == "|":
            return [pattern]
        if depth == 0:
            front = front and text in ("(?=", "(?!")
        depth += text.startswith("(") - (text == ")")
        if depth == 0 and front:
            parts.append(pattern[start + 3 : token.start()])
            start = token.end()
    return [*parts, pattern[start:]] if pattern.startswith("^") else [pattern]
