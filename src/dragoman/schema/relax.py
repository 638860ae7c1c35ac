"""One schema on its way to a target: `schema/adapt.py` states the rules.

A schema is first rewritten by itself, then its parts are, so that depth is that of what comes out, and what was
rewritten need not be rewritten again.
"""

import re
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from dragoman.schema.keywords import (
    LISTED,
    NAMED,
    OF_TYPE,
    SILENT,
    SINGLE,
    TYPES,
    Schema,
    kind,
    malformed,
    referred,
    refers,
    tuples,
    types_in,
)
from dragoman.schema.merge import conjoined, united
from dragoman.schema.targets import SAID, Target

DEPTH_LIMIT: Final = 48
"""Levels of schemas within schemas; a choice of ours, far beyond what anyone writes."""
PART_LIMIT: Final = 10_000
"""Schemas that references may add; twenty definitions that each refer twice to the next would be a million."""
BRANCH_LIMIT: Final = 256
"""Of a word whose schemas are put together; each is compared with all others."""
CHANGE_LIMIT: Final = 100
"""Changes that are told of one schema."""
_NAME_CHARS: Final = 64

_DEFINITION = re.compile(r"#(/(\$defs|definitions)/[^/]+)?")
_IRREGULAR = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?<?[=!]|\\[bB1-9k])")
_PLAIN = re.compile(r"\^(?:(?!\(\?)[^\\$]|\\[^a-zA-Z0-9])*\$", re.DOTALL)
_SCALAR: Final = {"anyOf": [{"type": each} for each in ("string", "number", "boolean", "null")]}

Trail: TypeAlias = frozenset[str]
"""The references that led to a schema."""


class Change(NamedTuple):
    """Something that the adapted schema does not say as the original did."""

    path: str
    """Where, `$.properties.city`."""
    what: str

    def __str__(self) -> str:
        """`$.properties.city: pattern left out`."""
        return f"{self.path}: {self.what}"


class Walk:
    """One schema, adapted once."""

    def __init__(self, root: Any, target: Target, careful: bool) -> None:
        """`careful`: something is going to change, so that what is referred to cannot be relied on."""
        self._root, self._target, self._careful = root, target, careful
        self._left = PART_LIMIT
        self.changes: dict[Change, None] = {}

    def adapted(self) -> Any:
        """The whole schema."""
        return self._schema(self._root, "$", 0, frozenset({"#"}))

    def _tell(self, path: str, what: str) -> None:
        if len(self.changes) < CHANGE_LIMIT:
            self.changes[Change(path, what)] = None

    def _without(self, schema: Schema, path: str, *words: str) -> Schema:
        """The schema without words that it cannot have, which is told."""
        for word in words:
            if word in schema and word not in SILENT and not _vacuous(word, schema[word]):
                self._tell(path, f"{word} left out")
        return {word: value for word, value in schema.items() if word not in words}

    def _lacks(self, word: str, path: str) -> bool:
        """Whether the word may not stand here."""
        known = self._target.words is None or word in self._target.words
        if not self._target.references and word in ("$defs", "definitions"):
            return True
        return not known or word in self._target.lacks or (path == "$" and word in self._target.root_lacks)

    def _schema(self, given: Any, path: str, depth: int, trail: Trail) -> Any:
        whole = path == "$" and self._target.object_root
        if isinstance(given, bool) and self._target.flags and not whole:
            return given
        schema = self._well_formed(self._begun(given, path, depth, trail), path)
        schema, trail = self._resolved(schema, path, trail, depth)
        schema = self._combined(schema, path, trail)
        for step in (self._objects, self._arrays, self._strings, self._constants, self._types):
            schema = step(schema, path)
        if whole:
            if "object" not in (types_in(schema) or ["object"]):
                self._tell(path, "what is no object became one")
            schema = {**schema, "type": "object"}
            if self._target.properties:
                schema.setdefault("properties", {})
        schema = self._without(schema, path, *[word for word in schema if self._lacks(word, path)])
        made = self._inside(schema, path, depth, trail)
        rest = [word for word in ("unevaluatedProperties", "unevaluatedItems") if word in made]
        if rest and (made != given or (self._careful and refers(made))):
            made = self._without(made, path, *rest)
        return self._narrowed(made, path) if self._target.closed else made

    def _begun(self, given: Any, path: str, depth: int, trail: Trail) -> Schema:
        """A schema that is an object; of anything where it cannot be told, or not be followed."""
        self._left -= len(trail) > 1
        if depth > DEPTH_LIMIT or self._left < 0:
            self._tell(path, "nested too deep; it may be anything")
            return {}
        if isinstance(given, dict):
            return given
        if given is not True:
            self._tell(path, "no schema for a value; it may be anything")
        return {}

    def _well_formed(self, given: Schema, path: str) -> Schema:
        schema = tuples(given)
        for word in malformed(schema):
            self._tell(path, f"{word} is malformed, left out")
            schema = {each: value for each, value in schema.items() if each != word}
        if schema is not given and "prefixItems" in schema:
            schema.pop("$schema", None)  # of a draft that knows no `prefixItems`
        for word in ("required", "type"):
            listed = schema.get(word)
            if isinstance(listed, list) and len(set(listed)) < len(listed):
                schema = {**schema, word: list(dict.fromkeys(listed))}
        return schema

    # References, and several schemas as one

    def _resolved(self, schema: Schema, path: str, trail: Trail, depth: int, stay: bool = True) -> tuple[Schema, Trail]:
        """What a reference refers to in its place, unless it may `stay`."""
        while "$ref" in schema:
            reference = schema["$ref"]
            found = referred(reference, self._root)
            if stay and isinstance(found, dict | bool) and self._stays(reference, path):
                break
            self._without(schema, path, *(word for word in schema if word != "$ref" and word not in SAID | SILENT))
            beside = {word: value for word, value in schema.items() if word in SAID or (path == "$" and word in SILENT)}
            again = reference in trail
            if again or not isinstance(found, dict | bool):
                told = "refers to itself" if again else "refers to nothing here"
                self._tell(path, f"{told}; it may be anything")
                return beside, trail
            trail |= {reference}
            own = self._well_formed(self._begun(found, path, depth, trail), path)
            schema = {**{word: value for word, value in own.items() if word not in SILENT}, **beside}
        return schema, trail

    def _stays(self, reference: str, path: str) -> bool:
        if not self._target.references or (path == "$" and self._target.object_root):
            return False
        return not self._careful or _DEFINITION.fullmatch(reference) is not None

    def _combined(self, schema: Schema, path: str, trail: Trail) -> Schema:
        """`allOf`, `oneOf` and `anyOf` in the words that may stand here."""
        # Branches that are closed one by one would let nothing through beside properties of their own.
        objects = path == "$" or (self._target.closed and ("properties" in schema or "object" in types_in(schema)))
        schema = self._merged(schema, path, trail, 0, objects)
        if "oneOf" in schema and self._lacks("oneOf", path) and not self._lacks("anyOf", path):
            schema = self._any_of(schema, path)
        return schema

    def _any_of(self, schema: Schema, path: str) -> Schema:
        if "anyOf" in schema:
            return self._without(schema, path, "oneOf")
        self._tell(path, "oneOf became anyOf")
        return {("anyOf" if word == "oneOf" else word): value for word, value in schema.items()}

    def _merged(self, schema: Schema, path: str, trail: Trail, depth: int, objects: bool) -> Schema:
        """The schema without `allOf`, and of `objects` without the other two, where they may not stand here."""
        for word in ("allOf", "oneOf", "anyOf") if objects else ("allOf",):
            if word not in schema or not (self._lacks(word, path) or (objects and self._target.closed)):
                continue
            if len(schema[word]) > BRANCH_LIMIT:
                schema = self._without(schema, path, word)
                continue
            parts = [self._part(each, path, trail, depth + 1, objects) for each in schema[word]]
            fits = [part for part in parts if part is not None]
            schema = {each: value for each, value in schema.items() if each != word}
            if word == "allOf":
                schema = self._together(schema, fits, path)
            elif fits:
                schema = united(schema, fits)
                self._tell(path, f"{word} became the properties of one object")
            if len(fits) < len(parts):
                self._tell(path, f"what cannot be was left out of {word}")
        return schema

    def _together(self, schema: Schema, parts: list[Schema], path: str) -> Schema:
        for part in parts:
            schema = conjoined(schema, part, lambda word: self._tell(path, f"of two {word} one left out"))
        return schema

    def _part(self, given: Any, path: str, trail: Trail, depth: int, objects: bool) -> Schema | None:
        """A part of one of the three words by itself; None where nothing fits it, or no object where all are."""
        if given is False:
            return None
        self._left -= 1
        schema = self._well_formed(self._begun(given, path, depth, trail), path)
        schema, trail = self._resolved(schema, path, trail, depth, stay=False)
        stated = types_in(schema)
        if objects and stated and "object" not in stated:
            return None
        return self._merged(schema, path, trail, depth, objects)

    # The words of each type

    def _objects(self, schema: Schema, path: str) -> Schema:
        open_to = schema.get("additionalProperties", True)
        if "patternProperties" in schema and self._lacks("patternProperties", path):
            schema = self._without(schema, path, "patternProperties", "additionalProperties")
        if isinstance(open_to, dict) and not self._target.maps:
            schema = self._without(schema, path, "additionalProperties")
        names = schema.get("properties", {})
        if path != "$" or not self._target.names:
            return schema
        odd = {name for name in names if not re.fullmatch(self._target.names, name)}
        if not odd:
            return schema
        for name in sorted(odd):
            self._tell(_below(path, "properties", name), "left out, as its name may not be used")
        schema = self._without(schema, path, "additionalProperties") if open_to is not True else schema
        kept = [name for name in schema.get("required", []) if name not in odd]
        left = {name: each for name, each in names.items() if name not in odd}
        return {**schema, "properties": left, **({"required": kept} if "required" in schema else {})}

    def _arrays(self, schema: Schema, path: str) -> Schema:
        if "prefixItems" in schema and self._lacks("prefixItems", path):
            each = [*schema["prefixItems"], schema.get("items", {})]
            self._tell(path, "the order of items left out")
            rest = {word: value for word, value in schema.items() if word != "prefixItems"}
            schema = {**rest, "items": {"anyOf": [one for one in each if one is not False]}}
        if self._target.items and "array" in types_in(schema):
            schema = {**schema, "items": schema.get("items", {})}
        if self._target.few_items and float(bytes(schema.get("minItems", b"0"))) > 1:
            self._tell(path, "minItems became 1")
            schema = {**schema, "minItems": msgspec.Raw(b"1")}
        return schema

    def _strings(self, schema: Schema, path: str) -> Schema:
        """Lengths and numbers of items, formats and patterns."""
        target, words = self._target, list[str]()
        if target.repeats is not None:
            counts = ("minLength", "maxLength", "minItems", "maxItems")
            words += [word for word in counts if word in schema and float(bytes(schema[word])) > target.repeats]
        if target.formats is not None and schema.get("format", "") not in target.formats:
            words.append("format")
        pattern = schema.get("pattern", "")
        if target.patterns != "any" and pattern:
            plain = target.patterns == "regular" or _PLAIN.fullmatch(pattern)
            words += [] if plain and not _IRREGULAR.search(pattern) else ["pattern"]
        return self._without(schema, path, *words) if words else schema

    def _constants(self, schema: Schema, path: str) -> Schema:
        if "const" in schema and self._lacks("const", path) and not self._lacks("enum", path):
            rest = {word: value for word, value in schema.items() if word != "const"}
            schema = {**rest, "enum": [schema["const"]]}
        for word, wide in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if word in schema and wide not in schema and self._lacks(word, path) and not self._lacks(wide, path):
                self._tell(path, f"{word} became {wide}")
                schema = {(wide if each == word else each): value for each, value in schema.items()}
        words = self._target.enums == "strings" and "enum" in schema and not self._lacks("enum", path)
        return self._words_only(schema, path) if words else schema

    def _words_only(self, schema: Schema, path: str) -> Schema:
        """`enum` of strings, or none."""
        stated, values = types_in(schema), [value for value in schema["enum"] if value is not None]
        if not values or any(not isinstance(value, str) for value in values) or (stated and "string" not in stated):
            kinds = [each for each in TYPES if each in {kind(value) for value in schema["enum"]}]
            return {"type": kinds if len(kinds) > 1 else kinds[0], **self._without(schema, path, "enum")}
        null = len(values) < len(schema["enum"]) and ("null" in stated or not stated)
        return {**schema, "enum": values, "type": ["string", "null"] if null else "string"}

    def _types(self, schema: Schema, path: str) -> Schema:
        """Several types as OpenAPI 3.0 says them."""
        if self._target.types == "list":
            return schema
        stated, branches = types_in(schema), schema.get("anyOf", [])
        others = [each for each in branches if not (isinstance(each, dict) and types_in(each) == ["null"])]
        if not isinstance(schema.get("type"), list) and stated != ["null"] and len(others) == len(branches):
            return schema
        made = {word: value for word, value in schema.items() if word not in ("type", "anyOf")}
        null = "null" in stated or (not stated and len(others) < len(branches))
        made |= {"nullable": True} if null else {}
        made |= {"anyOf": others} if others else {}
        match [each for each in stated if each != "null"]:
            case [one]:
                return {**made, "type": one}
            case []:
                self._tell(path, "null alone cannot be said; it may be anything") if not others else None
                return made
            case several if "anyOf" in made:
                self._tell(path, f"one of the types {', '.join(several)} left out")
                return made
            case several:
                return _apart(made, several)

    # What is inside

    def _inside(self, schema: Schema, path: str, depth: int, trail: Trail) -> Schema:
        def part(value: Any, *names: str) -> Any:
            return self._schema(value, _below(path, *names), depth + 1, trail)

        made: Schema = {}
        for word, value in schema.items():
            if word in NAMED:
                made[word] = {name: part(each, word, name) for name, each in value.items()}
            elif word in LISTED:
                made[word] = [part(each, f"{word}[{n}]") for n, each in enumerate(value)]
            elif word in SINGLE and not (word == "additionalProperties" and isinstance(value, bool)):
                made[word] = part(value, word)
            else:
                made[word] = value
        return self._relaxed(schema, made, path)

    def _relaxed(self, before: Schema, made: Schema, path: str) -> Schema:
        """Words that let through less where what is in them lets through more."""

        def moved(word: str) -> bool:
            return word in made and (made[word] != before[word] or (self._careful and refers(before[word])))

        if moved("oneOf"):
            made = self._any_of(made, path)
        if moved("not"):
            made = self._without(made, path, "not")
        if moved("if"):
            made = self._without(made, path, "if", "then", "else")
        if "maxContains" in made and moved("contains"):
            made = self._without(made, path, "contains", "minContains", "maxContains")
        return made

    # Strict targets

    def _narrowed(self, schema: Schema, path: str) -> Schema:
        """Objects that list all that they may have; a type for every value."""
        if not schema.keys() & {"type", "anyOf", "$ref"} and not (schema.keys() & {"enum", "const"}):
            likely = [each for each in ("object", "array") if schema.keys() & OF_TYPE[each]]
            if not likely:
                self._tell(path, "anything became a string, number, boolean or null")
            schema = {**schema, **({"type": likely[0]} if likely else _SCALAR)}
        if "array" in types_in(schema):
            schema.setdefault("items", _SCALAR)
        if "object" not in types_in(schema) or "$ref" in schema:
            return schema
        members = schema.get("properties", {})
        if schema.get("additionalProperties", True) is not False:
            self._tell(path, "closed to other properties")
        schema = {**schema, "properties": members, "additionalProperties": False}
        listed = schema.get("required", [])
        needed = [name for name in listed if name in members]
        if self._target.required:
            for name in members.keys() - set(needed):
                self._tell(_below(path, "properties", name), "null where it would be left out")
            schema["properties"] = {n: each if n in needed else _or_null(each) for n, each in members.items()}
            needed = list(members)
        return {**schema, "required": needed} if needed != listed or self._target.required else schema


def _vacuous(word: str, value: Any) -> bool:
    """The word holds a value to nothing."""
    return word == "additionalProperties" and (value is True or value == {})


def _below(path: str, *names: str) -> str:
    return ".".join([path, *(name if len(name) <= _NAME_CHARS else f"{name[:_NAME_CHARS]}…" for name in names)])


def _apart(schema: Schema, types: list[str]) -> Schema:
    """One schema for each of the types, with the words of that type."""
    of_any = frozenset().union(*OF_TYPE.values()) | {"enum"}
    made = {word: value for word, value in schema.items() if word not in of_any}
    branches = []
    for each in types:
        base = "number" if each == "integer" else each
        branch = {"type": each, **{word: value for word, value in schema.items() if word in OF_TYPE[base]}}
        if "enum" in schema:
            branch["enum"] = [value for value in schema["enum"] if kind(value) == base]
        if branch.get("enum") != []:
            branches.append(branch)
    return {**made, "anyOf": branches} if branches else made


def _or_null(schema: Any) -> Schema:
    """The schema, or null."""
    if not schema.keys() & {"enum", "const", "$ref"} and (stated := types_in(schema)):
        return schema if "null" in stated else {**schema, "type": [*stated, "null"]}
    branches = schema["anyOf"] if schema.keys() - SAID == {"anyOf"} else [schema]
    null = {"type": "null"}
    return schema if null in branches else {"anyOf": [*branches, null]}
