"""Checks a call's arguments against the schema of its tool, and describes what is wrong with them.

    schema = compile_schema(tool.parameters)
    schema.violations({"days": "three"})   (Violation(("days",), "type", 'days: expected an integer, got "three"', …),)
    schema.valid({"days": 3}, len(text))   True; None if it cannot be checked

Schemas come from clients and arguments from a model, so both can be hostile: nothing is ever fetched, and what would
take long to check is not checked; `can_check`, `reason` and `reason_unchecked` report that.

Source: JSON Schema 2020-12, or the draft that a schema names. A schema that names no draft and is not valid in 2020-12
is read as one of the older drafts that tools still use. Formats are checked, because authors who state one mean it.
"""

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, Final

import msgspec

from dragoman.core.messages import JsonText
from dragoman.guard.validation.schema_refs import SchemaRefs, UnboundedCheck
from dragoman.guard.validation.validation_cost import MAX_WORK, ValidationCost, value_size
from dragoman.guard.validation.validator import ValidationError, ValidationErrorKind, Validator, build_validator
from dragoman.guard.validation.violations import (
    Violation,
    ViolationKind,
    describe_format,
    describe_limit,
    describe_types,
    quote_list,
    quote_value,
    with_path,
)
from dragoman.schema.type_names import with_json_types

MAX_SCHEMA_CHARS: Final = 500_000
"""Compiling a schema of this size takes 50 ms; the largest schemas of real tools have a tenth of it."""
MAX_REPORT_US: Final = 100_000
"""Bound of the estimated time for naming all violations, in µs; many times the real time. Above it only the first one
is named."""
MAX_VIOLATIONS: Final = 20
"""Violations reported of one value or of one branch; a model fixes the first ones first."""
MAX_BRANCHES: Final = 32
"""Branches of a choice (`anyOf`, `oneOf`) whose violations are reported."""
MAX_CHOICE_DEPTH: Final = 4
"""Nesting depth of choices whose violations are reported."""
MAX_SCHEMA_PARTS: Final = 200
"""Subschemas that are searched for the names of members."""
MAX_CACHED_SCHEMAS: Final = 512
MAX_CACHED_CHARS: Final = 1_000_000
"""Schemas that stay compiled, and their characters in total, which take forty bytes each. An agent sends the same
hundred tools (some 200 KB) with every request, and only those that are called are compiled."""

UNREADABLE: Final = (ValueError, RecursionError)
"""Errors of the JSON decoders and the validator: lone surrogates, hundreds of levels, thousands of digits."""


def decode_arguments(arguments: JsonText) -> Any:
    """Decodes a call's arguments; of two members with the same name the last one counts.

    Raises:
        ValueError: They are not JSON, or JSON that Python values cannot represent; leave them as they are.
    """
    try:
        return msgspec.json.decode(arguments)
    except UNREADABLE as e:
        raise ValueError(f"no arguments that can be read: {e}") from e


UNDECODABLE: Final = object()
"""In place of the value of text that cannot be decoded."""


def replace_surrogates(arguments: JsonText) -> Any:
    """Decodes arguments with `?` in place of each lone surrogate; returns `UNDECODABLE` if that is not possible."""
    try:
        text = json.dumps(json.loads(arguments), ensure_ascii=False, allow_nan=False)
        return msgspec.json.decode(text.encode("utf-8", "replace"))
    except UNREADABLE:
        return UNDECODABLE


class CompiledSchema:
    """One schema, compiled for checking values."""

    __slots__ = ("_cost", "_refs", "_validator", "reason", "root", "skipped_patterns")

    def __init__(self, schema: JsonText) -> None:
        """Never fails: `reason` says why values cannot be checked."""
        self.root: Any = None
        """The decoded schema, with JSON Schema's names of types; None if it is not JSON."""
        self._validator: Validator | None = None
        self.reason = ""
        """Why no value can be checked; empty if values can be."""
        self.skipped_patterns: tuple[str, ...] = ()
        """Patterns that are not checked, because they cannot be matched in bounded time."""
        if len(schema) > MAX_SCHEMA_CHARS:
            self.reason = f"the schema has more than {MAX_SCHEMA_CHARS:,} characters"
            return
        try:
            self.root = with_json_types(decode_arguments(schema))
        except ValueError:
            self.reason = "the schema is not JSON that can be read"
            return
        try:
            self._refs = SchemaRefs(self.root)
            self._cost = ValidationCost(self.root, self._refs)
        except UnboundedCheck as e:
            self.reason = f"the schema cannot be checked against: {e}"
            return
        self._validator, self.reason, self.skipped_patterns = build_validator(self.root)

    @property
    def can_check(self) -> bool:
        """Whether values can be checked against the schema."""
        return self._validator is not None

    def valid(self, value: Any, chars: int) -> bool | None:
        """Returns whether a value matches; None if it cannot be checked (see `reason` and `reason_unchecked`).

        Args:
            value: The decoded arguments.
            chars: Length of their text. How much work a short text can cause is not computed.
        """
        if self._validator is None or (chars > self._cost.unmeasured_chars and self.reason_unchecked(value)):
            return None
        try:
            return self._validator.is_valid(value)
        except UNREADABLE:  # hundreds of levels within a constant
            return None

    def reason_unchecked(self, value: Any) -> str:
        """Returns why this value cannot be checked; empty if it can be."""
        if self._validator is None:
            return self.reason
        try:
            dear = self._cost.check_cost(value_size(value)) > MAX_WORK
        except UnboundedCheck as e:
            return f"the value cannot be checked: {e}"
        return "the value cannot be checked: it is too large for its schema" if dear else ""

    def violations(self, value: Any) -> Sequence[Violation]:
        """Returns what is wrong with a value, at most `MAX_VIOLATIONS`; empty if it matches or cannot be checked."""
        if self._validator is None or self.reason_unchecked(value):
            return ()
        try:
            return self._list_violations(self._validator, value)
        except UnicodeEncodeError:
            value = replace_surrogates(json.dumps(value))
            return () if value is UNDECODABLE else self._list_violations(self._validator, value)
        except UNREADABLE:
            return ()

    def _list_violations(self, engine: Validator, value: Any) -> Sequence[Violation]:
        if self._cost.explain_cost(value_size(value)) <= MAX_REPORT_US:
            return tuple(self._violation(each, value) for each in _first(engine.iter_errors(value), MAX_VIOLATIONS))
        if engine.is_valid(value):
            return ()
        if self._cost.has_choices:  # the first error can contain as many errors as there are branches
            return (Violation((), "other", "does not fit the schema"),)
        try:
            engine.validate(value)
        except ValidationError as error:
            return (self._violation(error, value),)
        return ()

    def member_schema(self, schema: Any, name: str | int) -> Mapping[str, Any]:
        """Returns the schema of one member or item, references resolved; empty if there is none."""
        for part in self._with_all_of(schema):
            member = _member_schema(part, name)
            if isinstance(member, dict):
                return self._resolve(member)
        return {}

    def schema_at(self, path: Iterable[str | int]) -> Mapping[str, Any]:
        """Returns the schema of the value at a path, without branches of choices; empty if there is none."""
        schema: Mapping[str, Any] = self._resolve(self.root)
        for name in path:
            schema = self.member_schema(schema, name)
        return schema

    def schemas_at(self, path: Iterable[str | int]) -> list[Mapping[str, Any]]:
        """Returns all schemas that can apply to the value at a path, in any branch."""
        schemas = self._branches([self.root])
        for name in path:
            schemas = self._branches([_member_schema(each, name) for each in schemas])
        return schemas

    def declared_names(self, path: Iterable[str | int], part: Any = None) -> frozenset[str]:
        """Returns the names of members that the schema declares at a path, or that `part` declares."""
        parts = [*self.schemas_at(path), *self._branches([part])]
        return frozenset(name for each in parts for name in each.get("properties") or ())

    def _branches(self, schemas: list[Any]) -> list[Mapping[str, Any]]:
        """The schemas, and all subschemas of them that apply to the same value."""
        branches: list[Mapping[str, Any]] = []
        left = [*schemas]
        while left and len(branches) < MAX_SCHEMA_PARTS:
            own = self._resolve(left.pop(0))
            branches += [own] if own else []
            left += [own[word] for word in ("if", "then", "else") if word in own]
            left += [each for word in ("allOf", "anyOf", "oneOf") for each in own.get(word) or ()]
            left += (own.get("dependentSchemas") or {}).values()
        return branches

    def _resolve(self, schema: Any) -> Mapping[str, Any]:
        """The schema at the end of a chain of references."""
        for _ in range(_REFERENCES):
            if not isinstance(schema, dict):
                return {}
            if not isinstance(reference := schema.get("$ref"), str):
                return schema
            schema = self._refs.resolve(reference, schema)
        return {}

    def _with_all_of(self, schema: Any) -> list[Mapping[str, Any]]:
        """The schema and the schemas in its `allOf`."""
        parts: list[Mapping[str, Any]] = []
        left = [schema]
        while left and len(parts) < MAX_BRANCHES:
            part = self._resolve(left.pop(0))
            parts.append(part)
            left += part.get("allOf", [])
        return parts

    def _schema_of(self, error: ValidationError) -> Any:
        """The subschema that reports an error."""
        is_false_schema = error.kind.name == "falseSchema"
        if location := error.absolute_keyword_location:  # within a part that has an `$id` the path begins there
            return self._refs.resolve(location if is_false_schema else location.rpartition("/")[0])
        return _value_at(self.root, error.schema_path[: None if is_false_schema else -1])

    def _violation(self, error: ValidationError, value: Any, depth: int = 0) -> Violation:
        path = tuple(error.instance_path)
        kind, expected, message = _describe(error.kind, _value_at(value, path))
        contexts = getattr(error.kind, "context", [])[:MAX_BRANCHES] if depth < MAX_CHOICE_DEPTH else []
        branches = tuple(
            tuple(self._violation(each, value, depth + 1) for each in branch[:MAX_VIOLATIONS]) for branch in contexts
        )
        schema = self._schema_of(error)
        if kind == "additional":
            message += _known_names(schema)
        elif kind in ("any_of", "one_of"):
            message = _describe_choice(branches, _value_at(value, path), path) or message
        return Violation(
            path, kind, with_path(path, message), expected, branches, schema if isinstance(schema, dict) else {}
        )


_REFERENCES: Final = 32
"""Length of a chain of references that is followed."""


def _first(errors: Iterable[ValidationError], limit: int) -> list[ValidationError]:
    return [error for error, _ in zip(errors, range(limit), strict=False)]


def _value_at(value: Any, path: Sequence[str | int]) -> Any:
    """The part of a value at a path; None if there is none."""
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _member_schema(schema: Mapping[str, Any], name: str | int) -> Any:
    if isinstance(name, str):
        named = schema.get("properties")
        if isinstance(named, dict) and name in named:
            return named[name]
        return schema.get("additionalProperties")
    tuple_of = schema.get("prefixItems", schema.get("items"))
    if isinstance(tuple_of, list):
        return tuple_of[name] if name < len(tuple_of) else schema.get("items", schema.get("additionalItems"))
    return tuple_of


def _describe(kind: ValidationErrorKind, value: Any) -> tuple[ViolationKind, Any, str]:
    """The kind of violation, what was expected, and the message without its path."""
    has = ValidationErrorKind
    got = f", got {quote_value(value)}"
    match kind:
        case has.Type(types):
            types = [each for each in types if each != "null"] + [each for each in types if each == "null"]
            return "type", tuple(types), f"expected {describe_types(types)}{got}"
        case has.Enum(options):
            return "enum", tuple(options), f"expected one of {quote_list(options)}{got}"
        case has.Constant(constant):
            return "const", constant, f"expected {quote_value(constant)}{got}"
        case has.Required(name):
            return "required", name, f"{quote_value(name)} is missing"
        case has.AdditionalProperties(names) | has.UnevaluatedProperties(names):
            return "additional", tuple(names), f"{quote_list(names)} must not be there"
        case has.AnyOf():
            return "any_of", None, f"expected one of the forms that are allowed{got}"
        case has.OneOfNotValid():
            return "one_of", None, f"expected one of the forms that are allowed{got}"
        case has.OneOfMultipleValid():
            return "one_of", None, f"expected exactly one of the forms that are allowed{got}, which fits several"
        case has.Pattern(pattern):
            return "pattern", pattern, f"expected text that matches {quote_value(pattern)}{got}"
        case has.Format(name):
            return "format", name, f"expected {describe_format(name)}{got}"
    return _describe_limit(kind, value)


_LIMIT_KINDS: Final[Mapping[str, ViolationKind]] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), "range"),
    **dict.fromkeys(("minLength", "maxLength"), "length"),
    **dict.fromkeys(("minItems", "maxItems"), "items"),
    **dict.fromkeys(("minProperties", "maxProperties"), "properties"),
    "multipleOf": "multiple_of",
}


def _describe_limit(kind: ValidationErrorKind, value: Any) -> tuple[ViolationKind, Any, str]:
    has = ValidationErrorKind
    got = f", got {quote_value(value)}"
    if kind.name in _LIMIT_KINDS:
        limit = getattr(kind, kind.__match_args__[0])  # type: ignore[attr-defined]
        return _LIMIT_KINDS[kind.name], limit, f"expected {describe_limit(kind.name, limit)}{got}"
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
            return "names", None, f"has a member whose name is not allowed: {quote_value(error.instance)}"
    return "other", None, f"does not fit the schema ({kind.name}){got}"


def _known_names(schema: Any) -> str:
    names = schema.get("properties") if isinstance(schema, dict) else None
    return f"; known: {quote_list(names)}" if names else ""


def _describe_choice(branches: Sequence[Sequence[Violation]], value: Any, path: Sequence[str | int]) -> str:
    """What a choice expects, composed from its branches; empty if a branch has no violation to report."""
    firsts = [branch[0] for branch in branches if branch]
    if not firsts or len(firsts) < len(branches):
        return ""
    if all(first.kind == "type" and first.path == tuple(path) for first in firsts):
        types = dict.fromkeys(each for first in firsts for each in first.expected)
        return f"expected {describe_types(types)}, got {quote_value(value)}"
    messages = "; or ".join(dict.fromkeys(first.message for first in firsts[:4]))
    return f"fits none of the forms that are allowed ({messages})"


def compile_schema(schema: JsonText) -> CompiledSchema:
    """Compiles a schema, or returns the cached result. Safe to call from several threads."""
    with _lock:
        if (known := _cache.get(schema)) is not None:
            _cache.move_to_end(schema)
            return known
    made = CompiledSchema(schema)
    with _lock:
        _store(schema, made)
    return made


_cache: Final[OrderedDict[JsonText, CompiledSchema]] = OrderedDict()
_lock: Final = Lock()


def _store(schema: JsonText, made: CompiledSchema) -> None:
    _cache[schema] = made
    chars = sum(map(len, _cache))
    while _cache and (len(_cache) > MAX_CACHED_SCHEMAS or chars > MAX_CACHED_CHARS):
        chars -= len(_cache.popitem(last=False)[0])
