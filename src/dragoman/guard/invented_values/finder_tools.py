"""Which tools could find an identifier, by their names and descriptions."""

import json
from collections.abc import Container, Iterable, Sequence
from typing import Final

from dragoman.core.messages import Tool
from dragoman.guard.careful_words import word_set
from dragoman.guard.invented_values.identifiers import CREATING, IdentifierValue, name_words, required_ids, singular

MAX_FINDERS: Final = 3
_SEARCHING: Final = word_set("search find list lookup look query ls glob grep browse resolve discover scan match")
_READING: Final = word_set("get fetch retrieve show read check describe view inspect")
_GENERAL: Final = word_set(
    "search find list lookup look up query database db record records data item items all info knowledge base"
)
_FILE_FINDERS: Final = word_set(
    "file files dir directory directories folder folders glob grep ls tree find bash shell command terminal"
)
_MAX_DESCRIPTION_CHARS: Final = 400
_STEM_CHARS: Final = 4


def finder_tools(found: IdentifierValue, called: str, tools: Iterable[Tool]) -> list[str]:
    """Returns the names of the tools that could find this value, the most likely first.

    Args:
        found: The value, and what it identifies.
        called: The name of the tool that was called with it.
        tools: The tools that are offered.
    """
    scores = {tool.name: _score(found, tool) for tool in tools if tool.name != called and tool.kind == "function"}
    best = sorted((name for name, score in scores.items() if score > 0), key=lambda name: -scores[name])
    return best[:MAX_FINDERS]


def first_finder_tools(
    found: IdentifierValue, called: str, tools: Sequence[Tool], succeeded: Container[str]
) -> list[str]:
    """Returns the tools to begin with, in order to find this value: those that need no id which is not known either.

    For an `order_id` that `list_orders(customer_id)` finds, this is `search_customers`, unless that has succeeded.

    Args:
        found: The value, and what it identifies.
        called: The name of the tool that was called with it.
        tools: The tools that are offered.
        succeeded: Names of the tools that have returned a result without an error.
    """
    by_name = {tool.name: tool for tool in tools}
    finders, seen = finder_tools(found, called, tools), {called}
    while finders:
        before = {name: _earlier_finders(by_name[name], tools, succeeded) for name in finders}
        if ready := [name for name in finders if not before[name]]:
            return ready
        seen.update(finders)
        finders = [name for name in before[finders[0]] if name not in seen]
    return finder_tools(found, called, tools)


def _earlier_finders(tool: Tool, tools: Sequence[Tool], succeeded: Container[str]) -> list[str]:
    """Returns the tools that find an id which this tool needs, if none of them has succeeded."""
    for needed in required_ids(tool):
        finders = finder_tools(needed, tool.name, tools)
        if finders and not any(name in succeeded for name in finders):
            return finders
    return []


def _score(found: IdentifierValue, tool: Tool) -> int:
    name_tokens = name_words(tool.name)
    searches = not _SEARCHING.isdisjoint(name_tokens)
    if found.kind == "path":
        return (1 + searches) if not _FILE_FINDERS.isdisjoint(name_tokens) and CREATING.isdisjoint(name_tokens) else 0
    if not (searches or not _READING.isdisjoint(name_tokens)) or _requires(tool, found.name):
        return 0
    named = frozenset(map(singular, name_tokens))
    if not found.entity.isdisjoint(named):
        return 4 + 2 * searches + 3 * ("id" in named)
    described = frozenset(map(singular, name_words(tool.description[:_MAX_DESCRIPTION_CHARS])))
    if _share_stem(found.entity, described):
        return 2 + searches
    return 1 if searches and named <= _GENERAL and _FILE_FINDERS.isdisjoint(described) else 0


def _share_stem(some: Iterable[str], others: frozenset[str]) -> bool:
    stems = {word[:_STEM_CHARS] for word in others if len(word) >= _STEM_CHARS}
    return any(word in others or (len(word) >= _STEM_CHARS and word[:_STEM_CHARS] in stems) for word in some)


def _requires(tool: Tool, name: str) -> bool:
    """Whether the tool needs the same value itself."""
    if f'"{name}"' not in tool.parameters:
        return False
    try:
        required = json.loads(tool.parameters).get("required")
    except (ValueError, RecursionError, AttributeError):
        return True
    return not isinstance(required, list) or name in required
