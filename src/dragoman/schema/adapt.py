"""A JSON Schema as a server takes it, that lets through all that it let through before.

    adapt('{"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {…}}', OPENAI)
    -> Adapted('{"properties": {…}, "type": "object"}', (Change("$", "anyOf became the properties of one object"),))

What a server takes is a `Target` (schema/targets.py). Where it takes the schema as it is, it comes back byte for byte.
Otherwise what is said in another way stays the same (`const` as `enum`, a tuple as `prefixItems`), and what cannot be
said is left out, so that a model may write more than before and never less: its arguments are to be checked against the
original. Only the targets that are `closed` or `required` narrow, which is told as well. Adapted again, it stays.

The rules, where the target lacks what stands there:

    the root              gets `"type": "object"`, and `properties`; one that is a reference is what that refers to
    `allOf`               is put together; of a word that is said in two ways the first is kept
    `anyOf` at the root   the properties of all branches, required where all branches do so; a property that an open
                          branch does not name may be anything
    `oneOf`               `anyOf`, also where a branch had to be relaxed: then two may fit
    `$ref`                what it refers to; `{}` where that holds itself, or is nowhere
    a list of types       `nullable`, or `anyOf` of one schema for each type
    `const`               `enum`
    `prefixItems`         `items` of any of them
    a schema in `additionalProperties`      left out
    `not`, `if`, `unevaluated…`, `contains` with `maxContains`      left out, also where a part of it had to be relaxed
    any other word        left out
    other names of types  JSON Schema's, where only one thing can be meant (schema/type_names.py)

Words that are malformed, such as PHP's `"properties": []`, are left out for every target, as servers check for them.
What is nested deeper than `DEPTH_LIMIT`, or comes of references after `PART_LIMIT` parts, may be anything. What is no
schema at all becomes one of any value.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from dragoman.core.messages import JsonText
from dragoman.schema.keywords import refers
from dragoman.schema.relax import Change, Walk
from dragoman.schema.targets import Target
from dragoman.schema.type_names import with_json_types
from dragoman.text.json_cursor import replace_lone_surrogates

_CACHED_CHARS: Final = 16_384
"""Agents send the same tools with every turn; longer schemas are adapted anew each time."""
_ANY_OBJECT: Final = '{"type":"object","properties":{}}'


_TOLD_CHANGES: Final = 3
"""Of each schema, and three times as many schemas: a warning stands in one line of a log."""


class Adapted(NamedTuple):
    """A schema for a target."""

    json: JsonText
    changes: tuple[Change, ...]
    """Empty where it means the same."""


def adapt(schema: JsonText, target: Target) -> Adapted:
    """The schema as this target takes it; see above. Never raises."""
    return _kept(schema, target) if len(schema) <= _CACHED_CHARS else _adapt(schema, target)


def summary(changes: Mapping[str, Sequence[Change]]) -> str:
    """What was changed in the schemas of these tools, in one line; the first of many."""
    told = []
    for name, each in list(changes.items())[: 3 * _TOLD_CHANGES]:
        more = len(each) - _TOLD_CHANGES
        told.append(f"{name} ({', '.join(map(str, each[:_TOLD_CHANGES]))}{f' and {more} more' if more > 0 else ''})")
    left = len(changes) - len(told)
    return "; ".join(told) + (f"; and {left} more" if left else "")


def _adapt(schema: JsonText, target: Target) -> Adapted:
    try:
        given = _loaded(schema)
        root = with_json_types(given)
        walk = Walk(root, target, careful=False)
        made = walk.adapted()
        if made == given:
            return Adapted(schema, ())
        if refers(root):
            walk = Walk(root, target, careful=True)
            made = walk.adapted()
        return Adapted(msgspec.json.encode(made).decode(), tuple(walk.changes))
    except RecursionError:  # of a value in `enum`, nested without end
        whole = _adapt(_ANY_OBJECT, target).json
        return Adapted(whole, (Change("$", "nested too deep; it may be any object"),))


_kept = lru_cache(maxsize=512)(_adapt)


def _loaded(schema: JsonText) -> Any:
    """The schema, its numbers as they are written; a word of ours where it is no JSON."""

    def number(digits: str) -> msgspec.Raw:
        return msgspec.Raw(digits.encode())

    def none(_: str) -> None:
        raise ValueError

    try:
        text = replace_lone_surrogates(schema.encode("utf-8", "replace")).decode()
        return json.loads(text, parse_int=number, parse_float=number, parse_constant=none)
    except ValueError:
        return "no JSON"
