"""The repairs of a call's arguments; each handles one kind of error.

docs/guard.md lists them all with an example each. No repair invents a value: the result was written by the model or by
the schema's author. A repair is only tried on a value that the validator reports, and only kept if the violation
disappears (`repair`). A rejected call costs a turn, a wrong one can cost data. So a value stays rejected if it could
mean something else that does more, or if a part that limits the action would be dropped:

    enum        an abbreviation has at least three letters, or is one capital where all options begin differently (`C`);
                it must be of a single word (`delete` is less than `deleteForever`), must not be a word of its own
                (`not`, `public`), and must not widen the action (`all`); numbers are never abbreviated
    optional    members with names of the model's choice (of a map) stay; of values only null and blank text are
                dropped, and not if the schema accepts text, if a default would replace the value, if null is allowed,
                or if the member limits the action (`ids`, `older_than`)
    unknown     only null, "" and explanations of the call (`reason`) are dropped, because others can limit the call
                (`pattern`, `force: false`); names that the schema declares anywhere stay, and so do all members if none
                would be left
    keys        a name that could mean two members, or a member that is there with another value, stays
    nested      only names that models put around arguments (`arguments`, `params`), not any name
    strings     an object becomes text only if the text is a document (`content`, `json`)
    wrap        "" and {} do not become an item, nor does broken JSON or text that can be a list
    defaults    never decide a choice, and never confirm an action (`confirm: true`)
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from dragoman.core.tool_name_match import normalize_name
from dragoman.guard.arguments import ExactNumber, decode_exact, encode_exact
from dragoman.guard.careful_words import (
    DOCUMENT_WORDS,
    EXPLANATION_NAMES,
    NOT_ABBREVIATIONS,
    RESTRICTING_WORDS,
    WIDENING_SUFFIXES,
    WRAPPER_NAMES,
)
from dragoman.guard.validation.compiled_schema import CompiledSchema
from dragoman.guard.validation.violations import Violation, ViolationKind

_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_BOOLEANS: Final = {"true": True, "false": False}
_NULLS: Final = ("null", "none")
_MIN_ABBREVIATION_CHARS: Final = 3
"""Letters of an abbreviation; `in` and `no` are words."""
_LIMIT_KINDS: Final = frozenset({"range", "multiple_of", "length", "pattern", "items", "properties", "contains"})
"""Kinds of violations in which the type is accepted, so that the value means itself."""
_NAME_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_OPTION_MARKS: Final = re.compile(r"(?<=[^\W\d_])[\s_-]+(?=[^\W\d_])")
"""Marks between the words of an option; other marks have a meaning: `m/s`, `c++`, `-1`."""
_MAX_DIGITS: Final = 1000

Path: TypeAlias = tuple[str | int, ...]


class RepairAttempt(NamedTuple):
    """The arguments after one repair."""

    repair: str
    value: Any


def repair_attempts(violation: Violation, root: Any, schema: CompiledSchema) -> Iterator[RepairAttempt]:
    """Yields possible repairs of a violation, the most likely first.

    Args:
        violation: The violation.
        root: The arguments, as `decode_exact` returns them.
        schema: The schema of the arguments.
    """
    value = get_at(root, violation.path)
    absent = bool(violation.path) and _may_be_absent(violation.path, schema)
    if absent and _is_blank(value, violation, schema):
        yield RepairAttempt("drop_null_optional", _drop_at(root, violation.path))
    for step, repaired in _REPAIRS_BY_KIND.get(violation.kind, _no_repair)(violation, value, schema):
        yield RepairAttempt(step, set_at(root, violation.path, repaired))


def unwrap_nested(value: Any, schema: CompiledSchema) -> Any:
    """Returns the object inside the only member, if the schema does not declare that member and its name is a
    wrapper's; else None.
    """
    if not isinstance(value, dict) or len(value) != 1:
        return None
    [(name, inner)] = value.items()
    known = schema.declared_names(())
    if name in known or name.lower() not in WRAPPER_NAMES or not isinstance(inner, dict) or not inner.keys() <= known:
        return None
    return inner


def _is_blank(value: Any, violation: Violation, schema: CompiledSchema) -> bool:
    """Whether the value means that the member was to be omitted."""
    if value is None:
        return True
    if not isinstance(value, str) or value.strip() not in ("", "null", "None") or violation.kind in _LIMIT_KINDS:
        return False
    parts = schema.schemas_at(violation.path)
    if RESTRICTING_WORDS & name_words(str(violation.path[-1])):
        return False
    return not any(part.get("default") is not None or _accepts_null(part) for part in parts)


def _accepts_null(part: Mapping[str, Any]) -> bool:
    types = part.get("type", ())
    return types == "null" or "null" in types or None in part.get("enum", ())


def _may_be_absent(path: Path, schema: CompiledSchema) -> bool:
    """Whether the schema declares the member at this path and does not require it."""
    own = schema.schema_at(path[:-1])
    required = own.get("required")
    is_required = isinstance(required, list) and path[-1] in required
    return path[-1] in schema.declared_names(path[:-1]) and not is_required


def _no_repair(violation: Violation, value: Any, schema: CompiledSchema) -> Iterator[tuple[str, Any]]:
    yield from ()


def _repair_type(violation: Violation, value: Any, schema: CompiledSchema) -> Iterator[tuple[str, Any]]:
    expected = violation.expected
    if isinstance(value, str):
        yield from _from_text(value.strip(), expected)
    if isinstance(value, list) and len(value) == 1 and "array" not in expected:
        yield "unwrap", value[0]
    if "string" in expected and _may_be_text(value, violation.path):
        yield "to_string", encode_exact(value)
    if "array" in expected and _may_be_item(value):
        yield "wrap", [value]


def _may_be_text(value: Any, path: Path) -> bool:
    """Whether the value can be text; a list could be several calls, or one of its items."""
    if isinstance(value, dict):
        return bool(path) and isinstance(path[-1], str) and bool(DOCUMENT_WORDS & name_words(path[-1]))
    return value is not None and not isinstance(value, list)


def _may_be_item(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip() not in ("", "null", "None") and value.strip()[0] not in "[{" and "," not in value
    return value is not None and value != {}


def name_words(name: str) -> frozenset[str]:
    """Returns the words of a name in lower case: `maxItems`, `max_items` and `max-items` have the same."""
    return frozenset(word.lower() for word in _NAME_WORD.findall(name))


def _from_text(text: str, expected: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Values that a string can stand for."""
    if ("integer" in expected or "number" in expected) and len(text) <= _MAX_DIGITS and _NUMBER.fullmatch(text):
        yield "to_number", decode_exact(text)
    if "boolean" in expected and text.lower() in _BOOLEANS:
        yield "to_boolean", _BOOLEANS[text.lower()]
    if "null" in expected and text.lower() in _NULLS:
        yield "to_null", None
    for kind, opener, type_ in (("object", "{", dict), ("array", "[", list)):
        if kind in expected and text.startswith(opener):
            inner = _decode_or_none(text)
            if isinstance(inner, type_):
                yield "parse_string", inner


def _decode_or_none(text: str) -> Any:
    try:
        return decode_exact(text)
    except (ValueError, RecursionError):
        return None


def _repair_enum(violation: Violation, value: Any, schema: CompiledSchema) -> Iterator[tuple[str, Any]]:
    options = violation.expected if violation.kind == "enum" else (violation.expected,)
    if isinstance(value, str):
        texts = [option for option in options if isinstance(option, str)]
        if (match := _match_option(value.strip(), texts, violation.kind == "enum")) is not None:
            yield "match_enum", match
        yield from _from_text(value.strip(), ("integer", "number", "boolean", "null"))
    elif isinstance(value, list) and len(value) == 1:
        yield "unwrap", value[0]
    elif value is not None and (text := encode_exact(value)) in options:
        yield "to_string", text


def _match_option(value: str, options: list[str], is_choice: bool) -> str | None:
    """The only option that can be meant; None if there is none or several."""
    if not value:
        return None
    for spelled in (lambda text: text.strip().lower(), lambda text: _OPTION_MARKS.sub("", text.strip().lower())):
        if options_alike := [option for option in options if spelled(option) == spelled(value)]:
            return options_alike[0] if len(options_alike) == 1 else None
    options_alike = [option for option in options if option.lower().startswith(value.lower())]
    is_abbreviation = (
        is_choice and len(options_alike) == 1 and options_alike[0].isalpha() and _is_abbreviation(value, options)
    )
    return (
        options_alike[0]
        if is_abbreviation
        and len(name_words(options_alike[0])) == 1
        and not options_alike[0].lower().endswith(WIDENING_SUFFIXES)
        else None
    )


def _is_abbreviation(value: str, options: list[str]) -> bool:
    if len(value) == 1:
        return value.isupper() and len({option[:1].lower() for option in options}) == len(options)
    return len(value) >= _MIN_ABBREVIATION_CHARS and value.isalpha() and value.lower() not in NOT_ABBREVIATIONS


def _repair_missing(violation: Violation, value: Any, schema: CompiledSchema) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        return
    name: str = violation.expected
    known = schema.declared_names(violation.path, violation.schema)
    spare = [each for each in value if each not in known and normalize_name(each) == normalize_name(name)]
    if len(spare) == 1 and not any(normalize_name(each) == normalize_name(name) for each in known - {name}):
        yield "rename_key", _rename_keys(value, {spare[0]: name})
    default = schema.member_schema(violation.schema, name) or schema.member_schema(
        schema.schema_at(violation.path), name
    )
    is_restriction = default.get("default") is True and bool(RESTRICTING_WORDS & name_words(name))
    if "default" in default and not spare and not is_restriction:
        yield "fill_default", value | {name: default["default"]}


def _repair_unknown(violation: Violation, value: Any, schema: CompiledSchema) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        return
    known = schema.declared_names(violation.path, violation.schema)
    spare = [name for name in violation.expected if name not in known]
    if not spare:
        return
    by_words: dict[str, list[str]] = {}
    for each in known:
        by_words.setdefault(normalize_name(each), []).append(each)
    renames = _find_renames(spare, value, by_words)
    if renames is None:
        return
    if renames:
        yield "rename_key", _rename_keys(value, renames)
    elif all(normalize_name(name) in by_words or _has_no_effect(name, value[name]) for name in spare):
        left = {name: each for name, each in value.items() if name not in spare}
        if left or not known or all(value[name] in (None, "") for name in spare):
            yield "drop_unknown", left


def _find_renames(
    spare: list[str], value: Mapping[str, Any], by_words: Mapping[str, list[str]]
) -> dict[str, str] | None:
    """Returns the declared name of each unknown member that is absent itself; None if several names are possible.

    Args:
        spare: Names of the members that the schema does not declare.
        value: The object with these members.
        by_words: The declared names by their words.
    """
    renames: dict[str, str] = {}
    for name in spare:
        matching = by_words.get(normalize_name(name), [])
        if not matching:
            continue
        if len(matching) > 1 or matching[0] in renames.values():
            return None
        if matching[0] not in value:
            renames[name] = matching[0]
        elif value[matching[0]] != value[name]:
            return None
    return renames


def _has_no_effect(name: str, value: Any) -> bool:
    """Whether the call does the same without this member."""
    return value in (None, "") or (isinstance(value, str | ExactNumber) and normalize_name(name) in EXPLANATION_NAMES)


def _rename_keys(value: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): each for name, each in value.items()}


_REPAIRS_BY_KIND: Final[
    Mapping[ViolationKind, Callable[[Violation, Any, CompiledSchema], Iterator[tuple[str, Any]]]]
] = {
    "type": _repair_type,
    "enum": _repair_enum,
    "const": _repair_enum,
    "required": _repair_missing,
    "additional": _repair_unknown,
}


def get_at(value: Any, path: Path) -> Any:
    """Returns the part of a value at a path, which must exist."""
    for name in path:
        value = value[name]
    return value


def set_at(value: Any, path: Path, part: Any) -> Any:
    """Returns a copy of the value with another part at a path."""
    if not path:
        return part
    copy = value.copy()
    copy[path[0]] = set_at(value[path[0]], path[1:], part)
    return copy


def _drop_at(value: Any, path: Path) -> Any:
    *above, name = path
    parent = get_at(value, tuple(above))
    return set_at(value, tuple(above), {each: parent[each] for each in parent if each != name})
