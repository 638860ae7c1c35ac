"""How much work it may be to check a value against a schema, known before it is begun.

The engine cannot be stopped, and a schema of a few lines can keep it busy for ever: twenty definitions that each refer
twice to the next are a million checks of one value, and a recursive one doubles them at every level of the value. So
what a schema may ask for is counted: for each level of a value, how many checks one part of it there can go through at
most. Times the parts of that level, that is the work. What the engine remembers and skips is counted all the same.

Words are those of JSON Schema from draft 4 to 2020-12. Measured with jsonschema-rs 0.60, 2026-11; a unit is some 10 ns.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from dragoman.guard.schema_refs import Documents, Unbounded

SCHEMA_LIMIT: Final = 10_000
"""Schemas within a schema; they take 100 ms to count and compile."""
NESTING_LIMIT: Final = 2_000
"""Those of them that have others for parts of a value: they are counted once for each level."""
HEIGHT_LIMIT: Final = 64
"""Schemas that apply to one value through each other."""
LEVELS: Final = 48
"""Of a value; nobody nests arguments half as deep."""
STEPS: Final = 512
"""Levels of a value times the height of what is asked at each: calls on the engine's stack. 800 end a thread that has
512 KB, as those of macOS have."""
SIZE_LIMIT: Final = 100_000
"""Parts of a value that are counted, which takes 15 ms."""
WORK_LIMIT: Final = 1_000_000
"""10 ms."""

_PLACES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"), "beside"),
    **dict.fromkeys(("dependentSchemas", "dependencies"), "beside"),
    **dict.fromkeys(("patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"), "members"),
    **dict.fromkeys(("items", "additionalItems", "unevaluatedItems", "contains"), "items"),
    **dict.fromkeys(("properties", "prefixItems"), "named"),
    **dict.fromkeys(("$dynamicRef", "$recursiveRef"), "unknown"),
}
"""Where what a word has applies: to the same value, to any member or item of it, or to one."""
_BY_NAME: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})
_AGAIN: Final = 4
"""What `unevaluatedProperties` and `unevaluatedItems` cost: the engine checks all beside them again, and within those
again; three times was measured."""
_COSTS: Final[Mapping[str, int]] = {"multipleOf": 300, "pattern": 10, "format": 20}
_OPTION: Final = 100
"""One value of `enum` that is no string: those are compared one by one, floats the slowest."""
_DIGITS_CHARS: Final = 1000
"""Fifty numbers beyond 64 bits, of which `uniqueItems` compares each with all others."""

Node: TypeAlias = int
"""A schema, by the identity of its value."""
Counts: TypeAlias = dict[Node, int]
"""How often each schema is asked."""
_PATTERN: Final[Node] = 0
"""Stands for a pattern that a member's name is matched with."""


@dataclass(slots=True)
class _Load:
    """What checking a value against a schema comes to, with all schemas that apply to the same value."""

    checks: Counts
    named: dict[str | int, Counts] = field(default_factory=dict)
    members: Counts = field(default_factory=dict)
    items: Counts = field(default_factory=dict)
    """Of members and items: those of one name, and any."""
    height: int = 0

    def nests(self) -> bool:
        """Whether anything is asked of members or items."""
        return bool(self.named or self.members or self.items)

    def include(self, other: "_Load", factor: int) -> None:
        """Has all that another has, so many times."""
        _add(self.checks, other.checks, factor)
        _add(self.members, other.members, factor)
        _add(self.items, other.items, factor)
        for name, counts in other.named.items():
            _add(self.named.setdefault(name, {}), counts, factor)
        self.height = max(self.height, other.height + 1)


def _add(counts: Counts, others: Counts, factor: int = 1) -> None:
    for node, times in others.items():
        counts[node] = counts.get(node, 0) + times * factor


class _Loads:
    """The loads of all schemas that a check may come to."""

    def __init__(self, root: Any, documents: Documents) -> None:
        self._documents = documents
        self._known: dict[Node, _Load] = {}
        self.schemas: dict[Node, dict[str, Any]] = {}
        self.heads: dict[Node, _Load] = {_PATTERN: _Load({_PATTERN: 1})}
        """Those that are asked of a whole value, or of a part of one."""
        nesting = 0
        left = [root]
        while left:
            if id(schema := left.pop()) in self.heads or not isinstance(schema, dict):
                continue
            load = self.heads[id(schema)] = self._of(schema, 0)
            nesting += load.nests()
            if nesting > NESTING_LIMIT:
                raise Unbounded(f"it has more than {NESTING_LIMIT:,} parts for parts of a value")
            for counts in (load.members, load.items, *load.named.values()):
                left += [self.schemas[node] for node in counts if node != _PATTERN]

    def _of(self, schema: dict[str, Any], height: int) -> _Load:
        if (known := self._known.get(id(schema))) is not None:
            return known
        load = _Load({id(schema): 1})
        self.schemas[id(schema)] = schema
        if len(self.schemas) > SCHEMA_LIMIT:
            raise Unbounded(f"it has more than {SCHEMA_LIMIT:,} parts")
        factor = _AGAIN if "unevaluatedProperties" in schema or "unevaluatedItems" in schema else 1
        for place, name, child in self._children(schema):
            if place == "beside":
                if height < HEIGHT_LIMIT:
                    load.include(self._of(child, height + 1), factor)
                if load.height >= HEIGHT_LIMIT or height >= HEIGHT_LIMIT:
                    raise Unbounded(
                        f"{HEIGHT_LIMIT} of its parts apply to one value through each other, or without end"
                    )
                continue
            self.schemas[id(child)] = child
            if place == "members":
                _add(load.members, {id(child): 1})
            elif place == "items" and name is None:
                _add(load.items, {id(child): 1})
            else:
                _add(load.named.setdefault(name or 0, {}), {id(child): 1})
        if isinstance(patterns := schema.get("patternProperties"), dict):
            _add(load.members, {_PATTERN: len(patterns)})
        self._known[id(schema)] = load
        return load

    def _children(self, schema: dict[str, Any]) -> Iterator[tuple[str, str | int | None, dict[str, Any]]]:
        """The schemas in a schema: where each applies, its name there, and what it is."""
        for word, value in schema.items():
            if (place := _PLACES.get(word)) is None:
                continue
            if place == "unknown":
                raise Unbounded(f"it has a {word}, which may lead anywhere")
            if word == "$ref":
                value = self._referred(value, schema)
            named: Any = [(None, value)]
            if isinstance(value, list):
                named = enumerate(value)
            elif isinstance(value, dict) and word in _BY_NAME:
                named = value.items()
            yield from ((place, name, child) for name, child in named if isinstance(child, dict))

    def _referred(self, reference: Any, schema: dict[str, Any]) -> Any:
        found = self._documents.find(reference, schema) if isinstance(reference, str) else True
        if not isinstance(found, dict | bool):
            raise Unbounded(f"it refers to {reference[:100]!r}, which is not in it")
        return found

    def levels(self, root: Any, cost: Callable[[dict[str, Any]], int]) -> tuple[int, ...]:
        """What one part of a value costs at most, for each level that it may stand at."""
        if id(root) not in self.heads:
            return (1,) + (0,) * (LEVELS - 1)
        costs = {node: cost(schema) for node, schema in self.schemas.items()} | {_PATTERN: _COSTS["pattern"]}
        row = {node: _total(load.checks, costs) for node, load in self.heads.items()}
        if max(row.values()) > WORK_LIMIT:  # compiling it may take as long, and all memory
            raise Unbounded("its parts apply to one value too often")
        nesting = {node: load for node, load in self.heads.items() if load.nests()}
        levels = [row[id(root)]]
        while len(levels) < LEVELS:
            before, row = row, {node: _one_lower(load, row) for node, load in nesting.items()}
            if row == before or levels[-1] > WORK_LIMIT:
                break
            levels.append(row.get(id(root), 0))
        return (*levels, *[levels[-1]] * (LEVELS - len(levels)))


def _total(counts: Counts, row: Mapping[Node, int]) -> int:
    return sum(row.get(node, 0) * times for node, times in counts.items())


def _one_lower(load: _Load, row: Mapping[Node, int]) -> int:
    """What a part costs one level further down, in whichever member or item it is dearest."""
    members, items = _total(load.members, row), _total(load.items, row)
    named = [_total(each, row) + (members if isinstance(name, str) else items) for name, each in load.named.items()]
    return max(members, items, *named)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a value is, level by level."""

    levels: tuple[int, ...]
    """Its parts, and each 64 characters of names, texts and digits one more."""
    digits: tuple[int, int]
    """How many numbers are beyond 64 bits, and how large they are together."""

    @property
    def below(self) -> list[int]:
        """The parts of each level, and of all under it."""
        return [sum(self.levels[depth:]) for depth in range(len(self.levels))]


def sizes(value: Any) -> Sizes:
    """The sizes of a value.

    Raises: Unbounded: it has too many levels or parts; do not check it.
    """
    levels: list[int] = []
    large = larger = 0
    level = [value]
    while level:
        if len(levels) == LEVELS:
            raise Unbounded(f"it has more than {LEVELS} levels")
        if len(level) > SIZE_LIMIT:
            raise Unbounded(f"it has more than {SIZE_LIMIT:,} parts")
        size, below = len(level), list[Any]()
        for each in level:
            if isinstance(each, str):
                size += len(each) >> 6
            elif isinstance(each, dict):
                below += each.values()
                size += sum(map(len, each)) >> 6
            elif isinstance(each, list):
                below += each
            elif isinstance(each, int) and each.bit_length() > 64:
                large, larger = large + 1, larger + (each.bit_length() >> 6)
                size += each.bit_length() >> 6
        levels.append(size)
        level = below
    return Sizes(tuple(levels), (large, larger))


class Bounds:
    """What checks against a schema come to."""

    __slots__ = ("_asked", "_deep", "_steps", "_unique", "_work", "chars", "choices")

    def __init__(self, root: Any, documents: Documents) -> None:
        """Raises: Unbounded: nothing can be checked against it."""
        loads = _Loads(root, documents)
        schemas = loads.schemas.values()
        self._work = loads.levels(root, _cost)
        self._asked = loads.levels(root, _errors)
        self._unique = any("uniqueItems" in schema for schema in schemas)
        self._deep = self._unique or any(map(_compares, schemas))
        self.choices = any("anyOf" in schema or "oneOf" in schema for schema in schemas)
        """Whether an error may hold those of branches."""
        self.chars = 0 if self._work[-1] else WORK_LIMIT // sum(self._work)
        """Arguments of so many characters may be checked without a look at them: each part of them is two at least."""
        if self._unique:
            self.chars = min(self.chars, _DIGITS_CHARS)
        self._steps = 1 + max(load.height for load in loads.heads.values())
        if self._steps * LEVELS > STEPS and self._work[STEPS // self._steps]:
            self.chars = 0

    def work(self, size: Sizes) -> int:
        """At most so much, to tell whether it fits.

        Raises: Unbounded: it has too many levels for the schema; do not check it.
        """
        if self._steps * sum(map(bool, self._work[: len(size.levels)])) > STEPS:
            raise Unbounded("it has too many levels for its schema")
        parts = size.below if self._deep else size.levels
        pairs = _OPTION * size.digits[0] * size.digits[1] if self._unique else 0
        return pairs + sum(work * part for work, part in zip(self._work, parts, strict=False))

    def telling(self, size: Sizes) -> int:
        """At most so many µs, to tell all that is wrong: 20 an error, and a half for each part that it is about."""
        parts = zip(self._asked, size.levels, size.below, strict=False)
        return sum(asked * (20 * here + below // 2) for asked, here, below in parts)


def _cost(schema: dict[str, Any]) -> int:
    compared = sum(_OPTION + 10 * _parts(each) for each in _options(schema) if not isinstance(each, str))
    return _errors(schema) + sum(cost for word, cost in _COSTS.items() if word in schema) + compared


def _parts(value: Any) -> int:
    return sum(sizes(value).levels) if isinstance(value, dict | list) else 1


def _errors(schema: dict[str, Any]) -> int:
    """How often it may be said to be wrong, about: once, or once for each name."""
    named = schema.get("required")
    return 1 + (len(named) if isinstance(named, list) else 0)


def _options(schema: dict[str, Any]) -> Sequence[Any]:
    listed = schema.get("enum")
    return [*(listed if isinstance(listed, list) else ()), *([schema["const"]] if "const" in schema else ())]


def _compares(schema: dict[str, Any]) -> bool:
    """Whether whole values are compared."""
    return any(isinstance(each, dict | list) for each in _options(schema))
