"""Which values occur in a conversation: literally, in other notation, or composed of its words.

    known = conversation_words(messages)
    known.contains("ORD-00123")     True after "What about order 123?"

The texts are split into words once, at a linear cost; a look-up then takes constant time, except for
values in other groups of characters. What a failed call tried does
not count, nor an error result that repeats it, nor the examples in one.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, TypeAlias

from dragoman.core.messages import (
    Audio,
    Document,
    Image,
    Message,
    Part,
    Role,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    UnknownPart,
    part_text,
)
from dragoman.core.repeated_call import is_error
from dragoman.guard.careful_words import word_set
from dragoman.guard.invented_values.compact_text import CompactText, SearchBudget
from dragoman.guard.invented_values.identifiers import EXAMPLE_MARKS

Origin: TypeAlias = Role | Literal["arguments"]
"""Where a text comes from: the role of a message, `tool` for results, `arguments` for those of a call that worked."""
MAX_TEXT_CHARS: Final = 2_000_000
"""Characters of a conversation; a longer one is not searched."""
_WORD: Final = re.compile(r"[^\W_]+")
_PART: Final = re.compile(r"[^\W\d_]+|\d+")
_CAMEL: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_ASCII_RUN: Final = re.compile(r"[a-z0-9]+")
_PREFIX_CHARS: Final = 4
"""Characters of a prefix such as `ORD-`, which need not occur."""
_STEM_CHARS: Final = 4
_EXAMPLE: Final = re.compile(rf"\b(?:{EXAMPLE_MARKS}) *[\"'`]?[\w-]+", re.IGNORECASE)
_DIGITS: Final = {
    word: str(digit)
    for line in (
        "zero one two three four five six seven eight nine",
        "null eins zwei drei vier fünf sechs sieben acht neun",
        "zéro un deux trois quatre cinq six sept huit neuf",
        "cero uno dos tres cuatro cinco seis siete ocho nueve",
    )
    for digit, word in enumerate(line.split())
}
_TENS: Final = {
    word: f"{digit}0"
    for line in (
        "ten twenty thirty forty fifty sixty seventy eighty ninety",
        "zehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
    )
    for digit, word in enumerate(line.split(), 1)
}
_TEENS: Final = {
    word: str(number)
    for line in (
        "eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen",
        "elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn",
    )
    for number, word in enumerate(line.split(), 11)
}
_GERMAN_COMPOUNDS: Final = {
    f"{unit}und{tens}": f"{_TENS[tens][0]}{digit}"
    for digit, unit in enumerate(["ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"], 1)
    for tens in ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]
}
_NUMBER_WORDS: Final = _DIGITS | _TENS | _TEENS | _GERMAN_COMPOUNDS
_MAGNITUDES: Final = word_set("hundred thousand million hundert tausend")


class KnownWords:
    """The words of some texts."""

    def __init__(self, texts: Sequence[str], budget: SearchBudget) -> None:
        """
        Args:
            texts: Texts of a conversation.
            budget: What may be searched.
        """
        self._texts = [text.lower() for text in texts]
        self._budget = budget
        self._compact: CompactText | None = None
        self._tokens: set[str] = set()
        self._parts: set[str] = set()
        self._stems: set[str] = set()
        self.has_spelled_numbers = False
        """Whether a number is written in words, so that digits can be derived."""
        for text, lowered in zip(texts, self._texts, strict=True):
            self._add(text, lowered)

    def _add(self, text: str, lowered: str) -> None:
        tokens = _WORD.findall(lowered)
        distinct = set(tokens)
        distinct |= {run for word in distinct if not word.isascii() for run in _ASCII_RUN.findall(word)}
        self._tokens.update(distinct)
        parts = [part for word in distinct for part in _PART.findall(word)]
        self._parts.update(part.lstrip("0") or "0" if part.isdigit() else part for part in parts)
        self._parts.update(part.lower() for word in set(_WORD.findall(text)) for part in _CAMEL.findall(word))
        self._stems.update(part[:_STEM_CHARS] for part in parts if len(part) >= _STEM_CHARS)
        self._add_numbers(tokens)

    def _add_numbers(self, tokens: Sequence[str]) -> None:
        """Adds the number of each sequence of at least three digits in words: "one two three", "twelve thirty-four"."""
        digits, before = list[str](), ""
        for word in (*tokens, ""):
            if digit := _NUMBER_WORDS.get(word):
                if before in _TENS and before not in ("ten", "zehn") and word in _DIGITS and digit != "0":
                    digits[-1] = digits[-1][0]
                digits.append(digit)
                before = word
                continue
            if len(number := "".join(digits)) >= 3:
                self._parts.add(number.lstrip("0") or "0")
            digits, before = [], ""
            self.has_spelled_numbers = self.has_spelled_numbers or word in _MAGNITUDES

    def contains(self, value: str, elsewhere: "KnownWords | None" = None) -> bool:
        """Returns whether the value consists of known words.

        Case, separators and leading zeros do not matter.

        Args:
            value: The value.
            elsewhere: More words, which count as a whole only.
        """
        cased = _WORD.findall(value)
        compact = "".join(cased).lower()
        if not compact or compact in self._tokens:
            return True
        if any(map(_has_digit, cased)):
            cased = [word for word in cased if _has_digit(word) or len(word) > _PREFIX_CHARS]
        is_composed = all(
            word.lower() in self._tokens
            or (elsewhere is not None and word.lower() in elsewhere._tokens)
            or self._has_parts(word)
            or (not word.isascii() and self._occurs(word.lower(), whole_words=False))
            for word in cased
        )
        return is_composed or self._occurs(compact, whole_words=True)

    def matches(self, pattern: re.Pattern[str]) -> Iterator[str]:
        """Yields what matches the pattern, in lower case."""
        return (found[0] for text in self._texts for found in pattern.finditer(text))

    def _occurs(self, compact: str, *, whole_words: bool) -> bool:
        self._compact = self._compact or CompactText(self._texts, self._budget)
        return self._compact.contains(compact, whole_words=whole_words)

    def _has_parts(self, word: str) -> bool:
        """Whether a word of letters is known by its beginning, or one like `ORD123` by its parts."""
        parts = _PART.findall(word.lower())
        if len(parts) > 2:  # hexadecimal digits: each part alone occurs anywhere
            return False
        numbers = [part.lstrip("0") or "0" for part in parts if part.isdigit()]
        if numbers:
            return all(number in self._parts for number in numbers)
        return all(
            part.lower() in self._parts or (len(part) >= _STEM_CHARS and part[:_STEM_CHARS].lower() in self._stems)
            for part in _CAMEL.findall(word) or parts
        )


def _has_digit(word: str) -> bool:
    return any(char.isdigit() for char in word)


def conversation_words(messages: Sequence[Message], budget: SearchBudget) -> KnownWords | None:
    """Returns the words of a conversation; None if it contains what cannot be read, such as an image, or is too long.

    Args:
        messages: The messages.
        budget: What may be searched.
    """
    texts: list[str] = []
    chars = 0
    for _, text in conversation_texts(messages):
        chars += MAX_TEXT_CHARS + 1 if text is None else len(text)
        if text is None or chars > MAX_TEXT_CHARS:
            return None
        texts.append(text)
    return KnownWords(texts, budget)


def definition_words(tools: Iterable[Tool]) -> KnownWords:
    """Returns the words of the definitions of tools, with their examples, options and defaults."""
    return KnownWords([f"{tool.description} {tool.parameters}"[:MAX_TEXT_CHARS] for tool in tools], SearchBudget())


def conversation_texts(messages: Iterable[Message]) -> Iterator[tuple[Origin, str | None]]:
    """Yields the texts of messages with their origins; None for a part that cannot be read."""
    calls: dict[str, ToolCall] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls[part.id] = part
            elif isinstance(part, ToolResult):
                yield from _result_texts(part, calls.get(part.call_id))
            else:
                yield message.role, _text(part)


def _result_texts(result: ToolResult, call: ToolCall | None) -> Iterator[tuple[Origin, str | None]]:
    """Yields the texts of a result, and the arguments of its call if that did not fail."""
    if not is_error(result):
        yield from (("tool", _text(each)) for each in result.parts)
        yield "arguments", call.arguments if call else ""
        return
    tried = frozenset(_WORD.findall(call.arguments.lower()) if call else ())
    yield from (("tool", _without(_text(each), tried)) for each in result.parts)


def _without(text: str | None, tokens: frozenset[str]) -> str | None:
    """The text of an error without these words, because it repeats what was tried, and without examples."""
    return text and _WORD.sub(lambda found: "" if found[0].lower() in tokens else found[0], _EXAMPLE.sub(" ", text))


def _text(part: Part) -> str | None:
    """The text of a part; None if it has content that is not text."""
    match part:
        case Image() | Audio():
            return None
        case Document(source, title):
            return f"{title}\n{source.text}" if source.text else None
        case UnknownPart(raw=raw):
            return bytes(raw).decode(errors="replace")
        case Text(text):
            return text
        case _:
            return getattr(part, "text", "") or part_text(part)


def scalar_text(value: object) -> str:
    """Returns a value as it is written in text."""
    return value if isinstance(value, str) else json.dumps(value)
