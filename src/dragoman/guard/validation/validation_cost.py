"""Estimates the cost of checking a value against a schema, before the check.

The validator cannot be stopped, and a schema of a few lines can keep it busy forever: twenty definitions that each
refer twice to the next are a million checks of one value, and a recursive one doubles them at every level of the value.
So an upper bound is computed: for each level of a value, how many checks one part at that level can need at most.
Multiplied by the number of parts at that level, this is the work. Checks that the validator caches and skips are
counted too.

Keywords are those of JSON Schema from draft 4 to 2020-12. Measured with jsonschema-rs 0.60, 2026-11; a unit is some 10
ns.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from dragoman.guard.validation.schema_refs import SchemaRefs, UnboundedCheck

MAX_SUBSCHEMAS: Final = 10_000
"""Subschemas of a schema; counting and compiling them takes 100 ms."""
MAX_NESTING_SUBSCHEMAS: Final = 2_000
"""Subschemas that have subschemas for members or items; they are counted once for each level."""
MAX_HEIGHT: Final = 64
"""Subschemas that apply to the same value through each other."""
MAX_LEVELS: Final = 48
"""Levels of a value; real arguments do not have half as many."""
MAX_STACK_DEPTH: Final = 512
"""Levels of a value times the height of the schemas at each level: frames on the validator's stack. 800 overflow a
thread of 512 KB, the size on macOS."""
MAX_VALUE_PARTS: Final = 100_000
"""Parts of a value that are counted, which takes 15 ms."""
MAX_WORK: Final = 1_000_000
"""10 ms."""

_APPLIES_TO: Final[Mapping[str, str]] = {
    **dict.fromkeys(("$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"), "same"),
    **dict.fromkeys(("dependentSchemas", "dependencies"), "same"),
    **dict.fromkeys(("patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"), "members"),
    **dict.fromkeys(("items", "additionalItems", "unevaluatedItems", "contains"), "items"),
    **dict.fromkeys(("properties", "prefixItems"), "named"),
    **dict.fromkeys(("$dynamicRef", "$recursiveRef"), "unknown"),
}
"""What the subschemas of a keyword apply to: the same value, any member, any item, or one member or item."""
_BY_NAME: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})
_UNEVALUATED_FACTOR: Final = 4
"""Cost factor of `unevaluatedProperties` and `unevaluatedItems`: the validator checks all keywords next to them again,
also in nested schemas; a factor of three was measured."""
_KEYWORD_COSTS: Final[Mapping[str, int]] = {"multipleOf": 300, "pattern": 10, "format": 20}
_OPTION_COST: Final = 100
"""Cost of one value in `enum` that is not a string: those are compared one by one, floats are the slowest."""
_BIG_NUMBER_CHARS: Final = 1000
"""Fifty numbers beyond 64 bits; `uniqueItems` compares each of them with all others."""

Node: TypeAlias = int
"""A schema, by the identity of its value."""
Counts: TypeAlias = dict[Node, int]
"""How often each schema is checked."""
_PATTERN: Final[Node] = 0
"""Represents a pattern that a member's name is matched against."""


@dataclass(slots=True)
class _SchemaCost:
    """The checks that a schema makes of a value, with all schemas that apply to the same value."""

    checks: Counts
    named: dict[str | int, Counts] = field(default_factory=dict)
    members: Counts = field(default_factory=dict)
    items: Counts = field(default_factory=dict)
    """Checks of members and items: of one by its name or position, or of any."""
    height: int = 0

    def has_children(self) -> bool:
        """Whether members or items are checked."""
        return bool(self.named or self.members or self.items)

    def include(self, other: "_SchemaCost", factor: int) -> None:
        """Adds the checks of another schema, `factor` times."""
        _add(self.checks, other.checks, factor)
        _add(self.members, other.members, factor)
        _add(self.items, other.items, factor)
        for name, counts in other.named.items():
            _add(self.named.setdefault(name, {}), counts, factor)
        self.height = max(self.height, other.height + 1)


def _add(counts: Counts, others: Counts, factor: int = 1) -> None:
    for node, times in others.items():
        counts[node] = counts.get(node, 0) + times * factor


class _SchemaCosts:
    """The costs of all subschemas that a check can reach."""

    def __init__(self, root: Any, documents: SchemaRefs) -> None:
        self._refs = documents
        self._known: dict[Node, _SchemaCost] = {}
        self.schemas: dict[Node, dict[str, Any]] = {}
        self.roots: dict[Node, _SchemaCost] = {_PATTERN: _SchemaCost({_PATTERN: 1})}
        """Schemas that are applied to a whole value or to a member or an item."""
        nesting = 0
        left = [root]
        while left:
            if id(schema := left.pop()) in self.roots or not isinstance(schema, dict):
                continue
            load = self.roots[id(schema)] = self._cost_of(schema, 0)
            nesting += load.has_children()
            if nesting > MAX_NESTING_SUBSCHEMAS:
                raise UnboundedCheck(f"it has more than {MAX_NESTING_SUBSCHEMAS:,} parts for parts of a value")
            for counts in (load.members, load.items, *load.named.values()):
                left += [self.schemas[node] for node in counts if node != _PATTERN]

    def _cost_of(self, schema: dict[str, Any], height: int) -> _SchemaCost:
        if (known := self._known.get(id(schema))) is not None:
            return known
        load = _SchemaCost({id(schema): 1})
        self.schemas[id(schema)] = schema
        if len(self.schemas) > MAX_SUBSCHEMAS:
            raise UnboundedCheck(f"it has more than {MAX_SUBSCHEMAS:,} parts")
        factor = _UNEVALUATED_FACTOR if "unevaluatedProperties" in schema or "unevaluatedItems" in schema else 1
        for place, name, child in self._children(schema):
            if place == "same":
                if height < MAX_HEIGHT:
                    load.include(self._cost_of(child, height + 1), factor)
                if load.height >= MAX_HEIGHT or height >= MAX_HEIGHT:
                    raise UnboundedCheck(
                        f"{MAX_HEIGHT} of its parts apply to one value through each other, or without end"
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
        """The subschemas of a schema: what each applies to, its name or position, and itself."""
        for word, value in schema.items():
            if (place := _APPLIES_TO.get(word)) is None:
                continue
            if place == "unknown":
                raise UnboundedCheck(f"it has a {word}, which may lead anywhere")
            if word == "$ref":
                value = self._resolve(value, schema)
            named: Any = [(None, value)]
            if isinstance(value, list):
                named = enumerate(value)
            elif isinstance(value, dict) and word in _BY_NAME:
                named = value.items()
            yield from ((place, name, child) for name, child in named if isinstance(child, dict))

    def _resolve(self, reference: Any, schema: dict[str, Any]) -> Any:
        resolved = self._refs.resolve(reference, schema) if isinstance(reference, str) else True
        if not isinstance(resolved, dict | bool):
            raise UnboundedCheck(f"it refers to {reference[:100]!r}, which is not in it")
        return resolved

    def cost_by_level(self, root: Any, cost: Callable[[dict[str, Any]], int]) -> tuple[int, ...]:
        """Returns the highest cost of one part of a value, for each level of the value."""
        if id(root) not in self.roots:
            return (1,) + (0,) * (MAX_LEVELS - 1)
        costs = {node: cost(schema) for node, schema in self.schemas.items()} | {_PATTERN: _KEYWORD_COSTS["pattern"]}
        row = {node: _total(load.checks, costs) for node, load in self.roots.items()}
        if max(row.values()) > MAX_WORK:  # compiling it can take as long, and all memory
            raise UnboundedCheck("its parts apply to one value too often")
        nesting = {node: load for node, load in self.roots.items() if load.has_children()}
        levels = [row[id(root)]]
        while len(levels) < MAX_LEVELS:
            before, row = row, {node: _next_level_cost(load, row) for node, load in nesting.items()}
            if row == before or levels[-1] > MAX_WORK:
                break
            levels.append(row.get(id(root), 0))
        return (*levels, *[levels[-1]] * (MAX_LEVELS - len(levels)))


def _total(counts: Counts, row: Mapping[Node, int]) -> int:
    return sum(row.get(node, 0) * times for node, times in counts.items())


def _next_level_cost(load: _SchemaCost, row: Mapping[Node, int]) -> int:
    """The cost of a part one level further down, for the most expensive member or item."""
    members, items = _total(load.members, row), _total(load.items, row)
    named = [_total(each, row) + (members if isinstance(name, str) else items) for name, each in load.named.items()]
    return max(members, items, *named)


@dataclass(frozen=True, slots=True)
class ValueSize:
    """The size of a value, by level."""

    levels: tuple[int, ...]
    """Number of parts per level; each 64 characters of names, texts and digits count as one more."""
    big_numbers: tuple[int, int]
    """How many numbers are beyond 64 bits, and their size in units of 64 bits."""

    @property
    def subtree_sizes(self) -> list[int]:
        """The number of parts at each level and at all levels below it."""
        return [sum(self.levels[depth:]) for depth in range(len(self.levels))]


def value_size(value: Any) -> ValueSize:
    """Measures a value.

    Raises:
        UnboundedCheck: It has too many levels or parts; do not check it.
    """
    levels: list[int] = []
    large = larger = 0
    level = [value]
    while level:
        if len(levels) == MAX_LEVELS:
            raise UnboundedCheck(f"it has more than {MAX_LEVELS} levels")
        if len(level) > MAX_VALUE_PARTS:
            raise UnboundedCheck(f"it has more than {MAX_VALUE_PARTS:,} parts")
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
    return ValueSize(tuple(levels), (large, larger))


class ValidationCost:
    """Upper bounds for the cost of checks against one schema."""

    __slots__ = (
        "_check_costs",
        "_compares_values",
        "_error_counts",
        "_has_unique_items",
        "_stack_per_level",
        "has_choices",
        "unmeasured_chars",
    )

    def __init__(self, root: Any, documents: SchemaRefs) -> None:
        """Raises:
        UnboundedCheck: Values cannot be checked against this schema in bounded time.
        """
        loads = _SchemaCosts(root, documents)
        schemas = loads.schemas.values()
        self._check_costs = loads.cost_by_level(root, _check_cost)
        self._error_counts = loads.cost_by_level(root, _max_errors)
        self._has_unique_items = any("uniqueItems" in schema for schema in schemas)
        self._compares_values = self._has_unique_items or any(map(_compares_values, schemas))
        self.has_choices = any("anyOf" in schema or "oneOf" in schema for schema in schemas)
        """Whether an error can contain the errors of branches."""
        self.unmeasured_chars = 0 if self._check_costs[-1] else MAX_WORK // sum(self._check_costs)
        """Arguments of up to this many characters are checked without measuring the value; each part of a value has at
        least two."""
        if self._has_unique_items:
            self.unmeasured_chars = min(self.unmeasured_chars, _BIG_NUMBER_CHARS)
        self._stack_per_level = 1 + max(load.height for load in loads.roots.values())
        if (
            self._stack_per_level * MAX_LEVELS > MAX_STACK_DEPTH
            and self._check_costs[MAX_STACK_DEPTH // self._stack_per_level]
        ):
            self.unmeasured_chars = 0

    def check_cost(self, size: ValueSize) -> int:
        """Returns the highest cost of checking a value, in units of 10 ns.

        Raises:
            UnboundedCheck: The value has too many levels for the schema; do not check it.
        """
        if self._stack_per_level * sum(map(bool, self._check_costs[: len(size.levels)])) > MAX_STACK_DEPTH:
            raise UnboundedCheck("it has too many levels for its schema")
        parts = size.subtree_sizes if self._compares_values else size.levels
        pairs = _OPTION_COST * size.big_numbers[0] * size.big_numbers[1] if self._has_unique_items else 0
        return pairs + sum(work * part for work, part in zip(self._check_costs, parts, strict=False))

    def explain_cost(self, size: ValueSize) -> int:
        """Returns the highest cost of listing all violations, in µs: 20 for an error, and half of one for each part
        below it.
        """
        parts = zip(self._error_counts, size.levels, size.subtree_sizes, strict=False)
        return sum(checks * (20 * here + below // 2) for checks, here, below in parts)


def _check_cost(schema: dict[str, Any]) -> int:
    compared = sum(_OPTION_COST + 10 * _value_parts(each) for each in _options(schema) if not isinstance(each, str))
    return _max_errors(schema) + sum(cost for word, cost in _KEYWORD_COSTS.items() if word in schema) + compared


def _value_parts(value: Any) -> int:
    return sum(value_size(value).levels) if isinstance(value, dict | list) else 1


def _max_errors(schema: dict[str, Any]) -> int:
    """About how many errors a schema reports for one value: one, or one for each required name."""
    named = schema.get("required")
    return 1 + (len(named) if isinstance(named, list) else 0)


def _options(schema: dict[str, Any]) -> Sequence[Any]:
    listed = schema.get("enum")
    return [*(listed if isinstance(listed, list) else ()), *([schema["const"]] if "const" in schema else ())]


def _compares_values(schema: dict[str, Any]) -> bool:
    """Whether whole values are compared."""
    return any(isinstance(each, dict | list) for each in _options(schema))
