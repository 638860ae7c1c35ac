"""Help for models too small to make sense of results in markup."""

from collections.abc import Iterable

import msgspec

from dragoman.core.messages import Message, Part, Request, Text, ToolCall, ToolChoice, ToolResult
from dragoman.core.part_text import part_text
from dragoman.prompting import hints


def told_as_prose(request: Request) -> Request:
    """The request with the results of this turn as facts next to the question, and without tools.

    It stays as it is without results, after a call that failed, and where a call is required.

    `Facts from get_weather: sunny` and `Answer in one sentence with these facts: What is the weather?`
    """
    messages = hints.removed(request.messages)
    asked = max((i for i, m in enumerate(messages) if _is_question(m)), default=-1)
    names = {p.id: p.name for m in messages for p in m.parts if isinstance(p, ToolCall)}
    results = [p for m in messages[asked + 1 :] for p in m.parts if isinstance(p, ToolResult)]
    results += [p for p in messages[asked].parts if isinstance(p, ToolResult)] if asked >= 0 else []
    if asked < 0 or not results or has_failed(request) or request.tool_choice.mode in ("required", "named"):
        return request
    facts = [f"Facts from {names.get(r.call_id, 'a tool')}: {_words(r.parts)}" for r in results]
    question = f"Answer in one sentence with these facts: {_words(messages[asked].parts)}"
    turn = Message("user", (Text("\n".join([*facts, "", question])),))
    return msgspec.structs.replace(
        request, messages=(*messages[:asked], turn), tools=(), tool_choice=ToolChoice("none")
    )


def has_failed(request: Request) -> bool:
    """Whether the conversation ends with a call that failed: it may be made anew, and there is not all to tell."""
    last = request.messages[-1].parts if request.messages else ()
    return any(isinstance(part, ToolResult) and part.is_error for part in last)


def _is_question(message: Message) -> bool:
    return message.role == "user" and any(isinstance(p, Text) for p in message.parts)


def _words(parts: Iterable[Part]) -> str:
    return "\n".join(text for p in parts if (text := part_text(p)))
