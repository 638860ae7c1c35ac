"""Finds the end of a prompt's constant prefix: system text, tools and context of the agent, without the user's text."""

import re
from collections import deque
from collections.abc import Sequence
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
_CONTEXT: Final = re.compile(r"<(system-reminder|environment_context|user_instructions)>.*</\1>", re.DOTALL)
"""Text of an agent in a user message: folder, date, project instructions."""
_OTHER_TEXTS: Final = ("?", "!")
"""The only user message of the prompt that is compared: one that does not begin as the user's."""


def constant_first(request: Request) -> Request:
    """Returns the request with the system messages that precede the model's first message before the user's.

    Some agents send thousands of tokens of instructions after the first user message. In front of it they belong to the
    constant prefix.
    """
    messages = request.messages
    end = next((at for at, message in enumerate(messages) if message.role in ("assistant", "tool")), len(messages))
    begin = sorted(messages[:end], key=lambda message: message.role not in _SYSTEM)
    return msgspec.structs.replace(request, messages=(*begin, *messages[end:]))


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

        The prefix is what the prompt has in common with that of another conversation with the same system text, tools
        and context of the agent. Without such context it ends before a control token, because the tokens before one do
        not depend on what follows.

        Args:
            request: the request as the model is shown it.
            text: its prompt.
        """
        first = next((at for at, message in enumerate(request.messages) if message.role not in _SYSTEM), 0)
        if len(text) < MIN_CHARS or not (first or request.tools):
            return 0
        if known := max((len(prefix) for prefix in tuple(self._found) if text.startswith(prefix)), default=0):
            return known
        context, rest = _agent_context(request.messages[first:])
        other_text = _OTHER_TEXTS[rest.startswith(_OTHER_TEXTS[0])]
        messages = (*request.messages[:first], Message("user", (*context, Text(other_text))))
        try:
            # Examples are the user's content, which is not stored on disk.
            tools = tuple(msgspec.structs.replace(t, examples=()) if t.examples else t for t in request.tools)
            other = msgspec.structs.replace(request, messages=messages, tools=tools)
            other_prompt = self._template.render(other, self._format).text
        except RequestError:
            return 0
        end = common_chars(text, other_prompt)
        if not context:
            end = max([0, *(text.rfind(token, 0, end) for token in self._template.special_tokens)])
        if end < MIN_CHARS:
            return 0
        self._found.append(text[:end])
        return end


def _agent_context(messages: Sequence[Message]) -> tuple[tuple[Text, ...], str]:
    """Returns what an agent has put in front of the user's text in the first message, and the text after it."""
    context: list[Text] = []
    for part in messages[0].parts if messages and messages[0].role == "user" else ():
        if not (isinstance(part, Text) and _is_context(part.text)):
            return tuple(context), part_text(part)
        context.append(part)
    return (), ""  # nothing follows that the user may have written


def _is_context(text: str) -> bool:
    found = _CONTEXT.fullmatch(text.strip())
    return found is not None and text.count(f"</{found[1]}>") == 1


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
