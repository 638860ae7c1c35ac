"""Which tools could find an identifier, by their names and descriptions."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

from dragoman.core.messages import Tool
from dragoman.guard.careful_words import word_set
from dragoman.guard.invented_values.compact_text import SearchBudget
from dragoman.guard.invented_values.identifiers import (
    CREATING,
    IdentifierValue,
    name_words,
    required_ids,
    schema_of,
    singular,
)
from dragoman.guard.invented_values.stated_ids import StatedIds

MAX_FINDERS: Final = 3
_SEARCHING: Final = word_set("search find list lookup look query ls glob grep browse resolve discover scan match")
_READING: Final = word_set("get fetch retrieve show read check describe view inspect")
_GENERAL: Final = word_set(
    "search find list lookup look up query database db record records data item items all info knowledge base"
)
_FILE_FINDERS: Final = word_set(
    "file files dir directory directories folder folders glob grep ls tree find bash shell command terminal"
)
_CHANGING: Final = CREATING | word_set("copy delete edit move patch remove rename replace rm update")
_MAX_DESCRIPTION_CHARS: Final = 400
_MAX_LEVELS: Final = 3
"""Tools in a row that are looked at, each of which needs an id that the next one finds."""
_SCORE_COST: Final = 100
"""Searched characters that count for looking at a tool."""
_GENERAL_SCORE: Final = 1
_STEM_CHARS: Final = 4


class FinderTools:
    """The tools of a request, by what they could find."""

    def __init__(self, tools: Sequence[Tool], budget: SearchBudget) -> None:
        """
        Args:
            tools: The tools that are offered.
            budget: What may be searched; once it is used up, no tool is found.
        """
        self._tools = {tool.name: _ToolFacts(tool) for tool in tools if tool.kind == "function"}
        self._budget = budget
        self._found: dict[tuple[str, str, frozenset[str], str], dict[str, int]] = {}

    def find(self, found: IdentifierValue, called: str) -> list[str]:
        """Returns the names of the tools that could find this value, the most likely first.

        Args:
            found: The value, and what it identifies.
            called: The name of the tool that was called with it.
        """
        return list(self._scores(found, called))

    def is_named(self, found: IdentifierValue, called: str) -> bool:
        """Returns whether a tool says that it finds what the value identifies; else it would be a general search."""
        return any(score > _GENERAL_SCORE for score in self._scores(found, called).values())

    def find_first(self, found: IdentifierValue, called: str, stated: StatedIds) -> list[str]:
        """Returns the tools to begin with, in order to find this value: those that need no id that is unknown too.

        For an `order_id` that `list_orders(customer_id)` finds, this is `search_customers`, unless that has succeeded,
        or the id of the customer is known.

        Args:
            found: The value, and what it identifies.
            called: The name of the tool that was called with it.
            stated: What the conversation states about ids.
        """
        finders, seen = self.find(found, called), {called}
        for _ in range(_MAX_LEVELS):
            before = {name: self._earlier(self._tools[name], stated) for name in finders}
            if ready := [name for name in finders if not before[name]]:
                return ready
            seen.update(finders)
            finders = [name for name in before[finders[0]] if name not in seen] if finders else []
        return self.find(found, called)

    def _earlier(self, tool: "_ToolFacts", stated: StatedIds) -> list[str]:
        """Returns the tools that find an id which this tool needs, if none of them has succeeded."""
        for needed in tool.needed:
            finders = [] if stated.is_known(needed) else self.find(needed, tool.name)
            if finders and stated.succeeded.isdisjoint(finders):
                return finders
        return []

    def _scores(self, found: IdentifierValue, called: str) -> dict[str, int]:
        key = (found.kind, found.name, found.entity, called)
        if key not in self._found:
            scores: dict[str, int] = {}
            if self._budget.is_left():
                self._budget.searched_chars += _SCORE_COST * len(self._tools)
                scores = {name: _score(found, tool) for name, tool in self._tools.items() if name != called}
            best = sorted((name for name, score in scores.items() if score > 0), key=lambda name: -scores[name])
            self._found[key] = {name: scores[name] for name in best[:MAX_FINDERS]}
        return self._found[key]


class _ToolFacts:
    """What is read of a tool, once."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self.name = tool.name
        self.name_tokens = frozenset(name_words(tool.name))
        self.named = frozenset(map(singular, self.name_tokens))
        self.searches = not _SEARCHING.isdisjoint(self.name_tokens)

    @cached_property
    def described(self) -> frozenset[str]:
        """The words of its description."""
        return frozenset(map(singular, name_words(self._tool.description[:_MAX_DESCRIPTION_CHARS])))

    @cached_property
    def needed(self) -> list[IdentifierValue]:
        """The ids that it needs."""
        return required_ids(self._tool)

    @cached_property
    def _required(self) -> frozenset[object] | None:
        required = schema_of(self._tool.parameters).get("required")
        return frozenset(each for each in required if isinstance(each, str)) if isinstance(required, list) else None

    def requires(self, name: str) -> bool:
        """Returns whether it needs a value of this name."""
        return f'"{name}"' in self._tool.parameters and (self._required is None or name in self._required)


def _score(found: IdentifierValue, tool: _ToolFacts) -> int:
    if found.kind == "path":
        finds = not _FILE_FINDERS.isdisjoint(tool.name_tokens) and _CHANGING.isdisjoint(tool.name_tokens)
        return 1 + tool.searches if finds else 0
    if not (tool.searches or not _READING.isdisjoint(tool.name_tokens)) or tool.requires(found.name):
        return 0
    if not found.entity.isdisjoint(tool.named):
        return 4 + 2 * tool.searches + 3 * ("id" in tool.named)
    if _share_stem(found.entity, tool.described):
        return 2 + tool.searches
    is_general = tool.searches and tool.named <= _GENERAL and _FILE_FINDERS.isdisjoint(tool.described)
    return _GENERAL_SCORE if is_general else 0


def _share_stem(some: Iterable[str], others: frozenset[str]) -> bool:
    stems = {word[:_STEM_CHARS] for word in others if len(word) >= _STEM_CHARS}
    return any(word in others or (len(word) >= _STEM_CHARS and word[:_STEM_CHARS] in stems) for word in some)
