"""Ranks tools for a query by BM25, in memory, over the words of their names, descriptions and parameters.

    "createPullRequest", "create_pull_request"   →  create, pull, request
    a word in the name counts three times, in the name of a parameter twice, in a description once

Building the index takes time proportional to the text. Words lose the endings of the plural and of verbs, so that
"listing issues" finds `list_issue`. Names that the query contains whole are found first, in its order.

Source: Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from dragoman.core.messages import JsonText, Tool

_K1: Final = 1.2
_B: Final = 0.5
"""How much a long text lowers the weight of its words: half of it, as long descriptions often are the good ones."""
_NAME_WEIGHT: Final = 3
_PARAMETER_WEIGHT: Final = 2
_MIN_SHARE: Final = 0.3
"""Share of the best score below which a tool is not found: each one costs the model's attention."""
_MAX_DEPTH: Final = 8
"""Levels of a schema whose parameters are read."""
_MAX_QUERY_WORDS: Final = 64
_BETWEEN_WORDS: Final = re.compile(r"[\W_]+|(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=\D)(?=\d)|(?<=\d)(?=\D)")
_NAME: Final = re.compile(r"[\w.:/-]+")
MAX_KNOWN_CHARS: Final = 4000
"""Maximum characters of a definition whose weights are kept: it comes from a client, which could fill the memory."""
_Weights: TypeAlias = tuple[Mapping[str, int], Mapping[str, int]]
_STOP_WORDS: Final = frozenset(
    (
        *("a", "an", "and", "are", "as", "at", "be", "by", "can", "for", "from", "how", "i", "in"),
        *("into", "is", "it", "me", "my", "of", "on", "or", "please", "that", "the", "this", "to", "tool"),
        *("tools", "use", "using", "want", "what", "which", "with", "you"),
    )
)
_ENDINGS: Final = ("ings", "ing", "ies", "ied", "es", "ed", "s", "e", "y")


class _Field:
    """An index of one field of all tools."""

    def __init__(self, weights: Iterable[Mapping[str, int]]) -> None:
        """Each mapping has the words of one tool, and how much each word weighs."""
        self._postings: dict[str, list[tuple[int, int]]] = {}
        self._lengths: list[int] = []
        for n, counts in enumerate(weights):
            self._lengths.append(sum(counts.values()))
            for word, weight in counts.items():
                self._postings.setdefault(word, []).append((n, weight))
        self._mean_length = sum(self._lengths) / max(1, len(self._lengths)) or 1.0

    def scored(self, word: str) -> Iterator[tuple[int, float]]:
        """Yields the tools with this word, and their scores."""
        postings = self._postings.get(word, ())
        rarity = math.log(1 + (len(self._lengths) - len(postings) + 0.5) / (len(postings) + 0.5))
        for n, weight in postings:
            length = 1 - _B + _B * self._lengths[n] / self._mean_length
            yield n, rarity * weight * (_K1 + 1) / (weight + _K1 * length)


class ToolIndex:
    """An index of tools."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = tuple(tools)
        self._positions = {tool.name.lower(): n for n, tool in reversed([*enumerate(tools)])}
        weights = [_weights(tool) for tool in tools]
        # A word that is in all descriptions can still tell names apart, so each field has its own rarity of words.
        self._fields = ((_NAME_WEIGHT, _Field(name for name, _ in weights)), (1, _Field(text for _, text in weights)))

    def find(self, query: str, limit: int) -> list[Tool]:
        """Returns the best tools for the query, at most `limit`; none if no word of the query is in any of them."""
        named = dict.fromkeys(self._named(query))
        scores: dict[int, float] = {}
        for word in list(dict.fromkeys(split_words(query)))[:_MAX_QUERY_WORDS]:
            for factor, field in self._fields:
                for n, score in field.scored(word):
                    scores[n] = scores.get(n, 0.0) + factor * score
        least = _MIN_SHARE * max(scores.values(), default=0.0)
        ranked = sorted((n for n in scores if scores[n] >= least), key=lambda n: (-scores[n], n))
        return [self._tools[n] for n in dict.fromkeys((*named, *ranked))][:limit]

    def _named(self, query: str) -> Iterator[int]:
        """Yields the positions of tools whose whole name is in the query."""
        for match in _NAME.finditer(query.lower()):
            if (n := self._positions.get(match[0].strip(".:/-"))) is not None:
                yield n


def split_words(text: str) -> list[str]:
    """Returns the words of a text or name, without frequent ones, in lower case and without their endings."""
    lower = (word.lower() for word in _BETWEEN_WORDS.split(text) if word)
    return [_stem(word) for word in lower if word not in _STOP_WORDS]


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if len(word) >= len(ending) + 3 and word.endswith(ending) and not word.endswith("ss"):
            stem = word[: -len(ending)]
            return stem[:-1] if len(stem) > 3 and stem[-1] == stem[-2] and ending in ("ing", "ed") else stem
    return word


def _weights(tool: Tool) -> _Weights:
    """Returns how much each word of a tool weighs, in its name and in its other texts."""
    texts = tool.name, tool.description, tool.parameters
    return known_weights(*texts) if sum(map(len, texts)) <= MAX_KNOWN_CHARS else known_weights.__wrapped__(*texts)


@lru_cache(maxsize=2048)  # agents offer the same tools in each request
def known_weights(name: str, description: str, parameters: JsonText) -> _Weights:
    """Returns the weights of the words in a tool's name and in its other texts; those used last are kept."""
    weights = Counter[str]()
    for text, weight in ((description, 1), *_parameters(parameters)):
        for word in split_words(text):
            weights[word] += weight
    return Counter(split_words(name)), weights


def searched_texts(tool: Tool) -> list[str]:
    """Returns the texts of a tool in which a search looks: name, description, and those of its parameters."""
    return [tool.name, tool.description, *(text for text, _ in _parameters(tool.parameters))]


def _parameters(schema: JsonText) -> Iterator[tuple[str, int]]:
    try:
        yield from _properties(json.loads(schema), 0)
    except (ValueError, RecursionError):  # also for thousands of digits
        return


def _properties(schema: Any, depth: int) -> Iterator[tuple[str, int]]:
    """Yields the names and descriptions of parameters, with their weights."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        yield name, _PARAMETER_WEIGHT
        if isinstance(inner, dict) and isinstance(inner.get("description"), str):
            yield inner["description"], 1
        yield from _properties(inner, depth + 1)
    yield from _properties(schema.get("items"), depth + 1)
