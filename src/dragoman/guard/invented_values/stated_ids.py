"""What a conversation states about identifiers: names that are ids, and things whose id is known.

    user      Open the board with the id 'Team Alpha'.      "Team Alpha" is an id, although it looks like a name
    system    The signed-in customer's id is CUST-4471.     the id of a customer is known

The messages are read once, at a linear cost.
"""

import json
import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import islice
from typing import Final

from dragoman.core.messages import Message, Tool
from dragoman.guard.invented_values.compact_text import SearchBudget
from dragoman.guard.invented_values.identifiers import MAX_LEAVES, IdentifierValue, leaves, name_words, singular
from dragoman.guard.invented_values.known_words import conversation_texts
from dragoman.steps.derive import user_names_ids
from dragoman.steps.progress import succeeded_names

_CHARS_BEFORE: Final = 240
"""Characters before a name in which the word `id` is looked for."""
_ID_CHARS_BEFORE: Final = 40
_STATED_ID: Final = re.compile(
    r"ids?\b(?: (?:of|for) (?P<owner>(?:[\w'’-]{1,30} ){1,5}))?"
    r"(?:[\"'`]\s{0,4}:\s{0,4}\[?\s{0,4}\"[^\"\s]"
    r"|[\"'`*]{0,3}\s{0,4}(?:(?:is|are|was)\b|[:=|(#])?\s{0,4}[\"'`*\[(<#]{0,3}(?=[A-Za-z_-]{0,20}\d)[\w-]{2})",
    re.IGNORECASE,
)
"""Matches the word `id` with its value: a string of JSON, or a word with digits."""


class StatedIds:
    """What some messages and definitions state about identifiers."""

    def __init__(self, messages: Sequence[Message], tools: Sequence[Tool], budget: SearchBudget) -> None:
        """
        Args:
            messages: The whole conversation.
            tools: The tools that are offered.
            budget: What may be searched.
        """
        self._messages, self._tools, self._budget = messages, tools, budget

    @cached_property
    def succeeded(self) -> set[str]:
        """Returns the names of the tools that have returned a result without an error."""
        return succeeded_names(self._messages)

    @cached_property
    def user_names_ids(self) -> bool:
        """Returns whether a word of the user may be an id."""
        return user_names_ids(self._messages)

    def is_id(self, found: IdentifierValue) -> bool:
        """Returns whether a name is stated as an id, or the budget is used up.

        That is so if a tool, its definition or the system prompt contains it, the user wrote it after the word `id` or
        the parameter's name, or a call with it in the same parameter has succeeded.
        """
        name = found.value.lower()
        if (found.name, name) in self._arguments or not self._budget.is_left():
            return True
        if self._budget.find(self._sources, name) >= 0:
            return True
        after_id, begin = _after_id(found.name), 0
        while self._budget.is_left():
            begin = self._budget.find(self._user_text, name, begin)
            if begin < 0:
                return False
            if after_id.search(self._user_text, max(0, begin - _CHARS_BEFORE), begin):
                return True
            begin += 1
        return True

    def is_known(self, needed: IdentifierValue) -> bool:
        """Returns whether the conversation contains an id of what this parameter identifies."""
        return not needed.entity.isdisjoint(self._owners)

    @cached_property
    def _texts(self) -> list[tuple[str, str]]:
        return [(origin, text) for origin, text in conversation_texts(self._messages) if text]

    @cached_property
    def _sources(self) -> str:
        texts = [text for origin, text in self._texts if origin in ("system", "developer", "tool")]
        return "\n".join((*texts, *(f"{tool.description} {tool.parameters}" for tool in self._tools))).lower()

    @cached_property
    def _user_text(self) -> str:
        return "\n".join(text for origin, text in self._texts if origin == "user").lower()

    @cached_property
    def _arguments(self) -> frozenset[tuple[str, str]]:
        """The texts in the arguments of calls that have succeeded, with the names of their parameters."""
        found: set[tuple[str, str]] = set()
        for text in (text for origin, text in self._texts if origin == "arguments"):
            try:
                arguments = json.loads(text)
            except (ValueError, RecursionError):
                continue
            values = islice(leaves(arguments, {}, "", 0), MAX_LEAVES)
            found.update((name, value.lower()) for name, value, _ in values if isinstance(value, str))
        return frozenset(found)

    @cached_property
    def _owners(self) -> frozenset[str]:
        """Words for the things whose ids occur."""
        before: set[str] = set()
        for _, text in self._texts:
            for match in _STATED_ID.finditer(text):
                before.add(text[max(0, match.start() - _ID_CHARS_BEFORE) : match.start()].rstrip(" _-*`'’\""))
                before.add(match["owner"] or "")
        owners = (each.replace("'s", "").replace("’s", "") for each in before)
        return frozenset(singular(word) for owner in owners for word in _last_words(owner))


def _last_words(text: str) -> tuple[str, ...]:
    """The words of an owner such as `customer `, or the last word of the text before an id."""
    return name_words(text if text.endswith(" ") else re.split(r"[^\w-]", text)[-1])


@lru_cache(64)
def _after_id(parameter: str) -> re.Pattern[str]:
    """Returns what matches text that a value of the parameter follows, or a list of values."""
    names = r"[\W_]?".join(map(re.escape, name_words(parameter)))
    id_word = r"(?<![^\W_])(?:id|identifier|uuid|guid)"
    many = rf"(?:{id_word}s|{names})" if parameter.lower().endswith("s") else f"{id_word}s"
    return re.compile(
        rf"(?:{id_word}s?|{names})[^\w.,!?]{{1,8}}(?:(?:is|are|was)[^\w.,!?]{{1,4}})?\Z"
        rf"|{many}[\"'`]?\s{{0,3}}(?:are\b|[:=\[(\"'`])[^;!?{{}}\]]{{0,200}}[\s\"'`,\[(]\Z"
    )
