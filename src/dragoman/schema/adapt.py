"""Adapts a JSON Schema to what an upstream server accepts. The result never accepts less than the original.

    adapt('{"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {…}}', OPENAI)
    -> AdaptedSchema('{"properties": {…}, "type": "object"}',
                     (SchemaChange("$", "anyOf became the properties of one object"),))

A `Target` (schema/targets.py) describes what a server accepts. A schema that it accepts is returned byte for byte.
Otherwise keywords are rewritten with the same meaning (`const` as `enum`, a tuple as `prefixItems`), or dropped if that
is impossible. The model may then write more than before, so its arguments are validated against the original schema.
Only targets with `closed` or `required` accept less than the original, which is reported too. Adapting is idempotent.

The rules, for keywords that the target does not support:

    the root              gets `"type": "object"` and `properties`; a root that is a reference is replaced by its target
    `allOf`               is merged; if two branches have different values of a keyword, the first is kept
    `anyOf` at the root   becomes the properties of all branches; a property is required if all branches require it, and
                          may be anything if a branch without `additionalProperties: false` does not name it
    `oneOf`               becomes `anyOf`, also where a branch had to be relaxed, so that two branches may match
    `$ref`                is replaced by its target; `{}` if it is recursive or does not resolve
    a list of types       becomes `nullable`, or `anyOf` with one schema for each type
    `const`               becomes `enum`
    `prefixItems`         becomes `items` of any of them
    a schema in `additionalProperties`      is dropped
    `not`, `if`, `unevaluated…`, `contains` with `maxContains`      are dropped, also if a part had to be relaxed
    any other keyword     is dropped
    other type names      become those of JSON Schema if they have only one meaning (schema/type_names.py)

Malformed keywords, such as PHP's `"properties": []`, are dropped for every target, because servers validate them.
Schemas nested deeper than `DEPTH_LIMIT`, or reached by references after `PART_LIMIT` schemas, become `{}`. Input that
is not a schema becomes a schema of any value.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from dragoman.core.messages import ANY_ARGUMENTS, JsonText
from dragoman.schema.keywords import has_refs
from dragoman.schema.relax import SchemaChange, SchemaRelaxer
from dragoman.schema.targets import Target
from dragoman.schema.type_names import with_json_types
from dragoman.text.json_cursor import replace_lone_surrogates

_CACHED_CHARS: Final = 16_384
"""Agents send the same tools in every turn, so results are cached. Longer schemas are adapted again each time."""


_MAX_REPORTED_CHANGES: Final = 3
"""Reported changes per schema; three times as many schemas are reported. A warning is one log line."""


class AdaptedSchema(NamedTuple):
    """A schema adapted to a target."""

    json: JsonText
    changes: tuple[SchemaChange, ...]
    """What the adapted schema accepts differently; empty if nothing."""


def adapt(schema: JsonText, target: Target) -> AdaptedSchema:
    """Returns the schema as this target accepts it (rules: module docstring). Never raises.

    Args:
        schema: The JSON Schema, as text.
        target: What the server accepts.
    """
    return _adapt_cached(schema, target) if len(schema) <= _CACHED_CHARS else _adapt(schema, target)


def summarize_changes(changes: Mapping[str, Sequence[SchemaChange]]) -> str:
    """Returns the changes in the schemas of these tools as one line, shortened if there are many.

    Args:
        changes: The changes by tool name.
    """
    parts = []
    for name, each in list(changes.items())[: 3 * _MAX_REPORTED_CHANGES]:
        more = len(each) - _MAX_REPORTED_CHANGES
        parts.append(
            f"{name} ({', '.join(map(str, each[:_MAX_REPORTED_CHANGES]))}{f' and {more} more' if more > 0 else ''})"
        )
    left = len(changes) - len(parts)
    return "; ".join(parts) + (f"; and {left} more" if left else "")


def _adapt(schema: JsonText, target: Target) -> AdaptedSchema:
    try:
        original = _loaded(schema)
        root = with_json_types(original)
        relaxer = SchemaRelaxer(root, target, careful=False)
        adapted = relaxer.adapted()
        if adapted == original:
            return AdaptedSchema(schema, ())
        if has_refs(root):
            relaxer = SchemaRelaxer(root, target, careful=True)
            adapted = relaxer.adapted()
        return AdaptedSchema(msgspec.json.encode(adapted).decode(), tuple(relaxer.changes))
    except RecursionError:  # raised for a deeply nested value in `enum`
        any_object = _adapt(ANY_ARGUMENTS, target).json
        return AdaptedSchema(any_object, (SchemaChange("$", "nested too deep; it may be any object"),))


_adapt_cached = lru_cache(maxsize=512)(_adapt)


def _loaded(schema: JsonText) -> Any:
    """Returns the decoded schema, with numbers as written; a string if the text is not JSON."""

    def number(digits: str) -> msgspec.Raw:
        return msgspec.Raw(digits.encode())

    def reject(_: str) -> None:
        raise ValueError

    try:
        text = replace_lone_surrogates(schema.encode("utf-8", "replace")).decode()
        return json.loads(text, parse_int=number, parse_float=number, parse_constant=reject)
    except ValueError:
        return "no JSON"
