"""What may be set right in a call's arguments, step by step; each knows one kind of slip, and how it is undone.

docs/guard.md has them all, with an example each. None makes a value up: what comes out was written by the model, or by
the schema's author. A step is only tried where the schema has refused the value, and only stays where the refusal goes
away (`mend`). A refused call costs a turn, a wrong one may cost data; so where a value could mean something else that
does more, or something that does less is left out, it stays refused:

    enum        a beginning counts from three letters on, or as one capital where all options begin differently (`C`),
                and only of one word (`delete` is less than `deleteForever`); none that is a word of its own (`not`,
                `public`), none of what widens (`all`), none of numbers
    optional    names of the model's own (of a map) stay; of values only null and blank text go, and that not where the
                schema takes text, a default would take its place, null may stand, or less is done with a value
                (`ids`, `older_than`)
    unknown     only null, "" and what explains the call (`reason`) goes, for the rest may narrow it (`pattern`, `force:
                false`); names that the schema knows anywhere stay, and all where none would be left of some
    keys        a name that could mean two, or that is there already with another value, stays
    nested      only what models put around arguments (`arguments`, `params`), not any name
    strings     an object becomes text only where text is a document (`content`, `json`)
    wrap        nothing ("" or {}) is no item, and neither is JSON that is broken, or text that may list several
    defaults    never choose the branch of a choice, nor confirm anything (`confirm: true`)
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from dragoman.core.tool_name_match import plain
from dragoman.guard.careful_words import AROUND, DOCUMENTS, NO_BEGINNINGS, REASONS, RESTRAINTS, WIDE
from dragoman.guard.compiled_schema import Compiled
from dragoman.guard.violations import Kind, Problem

_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_BOOLEANS: Final = {"true": True, "false": False}
_NULLS: Final = ("null", "none")
_BEGINNING: Final = 3
"""Letters that a beginning has: `in` and `no` are words."""
_LIMITS: Final = frozenset({"range", "multiple_of", "length", "pattern", "items", "properties", "contains"})
"""Problems of values whose type is taken: they mean themselves."""
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_OPTION_MARKS: Final = re.compile(r"(?<=[^\W\d_])[\s_-]+(?=[^\W\d_])")
"""Between words of an option; other marks mean something: `m/s`, `c++`, `-1`."""
_DIGITS: Final = 1000

Path: TypeAlias = tuple[str | int, ...]


class Exact(NamedTuple):
    """A number with a fraction, as it was written."""

    text: str


class Tried(NamedTuple):
    """The arguments with one thing set right."""

    step: str
    value: Any


def read(text: str) -> Any:
    """JSON as values that keep its digits.

    Raises: ValueError, RecursionError: it is none, or none that can be held so, or has a name twice with two values.
    """
    return json.loads(text, parse_float=Exact, parse_constant=_refused, object_pairs_hook=_object)


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(members)
    if len(made) < len(members) and any(written(each) != written(made[name]) for name, each in members):
        raise ValueError("a member has two values")
    return made


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def loose(value: Any) -> Any:
    """Such values as the schema's engine knows them."""
    match value:
        case Exact(text):
            return float(text)
        case dict():
            return {name: loose(each) for name, each in value.items()}
        case list():
            return [loose(each) for each in value]
        case _:
            return value


def written(value: Any) -> str:
    """The JSON of such values."""
    return msgspec.json.encode(_raw(value)).decode()


def _raw(value: Any) -> Any:
    match value:
        case Exact():
            return msgspec.Raw(value.text.encode())
        case dict():
            return {name: _raw(each) for name, each in value.items()}
        case list():
            return [_raw(each) for each in value]
        case int() if not isinstance(value, bool):
            return msgspec.Raw(str(value).encode())
        case _:
            return value


def tries(problem: Problem, root: Any, schema: Compiled) -> Iterator[Tried]:
    """Ways in which this problem may go away, the likeliest first."""
    value = at(root, problem.path)
    absent = bool(problem.path) and _may_be_absent(problem.path, schema)
    if absent and _is_blank(value, problem, schema):
        yield Tried("optional", _dropped(root, problem.path))
    for step, mended in _OF_KIND.get(problem.kind, _none)(problem, value, schema):
        yield Tried(step, put(root, problem.path, mended))


def unnested(value: Any, schema: Compiled) -> Any:
    """What stands one deeper, under a name that is none of the schema's; None where nothing does."""
    if not isinstance(value, dict) or len(value) != 1:
        return None
    [(name, inner)] = value.items()
    known = schema.declared(())
    if name in known or name.lower() not in AROUND or not isinstance(inner, dict) or not inner.keys() <= known:
        return None
    return inner


def _is_blank(value: Any, problem: Problem, schema: Compiled) -> bool:
    """Whether it stands for a member that was to be left out."""
    if value is None:
        return True
    if not isinstance(value, str) or value.strip() not in ("", "null", "None") or problem.kind in _LIMITS:
        return False
    parts = schema.parts_at(problem.path)
    if RESTRAINTS & words_of(str(problem.path[-1])):
        return False
    return not any(part.get("default") is not None or _takes_null(part) for part in parts)


def _takes_null(part: Mapping[str, Any]) -> bool:
    types = part.get("type", ())
    return types == "null" or "null" in types or None in part.get("enum", ())


def _may_be_absent(path: Path, schema: Compiled) -> bool:
    """Whether it is a member that the schema knows, and does not require."""
    own = schema.schema_at(path[:-1])
    required = own.get("required")
    is_required = isinstance(required, list) and path[-1] in required
    return path[-1] in schema.declared(path[:-1]) and not is_required


def _none(problem: Problem, value: Any, schema: Compiled) -> Iterator[tuple[str, Any]]:
    yield from ()


def _of_type(problem: Problem, value: Any, schema: Compiled) -> Iterator[tuple[str, Any]]:
    wanted = problem.expected
    if isinstance(value, str):
        yield from _out_of_text(value.strip(), wanted)
    if isinstance(value, list) and len(value) == 1 and "array" not in wanted:
        yield "unwrap", value[0]
    if "string" in wanted and _has_a_text(value, problem.path):
        yield "strings", written(value)
    if "array" in wanted and _is_an_item(value):
        yield "wrap", [value]


def _has_a_text(value: Any, path: Path) -> bool:
    """Whether text may have been meant: of a list several calls may be, or one of its items."""
    if isinstance(value, dict):
        return bool(path) and isinstance(path[-1], str) and bool(DOCUMENTS & words_of(path[-1]))
    return value is not None and not isinstance(value, list)


def _is_an_item(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip() not in ("", "null", "None") and value.strip()[0] not in "[{" and "," not in value
    return value is not None and value != {}


def words_of(name: str) -> frozenset[str]:
    """The words of a name, whatever its style."""
    return frozenset(word.lower() for word in _WORDS.findall(name))


def _out_of_text(text: str, wanted: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """What stands in a string."""
    if ("integer" in wanted or "number" in wanted) and len(text) <= _DIGITS and _NUMBER.fullmatch(text):
        yield "numbers", read(text)
    if "boolean" in wanted and text.lower() in _BOOLEANS:
        yield "booleans", _BOOLEANS[text.lower()]
    if "null" in wanted and text.lower() in _NULLS:
        yield "nulls", None
    for kind, opener, type_ in (("object", "{", dict), ("array", "[", list)):
        if kind in wanted and text.startswith(opener):
            inner = _inner(text)
            if isinstance(inner, type_):
                yield "parse", inner


def _inner(text: str) -> Any:
    try:
        return read(text)
    except (ValueError, RecursionError):
        return None


def _of_enum(problem: Problem, value: Any, schema: Compiled) -> Iterator[tuple[str, Any]]:
    options = problem.expected if problem.kind == "enum" else (problem.expected,)
    if isinstance(value, str):
        words = [option for option in options if isinstance(option, str)]
        if (meant := _meant(value.strip(), words, problem.kind == "enum")) is not None:
            yield "enum", meant
        yield from _out_of_text(value.strip(), ("integer", "number", "boolean", "null"))
    elif isinstance(value, list) and len(value) == 1:
        yield "unwrap", value[0]
    elif value is not None and (text := written(value)) in options:
        yield "strings", text


def _meant(asked: str, options: list[str], is_choice: bool) -> str | None:
    """The one option that is meant."""
    if not asked:
        return None
    for spelled in (lambda text: text.strip().lower(), lambda text: _OPTION_MARKS.sub("", text.strip().lower())):
        if found := [option for option in options if spelled(option) == spelled(asked)]:
            return found[0] if len(found) == 1 else None
    found = [option for option in options if option.lower().startswith(asked.lower())]
    is_one = is_choice and len(found) == 1 and found[0].isalpha() and _is_beginning(asked, options)
    return found[0] if is_one and len(words_of(found[0])) == 1 and not found[0].lower().endswith(WIDE) else None


def _is_beginning(asked: str, options: list[str]) -> bool:
    if len(asked) == 1:
        return asked.isupper() and len({option[:1].lower() for option in options}) == len(options)
    return len(asked) >= _BEGINNING and asked.isalpha() and asked.lower() not in NO_BEGINNINGS


def _of_missing(problem: Problem, value: Any, schema: Compiled) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        return
    name: str = problem.expected
    known = schema.declared(problem.path, problem.schema)
    spare = [each for each in value if each not in known and plain(each) == plain(name)]
    if len(spare) == 1 and not any(plain(each) == plain(name) for each in known - {name}):
        yield "keys", _renamed(value, {spare[0]: name})
    default = schema.member(problem.schema, name) or schema.member(schema.schema_at(problem.path), name)
    is_given = default.get("default") is True and bool(RESTRAINTS & words_of(name))
    if "default" in default and not spare and not is_given:
        yield "defaults", value | {name: default["default"]}


def _of_unknown(problem: Problem, value: Any, schema: Compiled) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        return
    known = schema.declared(problem.path, problem.schema)
    spare = [name for name in problem.expected if name not in known]
    by_words: dict[str, list[str]] = {}
    for each in known if spare else ():
        by_words.setdefault(plain(each), []).append(each)
    meant: dict[str, str] = {}
    taken: set[str] = set()
    for name in spare:
        fits = by_words.get(plain(name), [])
        if len(fits) > 1 or (fits and fits[0] in taken):
            return
        if fits and fits[0] not in value:
            meant[name] = fits[0]
            taken.add(fits[0])
        elif fits and value[fits[0]] != value[name]:
            return
    if meant:
        yield "keys", _renamed(value, meant)
    elif spare and all(plain(name) in by_words or _changes_nothing(name, value[name]) for name in spare):
        left = {name: each for name, each in value.items() if name not in spare}
        if left or not known or all(value[name] in (None, "") for name in spare):
            yield "unknown", left


def _changes_nothing(name: str, value: Any) -> bool:
    """Whether the same would be done without this member."""
    return value in (None, "") or (isinstance(value, str | Exact) and plain(name) in REASONS)


def _renamed(value: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): each for name, each in value.items()}


_OF_KIND: Final[Mapping[Kind, Callable[[Problem, Any, Compiled], Iterator[tuple[str, Any]]]]] = {
    "type": _of_type,
    "enum": _of_enum,
    "const": _of_enum,
    "required": _of_missing,
    "additional": _of_unknown,
}


def at(value: Any, path: Path) -> Any:
    """The part of a value at a path that is there."""
    for name in path:
        value = value[name]
    return value


def put(value: Any, path: Path, part: Any) -> Any:
    """The value with another part at a path; what it was stays as it is."""
    if not path:
        return part
    copy = value.copy()
    copy[path[0]] = put(value[path[0]], path[1:], part)
    return copy


def _dropped(value: Any, path: Path) -> Any:
    *above, name = path
    inside = at(value, tuple(above))
    return put(value, tuple(above), {each: inside[each] for each in inside if each != name})
