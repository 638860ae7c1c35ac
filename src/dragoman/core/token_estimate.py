"""Estimates the tokens of a text or request without a tokenizer, in a few microseconds per kilobyte.

Tokenizers split text where characters of different kinds meet, and use one token for a common word of any length. So
each character is first replaced by its kind:

    if err != nil {        small letters `a`, capitals `A`, digits `0`, blanks ` `, line breaks `n`, other
    aa aaa pp aaa p        ASCII `p`; other characters by script, see `_SCRIPTS`

The estimate is a weighted sum of the kinds and of their combinations, such as the beginning of a word (` a`, `pa`).
The weights are fitted to the counts of tokenizers (`python -m bench.tokens_fit`) and tested on other texts
(`python -m bench tokens`); docs/tokens.md lists the errors and which of the numbers for requests are measured.
"""

from binascii import Error, a2b_base64
from collections.abc import Iterator, Mapping
from typing import Final, assert_never

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
    known_tools,
)

_SCRIPTS: Final = {
    "l": range(0xC2, 0xCA),  # Latin letters with accents
    "g": range(0xCA, 0xD0),  # Greek
    "c": range(0xD0, 0xD4),  # Cyrillic
    "r": range(0xD4, 0xE0),  # Armenian, Hebrew, Arabic, …
    "i": range(0xE0, 0xE2),  # scripts of India and South-East Asia
    "t": (0xE2,),  # dashes, quotes, arrows, box drawing
    "k": (0xE3,),  # kana, and the full stop that goes with them
    "h": (*range(0xE4, 0xEA), 0xEE, 0xEF),  # Chinese characters, wide punctuation
    "o": range(0xEA, 0xEE),  # Hangul
    "e": range(0xF0, 0xF8),  # emoji
}
"""The letter of each script, and the first bytes of its characters in UTF-8."""


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
"""UTF-8 bytes other than the first one of a character."""
_ASCII: Final = ("a", "A", "0", "n", "p", " a", "pa", "Aa", "0A", " p")
SHAPES: Final = (*_ASCII, *_SCRIPTS)
"""Substrings of the kinds that are counted."""

IMAGE_TOKENS: Final = 1568
"""Maximum tokens of an image, and the estimate if its size is unknown: larger images are scaled down. Source:
https://platform.claude.com/docs/en/build-with-claude/vision (2026-11)."""
_PATCH_PIXELS: Final = 28
"""Side in pixels of an image square that is one token (same page; Qwen's vision models use 28, too)."""
_PDF_PAGE_TOKENS: Final = 2250
"""Tokens of a PDF page: the middle of https://platform.claude.com/docs/en/build-with-claude/pdf-support (2026-11)."""
_PDF_PAGE_CHARS: Final = 65_536
"""Assumed base64 characters of a PDF page; the number of pages is not known without opening the file."""
_AUDIO_TOKEN_CHARS: Final = 2_133
"""Base64 characters of a tenth of a second, for common MP3 at 16 kB per second; OpenAI's models use 10 tokens/s."""
MESSAGE_TOKENS: Final = 4
"""Tokens of the role and of the markers around a message."""
_CALL_TOKENS: Final = 12
_TOOL_TOKENS: Final = 16
"""Tokens of the field names around a tool's name, description and schema."""
TOOLS_TOKENS: Final = 120
"""Tokens of the vendor's or template's own text about tools, if there are any."""


def char_kinds(text: str) -> bytes:
    """Returns the kind of each character of the text, after a blank for the beginning of the first word."""
    return b" " + text.encode("utf-8", "surrogatepass").translate(_KINDS, _FOLLOWING)


class TokenEstimator:
    """Estimates token counts for one family of tokenizers."""

    __slots__ = ("_ascii", "_image", "_others")

    def __init__(self, weights: Mapping[str, float], image_tokens: int = IMAGE_TOKENS) -> None:
        """Creates an estimator from the weight of each of `SHAPES` and the maximum tokens of an image."""
        self._ascii = [(shape.encode(), weights[shape]) for shape in _ASCII]
        self._others = [(shape.encode(), weights[shape]) for shape in _SCRIPTS]
        self._image = image_tokens

    def estimate(self, text: str) -> int:
        """Returns the estimated tokens of the text; 0 if it is empty, else at least 1."""
        if not text:
            return 0
        kinds = char_kinds(text)
        total = sum([kinds.count(shape) * weight for shape, weight in self._ascii])
        if not text.isascii():
            rest = kinds.translate(None, b"aA0np ")  # mostly short, so counting is fast
            total += sum([rest.count(shape) * weight for shape, weight in self._others])
        return max(1, round(total))

    def estimate_request(self, request: Request) -> int:
        """Returns the estimated input tokens of the request, without responses it refers to."""
        texts = [request.response_schema]
        tools = known_tools(request.tools)
        tokens = TOOLS_TOKENS if tools else 0
        for tool in tools:
            texts += tool_texts(tool)
            tokens += _TOOL_TOKENS
        for message in request.messages:
            tokens += MESSAGE_TOKENS
            for part in message.parts:
                texts += part_texts(part)
                tokens += self._tokens_without_text(part)
        return tokens + self.estimate("\n".join(filter(None, texts)))

    def estimate_part(self, part: Part) -> int:
        """Returns the estimated input tokens of one message part."""
        return self._tokens_without_text(part) + self.estimate("\n".join(filter(None, part_texts(part))))

    def estimate_tool(self, tool: Tool) -> int:
        """Returns the estimated input tokens of the definition of one tool, without `TOOLS_TOKENS`."""
        return _TOOL_TOKENS + self.estimate("\n".join(filter(None, tool_texts(tool))))

    def _tokens_without_text(self, part: Part) -> int:
        """Returns the tokens of a part other than its text."""
        match part:
            case ToolResult(parts=parts):
                return MESSAGE_TOKENS + sum(map(self._tokens_without_text, parts))
            case ToolCall():
                return _CALL_TOKENS
            case Image(source):
                return self._picture(source)
            case Document(MediaSource(text="", data=data)):
                return _PDF_PAGE_TOKENS * max(1, -(-len(data) // _PDF_PAGE_CHARS))
            case Audio(MediaSource(data=data)):
                return len(data) // _AUDIO_TOKEN_CHARS
            case _:
                return 0

    def _picture(self, source: MediaSource) -> int:
        size = image_size(source.data)
        if size is None:
            return min(IMAGE_TOKENS, self._image)
        return min(-(-size[0] // _PATCH_PIXELS) * -(-size[1] // _PATCH_PIXELS), self._image)


def tool_texts(tool: Tool) -> Iterator[str]:
    """Yields the texts of a tool; for a tool that the vendor runs, the JSON of all its fields."""
    yield tool.name
    if tool.kind == "function":
        yield tool.description
        yield tool.parameters
        yield from tool.examples
    else:
        yield from (bytes(raw).decode() for raw in tool.extra.values())


def part_texts(part: Part) -> Iterator[str]:
    """Yields the texts of a part, which may be empty."""
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
                yield from part_texts(inner)
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
"""For models of unknown families."""


HEAD_CHARS: Final = 65_536
"""Maximum base64 characters to examine: in a JPEG, metadata of cameras and editors precedes the size."""

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Second bytes of the JPEG markers that begin a frame."""


def image_size(data: str) -> tuple[int, int] | None:
    """Returns width and height in pixels of a PNG, GIF or JPEG; None if they cannot be read."""
    try:
        short = a2b_base64(data[:64])
        head = a2b_base64(data[:HEAD_CHARS]) if short[:2] == b"\xff\xd8" else short
    except (Error, ValueError):
        return None
    if head[:8] == _PNG and len(head) >= 24:
        return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])
    if head[:4] == b"GIF8" and len(head) >= 10:
        return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    return _jpeg(head) if head[:2] == b"\xff\xd8" else None


def _jpeg(head: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        if head[at + 1] in _FRAMES:
            return int.from_bytes(head[at + 7 : at + 9]), int.from_bytes(head[at + 5 : at + 7])
        at += 2 + int.from_bytes(head[at + 2 : at + 4])
    return None
