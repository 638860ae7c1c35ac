"""Distinguishes control tokens from the same characters written with ordinary tokens.

A model that is asked to print `<tool_call>` may write it with ordinary tokens. The text is the same, but an engine sees
the token ids and can report the difference with each piece. In plain text, the first character of each control token is
replaced by a noncharacter, so that the format's reader finds no marker there; its output is changed back. Formats and
scanner need no support for this, and without the engine's report nothing is changed.

Source of the characters: The Unicode Standard 16.0 (2024-09), section 23.7, noncharacters U+FDD0 to U+FDEF, reserved
for use within a program.
"""

from collections.abc import Iterable
from typing import Final

from dragoman.core.errors import UsageError, quote
from dragoman.parsing.sink import ForwardingSink, ToolCallSink
from dragoman.text.scanner import Markers

FIRST_NONCHARACTER: Final = 0xFDD0
NONCHARACTER_COUNT: Final = 32


class ControlTokenMask:
    """Replaces the first characters of control tokens in plain text, and restores them.

    Args:
        control: the texts of the control tokens, with at most 32 different first characters.

    Raises:
        UsageError: these are not control tokens.
    """

    def __init__(self, control: Iterable[str]) -> None:
        tokens_passed: list[object] = (
            [control] if isinstance(control, str) or not isinstance(control, Iterable) else [*control]
        )
        for token in tokens_passed:
            if not isinstance(token, str) or not token:
                token_text = quote(token) if isinstance(token, str) else type(token).__name__
                raise UsageError(f"expected the texts of control tokens, got {token_text} - at control")
        # Tokenizers also add runs of white space, which mark nothing up.
        tokens = sorted({str(token) for token in tokens_passed if str(token).strip()})
        beginnings = sorted({token[0] for token in tokens})
        if not 0 < len(beginnings) <= NONCHARACTER_COUNT:
            raise UsageError(
                f"expected control tokens of up to {NONCHARACTER_COUNT} beginnings, got {len(beginnings)} - at control"
            )
        self._find = Markers(*tokens).find
        self._mask = {ord(char): FIRST_NONCHARACTER + i for i, char in enumerate(beginnings)}
        self._unmask = {mask: char for char, mask in self._mask.items()}
        self._foreign = dict.fromkeys(self._unmask, "\N{REPLACEMENT CHARACTER}")
        self._buffered = ""  # plain, and the beginning of what may become a control token

    def feed(self, text: str, plain: bool) -> str:
        """Returns the masked text that can be read now; the beginning of a possible control token is buffered."""
        text = text.translate(self._foreign)
        if plain or not text:
            return self._plain(text, closed=False)
        # Whatever this completes has begun in plain text.
        buffered, self._buffered = self._buffered.translate(self._mask), ""
        return buffered + text

    def close(self) -> str:
        """Returns the buffered text."""
        return self._plain("", closed=True)

    def unmask(self, text: str) -> str:
        """Returns the text as the model wrote it."""
        return text if text.isascii() else text.translate(self._unmask)

    def _plain(self, text: str, closed: bool) -> str:
        buf, pos, out = self._buffered + text, 0, list[str]()
        while True:
            start, end = self._find(buf, pos, closed)
            out.append(buf[pos:start])
            if end < 0:
                self._buffered = buf[start:]
                return "".join(out)
            out.append(buf[start].translate(self._mask))
            pos = start + 1


class UnmaskingSink(ForwardingSink):
    """Restores the original text in everything that a format's reader emits."""

    def __init__(self, sink: ToolCallSink, mask: ControlTokenMask) -> None:
        self.sink = sink
        self._unmask_text = mask.unmask

    def text(self, text: str) -> None:
        """Forwards the text as the model wrote it, as all methods below."""
        self.sink.text(self._unmask_text(text))

    def reasoning(self, text: str) -> None:
        """Forwards the restored text."""
        self.sink.reasoning(self._unmask_text(text))

    def resolve(self, name: str) -> str | None:
        """Resolves the restored name."""
        return self.sink.resolve(self._unmask_text(name))

    def start(self, name: str, id: str = "") -> None:
        """Forwards the restored id."""
        self.sink.start(name, self._unmask_text(id))

    def arguments(self, text: str) -> None:
        """Forwards the restored text."""
        self.sink.arguments(self._unmask_text(text))

    def incomplete(self, raw: str) -> None:
        """Forwards the restored text."""
        self.sink.incomplete(self._unmask_text(raw))

    def warn(self, code: str, message: str, raw: str = "") -> None:
        """Forwards the restored texts."""
        self.sink.warn(code, self._unmask_text(message), self._unmask_text(raw))
