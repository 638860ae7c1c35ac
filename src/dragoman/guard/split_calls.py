"""Splits one call that was written for several: a list where the schema wants one of its items.

    cancel({"id": [12, 13], "notify": true})     →     cancel({"id": 12, "notify": true}), cancel({"id": 13, …})

Small models write this if a question is about several things. Lists of the same length in several members are split
item by item. The calls act on what the model listed, never on more. But a list can also be one value in parts, and must
not become several actions. So these are not split:

- a list of texts whose name says that it is one value (the words of a command, the paragraphs of a letter, the folders
  of a path), and lists of times or places (a range, coordinates)
- a list with an item that looks like a part of a path or like everything (`/`, `..`, `*`), whatever its name is
- a list whose items would have to become texts, lists or objects first, or would lead to the same call twice
"""

import re
from collections.abc import Collection
from typing import Any, Final

from dragoman.core.messages import JsonText
from dragoman.guard.careful_words import COMPOSITE_WORDS
from dragoman.guard.repair import RepairedArguments, repair
from dragoman.guard.repair_steps import decode_exact, encode_exact, name_words, with_plain_numbers
from dragoman.guard.validation.compiled_schema import CompiledSchema
from dragoman.guard.validation.violations import Violation

SPLIT_INTO_CALLS: Final = "split_into_calls"
MAX_CALLS: Final = 16
"""Calls that one call can be split into."""
_NOT_FOR_ITEMS: Final = frozenset({SPLIT_INTO_CALLS, "to_string", "wrap", "unwrap", "parse_string"})
"""Repairs that are not made to an item."""
_PATH_FRAGMENT: Final = re.compile(r"\s*(?:[./\\~*?%]*|[/\\~].*|.*[/\\]|[A-Za-z]:.*)\s*", re.DOTALL)
"""An item that is a root, a part of a path, or a pattern for everything."""


def split_into_calls(arguments: JsonText, schema: CompiledSchema, steps: Collection[str]) -> list[RepairedArguments]:
    """Returns the arguments of each call; empty if it is not clear that several calls were meant.

    Args:
        arguments: The arguments of the one call that the model wrote.
        schema: The schema that the arguments of each call must match.
        steps: The enabled repairs.
    """
    if SPLIT_INTO_CALLS not in steps or not schema.can_check:
        return []
    try:
        value = decode_exact(arguments)
        names = _list_members(value, schema)
    except (ValueError, RecursionError):
        return []
    lengths = {len(value[name]) for name in names}
    if len(lengths) != 1 or not 2 <= (length := lengths.pop()) <= MAX_CALLS:
        return []
    calls = [each for number in range(length) if (each := _call_for_item(value, names, number, schema, steps))]
    return calls if len({each.arguments for each in calls}) == length else []


def _list_members(value: Any, schema: CompiledSchema) -> list[str]:
    """Members with a list in place of a single value; empty if one of the lists is one value in parts."""
    violations = schema.violations(with_plain_numbers(value)) if isinstance(value, dict) else ()
    by_name = {violation.path[0]: violation for violation in violations if len(violation.path) == 1}
    lists = {str(name): violation for name, violation in by_name.items() if isinstance(value[name], list)}
    has_pair = any(
        COMPOSITE_WORDS & name_words(name) or not _expects_single_value(violation) for name, violation in lists.items()
    )
    return [] if has_pair or any(_is_path_fragment(item) for name in lists for item in value[name]) else list(lists)


def _is_path_fragment(item: Any) -> bool:
    return isinstance(item, str) and _PATH_FRAGMENT.fullmatch(item) is not None


def _expects_single_value(violation: Violation) -> bool:
    """Whether no list is allowed here, whatever its items are."""
    if violation.branches:
        return all(
            branch and branch[0].path == violation.path and _expects_single_value(branch[0])
            for branch in violation.branches
        )
    return violation.kind in ("type", "enum", "const")


def _call_for_item(
    value: Any, names: Collection[str], number: int, schema: CompiledSchema, steps: Collection[str]
) -> RepairedArguments | None:
    part = {name: each[number] if name in names else each for name, each in value.items()}
    repaired = repair(encode_exact(part), schema, [step for step in steps if step not in _NOT_FOR_ITEMS])
    return RepairedArguments(repaired.arguments, (SPLIT_INTO_CALLS, *repaired.repairs)) if repaired else None
