"""Repair of message order: each turn with calls is followed by the calls' results, each once, and by no others.

    assistant: call 1, call 2          assistant: call 1, call 2
    user: result 1, "and?"         →   tool: result 1, result 2
    user: result 2                     user: "and?"

Clients send results spread over several messages, after user text, twice, or not at all (the user cancelled the tool).
Servers reject all of these. Results are moved directly after their calls. A call without a result gets an error result
that says so. A result without a call, or a second result for the same call, becomes user text. If two calls have the
same id, as from servers that count from 0 in each response, the later one gets a new id; a result belongs to the last
call of its id before it. Consecutive assistant messages are one turn, as in APIs whose items are messages: the results
of its calls come after all of them. A conversation in valid order is not changed.

Further rules apply to some servers only and are called by their dialects: `hoist_system_messages`, and
`append_continue_prompt` for a conversation that ends with the beginning of the response.
"""

import json
from collections import deque
from collections.abc import Sequence
from itertools import chain
from typing import Final

import msgspec
from msgspec.structs import replace

from dragoman.core.errors import quote
from dragoman.core.events import Notice
from dragoman.core.messages import SYSTEM_ROLES, JsonText, Message, Part, Text, ToolCall, ToolResult, has_part
from dragoman.text.json_repairs import ALL_REPAIRS
from dragoman.text.unclosed_json import ClosableJsonStream
from dragoman.text.unwrap_arguments import unwrap_arguments

CONTINUE_PROMPT: Final = (
    "Your last message is the beginning of your answer. Go on from exactly where it ends, and repeat nothing of it."
)
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
NO_RESULT: Final = "The call was broken off; it has no result."


def repair_history(messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[Notice, ...]]:
    """Returns the messages in valid order, and notices of the repairs."""
    if not has_part(messages, ToolCall, ToolResult):
        return tuple(messages), ()
    messages, notices = repair_past_arguments(messages)
    if _is_in_order(messages):
        return messages, notices
    repair = _HistoryRepair()
    for message in messages:
        repair.add(message)
    repair.settle()
    return tuple(repair.messages), (*notices, *repair.warnings())


def _is_in_order(messages: Sequence[Message]) -> bool:
    waiting: set[str] = set()
    call_ids: set[str] = set()
    before = None
    for message in messages:
        calls: list[str] = []
        results: list[str] = []
        for part in message.parts:
            if type(part) is ToolCall:
                calls.append(part.id)
            elif type(part) is ToolResult:
                results.append(part.call_id)
        answers = bool(results)
        is_assistant = message.role == "assistant"
        continues = is_assistant and before == "assistant"
        if answers if continues else (waiting or answers) and (is_assistant or not _answers(message.parts, waiting)):
            return False
        before = message.role
        waiting.difference_update(results)
        if not calls:
            continue
        if len(set(calls)) < len(calls) or not call_ids.isdisjoint(calls):
            return False
        call_ids.update(calls)
        waiting.update(calls)
    return not waiting


def _answers(parts: Sequence[Part], waiting: set[str]) -> bool:
    """Whether the parts are results of waiting calls, each once, then others only if no call is left."""
    ids: set[str] = set()
    has_rest = False
    for part in parts:
        if not isinstance(part, ToolResult):
            has_rest = True
        elif has_rest or part.call_id in ids or part.call_id not in waiting:
            return False
        else:
            ids.add(part.call_id)
    return bool(ids) and (not has_rest or ids == waiting)


def hoist_system_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Merges leading system messages into one; a later system message becomes a user message with a reminder.

    For open-weight servers: their chat templates reject other positions
    (https://github.com/vllm-project/vllm/issues/44000), and clients such as Claude Code send system messages in
    mid-conversation.
    """
    begins = 0
    while begins < len(messages) and messages[begins].role in SYSTEM_ROLES:
        begins += 1
    first = messages[:begins]
    rest = tuple([system_reminder(m) if m.role in SYSTEM_ROLES and m.parts else m for m in messages[begins:]])
    if begins == 1 and first[0].role == "system":
        return (*first, *rest)
    extra = {name: raw for message in first for name, raw in message.extra.items()}
    parts = tuple(part for message in first for part in message.parts)
    return (Message("system", parts, extra), *rest) if first else rest


def system_reminder(message: Message) -> Message:
    """Returns a user message with the system text in `<system-reminder>` tags, followed by its other parts."""
    texts = [part for part in message.parts if isinstance(part, Text)]
    others = (part for part in message.parts if not isinstance(part, Text))
    text = "\n".join(part.text for part in texts)
    extra = {name: raw for part in texts for name, raw in part.extra.items()}
    reminder = (Text(f"<system-reminder>\n{text}\n</system-reminder>", extra),) if texts else ()
    return Message("user", (*reminder, *others), message.extra)


def append_continue_prompt(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Appends a user message that asks to continue, if the messages end with the beginning of a response."""
    last = next((m for m in reversed(messages) if m.parts), None)
    parts = last.parts if last is not None and last.role == "assistant" else ()
    if any(isinstance(part, Text) for part in parts) and not any(isinstance(part, ToolCall) for part in parts):
        return (*messages, Message("user", (Text(CONTINUE_PROMPT),)))
    return tuple(messages)


class _HistoryRepair:
    """State of a repair: the messages in valid order so far."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._waiting: dict[str, deque[str]] = {}
        """Calls of the last turn without a result: the client's id, and the new ids of its calls."""
        self._results: list[Message] = []
        """Results of the last turn."""
        self._after: list[Message] = []
        """Messages after the last turn's calls, until the next turn."""
        self._seen: set[str] = set()
        self._last: dict[str, int] = {}
        """The last number appended to each repeated id."""
        self._unanswered = self._misplaced = self._renamed = 0

    def add(self, message: Message) -> None:
        """Adds the next message."""
        if message.role == "assistant":
            if self._results or self._after:
                self.settle()
            self._turn(message)
            return
        rest: list[Part] = []
        results: list[Part] = []
        for part in message.parts:
            if not isinstance(part, ToolResult):
                rest.append(part)
            elif part.call_id in self._waiting:
                results.append(replace(part, call_id=self._own(part.call_id)))
            else:
                self._misplaced += 1
                rest += [Text(f"Result of a call that is not here ({part.call_id}):"), *part.parts]
        if results:
            self._results.append(Message("tool", tuple(results), message.extra if message.role == "tool" else {}))
        if rest or not message.parts:
            role = "user" if message.role == "tool" else message.role
            self._after.append(Message(role, tuple(rest), {} if message.role == "tool" else message.extra))

    def settle(self) -> None:
        """Ends the turn: adds error results for calls without one."""
        for id in chain.from_iterable(self._waiting.values()):
            self._unanswered += 1
            self._results.append(Message("tool", (ToolResult(id, (Text(NO_RESULT),), is_error=True),)))
        self.messages += [*self._results, *self._after]
        self._waiting, self._results, self._after = {}, [], []

    def warnings(self) -> tuple[Notice, ...]:
        """Returns one notice of all repairs."""
        counts = {
            "calls without a result": self._unanswered,
            "results without a call": self._misplaced,
            "calls under the id of another": self._renamed,
        }
        summary = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        return (Notice("history_repaired", summary or "results that did not follow their calls directly"),)

    def _own(self, id: str) -> str:
        """Returns the new id of the first waiting call with this id."""
        own_id = self._waiting[id].popleft()
        if not self._waiting[id]:
            del self._waiting[id]
        return own_id

    def _turn(self, message: Message) -> None:
        parts = [self._call(part) if isinstance(part, ToolCall) else part for part in message.parts]
        self.messages.append(replace(message, parts=tuple(parts)))

    def _call(self, call: ToolCall) -> ToolCall:
        id, n = call.id, self._last.get(call.id, 1)
        while id in self._seen:
            n += 1
            id = f"{call.id}_{n}"
            self._last[call.id] = n  # start here: counting from 1 again for 10,000 equal ids would take minutes
        self._renamed += id != call.id
        self._seen.add(id)
        self._waiting.setdefault(call.id, deque()).append(id)
        return call if id == call.id else replace(call, id=id)


RAW_MEMBER: Final = "input"
"""Member that contains arguments that cannot be repaired."""


def repair_past_arguments(messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[Notice, ...]]:
    """Returns the messages with the arguments of each call as an object, and notices of the repairs."""
    bad = [
        part
        for message in messages
        for part in message.parts
        if type(part) is ToolCall and not _is_object(part.arguments)
    ]
    if not bad:
        return tuple(messages), ()
    fixed = tuple(replace(message, parts=tuple(map(_with_object, message.parts))) for message in messages)
    text = "the arguments of a past call of {} were not a JSON object, and were repaired"
    return fixed, tuple(Notice("json_repaired", text.format(quote(call.name)), call.arguments) for call in bad)


def to_object(arguments: JsonText) -> JsonText:
    """Returns the arguments as an object: repaired, completed, or as the text of one member."""
    unwrapped = unwrap_arguments(arguments, ALL_REPAIRS)
    if not unwrapped.problem:
        return unwrapped.arguments
    value = ClosableJsonStream()
    used = value.feed(arguments, 0)
    if not value.in_string_value:  # an invalid character ends what may be incomplete, such as a number
        used += value.feed(arguments[used:] + "<", 0)
    if arguments.lstrip().startswith("{") and used == len(arguments) and value.complete():
        text = value.drain()
        if _is_object(text):
            return text
    return json.dumps({RAW_MEMBER: arguments}, ensure_ascii=False)


def _with_object(part: Part) -> Part:
    if not isinstance(part, ToolCall) or _is_object(part.arguments):
        return part
    return replace(part, arguments=to_object(part.arguments))


def _is_object(arguments: JsonText) -> bool:
    try:
        _members(arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True
