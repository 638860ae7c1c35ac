"""How many tokens a text, or a whole request, is about: without a tokenizer, at a few microseconds a kilobyte.

Tokenizers cut text where characters of one kind meet those of another, and have one token for a common word, whatever
its length. So a text is turned into the kinds of its characters:

    if err != nil {        small letters `a`, capitals `A`, digits `0`, blanks ` `, line breaks `n`, all else of
    aa aaa pp aaa p        ASCII `p`; beyond that the script, see `_SCRIPTS`

and what is estimated is a sum: so much for each small letter, each digit, each place where a word begins (` a`, `pa`).
The weights are fitted to what tokenizers count (`python -m bench.tokens_fit`) and tried on other texts
(`python -m bench tokens`); docs/tokens.md has the errors, and says which of the numbers for requests are measured.
"""

from collections.abc import Iterator, Mapping
from typing import Final, assert_never

from dragoman.core.image_size import size_of
from dragoman.core.messages import (
    Audio,
    Document,
    Image,
    MediaSource,
    Part,
    PreviousResponseRef,
    Reasoning,
    Refusal,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    UnknownPart,
)

_SCRIPTS: Final = {
    "l": range(0xC2, 0xCA),  # Latin letters with accents
    "g": range(0xCA, 0xD0),  # Greek
    "c": range(0xD0, 0xD4),  # Cyrillic
    "r": range(0xD4, 0xE0),  # Armenian, Hebrew, Arabic, …
    "i": range(0xE0, 0xE2),  # of India and South-East Asia
    "t": (0xE2,),  # dashes, quotes, arrows, box drawing
    "k": (0xE3,),  # kana, and the full stop that goes with them
    "h": (*range(0xE4, 0xEA), 0xEE, 0xEF),  # Chinese characters, wide punctuation
    "o": range(0xEA, 0xEE),  # Hangul
    "e": range(0xF0, 0xF8),  # emoji
}
"""A letter for each kind, and with which bytes its characters begin in UTF-8."""


def _kind(byte: int) -> str:
    for letter, first in _SCRIPTS.items():
        if byte in first:
            return letter
    char = chr(byte)
    if char.isalpha():
        return "a" if char.islower() else "A"
    return "0" if char.isdigit() else "n" if char in "\r\n" else " " if char.isspace() else "p"


_KINDS: Final = "".join(map(_kind, range(256))).encode()
_FOLLOWING: Final = bytes(range(0x80, 0xC0))
"""Bytes of UTF-8 that are not a character's first."""
_ASCII: Final = ("a", "A", "0", "n", "p", " a", "pa", "Aa", "0A", " p")
SHAPES: Final = (*_ASCII, *_SCRIPTS)
"""What is counted in the kinds of a text."""

IMAGE_TOKENS: Final = 1568
"""The most that a picture costs, and what one costs whose size is not known: larger ones are made smaller.
https://platform.claude.com/docs/en/build-with-claude/vision (2026-11)."""
_PATCH_PIXELS: Final = 28
"""Side of the square of a picture that is one token (the same page; Qwen's vision models have 28, too)."""
_PAGE_TOKENS: Final = 2250
"""Of a page of a PDF: the middle of https://platform.claude.com/docs/en/build-with-claude/pdf-support (2026-11)."""
_PAGE_CHARS: Final = 65_536
"""Base64 of a page, taken for granted: how many there are is not to be seen without opening the file."""
_SOUND_CHARS: Final = 2_133
"""Base64 of a tenth of a second, at the 16 kB a second of common MP3; OpenAI's models hear ten tokens a second."""
MESSAGE_TOKENS: Final = 4
"""The role and what marks the ends of a message."""
_CALL_TOKENS: Final = 12
_TOOL_TOKENS: Final = 16
"""Names of fields around a tool's name, description and schema."""
_TOOLS_TOKENS: Final = 120
"""The vendor's or template's own words about tools, where there are any."""


def kinds(text: str) -> bytes:
    """A letter for each character of the text, behind a blank, as its first word begins there."""
    return b" " + text.encode("utf-8", "surrogatepass").translate(_KINDS, _FOLLOWING)


class TokenEstimator:
    """What one family of tokenizers makes of text."""

    __slots__ = ("_ascii", "_image", "_others")

    def __init__(self, weights: Mapping[str, float], image_tokens: int = IMAGE_TOKENS) -> None:
        """`weights` for each of `SHAPES`; `image_tokens` is the most that a picture costs."""
        self._ascii = [(shape.encode(), weights[shape]) for shape in _ASCII]
        self._others = [(shape.encode(), weights[shape]) for shape in _SCRIPTS]
        self._image = image_tokens

    def estimate(self, text: str) -> int:
        """About how many tokens the text is; 0 for none, else at least 1."""
        if not text:
            return 0
        found = kinds(text)
        total = sum([found.count(shape) * weight for shape, weight in self._ascii])
        if not text.isascii():
            rest = found.translate(None, b"aA0np ")  # mostly short: what counts is counted at once
            total += sum([rest.count(shape) * weight for shape, weight in self._others])
        return max(1, round(total))

    def estimate_request(self, request: Request) -> int:
        """About how many tokens of input the request is: all of it that the model is shown, but for earlier answers."""
        texts = [request.response_schema]
        tokens = _TOOLS_TOKENS if request.tools else 0
        for tool in request.tools:
            texts += _told(tool)
            tokens += _TOOL_TOKENS
        for message in request.messages:
            tokens += MESSAGE_TOKENS
            for part in message.parts:
                texts += _said(part)
                tokens += self._beside(part)
        return tokens + self.estimate("\n".join(filter(None, texts)))

    def estimate_part(self, part: Part) -> int:
        """About how many tokens of input this part of a message is, alone."""
        return self._beside(part) + self.estimate("\n".join(filter(None, _said(part))))

    def _beside(self, part: Part) -> int:
        """What a part costs beside its words."""
        match part:
            case ToolResult(parts=parts):
                return MESSAGE_TOKENS + sum(map(self._beside, parts))
            case ToolCall():
                return _CALL_TOKENS
            case Image(source):
                return self._picture(source)
            case Document(MediaSource(text="", data=data)):
                return _PAGE_TOKENS * max(1, -(-len(data) // _PAGE_CHARS))
            case Audio(MediaSource(data=data)):
                return len(data) // _SOUND_CHARS
            case _:
                return 0

    def _picture(self, source: MediaSource) -> int:
        size = size_of(source.data)
        if size is None:
            return min(IMAGE_TOKENS, self._image)
        return min(-(-size[0] // _PATCH_PIXELS) * -(-size[1] // _PATCH_PIXELS), self._image)


def _told(tool: Tool) -> Iterator[str]:
    """The words of a tool; of one that the vendor runs, all that was said of it."""
    yield tool.name
    if tool.kind == "function":
        yield tool.description
        yield tool.parameters
    else:
        yield from (bytes(raw).decode() for raw in tool.extra.values())


def _said(part: Part) -> Iterator[str]:
    """The words of a part."""
    match part:
        case Text(text) | Refusal(text):
            yield text
        case Reasoning(text, redacted=redacted):
            yield text or redacted
        case ToolCall(_, name, arguments):
            yield name
            yield arguments
        case ToolResult(parts=parts):
            for inner in parts:
                yield from _said(inner)
        case Document(source, title):
            yield title
            yield source.text
        case UnknownPart(raw=raw):
            yield bytes(raw).decode()
        case Image() | Audio() | PreviousResponseRef():
            return
        case _:
            assert_never(part)


GENERIC: Final = TokenEstimator(
    {
        "a": 0.05,
        "A": 0.27,
        "0": 1.02,
        "n": 0.92,
        "p": 0.35,
        " a": 0.8,
        "pa": 1.09,
        "Aa": 0.97,
        "0A": 3.08,
        " p": 0.8,
        "l": 1.74,
        "g": 0.48,
        "c": 0.3,
        "r": 0.39,
        "i": 0.47,
        "t": 1.58,
        "k": 0.58,
        "h": 0.65,
        "o": 0.76,
        "e": 2.75,
    }
)
"""For models of which nothing is known."""
