"""What may be set right in a call's arguments, step by step; each knows one kind of slip, and how it is undone.

    nested      {"arguments": {"city": "Paris"}}        →  {"city": "Paris"}       the arguments stand one deeper
    parse       "{\\"city\\": \\"Paris\\"}", "[1, 2]"        →  {"city": "Paris"}, [1, 2]
    numbers     "3"                                     →  3                       its digits as they are
    booleans    "true", "False"                         →  true, false
    nulls       "null", "None"                          →  null
    strings     3, true, {"a": 1}                       →  "3", "true", "{\\"a\\": 1}"
    wrap        "a"                                     →  ["a"]
    unwrap      ["a"]                                   →  "a"
    enum        "Celsius", "cel"                        →  "celsius"               by case, marks, or its beginning
    optional    null, "", 0, [], where nothing need be  →  left out                where the schema refuses that value
    keys        {"filePath": "a"}                       →  {"file_path": "a"}      whatever case and marks
    defaults    a member that must be, and has a default in the schema, is missing  →  the default
    unknown     a member that may not be                →  left out
    spread      {"city": ["Paris", "Rome"]}             →  two calls               for one value each (`spread`)

None makes a value up: what comes out was written by the model, or by the schema's author. A step is only tried where
the schema has refused the value, and only stays where the refusal goes away (`mend`).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from dragoman.core.resolve import plain
from dragoman.guard.problems import Kind, Problem
from dragoman.guard.schemas import Compiled

_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_BOOLEANS: Final = {"true": True, "false": False}
_NULLS: Final = ("null", "none")
_BLANK: Final = ("", "null", "none")
"""What models write, beside null, for a member that they would leave out; 0, [] and {} may mean something else."""
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

    Raises: ValueError, RecursionError: it is none, or none that can be held so.
    """
    return json.loads(text, parse_float=Exact, parse_constant=_refused)


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
    if absent and _is_blank(value):
        yield Tried("optional", _dropped(root, problem.path))
    for step, mended in _OF_KIND.get(problem.kind, _none)(problem, value, schema):
        yield Tried(step, put(root, problem.path, mended))
    if absent and _is_nothing(value):
        yield Tried("optional", _dropped(root, problem.path))


def _is_nothing(value: Any) -> bool:
    return not value and value is not False


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() in _BLANK)


def _may_be_absent(path: Path, schema: Compiled) -> bool:
    required = schema.schema_at(path[:-1]).get("required")
    return isinstance(path[-1], str) and not (isinstance(required, list) and path[-1] in required)


def _none(problem: Problem, value: Any, schema: Compiled) -> Iterator[tuple[str, Any]]:
    yield from ()


def _of_type(problem: Problem, value: Any, schema: Compiled) -> Iterator[tuple[str, Any]]:
    wanted = problem.expected
    if isinstance(value, str):
        yield from _out_of_text(value.strip(), wanted)
    if isinstance(value, list) and len(value) == 1 and "array" not in wanted:
        yield "unwrap", value[0]
    is_member = bool(problem.path) and isinstance(problem.path[-1], str)
    if "string" in wanted and _has_a_text(value, is_member):
        yield "strings", written(value)
    if "array" in wanted and value is not None:
        yield "wrap", [value]


def _has_a_text(value: Any, is_member: bool) -> bool:
    """Whether text may have been meant: of a list several calls may be, or one of its items."""
    return is_member if isinstance(value, dict) else value is not None and not isinstance(value, list)


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
        if (meant := _meant(value, words)) is not None:
            yield "enum", meant
        yield from _out_of_text(value.strip(), ("integer", "number", "boolean", "null"))
    elif isinstance(value, list) and len(value) == 1:
        yield "unwrap", value[0]
    elif value is not None and (text := written(value)) in options:
        yield "strings", text


def _meant(written: str, options: list[str]) -> str | None:
    """The one option that is meant."""
    asked = written.strip().casefold()
    if not asked:
        return None
    for is_meant in (
        lambda option: option.strip().casefold() == asked,
        lambda option: plain(option) == plain(asked),
        lambda option: option.casefold().startswith(asked),
    ):
        if found := [option for option in options if is_meant(option)]:
            return found[0] if len(found) == 1 else None
    return None


def _of_missing(problem: Problem, value: Any, schema: Compiled) -> Iterator[tuple[str, Any]]:
    name, own = problem.expected, schema.schema_at(problem.path)
    if not isinstance(value, dict):
        return
    known = own.get("properties")
    known = known if isinstance(known, dict) else {}
    spare = [each for each in value if each not in known and plain(each) == plain(name)]
    if len(spare) == 1:
        yield "keys", _renamed(value, {spare[0]: name})
    default = schema.member(own, name)
    if "default" in default:
        yield "defaults", value | {name: default["default"]}


def _of_unknown(problem: Problem, value: Any, schema: Compiled) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        return
    known = schema.schema_at(problem.path).get("properties")
    absent = [name for name in (known if isinstance(known, dict) else {}) if name not in value]
    meant: dict[str, str] = {}
    for spare in problem.expected:
        fits = [name for name in absent if plain(name) == plain(spare) and name not in meant.values()]
        if len(fits) == 1:
            meant[spare] = fits[0]
    if meant:
        yield "keys", _renamed(value, meant)
    yield "unknown", {name: each for name, each in value.items() if name not in problem.expected}


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
