"""The conversation so far: system prompt, messages, and the images for the next message."""

import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from dragoman import dialects
from dragoman.core.messages import Image, Message, Part, Request, Text, Tool, ToolCall, ToolChoice, ToolResult
from dragoman.core.messages import Reasoning as ReasoningPart

_API = "openai_chat"
"""The API in whose JSON a conversation is saved."""


class ChatConversation:
    """Messages of the user, the model and tools, in order."""

    def __init__(self, system: str = "", tools: Sequence[Tool] = ()) -> None:
        self.system = system
        """The system prompt; empty: none."""
        self.tools = tuple(tools)
        """The tools that the model is offered."""
        self.images: list[Image] = []
        """Images for the next message."""
        self._messages: list[Message] = []

    @property
    def is_empty(self) -> bool:
        """Whether there is no message."""
        return not self._messages

    def add_question(self, text: str) -> None:
        """Adds a message of the user, with the images for it."""
        parts: list[Part] = [*self.images, Text(text)]
        self.images.clear()
        self._messages.append(Message("user", tuple(parts)))

    def add_reply(self, parts: Sequence[Part]) -> None:
        """Adds a message of the model."""
        self._messages.append(Message("assistant", tuple(parts)))

    def add_results(self, results: Sequence[ToolResult]) -> None:
        """Adds the results of the calls in the last message."""
        self._messages.append(Message("tool", tuple(results)))

    def drop_unanswered(self) -> bool:
        """Removes the last message if it is the user's; returns whether it was."""
        unanswered = bool(self._messages) and self._messages[-1].role == "user"
        if unanswered:
            self._messages.pop()
        return unanswered

    def undo(self) -> str | None:
        """Removes the user's last message and all after it; returns its text, or None if there is no message."""
        for index in range(len(self._messages) - 1, -1, -1):
            if self._messages[index].role == "user":
                texts = [part.text for part in self._messages[index].parts if isinstance(part, Text)]
                del self._messages[index:]
                return "\n".join(texts)
        return None

    def clear(self) -> None:
        """Removes all messages and images; the system prompt stays."""
        self._messages.clear()
        self.images.clear()

    def request(self, model: str, *, may_call: bool = True) -> Request:
        """Returns the request for the next message of the model.

        Args:
            model: Name of the model.
            may_call: Whether the model may call tools.
        """
        system = [Message("system", (Text(self.system),))] if self.system else []
        choice = ToolChoice() if may_call else ToolChoice("none")
        messages = (*system, *self._messages)
        return Request(model, messages, self.tools, choice, stream=True, stream_usage=True)

    def to_json(self, model: str) -> str:
        """Returns the conversation as the body of a Chat Completions request, which can be continued and sent again."""
        request = self.request(model)
        # A conversation that ends with the model's message would be sent with a request to continue after it.
        next_question = Message("user", (Text("-"),))
        messages = (*map(_without_reasoning, request.messages), next_question)
        request = replace(request, messages=messages, stream=False, stream_usage=False)
        body: dict[str, Any] = json.loads(dialects.get(_API).write_request(request, model).body)
        body["messages"].pop()
        return json.dumps(body, ensure_ascii=False, indent=2) + "\n"


def calls(parts: Sequence[Part]) -> list[ToolCall]:
    """Returns the tool calls among the parts of a message."""
    return [part for part in parts if isinstance(part, ToolCall)]


def text(parts: Sequence[Part]) -> str:
    """Returns the text of a message, without reasoning and calls."""
    return "".join(part.text for part in parts if isinstance(part, Text))


def _without_reasoning(message: Message) -> Message:
    return replace(message, parts=tuple(part for part in message.parts if not isinstance(part, ReasoningPart)))
