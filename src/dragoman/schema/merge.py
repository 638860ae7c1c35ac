"""Merges schemas into one, for servers that do not accept `allOf`, `anyOf` or `oneOf` there.

The result accepts everything that the input accepts, and sometimes more: the keywords that could not be kept are
reported. The `$ref` of each schema must be resolved before.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from dragoman.schema.keywords import NON_VALIDATING, Schema, types_in

OnLost = Callable[[str], None]
"""Called with each keyword that could not be kept."""

_GROUPS: Final = (
    ("if", "then", "else"),
    ("contains", "minContains", "maxContains"),
    ("prefixItems", "items"),
    ("properties", "patternProperties", "additionalProperties"),
)
"""Keywords that depend on each other; those of objects are merged member by member."""
_TOGETHER: Final = {word: group for group in _GROUPS for word in group}


def all_of(first: Schema, second: Schema, on_lost: OnLost) -> Schema:
    """Returns a schema of the values that match both; if a keyword has two values, the first is kept.

    Args:
        first: A schema.
        second: Another one.
        on_lost: Called with each keyword of `second` that could not be kept.
    """
    merged = dict(first)
    for word, value in second.items():
        if word in ("unevaluatedProperties", "unevaluatedItems"):
            on_lost(word)  # it refers to the properties of its own schema only
        elif word in ("properties", "patternProperties") and word in merged:
            merged[word] = {**merged[word], **{name: each for name, each in value.items() if name not in merged[word]}}
            if any(merged[word][name] != each for name, each in value.items()):
                on_lost(word)
        elif word == "required" and word in merged:
            merged[word] = list(dict.fromkeys([*merged[word], *value]))
        elif word == "type" and word in merged:
            merged[word] = _both(merged, second) or merged[word]
        elif word not in merged and not _split(word, first):
            merged[word] = value
        elif merged.get(word) != value and word not in NON_VALIDATING:
            on_lost(word)
    return merged


def _split(word: str, first: Schema) -> bool:
    """Returns whether the keyword would be separated from those that it depends on."""
    group = _TOGETHER.get(word, ())
    return group != _GROUPS[3] and any(each in first for each in group)


def _both(first: Schema, second: Schema) -> str | list[str]:
    """Returns the types that match both."""
    one, other = types_in(first), types_in(second)
    wide = {"integer"} if "number" in other else set()
    shared = [each for each in one if each in other or each in wide]
    shared += ["integer"] if "number" in one and "integer" in other and "integer" not in shared else []
    return shared[0] if len(shared) == 1 else shared


def any_of_objects(base: Schema, branches: Sequence[Schema]) -> Schema:
    """Returns one object schema that accepts what the base with any of the branches accepts."""
    members: Schema = dict(base.get("properties", {}))
    for name in dict.fromkeys(name for branch in branches for name in branch.get("properties", {})):
        if name not in members:
            members[name] = _member(name, branches)
    merged = {**base, "properties": members}
    shared = [name for name in branches[0].get("required", []) if all(name in b.get("required", []) for b in branches)]
    if required := list(dict.fromkeys([*base.get("required", []), *shared])):
        merged["required"] = required
    if all(map(_closed, branches)):
        merged.setdefault("additionalProperties", False)
    return merged


def _closed(branch: Schema) -> bool:
    return branch.get("additionalProperties") is False and not branch.get("patternProperties")


def _member(name: str, branches: Sequence[Schema]) -> Any:
    """Returns the schema of a property; `{}` is among its choices if an open branch does not name it."""
    known: list[Any] = []
    for branch in branches:
        each = branch.get("properties", {}).get(name, False if _closed(branch) else {})
        if each is not False and each not in known:
            known.append(each)
    if len(known) < 2:
        return known[0] if known else False
    return {"anyOf": known}
