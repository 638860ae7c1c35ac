"""Builds the validator of a schema: selects the draft, and leaves out patterns that could run forever.

Regular patterns take linear time (the validator uses Rust's `regex` for them), up to a size. Patterns with lookaround
need backtracking: a short one takes minutes for 100 KB. The most frequent form, lookaheads at the beginning, is linear
again:

    ^(?!\\s*$)(?=.*[A-Z]).{8,}$

Other patterns, and invalid ones, are removed from the schema if that can only make it accept more values.

Source: https://docs.rs/regex, "Untrusted input"; https://docs.rs/fancy-regex (both 2026-11), and times measured.
"""

import re
from collections.abc import Callable
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
    raise ConfigError(f"checking calls needs the guard extra: {extras.install_command('guard')}") from e

__all__ = ["ValidationError", "ValidationErrorKind", "Validator", "build_validator", "is_linear"]

MAX_PATTERNS: Final = 200
"""Different patterns in one schema; each can take half a millisecond to compile."""
MAX_PATTERN_BYTES: Final = 200_000
"""Size of a compiled pattern; `[a-z]{1,1000}` has half of it."""

REGULAR_OPTIONS: Final = RegexOptions(size_limit=MAX_PATTERN_BYTES, dfa_size_limit=MAX_PATTERN_BYTES)
LOOKAROUND_OPTIONS: Final = FancyRegexOptions(
    size_limit=MAX_PATTERN_BYTES,
    dfa_size_limit=MAX_PATTERN_BYTES,
    backtrack_limit=10_000,  # a pattern without backtracking needs no more
)
_NON_MONOTONIC: Final = frozenset({"not", "if", "oneOf", "maxContains"})
"""With these keywords, a removed pattern can make the schema accept fewer values."""
_DRAFTS: Final = (Draft202012Validator, Draft7Validator, Draft4Validator)
"""Tried in this order if a schema names no draft: in the second `items` can be a list; in the third, which OpenAPI 3.0
is close to, `exclusiveMinimum` can be true."""
_TOKEN: Final = re.compile(r"\\.|\[\^?\]?(?:[^\]\\]|\\.)*+(?:\]|\\?\Z)|\(\?<?[=!]|[()|]|.", re.DOTALL)


def build_validator(root: Any) -> "tuple[Validator | None, str, tuple[str, ...]]":
    """Builds the validator of a schema.

    Returns:
        The validator, or None; why there is none; the patterns that it does not check.
    """
    texts, names, keywords = _collect_patterns(root)
    if len(texts | names) > MAX_PATTERNS:
        return None, f"the schema has more than {MAX_PATTERNS} patterns", ()
    engine, why = _build_with_draft(root, REGULAR_OPTIONS)
    if engine is not None or not texts | names:
        return engine, why, ()
    dear = {pattern for pattern in texts | names if not is_linear(pattern)}
    if dear & names or (dear and keywords & _NON_MONOTONIC):
        return None, f"the schema has a pattern that is invalid, or takes too long: {min(dear)[:100]!r}", ()
    try:
        engine, why = _build_with_draft(without_patterns(root, dear), LOOKAROUND_OPTIONS)
    except RecursionError:
        return None, "the schema has too many levels", ()
    return engine, why, tuple(sorted(dear)) if engine is not None else ()


def _build_with_draft(root: Any, options: "RegexOptions | FancyRegexOptions") -> "tuple[Validator | None, str]":
    why = ""
    for number, draft in enumerate(_DRAFTS[:1] if isinstance(root, dict) and "$schema" in root else _DRAFTS):
        make = validator_for if number == 0 else draft
        try:
            # `mask` avoids writing values into messages that are not used.
            return make(root, validate_formats=True, offline=True, mask="it", pattern_options=options), ""
        except ValidationError as e:
            at = "/".join(map(str, e.instance_path))
            why = why or f"the schema cannot be used: {e.message[:200]}" + (f" at {at[:200]}" if at else "")
            if not isinstance(e.kind, ValidationErrorKind.Type):  # such a list or flag has the wrong type in 2020-12
                break
        except (ValueError, RecursionError) as e:
            return None, f"the schema cannot be used: {e}"
    return None, why


def _collect_patterns(root: Any) -> tuple[set[str], set[str], set[str]]:
    """The patterns of texts, the patterns of names, and all keywords and names."""
    texts, names, keywords = set[str](), set[str](), set[str]()
    left = [root]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            left += value.values()
            keywords.update(value)
            if isinstance(pattern := value.get("pattern"), str):
                texts.add(pattern)
            if isinstance(named := value.get("patternProperties"), dict):
                names.update(named)
    return texts, names, keywords


def is_linear(pattern: str) -> bool:
    """Returns whether a pattern is regular, or regular after lookaheads that are regular."""
    return _is_regular(pattern) or all(map(_is_regular, _split_lookaheads(pattern)))


def regular_matcher(pattern: str) -> "Callable[[str], bool] | None":
    """Returns what searches for the pattern in a text, in linear time; None if it is invalid or not regular."""
    try:
        return Draft202012Validator({"pattern": pattern}, pattern_options=REGULAR_OPTIONS).is_valid
    except ValueError:
        return None


def without_patterns(schema: Any, patterns: set[str]) -> Any:
    """Returns the schema without those patterns of texts that are in `patterns`."""
    if isinstance(schema, list):
        return [without_patterns(each, patterns) for each in schema]
    if not isinstance(schema, dict):
        return schema
    remaining = {word: without_patterns(value, patterns) for word, value in schema.items() if word != "pattern"}
    if "pattern" in schema and not (isinstance(schema["pattern"], str) and schema["pattern"] in patterns):
        remaining["pattern"] = without_patterns(schema["pattern"], patterns)
    return remaining


def _is_regular(pattern: str) -> bool:
    try:
        Draft202012Validator({"pattern": pattern}, pattern_options=REGULAR_OPTIONS)
    except (ValidationError, ValueError):
        return False
    return True


def _split_lookaheads(pattern: str) -> list[str]:
    """The lookaheads at the beginning and the rest of the pattern; the pattern itself if it does not have this form."""
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
