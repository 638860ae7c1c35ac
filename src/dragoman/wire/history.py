"""A conversation as every server takes it: behind each turn with calls their results, each once, and no others.

    assistant: call 1, call 2          assistant: call 1, call 2
    user: result 1, "and?"         →   tool: result 1, result 2
    user: result 2                     user: "and?"

Clients send results spread over messages, behind the user's words, twice, or not at all (the user broke the tool off);
servers refuse all of that. Results go right behind their calls. A call without one gets an error that says so. A result
without a call becomes words of the user, and so does a second one for the same call. Of two calls with one id, as
servers that count from 0 in each reply make them, the later gets an id of its own; a result belongs to the last call of
its id before it. Messages of the model in a row are one turn, as an API has them whose items are messages: the results
of its calls stand behind all of them. A conversation that is in order stays as it is.

What only some servers take is for their dialects to ask for: `system_first`, and `told_to_go_on` for a conversation
that ends with the beginning of the answer.
"""

from collections import deque
from collections.abc import Sequence
from itertools import chain, takewhile
from typing import Final

from msgspec.structs import replace

from dragoman.core.events import Notice
from dragoman.core.messages import Message, Part, Text, ToolCall, ToolResult
from dragoman.wire.past_arguments import with_objects

GO_ON: Final = (
    "Your last message is the beginning of your answer. Go on from exactly where it ends, and repeat nothing of it."
)
NO_RESULT: Final = "The call was broken off; it has no result."


def in_order(messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[Notice, ...]]:
    """The conversation in order, and what had to be mended."""
    messages, told = with_objects(messages)
    if _is_in_order(messages):
        return messages, told
    mending = _Mending()
    for message in messages:
        mending.add(message)
    mending.settle()
    return tuple(mending.messages), (*told, *mending.warnings())


def _is_in_order(messages: Sequence[Message]) -> bool:
    waiting: set[str] = set()
    seen: set[str] = set()
    before = None
    for message in messages:
        answers = any(isinstance(part, ToolResult) for part in message.parts)
        speaks = message.role == "assistant"
        goes_on = speaks and before == "assistant"
        if answers if goes_on else (waiting or answers) and (speaks or not _answers(message.parts, waiting)):
            return False
        before = message.role
        waiting.difference_update(part.call_id for part in message.parts if isinstance(part, ToolResult))
        calls = [part.id for part in message.parts if isinstance(part, ToolCall)]
        if len(set(calls)) < len(calls) or not seen.isdisjoint(calls):
            return False
        seen.update(calls)
        waiting.update(calls)
    return not waiting


def _answers(parts: Sequence[Part], waiting: set[str]) -> bool:
    """Whether these are results of waiting calls, each once, and words behind them only where none waits any more."""
    results = list(takewhile(lambda part: isinstance(part, ToolResult), parts))
    ids = {part.call_id for part in results if isinstance(part, ToolResult)}
    rest = parts[len(results) :]
    alone = not any(isinstance(part, ToolResult) for part in rest)
    return bool(ids) and ids <= waiting and len(ids) == len(results) and alone and (not rest or ids == waiting)


def system_first(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation with one system message at most, at its beginning; a later one becomes a reminder by the user.

    For open servers: their models' templates refuse any other (https://github.com/vllm-project/vllm/issues/44000), and
    clients such as Claude Code send them in mid-conversation.
    """
    first = tuple(takewhile(_is_systems, messages))
    rest = tuple(reminder(m) if _is_systems(m) and m.parts else m for m in messages[len(first) :])
    extra = {name: raw for message in first for name, raw in message.extra.items()}
    parts = tuple(part for message in first for part in message.parts)
    return (Message("system", parts, extra), *rest) if first else rest


def reminder(message: Message) -> Message:
    """The system's words, said by the user; behind them what else it showed."""
    words = [part for part in message.parts if isinstance(part, Text)]
    others = (part for part in message.parts if not isinstance(part, Text))
    text = "\n".join(part.text for part in words)
    extra = {name: raw for part in words for name, raw in part.extra.items()}
    told = (Text(f"<system-reminder>\n{text}\n</system-reminder>", extra),) if words else ()
    return Message("user", (*told, *others), message.extra)


def _is_systems(message: Message) -> bool:
    return message.role in ("system", "developer")


def told_to_go_on(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation with a word of the user at its end, where it ends with the beginning of the model's answer."""
    last = next((m for m in reversed(messages) if m.parts), None)
    parts = last.parts if last is not None and last.role == "assistant" else ()
    if any(isinstance(part, Text) for part in parts) and not any(isinstance(part, ToolCall) for part in parts):
        return (*messages, Message("user", (Text(GO_ON),)))
    return tuple(messages)


class _Mending:
    """What has been put in order so far."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._waiting: dict[str, deque[str]] = {}
        """Calls of the last turn that have no result yet: the client's id, and those that they have here."""
        self._results: list[Message] = []
        """Of the last turn."""
        self._behind: list[Message] = []
        """What was said behind that turn, until the next."""
        self._seen: set[str] = set()
        self._last: dict[str, int] = {}
        """Of each id of the client that came again, the last number that was put behind it."""
        self._made = self._astray = self._renamed = 0

    def add(self, message: Message) -> None:
        """The next message."""
        if message.role == "assistant":
            if self._results or self._behind:
                self.settle()
            self._turn(message)
            return
        rest: list[Part] = []
        taken: list[Part] = []
        for part in message.parts:
            if not isinstance(part, ToolResult):
                rest.append(part)
            elif part.call_id in self._waiting:
                taken.append(replace(part, call_id=self._own(part.call_id)))
            else:
                self._astray += 1
                rest += [Text(f"Result of a call that is not here ({part.call_id}):"), *part.parts]
        if taken:
            self._results.append(Message("tool", tuple(taken), message.extra if message.role == "tool" else {}))
        if rest or not message.parts:
            role = "user" if message.role == "tool" else message.role
            self._behind.append(Message(role, tuple(rest), {} if message.role == "tool" else message.extra))

    def settle(self) -> None:
        """The turn is over: what it lacks is made."""
        for id in chain.from_iterable(self._waiting.values()):
            self._made += 1
            self._results.append(Message("tool", (ToolResult(id, (Text(NO_RESULT),), is_error=True),)))
        self.messages += [*self._results, *self._behind]
        self._waiting, self._results, self._behind = {}, [], []

    def warnings(self) -> tuple[Notice, ...]:
        """What was mended, as one warning."""
        told = {
            "calls without a result": self._made,
            "results without a call": self._astray,
            "calls under the id of another": self._renamed,
        }
        said = ", ".join(f"{count} {what}" for what, count in told.items() if count)
        return (Notice("history_repaired", said or "results that did not stand right behind their calls"),)

    def _own(self, id: str) -> str:
        """The id of the call that is meant: of several with this id, the first that waits."""
        found = self._waiting[id].popleft()
        if not self._waiting[id]:
            del self._waiting[id]
        return found

    def _turn(self, message: Message) -> None:
        parts = [self._call(part) if isinstance(part, ToolCall) else part for part in message.parts]
        self.messages.append(replace(message, parts=tuple(parts)))

    def _call(self, call: ToolCall) -> ToolCall:
        id, n = call.id, self._last.get(call.id, 1)
        while id in self._seen:
            n += 1
            id = f"{call.id}_{n}"
            self._last[call.id] = (
                n  # the next search begins here: from 1 again, the same id 10,000 times would take minutes
            )
        self._renamed += id != call.id
        self._seen.add(id)
        self._waiting.setdefault(call.id, deque()).append(id)
        return call if id == call.id else replace(call, id=id)
