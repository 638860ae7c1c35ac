"""Rewrites one schema for a target, by the rules in `schema/adapt.py`.

A schema is rewritten before its sub-schemas, so that the depth limit applies to the result, and nothing is rewritten
twice.
"""

import re
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from dragoman.schema.keywords import (
    LISTED,
    NAMED,
    NON_VALIDATING,
    OF_TYPE,
    SINGLE,
    TYPES,
    Schema,
    has_refs,
    json_type,
    malformed_keywords,
    resolve_ref,
    types_in,
    with_prefix_items,
)
from dragoman.schema.merge import all_of, any_of_objects
from dragoman.schema.targets import ANNOTATIONS, Target

DEPTH_LIMIT: Final = 48
"""Maximum nesting of schemas. Our choice, far beyond real schemas."""
PART_LIMIT: Final = 10_000
"""Maximum number of schemas added by references: 20 definitions that each refer twice to the next make a million."""
BRANCH_LIMIT: Final = 256
"""Maximum number of branches that are merged, because each is compared with all others."""
CHANGE_LIMIT: Final = 100
"""Maximum number of reported changes per schema."""
_NAME_CHARS: Final = 64

_DEFINITION = re.compile(r"#(/(\$defs|definitions)/[^/]+)?")
_IRREGULAR = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?<?[=!]|\\[bB1-9k])")
_PLAIN = re.compile(r"\^(?:(?!\(\?)[^\\$]|\\[^a-zA-Z0-9])*\$", re.DOTALL)
_SCALAR: Final = {"anyOf": [{"type": each} for each in ("string", "number", "boolean", "null")]}

Trail: TypeAlias = frozenset[str]
"""The references that were followed to reach a schema."""


class SchemaChange(NamedTuple):
    """A difference in what the adapted schema accepts."""

    path: str
    """The position, such as `$.properties.city`."""
    what: str

    def __str__(self) -> str:
        """Returns the change as text: `$.properties.city: pattern left out`."""
        return f"{self.path}: {self.what}"


class SchemaRelaxer:
    """Rewrites one schema, once."""

    def __init__(self, root: Any, target: Target, careful: bool) -> None:
        """`careful`: the schema will change, so the targets of its references may change too."""
        self._root, self._target, self._careful = root, target, careful
        self._left = PART_LIMIT
        self.changes: dict[SchemaChange, None] = {}

    def adapted(self) -> Any:
        """Returns the rewritten schema."""
        return self._schema(self._root, "$", 0, frozenset({"#"}))

    def _report(self, path: str, what: str) -> None:
        if len(self.changes) < CHANGE_LIMIT:
            self.changes[SchemaChange(path, what)] = None

    def _without(self, schema: Schema, path: str, *keywords: str) -> Schema:
        """Returns the schema without these keywords, and reports those that restricted a value."""
        for word in keywords:
            if word in schema and word not in NON_VALIDATING and not _vacuous(word, schema[word]):
                self._report(path, f"{word} left out")
        return {word: value for word, value in schema.items() if word not in keywords}

    def _is_unsupported(self, word: str, path: str) -> bool:
        """Returns whether the keyword is not supported at this position."""
        known = self._target.keywords is None or word in self._target.keywords
        if not self._target.references and word in ("$defs", "definitions"):
            return True
        return not known or word in self._target.unsupported or (path == "$" and word in self._target.root_unsupported)

    def _schema(self, value: Any, path: str, depth: int, trail: Trail) -> Any:
        is_root_object = path == "$" and self._target.object_root
        if isinstance(value, bool) and self._target.flags and not is_root_object:
            return value
        schema = self._well_formed(self._as_object(value, path, depth, trail), path)
        schema, trail = self._resolved(schema, path, trail, depth)
        schema = self._combined(schema, path, trail)
        for step in (self._objects, self._arrays, self._strings, self._constants, self._types):
            schema = step(schema, path)
        if is_root_object:
            if "object" not in (types_in(schema) or ["object"]):
                self._report(path, "a schema of another type became an object")
            schema = {**schema, "type": "object"}
            if self._target.properties:
                schema.setdefault("properties", {})
        schema = self._without(schema, path, *[word for word in schema if self._is_unsupported(word, path)])
        relaxed = self._sub_schemas(schema, path, depth, trail)
        rest = [word for word in ("unevaluatedProperties", "unevaluatedItems") if word in relaxed]
        if rest and (relaxed != value or (self._careful and has_refs(relaxed))):
            relaxed = self._without(relaxed, path, *rest)
        return self._strict(relaxed, path) if self._target.closed else relaxed

    def _as_object(self, value: Any, path: str, depth: int, trail: Trail) -> Schema:
        """Returns the schema as an object; `{}` if it is not one, or if a limit is exceeded."""
        self._left -= len(trail) > 1
        if depth > DEPTH_LIMIT or self._left < 0:
            self._report(path, "nested too deep; it may be anything")
            return {}
        if isinstance(value, dict):
            return value
        if value is not True:
            self._report(path, "no schema for a value; it may be anything")
        return {}

    def _well_formed(self, original: Schema, path: str) -> Schema:
        schema = with_prefix_items(original)
        for word in malformed_keywords(schema):
            self._report(path, f"{word} is malformed, left out")
            schema = {each: value for each, value in schema.items() if each != word}
        if schema is not original and "prefixItems" in schema:
            schema.pop("$schema", None)  # it names a draft without `prefixItems`
        for word in ("required", "type"):
            listed = schema.get(word)
            if isinstance(listed, list) and len(set(listed)) < len(listed):
                schema = {**schema, word: list(dict.fromkeys(listed))}
        return schema

    # References and combined schemas

    def _resolved(self, schema: Schema, path: str, trail: Trail, depth: int, stay: bool = True) -> tuple[Schema, Trail]:
        """Replaces a reference by its target, unless it may `stay`."""
        while "$ref" in schema:
            reference = schema["$ref"]
            target = resolve_ref(reference, self._root)
            if stay and isinstance(target, dict | bool) and self._stays(reference, path):
                break
            self._without(
                schema, path, *(word for word in schema if word != "$ref" and word not in ANNOTATIONS | NON_VALIDATING)
            )
            siblings = {
                word: value
                for word, value in schema.items()
                if word in ANNOTATIONS or (path == "$" and word in NON_VALIDATING)
            }
            is_recursive = reference in trail
            if is_recursive or not isinstance(target, dict | bool):
                reason = "refers to itself" if is_recursive else "refers to nothing here"
                self._report(path, f"{reason}; it may be anything")
                return siblings, trail
            trail |= {reference}
            own = self._well_formed(self._as_object(target, path, depth, trail), path)
            schema = {**{word: value for word, value in own.items() if word not in NON_VALIDATING}, **siblings}
        return schema, trail

    def _stays(self, reference: str, path: str) -> bool:
        if not self._target.references or (path == "$" and self._target.object_root):
            return False
        return not self._careful or _DEFINITION.fullmatch(reference) is not None

    def _combined(self, schema: Schema, path: str, trail: Trail) -> Schema:
        """Rewrites `allOf`, `oneOf` and `anyOf` with supported keywords."""
        # Branches that are closed separately would accept no properties besides their own.
        objects = path == "$" or (self._target.closed and ("properties" in schema or "object" in types_in(schema)))
        schema = self._merged(schema, path, trail, 0, objects)
        if "oneOf" in schema and self._is_unsupported("oneOf", path) and not self._is_unsupported("anyOf", path):
            schema = self._any_of(schema, path)
        return schema

    def _any_of(self, schema: Schema, path: str) -> Schema:
        if "anyOf" in schema:
            return self._without(schema, path, "oneOf")
        self._report(path, "oneOf became anyOf")
        return {("anyOf" if word == "oneOf" else word): value for word, value in schema.items()}

    def _merged(self, schema: Schema, path: str, trail: Trail, depth: int, objects: bool) -> Schema:
        """Merges `allOf`, and for `objects` also `oneOf` and `anyOf`, if they are not supported here."""
        for word in ("allOf", "oneOf", "anyOf") if objects else ("allOf",):
            if word not in schema or not (self._is_unsupported(word, path) or (objects and self._target.closed)):
                continue
            if len(schema[word]) > BRANCH_LIMIT:
                schema = self._without(schema, path, word)
                continue
            parts = [self._part(each, path, trail, depth + 1, objects) for each in schema[word]]
            mergeable = [part for part in parts if part is not None]
            schema = {each: value for each, value in schema.items() if each != word}
            if word == "allOf":
                schema = self._merge_all(schema, mergeable, path)
            elif mergeable:
                schema = any_of_objects(schema, mergeable)
                self._report(path, f"{word} became the properties of one object")
            if len(mergeable) < len(parts):
                self._report(path, f"what cannot be was left out of {word}")
        return schema

    def _merge_all(self, schema: Schema, parts: list[Schema], path: str) -> Schema:
        for part in parts:
            schema = all_of(schema, part, lambda word: self._report(path, f"of two {word} one left out"))
        return schema

    def _part(self, value: Any, path: str, trail: Trail, depth: int, objects: bool) -> Schema | None:
        """Returns one branch without combined schemas; None if it matches no value, or no object for `objects`."""
        if value is False:
            return None
        self._left -= 1
        schema = self._well_formed(self._as_object(value, path, depth, trail), path)
        schema, trail = self._resolved(schema, path, trail, depth, stay=False)
        stated = types_in(schema)
        if objects and stated and "object" not in stated:
            return None
        return self._merged(schema, path, trail, depth, objects)

    # Keywords of each type

    def _objects(self, schema: Schema, path: str) -> Schema:
        additional = schema.get("additionalProperties", True)
        if "patternProperties" in schema and self._is_unsupported("patternProperties", path):
            schema = self._without(schema, path, "patternProperties", "additionalProperties")
        if isinstance(additional, dict) and not self._target.maps:
            schema = self._without(schema, path, "additionalProperties")
        names = schema.get("properties", {})
        if path != "$" or not self._target.names:
            return schema
        odd = {name for name in names if not re.fullmatch(self._target.names, name)}
        if not odd:
            return schema
        for name in sorted(odd):
            self._report(_below(path, "properties", name), "left out, as its name may not be used")
        schema = self._without(schema, path, "additionalProperties") if additional is not True else schema
        required = [name for name in schema.get("required", []) if name not in odd]
        left = {name: each for name, each in names.items() if name not in odd}
        return {**schema, "properties": left, **({"required": required} if "required" in schema else {})}

    def _arrays(self, schema: Schema, path: str) -> Schema:
        if "prefixItems" in schema and self._is_unsupported("prefixItems", path):
            each = [*schema["prefixItems"], schema.get("items", {})]
            self._report(path, "the order of items left out")
            rest = {word: value for word, value in schema.items() if word != "prefixItems"}
            schema = {**rest, "items": {"anyOf": [one for one in each if one is not False]}}
        if self._target.items and "array" in types_in(schema):
            schema = {**schema, "items": schema.get("items", {})}
        if self._target.max_min_items_1 and float(bytes(schema.get("minItems", b"0"))) > 1:
            self._report(path, "minItems became 1")
            schema = {**schema, "minItems": msgspec.Raw(b"1")}
        return schema

    def _strings(self, schema: Schema, path: str) -> Schema:
        """Rewrites lengths, numbers of items, formats and patterns."""
        target, keywords = self._target, list[str]()
        if target.repeat_limit is not None:
            counts = ("minLength", "maxLength", "minItems", "maxItems")
            keywords += [word for word in counts if word in schema and float(bytes(schema[word])) > target.repeat_limit]
        if target.formats is not None and schema.get("format", "") not in target.formats:
            keywords.append("format")
        pattern = schema.get("pattern", "")
        if target.patterns != "any" and pattern:
            plain = target.patterns == "regular" or _PLAIN.fullmatch(pattern)
            keywords += [] if plain and not _IRREGULAR.search(pattern) else ["pattern"]
        return self._without(schema, path, *keywords) if keywords else schema

    def _constants(self, schema: Schema, path: str) -> Schema:
        if "const" in schema and self._is_unsupported("const", path) and not self._is_unsupported("enum", path):
            rest = {word: value for word, value in schema.items() if word != "const"}
            schema = {**rest, "enum": [schema["const"]]}
        for word, wide in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if (
                word in schema
                and wide not in schema
                and self._is_unsupported(word, path)
                and not self._is_unsupported(wide, path)
            ):
                self._report(path, f"{word} became {wide}")
                schema = {(wide if each == word else each): value for each, value in schema.items()}
        strings_only = self._target.enums == "strings" and "enum" in schema and not self._is_unsupported("enum", path)
        return self._strings_only(schema, path) if strings_only else schema

    def _strings_only(self, schema: Schema, path: str) -> Schema:
        """Returns the schema with an `enum` of strings only, or without `enum`."""
        stated, values = types_in(schema), [value for value in schema["enum"] if value is not None]
        if not values or any(not isinstance(value, str) for value in values) or (stated and "string" not in stated):
            kinds = [each for each in TYPES if each in {json_type(value) for value in schema["enum"]}]
            return {"type": kinds if len(kinds) > 1 else kinds[0], **self._without(schema, path, "enum")}
        null = len(values) < len(schema["enum"]) and ("null" in stated or not stated)
        return {**schema, "enum": values, "type": ["string", "null"] if null else "string"}

    def _types(self, schema: Schema, path: str) -> Schema:
        """Rewrites several types as in OpenAPI 3.0."""
        if self._target.types == "list":
            return schema
        stated, branches = types_in(schema), schema.get("anyOf", [])
        others = [each for each in branches if not (isinstance(each, dict) and types_in(each) == ["null"])]
        if not isinstance(schema.get("type"), list) and stated != ["null"] and len(others) == len(branches):
            return schema
        untyped = {word: value for word, value in schema.items() if word not in ("type", "anyOf")}
        null = "null" in stated or (not stated and len(others) < len(branches))
        untyped |= {"nullable": True} if null else {}
        untyped |= {"anyOf": others} if others else {}
        match [each for each in stated if each != "null"]:
            case [one]:
                return {**untyped, "type": one}
            case []:
                self._report(path, "null alone cannot be said; it may be anything") if not others else None
                return untyped
            case several if "anyOf" in untyped:
                self._report(path, f"one of the types {', '.join(several)} left out")
                return untyped
            case several:
                return _split_types(untyped, several)

    # Sub-schemas

    def _sub_schemas(self, schema: Schema, path: str, depth: int, trail: Trail) -> Schema:
        def part(value: Any, *names: str) -> Any:
            return self._schema(value, _below(path, *names), depth + 1, trail)

        result: Schema = {}
        for word, value in schema.items():
            if word in NAMED:
                result[word] = {name: part(each, word, name) for name, each in value.items()}
            elif word in LISTED:
                result[word] = [part(each, f"{word}[{n}]") for n, each in enumerate(value)]
            elif word in SINGLE and not (word == "additionalProperties" and isinstance(value, bool)):
                result[word] = part(value, word)
            else:
                result[word] = value
        return self._relaxed(schema, result, path)

    def _relaxed(self, before: Schema, after: Schema, path: str) -> Schema:
        """Rewrites keywords that accept less if their sub-schemas accept more."""

        def moved(word: str) -> bool:
            return word in after and (after[word] != before[word] or (self._careful and has_refs(before[word])))

        if moved("oneOf"):
            after = self._any_of(after, path)
        if moved("not"):
            after = self._without(after, path, "not")
        if moved("if"):
            after = self._without(after, path, "if", "then", "else")
        if "maxContains" in after and moved("contains"):
            after = self._without(after, path, "contains", "minContains", "maxContains")
        return after

    # Strict targets

    def _strict(self, schema: Schema, path: str) -> Schema:
        """Closes objects to other properties, and gives every value a type."""
        if not schema.keys() & {"type", "anyOf", "$ref"} and not (schema.keys() & {"enum", "const"}):
            implied = [each for each in ("object", "array") if schema.keys() & OF_TYPE[each]]
            if not implied:
                self._report(path, "anything became a string, number, boolean or null")
            schema = {**schema, **({"type": implied[0]} if implied else _SCALAR)}
        if "array" in types_in(schema):
            schema.setdefault("items", _SCALAR)
        if "object" not in types_in(schema) or "$ref" in schema:
            return schema
        members = schema.get("properties", {})
        if schema.get("additionalProperties", True) is not False:
            self._report(path, "closed to other properties")
        schema = {**schema, "properties": members, "additionalProperties": False}
        listed = schema.get("required", [])
        required = [name for name in listed if name in members]
        if self._target.required:
            for name in members.keys() - set(required):
                self._report(_below(path, "properties", name), "null where it would be left out")
            schema["properties"] = {n: each if n in required else _or_null(each) for n, each in members.items()}
            required = list(members)
        return {**schema, "required": required} if required != listed or self._target.required else schema


def _vacuous(word: str, value: Any) -> bool:
    """Returns whether the keyword does not restrict a value."""
    return word == "additionalProperties" and (value is True or value == {})


def _below(path: str, *names: str) -> str:
    return ".".join([path, *(name if len(name) <= _NAME_CHARS else f"{name[:_NAME_CHARS]}…" for name in names)])


def _split_types(schema: Schema, types: list[str]) -> Schema:
    """Returns `anyOf` with one schema per type, each with the keywords of its type."""
    of_any = frozenset().union(*OF_TYPE.values()) | {"enum"}
    untyped = {word: value for word, value in schema.items() if word not in of_any}
    branches = []
    for each in types:
        base = "number" if each == "integer" else each
        branch = {"type": each, **{word: value for word, value in schema.items() if word in OF_TYPE[base]}}
        if "enum" in schema:
            branch["enum"] = [value for value in schema["enum"] if json_type(value) == base]
        if branch.get("enum") != []:
            branches.append(branch)
    return {**untyped, "anyOf": branches} if branches else untyped


def _or_null(schema: Any) -> Schema:
    """Returns a schema that also accepts null."""
    if not schema.keys() & {"enum", "const", "$ref"} and (stated := types_in(schema)):
        return schema if "null" in stated else {**schema, "type": [*stated, "null"]}
    branches = schema["anyOf"] if schema.keys() - ANNOTATIONS == {"anyOf"} else [schema]
    null = {"type": "null"}
    return schema if null in branches else {"anyOf": [*branches, null]}
