"""Finds the end of a prompt's constant prefix: system text and tools, without anything of the conversation."""

from collections import deque
from typing import Final

import msgspec

from dragoman.backends.text_mode.chat_template import ChatTemplate
from dragoman.core.errors import RequestError
from dragoman.core.messages import Message, Request, Text, part_text
from dragoman.parsing.format import Format

MIN_CHARS: Final = 1024
"""A prefix of 512 tokens has no fewer characters."""
_REMEMBERED: Final = 8
_SYSTEM: Final = ("system", "developer")
_OTHER_TEXTS: Final = ("?", "!")
"""The only user message of the prompt that is compared: one that does not begin as the user's."""


class PrefixBoundary:
    """Finds the constant prefix of the prompts of one model."""

    def __init__(self, template: ChatTemplate, format: Format) -> None:
        """
        Args:
            template: the model's chat template.
            format: the tool format of the model.
        """
        self._template, self._format = template, format
        self._found: deque[str] = deque(maxlen=_REMEMBERED)
        """Prefixes of recent prompts, which need not be found again."""

    def constant_chars(self, request: Request, text: str) -> int:
        """Returns the length of the prompt's constant prefix, in characters; 0: it has none, or a short one.

        The prefix is what the prompt has in common with that of another conversation with the same system text and
        tools. It ends before a control token, because the tokens before one do not depend on what follows.

        Args:
            request: the request as the model is shown it.
            text: its prompt.
        """
        first = next((at for at, message in enumerate(request.messages) if message.role not in _SYSTEM), 0)
        if len(text) < MIN_CHARS or not (first or request.tools):
            return 0
        if known := max((len(prefix) for prefix in tuple(self._found) if text.startswith(prefix)), default=0):
            return known
        message_text = "".join(map(part_text, request.messages[first].parts))
        other_text = _OTHER_TEXTS[message_text.startswith(_OTHER_TEXTS[0])]
        messages = (*request.messages[:first], Message("user", (Text(other_text),)))
        try:
            other = self._template.render(msgspec.structs.replace(request, messages=messages), self._format).text
        except RequestError:
            return 0
        end = common_chars(text, other)
        prefix = text[: max([0, *(text.rfind(token, 0, end) for token in self._template.special_tokens)])]
        if len(prefix) < MIN_CHARS:
            return 0
        self._found.append(prefix)
        return len(prefix)


def common_chars(a: str, b: str) -> int:
    """Returns the length of the longest common prefix."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:  # a[:low] == b[:low], a[:high] != b[:high]
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
