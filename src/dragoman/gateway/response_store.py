"""Answers of late, for requests that go on from one of them, or name parts of them, in place of saying it all again.

    recalled = memory.recall(request)      whole again: `recalled.request` is what a backend is asked
    memory.keep(recalled, reply, body)     where `request.keep`, once the answer is complete
    memory.response(id), memory.asked(id)  what GET /v1/responses/{id} and its input_items give out; memory.drop(id)

An answer is kept with the messages that it was asked with, and with the name of the answer before it, so that a long
conversation is held once. What was used last goes last, answers before those that go on from them: of a conversation
that has to go, the newest answer goes first, and what is left of it can still be gone on from.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from dragoman.core.errors import RequestError, UnknownResponseError, quote
from dragoman.core.events import AnyEvent, Notice, TextDelta
from dragoman.core.messages import (
    ExtraFields,
    Message,
    Part,
    PreviousResponseRef,
    Reply,
    Request,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from dragoman.text import json_cursor

REPLIES: Final = 1000
BYTES: Final = 64 * 1024 * 1024
VALUE_BYTES: Final = 500
"""What a message or a part takes as an object, besides its text."""
AGE_S: Final = 24 * 3600.0


class Recalled(NamedTuple):
    """A request with all that it only named."""

    request: Request
    """What a backend is asked; it goes on from nothing any more."""
    before: str = ""
    """The answer that it went on from."""
    said: tuple[Message, ...] = ()
    """Its own messages, without instructions, for the answers that go on from this one."""
    warnings: tuple[Notice, ...] = ()


class Passed:
    """The events of one answer as they pass, texts joined, so that keeping it costs little while it is streamed."""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []
        self._texts: list[str] = []

    def add(self, event: AnyEvent) -> None:
        """One more."""
        if isinstance(event, TextDelta):
            self._texts.append(event.text)
            return
        if self._texts:
            self.events.append(TextDelta("".join(self._texts)))
            self._texts.clear()
        self.events.append(event)


@dataclass(slots=True)
class _Kept:
    before: str
    said: tuple[Message, ...]
    parts: tuple[Part | None, ...]
    """Of the answer; None for a call that was cut off, which nobody may take for one that was made."""
    body: bytes
    """The whole response, as its API has it."""
    size_bytes: int
    used_s: float


class Memory:
    """Answers by their ids: at most so many, of so many bytes together, used within so many seconds."""

    def __init__(
        self,
        replies: int = REPLIES,
        size_bytes: int = BYTES,
        age_s: float = AGE_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = (replies, size_bytes)
        self._age_s = age_s
        self._now_s = now_s
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        """What was used longest ago comes first."""
        self.size_bytes = 0
        self._lock = threading.RLock()
        """Of `_kept`; large requests are recalled and kept in threads. Held for no work that grows with a request."""

    def __len__(self) -> int:
        return len(self._kept)

    def recall(self, request: Request) -> Recalled:
        """The request as a backend is asked it: the conversation that it goes on from, and the parts that it names.

        Raises: UnknownResponseError: the answer before it is not kept, or nothing that is named is.
        """
        if request.previous is None and not any(
            isinstance(p, PreviousResponseRef) for m in request.messages for p in m.parts
        ):
            return Recalled(request, said=request.messages[request.instructions :] if request.keep else ())
        self._forget()
        before = tuple(self._conversation(request.previous)) if request.previous else ()
        warnings: list[Notice] = []
        whole = tuple(self._filled(request.messages, warnings))
        said = whole[request.instructions :]
        messages = (*whole[: request.instructions], *before, *said)
        if not (before or said):
            raise UnknownResponseError("none of the answers that are named here is kept; send what they said")
        id = request.previous.reply_id if request.previous else ""
        return Recalled(msgspec.structs.replace(request, messages=messages, previous=None), id, said, tuple(warnings))

    def response(self, id: str) -> bytes | None:
        """The body of a response that is kept; None: it is not."""
        self._forget()
        kept = self._used(id)[0]
        return kept.body if kept and kept.body else None

    def asked(self, id: str) -> tuple[Message, ...] | None:
        """The conversation that a kept response was asked with, as far as that is kept, without instructions."""
        self._forget()
        last, *before = self._used(id)
        if last is None:
            return None
        messages: list[Message] = []
        for kept in filter(None, reversed(before)):
            messages += kept.said
            if parts := tuple(part for part in kept.parts if part is not None):
                messages.append(Message("assistant", parts))
        return (*messages, *last.said)

    def drop(self, id: str) -> bool:
        """Forget a response; whether it was kept."""
        with self._lock:
            kept = self._kept.pop(id, None)
            self.size_bytes -= kept.size_bytes if kept else 0
            return kept is not None

    def keep(self, recalled: Recalled, reply: Reply, body: bytes = b"") -> None:
        """Remember an answer, and for its sake forget what was used longest ago; one over the limit is not kept.

        `body`: the response as it is given out when it is asked for by its id.
        """
        values = len(reply.parts) + sum(1 + len(message.parts) for message in recalled.said)
        text_bytes = len(msgspec.json.encode((recalled.said, reply.parts))) + len(body)
        size_bytes = text_bytes + values * VALUE_BYTES
        if size_bytes > self._limits[1]:
            return
        parts = tuple(_apart(part) if _is_whole(part) else None for part in reply.parts)
        said = tuple(
            msgspec.structs.replace(m, parts=tuple(map(_apart, m.parts)), extra=_copied(m.extra)) for m in recalled.said
        )
        with self._lock:
            self._kept[reply.id] = _Kept(recalled.before, said, parts, body, size_bytes, self._now_s())
            self.size_bytes += size_bytes
            self._used(reply.id)
            self._forget()

    def _forget(self) -> None:
        """Let go of what is too old or too much."""
        oldest_s, (replies, size_bytes) = self._now_s() - self._age_s, self._limits
        with self._lock:
            while self._kept:
                id, kept = next(iter(self._kept.items()))
                if kept.used_s >= oldest_s and len(self._kept) <= replies and self.size_bytes <= size_bytes:
                    return
                self.size_bytes -= kept.size_bytes
                del self._kept[id]

    def _used(self, id: str) -> list[_Kept | None]:
        """The answer and those before it, all of them in use now; None for one that is not kept, at the end."""
        found: list[_Kept | None] = []
        with self._lock:
            while id:
                kept = self._kept.get(id)
                if kept is not None:
                    kept.used_s = self._now_s()
                    self._kept.move_to_end(id)
                found.append(kept)
                id = kept.before if kept else ""
        return found

    def _conversation(self, previous: PreviousResponseRef) -> Iterator[Message]:
        for kept in reversed(self._used(previous.reply_id)):
            if kept is None:
                told = f"answer {quote(previous.reply_id)} not found: answers are kept for a while only"
                raise UnknownResponseError(f"{told}; send the whole conversation", previous.path)
            yield from kept.said
            if parts := tuple(part for part in kept.parts if part is not None):
                yield Message("assistant", parts)

    def _filled(self, messages: tuple[Message, ...], warnings: list[Notice]) -> Iterator[Message]:
        """The messages with parts in place of their names; a part that is not kept is left out."""
        known: dict[str, _Kept | None] = {}
        for message in messages:
            found = [
                self._part(part, known) if isinstance(part, PreviousResponseRef) else part for part in message.parts
            ]
            warnings += [_unknown(p) for p, f in zip(message.parts, found, strict=True) if f is None]
            parts = tuple(part for part in found if part is not None)
            if parts or not message.parts:
                yield msgspec.structs.replace(message, parts=parts) if parts != message.parts else message

    def _part(self, named: PreviousResponseRef, known: dict[str, _Kept | None]) -> Part | None:
        """`known`: the answers that were looked up already, as each look goes through all that came before one."""
        if named.reply_id not in known:
            known[named.reply_id] = self._used(named.reply_id)[0]
        kept = known[named.reply_id]
        parts = kept.parts if kept else ()
        return parts[named.number] if named.number is not None and named.number < len(parts) else None


def _unknown(part: Part) -> Notice:
    path = part.path if isinstance(part, PreviousResponseRef) else ""
    return Notice("unknown_reference", f"what {path} names is not kept here; it was dropped", detail=path)


def _is_whole(part: Part) -> bool:
    if not isinstance(part, ToolCall):
        return True
    try:
        return bool(json_cursor.at(part.arguments).object())
    except RequestError:
        return False


def _apart(part: Part) -> Part:
    """The part without the request that it came with, of whose bytes its JSON is a view."""
    match part:
        case PreviousResponseRef():
            return part
        case UnknownPart():
            return msgspec.structs.replace(part, raw=part.raw.copy())
        case ToolResult():
            inner = tuple(map(_apart, part.parts))
            return msgspec.structs.replace(part, parts=inner, extra=_copied(part.extra))
        case _:
            return msgspec.structs.replace(part, extra=_copied(part.extra))


def _copied(extra: ExtraFields) -> ExtraFields:
    return {name: raw.copy() for name, raw in extra.items()}
