"""Two schemas said as one, for servers that take no `allOf`, `anyOf` or `oneOf` there.

What comes out lets through all that went in, and sometimes more: the words that could not be kept are named. The
schemas have no `$ref` of their own any more.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from dragoman.schema.keywords import SILENT, Schema, types_in

Lost = Callable[[str], None]
"""Told of each word that could not be kept."""

_GROUPS: Final = (
    ("if", "then", "else"),
    ("contains", "minContains", "maxContains"),
    ("prefixItems", "items"),
    ("properties", "patternProperties", "additionalProperties"),
)
"""Words that mean something only together; those of objects are put together name by name."""
_TOGETHER: Final = {word: group for group in _GROUPS for word in group}


def conjoined(first: Schema, second: Schema, lost: Lost) -> Schema:
    """What fits both; where both say a word in two ways, the first is kept."""
    made = dict(first)
    for word, value in second.items():
        if word in ("unevaluatedProperties", "unevaluatedItems"):
            lost(word)  # it counts what its own schema names, and no more
        elif word in ("properties", "patternProperties") and word in made:
            made[word] = {**made[word], **{name: each for name, each in value.items() if name not in made[word]}}
            if any(made[word][name] != each for name, each in value.items()):
                lost(word)
        elif word == "required" and word in made:
            made[word] = list(dict.fromkeys([*made[word], *value]))
        elif word == "type" and word in made:
            made[word] = _both(made, second) or made[word]
        elif word not in made and not _split(word, first):
            made[word] = value
        elif made.get(word) != value and word not in SILENT:
            lost(word)
    return made


def _split(word: str, first: Schema) -> bool:
    """Whether it would be torn from the words that it belongs to."""
    group = _TOGETHER.get(word, ())
    return group != _GROUPS[3] and any(each in first for each in group)


def _both(first: Schema, second: Schema) -> str | list[str]:
    """The types that fit both."""
    one, other = types_in(first), types_in(second)
    wide = {"integer"} if "number" in other else set()
    found = [each for each in one if each in other or each in wide]
    found += ["integer"] if "number" in one and "integer" in other and "integer" not in found else []
    return found[0] if len(found) == 1 else found


def united(base: Schema, branches: Sequence[Schema]) -> Schema:
    """An object of the base that is as any of the branches has it, as one object."""
    members: Schema = dict(base.get("properties", {}))
    for name in dict.fromkeys(name for branch in branches for name in branch.get("properties", {})):
        if name not in members:
            members[name] = _member(name, branches)
    made = {**base, "properties": members}
    shared = [name for name in branches[0].get("required", []) if all(name in b.get("required", []) for b in branches)]
    if needed := list(dict.fromkeys([*base.get("required", []), *shared])):
        made["required"] = needed
    if all(map(_closed, branches)):
        made.setdefault("additionalProperties", False)
    return made


def _closed(branch: Schema) -> bool:
    return branch.get("additionalProperties") is False and not branch.get("patternProperties")


def _member(name: str, branches: Sequence[Schema]) -> Any:
    """What a property may be; anything at all where a branch that does not name it leaves it open."""
    known: list[Any] = []
    for branch in branches:
        each = branch.get("properties", {}).get(name, False if _closed(branch) else {})
        if each is not False and each not in known:
            known.append(each)
    if len(known) < 2:
        return known[0] if known else False
    return {"anyOf": known}
