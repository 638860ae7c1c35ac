"""Finds the end of a prompt's constant prefix: system text and tools, without anything of the conversation."""

from typing import Final

import msgspec

from dragoman.backends.text_mode.chat_template import ChatTemplate
from dragoman.core.errors import RequestError
from dragoman.core.messages import Message, Request, Text
from dragoman.parsing.format import Format

_OTHER_TEXT: Final = "?"
"""The only user message of the prompt that is compared."""


def constant_chars(template: ChatTemplate, request: Request, text: str, format: Format) -> int:
    """Returns the length of the prompt's constant prefix, in characters; 0: it has none.

    The prefix is what the prompt has in common with that of another conversation with the same system text and tools.
    It ends before a control token, because the tokens before one do not depend on what follows.

    Args:
        template: the model's chat template.
        request: the request as the model is shown it.
        text: its prompt.
        format: the tool format of the model.
    """
    first = next((at for at, message in enumerate(request.messages) if message.role not in _SYSTEM), 0)
    if not (first or request.tools):
        return 0
    messages = (*request.messages[:first], Message("user", (Text(_OTHER_TEXT),)))
    try:
        other = template.render(msgspec.structs.replace(request, messages=messages), format).text
    except RequestError:
        return 0
    end = common_chars(text, other)
    return max([0, *(text.rfind(token, 0, end) for token in template.special_tokens)])


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


_SYSTEM: Final = ("system", "developer")
