r"""Recent replies with tool calls, verbatim, so that assistant turns are rendered as the model wrote them.

    written    ```json\n{"name": "Read", "arguments": {"path": "a"}}\n```
    sent back  {"type": "tool_use", "name": "Read", "input": {"path":"a"}}

Clients send calls back in the form of their API, with arguments re-encoded. Rendered in the format's own form, they
would differ from the text that the model wrote, and its prompt cache would end there: at every call for models whose
state cannot be rewound, such as those with a sliding window. Of forty texts of Qwen2.5-Coder 1.5B with a call none has
that form (tests/data/backends/forty); larger models differ by the blanks that clients remove from arguments.

A reply is found by the id of its first call, ignoring punctuation that a client may have removed; its calls must be the
same but for white space and order. A call that is no longer stored is rendered in the format's form. The least recently
used reply is removed first: a conversation uses all of its calls in every request, so none of them goes before others.
"""

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from msgspec.structs import replace

from dragoman.backends.text_mode.shared_replies import SharedReplies, StoredReply
from dragoman.core.events import (
    CALL_EVENTS,
    AnyEvent,
    Finish,
    Notice,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
)
from dragoman.core.messages import JsonText, Message, Part, Request, Text, ToolCall
from dragoman.core.stage import EventStage

MAX_REPLIES: Final = 4000
MAX_CHARS: Final = 16_000_000
"""Limit of stored characters of text and arguments: about a hundred long conversations."""


class ReplyStore:
    """Replies of all models of a gateway, so that their memory has one limit."""

    def __init__(self, replies: int = MAX_REPLIES, chars: int = MAX_CHARS) -> None:
        self._limits = (replies, chars)
        self._replies: OrderedDict[tuple[str, str], StoredReply] = OrderedDict()
        self.chars = 0
        self.shared: SharedReplies | None = None
        """The replies of other replicas; None: there are none."""

    def __len__(self) -> int:
        return len(self._replies)

    def add(self, key: tuple[str, str], reply: StoredReply) -> None:
        """Stores a reply, and removes the least recently used ones above the limits."""
        self._remove(key)
        self._replies[key] = reply
        self.chars += reply.chars
        replies, chars = self._limits
        while len(self._replies) > replies or self.chars > chars:
            self._remove(next(iter(self._replies)))

    def get(self, key: tuple[str, str]) -> StoredReply | None:
        """Returns a reply, None if it is not, or no longer, stored."""
        return self._replies.get(key)

    def mark_used(self, key: tuple[str, str]) -> None:
        """Makes this reply the last to be removed."""
        with suppress(KeyError):  # large requests are written in a thread, so the reply may be gone by now
            self._replies.move_to_end(key)

    def _remove(self, key: tuple[str, str]) -> None:
        if removed := self._replies.pop(key, None):
            self.chars -= removed.chars


class VerbatimHistory:
    """Recent replies with calls of one backend, by the id of their first call."""

    def __init__(self, store: ReplyStore | None = None, owner: str = "") -> None:
        """
        Args:
            store: where the replies are stored; None: a store of its own.
            owner: name of the backend, unique in this store.
        """
        self.store, self._owner = ReplyStore() if store is None else store, owner

    def add(self, raw: str, text: str, calls: tuple[ToolCall, ...], *, is_shared: bool = False) -> None:
        """Stores a reply with calls.

        Args:
            raw: The whole reply.
            text: Its text without calls.
            calls: Its calls.
            is_shared: Whether other replicas need it.
        """
        key, reply = self._key(calls[0]), StoredReply(raw, text, calls)
        self.store.add(key, reply)
        if is_shared and self.store.shared is not None:
            self.store.shared.add(":".join(key), reply)

    async def recall(self, request: Request) -> None:
        """Looks up the replies of other replicas to which this request refers, in one step."""
        if (shared := self.store.shared) is None:
            return
        unknown = {":".join(key): key for key in self._keys(request) if self.store.get(key) is None}
        if unknown and (names := shared.unasked(list(unknown))):
            for name, reply in (await asyncio.to_thread(shared.find, names)).items():
                self.store.add(unknown[name], reply)

    def _keys(self, request: Request) -> Iterator[tuple[str, str]]:
        for message in request.messages:
            if message.role == "assistant":
                calls = (part for part in message.parts if isinstance(part, ToolCall))
                yield from (self._key(call) for call in islice(calls, 1))

    def _key(self, first_call: ToolCall) -> tuple[str, str]:
        return self._owner, re.sub(r"[^A-Za-z0-9]", "", first_call.id)

    def restore(self, request: Request) -> Request:
        """Returns the request with stored replies put into its assistant turns."""
        messages = tuple(self._message(m) if m.role == "assistant" else m for m in request.messages)
        return replace(request, messages=messages)

    def remember(self, request: Request) -> None:
        """Stores the assistant turns of a request that `restore` returned."""
        for message in request.messages:
            calls = tuple(part for part in message.parts if isinstance(part, ToolCall))
            if message.role == "assistant" and calls:
                text = "".join(part.text for part in message.parts if isinstance(part, Text))
                self.add(message.verbatim_text, text, calls)

    def _message(self, message: Message) -> Message:
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        reply = self.store.get(key := self._key(calls[0])) if calls else None
        if reply is None or not _same_calls(calls, reply.calls):
            return message
        self.store.mark_used(key)
        written = iter(reply.calls)
        parts = (replace(p, arguments=next(written).arguments) if isinstance(p, ToolCall) else p for p in message.parts)
        return replace(
            message, parts=tuple(parts), verbatim_text=reply.raw if _same_text(message.parts, reply.text) else ""
        )


class ReplyRecorder(EventStage):
    """Records one reply, and stores it if it contains calls and was completed by the model."""

    handles = CALL_EVENTS | {TextDelta, ReasoningDelta, Notice, Finish}

    def __init__(self, history: VerbatimHistory, *, is_shared: bool = True) -> None:
        """
        Args:
            history: Where the reply is stored.
            is_shared: Whether other replicas need it.
        """
        self._history, self._is_shared = history, is_shared
        self._raw: list[str] = []
        self.add_text: Callable[[str], None] = self._raw.append
        """Adds text of the model, verbatim."""
        self._text: list[str] = []
        self._calls: list[tuple[str, str, list[str]]] = []
        self._final_id = ""
        """The id of the first call at its end, by which a client that got the call whole knows it."""
        self._is_reusable = True
        self._is_complete = True

    def discard(self) -> None:
        """Stores nothing of this reply: the model was stopped, or the events do not match its text."""
        self._is_complete = False

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Records the events parsed from the text, and returns them unchanged."""
        if len(events) == 1 and type(event := events[0]) is TextDelta:  # the most frequent case
            self._text.append(event.text)
            return events
        for event in events:
            if type(event) is TextDelta:
                self._text.append(event.text)
            elif type(event) is Finish:
                self._finish(event.reason in ("stop", "tool_calls"))
            elif type(event) in self.handles:
                self._record(event)
        return events

    def _record(self, event: AnyEvent) -> None:
        match event:
            case ToolCallDelta(_, text) if self._calls:
                self._calls[-1][2].append(text)
            case ToolCallStart(_, id, name):
                self._calls.append((id, name, []))
            case ToolCallEnd(id=id) if id and len(self._calls) == 1:
                self._final_id = id
            case ToolCallIncomplete() | Notice(code="duplicate_call_dropped"):
                self.discard()
            case ReasoningDelta():
                self._is_reusable = False
            case _:
                pass

    def _finish(self, good: bool) -> None:
        if good and self._is_complete and self._calls:
            calls = tuple(ToolCall(id, name, "".join(pieces)) for id, name, pieces in self._calls)
            raw, text = "".join(self._raw) if self._is_reusable else "", "".join(self._text)
            self._history.add(raw, text, calls, is_shared=self._is_shared)
            if self._final_id:
                renamed = (replace(calls[0], id=self._final_id), *calls[1:])
                self._history.add(raw, text, renamed, is_shared=self._is_shared)


def _same_calls(client_calls: Sequence[ToolCall], recorded: Sequence[ToolCall]) -> bool:
    return len(client_calls) == len(recorded) and all(
        one.name == other.name and _same_json(one.arguments, other.arguments)
        for one, other in zip(client_calls, recorded, strict=True)
    )


def _same_json(one: JsonText, other: JsonText) -> bool:
    try:
        return one == other or bool(json.loads(one) == json.loads(other))
    except (ValueError, RecursionError):
        return False


def _same_text(parts: Iterable[Part], text: str) -> bool:
    """Returns whether the parts contain this text, ignoring white space; reasoning follows other rules."""
    content = [part for part in parts if not isinstance(part, ToolCall)]
    if any(not isinstance(part, Text) for part in content):
        return False
    return "".join(part.text for part in content if isinstance(part, Text)).split() == text.split()
