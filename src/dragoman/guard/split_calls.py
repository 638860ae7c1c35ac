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
from collections.abc import Sequence
from typing import Any, Final

from dragoman.guard.arguments import Arguments, encode_exact
from dragoman.guard.careful_words import COMPOSITE_WORDS
from dragoman.guard.repair_steps import name_words
from dragoman.guard.validation.compiled_schema import CompiledSchema
from dragoman.guard.validation.violations import Violation

SPLIT_INTO_CALLS: Final = "split_into_calls"
MAX_CALLS: Final = 16
"""Calls that one call can be split into."""
NOT_FOR_ITEMS: Final = frozenset({SPLIT_INTO_CALLS, "to_string", "wrap", "unwrap", "parse_string"})
"""Repairs that are not made to an item."""
_PATH_FRAGMENT: Final = re.compile(r"\s*(?:[./\\~*?%]*|[/\\~].*|.*[/\\]|[A-Za-z]:.*)\s*", re.DOTALL)
"""An item that is a root, a part of a path, or a pattern for everything."""


def split_into_calls(arguments: Arguments, schema: CompiledSchema) -> list[Arguments]:
    """Returns the arguments of each call, which can still need repairs; empty if several calls were not meant."""
    value = arguments.exact
    try:
        names = _list_members(value, arguments.violations(schema)) if isinstance(value, dict) else []
        lengths = {len(value[name]) for name in names}
        if len(lengths) != 1 or not 2 <= (length := lengths.pop()) <= MAX_CALLS:
            return []
        parts = ({name: each[n] if name in names else each for name, each in value.items()} for n in range(length))
        return [Arguments(encode_exact(part)) for part in parts]
    except (ValueError, RecursionError):
        return []


def _list_members(value: Any, violations: Sequence[Violation]) -> list[str]:
    """Members with a list in place of a single value; empty if one of the lists is one value in parts."""
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
