"""Whether a call's arguments fit the schema of its tool, and what is wrong where they do not.

    schema = compiled(tool.parameters)
    schema.valid('{"days": "three"}')     False; None where it cannot be told
    schema.problems({"days": "three"})    (Problem(("days",), "type", 'days: expected an integer, got "three"', …),)

Schemas come from whoever asks, and arguments from a model, so both may be hostile: nothing is ever fetched, and what
would take long to check is not checked, which is told (`checks`, `why`, `why_not`).

Source: JSON Schema 2020-12, or the draft that a schema names; where it names none and is none of 2020-12, of the older
drafts that tools are still written in. Formats are checked, as those who state one mean it.
"""

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, Final

import msgspec

from dragoman.core.messages import JsonText
from dragoman.guard.schema_refs import Documents, Unbounded
from dragoman.guard.validation_cost import WORK_LIMIT, Bounds, sizes
from dragoman.guard.validator import ValidationError, ValidationErrorKind, Validator, made
from dragoman.guard.violations import Kind, Problem, formatted, limited, listed, sentence, shown, types_said
from dragoman.schema.type_names import with_json_types

SCHEMA_CHARS: Final = 500_000
"""A schema of this size takes 50 ms to compile; the largest of real tools have a tenth of it."""
TELLING_LIMIT: Final = 100_000
"""µs that naming all problems may take at most; many times what it does take. Beyond that the first one is named."""
PROBLEM_LIMIT: Final = 20
"""Problems that are told of one value, or of one branch; a model mends the first ones first."""
BRANCH_LIMIT: Final = 32
"""Branches of a choice whose problems are told."""
CHOICE_LIMIT: Final = 4
"""Choices within choices that are told."""
PARTS: Final = 200
"""Parts of a schema that are looked through for the names of members."""
KEPT: Final = 512
KEPT_CHARS: Final = 1_000_000
"""Schemas that stay compiled, and their characters, which take forty bytes each: an agent sends the same hundred tools,
some 200 KB, with every request, and only those that are called are compiled."""

_UNREADABLE: Final = (ValueError, RecursionError)
"""What the readers of JSON and the engine raise: surrogates by themselves, hundreds of levels, thousands of digits."""


def parsed(arguments: JsonText) -> Any:
    """The value of a call's arguments; of two members of one name the last counts.

    Raises: ValueError: it is no JSON, or none that can be held as values; leave it as it is.
    """
    try:
        return msgspec.json.decode(arguments)
    except _UNREADABLE as e:
        raise ValueError(f"no arguments that can be read: {e}") from e


_NOTHING: Final = object()


def _without_surrogates(arguments: JsonText) -> Any:
    """The value with another character in place of each half of a surrogate; `_NOTHING` where it cannot be held."""
    try:
        text = json.dumps(json.loads(arguments), ensure_ascii=False, allow_nan=False)
        return msgspec.json.decode(text.encode("utf-8", "replace"))
    except _UNREADABLE:
        return _NOTHING


class Compiled:
    """One schema, made ready to check values against."""

    __slots__ = ("_bounds", "_documents", "_engine", "left_out", "root", "why")

    def __init__(self, schema: JsonText) -> None:
        """Never fails: what cannot be checked says `why`."""
        self.root: Any = None
        """The schema as a value, with JSON Schema's names of types; None where it is no JSON."""
        self._engine: Validator | None = None
        self.why = ""
        """Why nothing can be checked against it; empty where it can."""
        self.left_out: tuple[str, ...] = ()
        """Patterns that values are not held to, as none can be matched with them in bounded time."""
        if len(schema) > SCHEMA_CHARS:
            self.why = f"the schema has more than {SCHEMA_CHARS:,} characters"
            return
        try:
            self.root = with_json_types(parsed(schema))
        except ValueError:
            self.why = "the schema is no JSON that can be read"
            return
        try:
            self._documents = Documents(self.root)
            self._bounds = Bounds(self.root, self._documents)
        except Unbounded as e:
            self.why = f"the schema cannot be checked against: {e}"
            return
        self._engine, self.why, self.left_out = made(self.root)

    @property
    def checks(self) -> bool:
        """Whether values can be checked against it."""
        return self._engine is not None

    def valid(self, arguments: JsonText) -> bool | None:
        """Whether the arguments fit; None where that cannot be told (`why`, or `why_not` of the value)."""
        if self._engine is None:
            return None
        try:
            value = msgspec.json.decode(arguments)
        except _UNREADABLE:
            value = _without_surrogates(arguments)
        if value is _NOTHING or (len(arguments) > self._bounds.chars and self.why_not(value)):
            return None
        try:
            return self._engine.is_valid(value)
        except _UNREADABLE:  # hundreds of levels within a constant
            return None

    def why_not(self, value: Any) -> str:
        """Why this value cannot be checked; empty where it can."""
        if self._engine is None:
            return self.why
        try:
            dear = self._bounds.work(sizes(value)) > WORK_LIMIT
        except Unbounded as e:
            return f"the value cannot be checked: {e}"
        return "the value cannot be checked: it is too large for its schema" if dear else ""

    def problems(self, value: Any) -> Sequence[Problem]:
        """What is wrong with it, the first of each kind of thing first; nothing where it fits, or cannot be checked."""
        if self._engine is None or self.why_not(value):
            return ()
        try:
            return self._told(self._engine, value)
        except UnicodeEncodeError:
            value = _without_surrogates(json.dumps(value))
            return () if value is _NOTHING else self._told(self._engine, value)
        except _UNREADABLE:
            return ()

    def _told(self, engine: Validator, value: Any) -> Sequence[Problem]:
        if self._bounds.telling(sizes(value)) <= TELLING_LIMIT:
            return tuple(self._problem(each, value) for each in _first(engine.iter_errors(value), PROBLEM_LIMIT))
        if engine.is_valid(value):
            return ()
        if self._bounds.choices:  # the first error may hold as many as there are
            return (Problem((), "other", "does not fit the schema"),)
        try:
            engine.validate(value)
        except ValidationError as error:
            return (self._problem(error, value),)
        return ()

    def member(self, schema: Any, name: str | int) -> Mapping[str, Any]:
        """What a schema says of one member or item; empty where it says nothing. References are followed."""
        for part in self._parts(schema):
            found = _own_member(part, name)
            if isinstance(found, dict):
                return self._followed(found)
        return {}

    def schema_at(self, path: Iterable[str | int]) -> Mapping[str, Any]:
        """What the schema says of the value at a path; empty where it says nothing."""
        found: Mapping[str, Any] = self._followed(self.root)
        for name in path:
            found = self.member(found, name)
        return found

    def parts_at(self, path: Iterable[str | int]) -> list[Mapping[str, Any]]:
        """All that the schema says of the value at a path, in whatever branch."""
        found = self._branches([self.root])
        for name in path:
            found = self._branches([_own_member(each, name) for each in found])
        return found

    def declared(self, path: Iterable[str | int], part: Any = None) -> frozenset[str]:
        """Names of members that the schema knows at a path, or this part of it does."""
        parts = [*self.parts_at(path), *self._branches([part])]
        return frozenset(name for each in parts for name in each.get("properties") or ())

    def _branches(self, schemas: list[Any]) -> list[Mapping[str, Any]]:
        """The schemas, and all that stand for the same value in them."""
        found: list[Mapping[str, Any]] = []
        left = [*schemas]
        while left and len(found) < PARTS:
            own = self._followed(left.pop(0))
            found += [own] if own else []
            left += [own[word] for word in ("if", "then", "else") if word in own]
            left += [each for word in ("allOf", "anyOf", "oneOf") for each in own.get(word) or ()]
            left += (own.get("dependentSchemas") or {}).values()
        return found

    def _followed(self, schema: Any) -> Mapping[str, Any]:
        """The schema that a chain of references ends at."""
        for _ in range(_REFERENCES):
            if not isinstance(schema, dict):
                return {}
            if not isinstance(reference := schema.get("$ref"), str):
                return schema
            schema = self._documents.find(reference, schema)
        return {}

    def _parts(self, schema: Any) -> list[Mapping[str, Any]]:
        """The schema, and what `allOf` adds to it."""
        parts: list[Mapping[str, Any]] = []
        left = [schema]
        while left and len(parts) < BRANCH_LIMIT:
            part = self._followed(left.pop(0))
            parts.append(part)
            left += part.get("allOf", [])
        return parts

    def _stating(self, error: ValidationError) -> Any:
        """The schema that an error is of."""
        whole = error.kind.name == "falseSchema"
        if location := error.absolute_keyword_location:  # within what has an `$id` the path begins there
            return self._documents.find(location if whole else location.rpartition("/")[0])
        return _at(self.root, error.schema_path[: None if whole else -1])

    def _problem(self, error: ValidationError, value: Any, depth: int = 0) -> Problem:
        path = tuple(error.instance_path)
        kind, expected, words = _told(error.kind, _at(value, path))
        contexts = getattr(error.kind, "context", [])[:BRANCH_LIMIT] if depth < CHOICE_LIMIT else []
        within = tuple(
            tuple(self._problem(each, value, depth + 1) for each in branch[:PROBLEM_LIMIT]) for branch in contexts
        )
        schema = self._stating(error)
        if kind == "additional":
            words += _known(schema)
        elif kind in ("any_of", "one_of"):
            words = _choices(within, _at(value, path), path) or words
        return Problem(path, kind, sentence(path, words), expected, within, schema if isinstance(schema, dict) else {})


_REFERENCES: Final = 32
"""References to references that are followed."""


def _first(errors: Iterable[ValidationError], limit: int) -> list[ValidationError]:
    return [error for error, _ in zip(errors, range(limit), strict=False)]


def _at(value: Any, path: Sequence[str | int]) -> Any:
    """The part of a value at a path; None where there is none."""
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _own_member(schema: Mapping[str, Any], name: str | int) -> Any:
    if isinstance(name, str):
        named = schema.get("properties")
        if isinstance(named, dict) and name in named:
            return named[name]
        return schema.get("additionalProperties")
    tuple_of = schema.get("prefixItems", schema.get("items"))
    if isinstance(tuple_of, list):
        return tuple_of[name] if name < len(tuple_of) else schema.get("items", schema.get("additionalItems"))
    return tuple_of


def _told(kind: ValidationErrorKind, value: Any) -> tuple[Kind, Any, str]:
    """The kind, what was expected, and the words for it."""
    has = ValidationErrorKind
    got = f", got {shown(value)}"
    match kind:
        case has.Type(types):
            types = [each for each in types if each != "null"] + [each for each in types if each == "null"]
            return "type", tuple(types), f"expected {types_said(types)}{got}"
        case has.Enum(options):
            return "enum", tuple(options), f"expected one of {listed(options)}{got}"
        case has.Constant(wanted):
            return "const", wanted, f"expected {shown(wanted)}{got}"
        case has.Required(name):
            return "required", name, f"{shown(name)} is missing"
        case has.AdditionalProperties(names) | has.UnevaluatedProperties(names):
            return "additional", tuple(names), f"{listed(names)} must not be there"
        case has.AnyOf():
            return "any_of", None, f"expected one of the forms that are allowed{got}"
        case has.OneOfNotValid():
            return "one_of", None, f"expected one of the forms that are allowed{got}"
        case has.OneOfMultipleValid():
            return "one_of", None, f"expected exactly one of the forms that are allowed{got}, which fits several"
        case has.Pattern(pattern):
            return "pattern", pattern, f"expected text that matches {shown(pattern)}{got}"
        case has.Format(name):
            return "format", name, f"expected {formatted(name)}{got}"
    return _limit_told(kind, value)


_OF_LIMIT: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), "range"),
    **dict.fromkeys(("minLength", "maxLength"), "length"),
    **dict.fromkeys(("minItems", "maxItems"), "items"),
    **dict.fromkeys(("minProperties", "maxProperties"), "properties"),
    "multipleOf": "multiple_of",
}


def _limit_told(kind: ValidationErrorKind, value: Any) -> tuple[Kind, Any, str]:
    has = ValidationErrorKind
    got = f", got {shown(value)}"
    if kind.name in _OF_LIMIT:
        limit = getattr(kind, kind.__match_args__[0])  # type: ignore[attr-defined]
        return _OF_LIMIT[kind.name], limit, f"expected {limited(kind.name, limit)}{got}"
    match kind:
        case has.FalseSchema():
            return "not", None, "must not be there"
        case has.Not():
            return "not", None, f"expected anything but what is forbidden{got}"
        case has.UniqueItems():
            return "unique", None, f"expected items that differ from each other{got}"
        case has.Contains():
            return "contains", None, f"lacks an item that must be there{got}"
        case has.UnevaluatedItems() | has.AdditionalItems():
            return "items", None, f"has too many items{got}"
        case has.PropertyNames(error):
            return "names", None, f"has a member whose name is not allowed: {shown(error.instance)}"
    return "other", None, f"does not fit the schema ({kind.name}){got}"


def _known(schema: Any) -> str:
    names = schema.get("properties") if isinstance(schema, dict) else None
    return f"; known: {listed(names)}" if names else ""


def _choices(within: Sequence[Sequence[Problem]], value: Any, path: Sequence[str | int]) -> str:
    """What a choice expects, said by its branches; empty where they say nothing."""
    firsts = [branch[0] for branch in within if branch]
    if not firsts or len(firsts) < len(within):
        return ""
    if all(first.kind == "type" and first.path == tuple(path) for first in firsts):
        types = dict.fromkeys(each for first in firsts for each in first.expected)
        return f"expected {types_said(types)}, got {shown(value)}"
    said = "; or ".join(dict.fromkeys(first.message for first in firsts[:4]))
    return f"fits none of the forms that are allowed ({said})"


def compiled(schema: JsonText) -> Compiled:
    """The schema made ready, at once where it has been before. Threads may share it."""
    with _lock:
        if (known := _kept.get(schema)) is not None:
            _kept.move_to_end(schema)
            return known
    made = Compiled(schema)
    with _lock:
        _keep(schema, made)
    return made


_kept: Final[OrderedDict[JsonText, Compiled]] = OrderedDict()
_lock: Final = Lock()


def _keep(schema: JsonText, made: Compiled) -> None:
    _kept[schema] = made
    chars = sum(map(len, _kept))
    while _kept and (len(_kept) > KEPT or chars > KEPT_CHARS):
        chars -= len(_kept.popitem(last=False)[0])
