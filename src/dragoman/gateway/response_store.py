"""Keeps recent responses, for requests that continue one of them or reference parts of them.

    resolved = store.resolve(request)           `resolved.request` is complete: it goes to a backend
    store.add(resolved, reply, body)            once the response is complete, if the request wants it stored
    store.response_body(id), store.input_messages(id), store.delete(id)     for /v1/responses/{id} and its input_items

A response is kept with the messages of its request and the id of the response before it, so a long conversation is
stored once. The least recently used responses are evicted first, and a response counts as used before those that
continue it: of a conversation that is evicted, the newest response goes first, and the rest can still be continued.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from dragoman.core.errors import RequestError, UnknownResponseError, quote
from dragoman.core.events import Notice
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

MAX_RESPONSES: Final = 1000
MAX_BYTES: Final = 64 * 1024 * 1024
OBJECT_BYTES: Final = 500
"""What a message or a part needs as an object, besides its text, in bytes."""
TTL_S: Final = 24 * 3600.0


class ResolvedRequest(NamedTuple):
    """A request with all that it references."""

    request: Request
    """The complete request for a backend; it continues no other response."""
    previous_id: str = ""
    """The id of the response that it continued; empty: none."""
    input_messages: tuple[Message, ...] = ()
    """Its own messages without instructions, for responses that continue this one."""
    warnings: tuple[Notice, ...] = ()


@dataclass(slots=True)
class _StoredResponse:
    previous_id: str
    input_messages: tuple[Message, ...]
    parts: tuple[Part | None, ...]
    """The parts of the response; None for an incomplete call, which must not count as a call that was made."""
    body: bytes
    """The whole response, as its API has it."""
    size_bytes: int
    used_s: float


class ResponseStore:
    """Responses by id, with limits of their number, total size in bytes, and time since the last use in seconds."""

    def __init__(
        self,
        max_responses: int = MAX_RESPONSES,
        max_bytes: int = MAX_BYTES,
        ttl_s: float = TTL_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_responses, self._max_bytes, self._ttl_s = max_responses, max_bytes, ttl_s
        self._now_s = now_s
        self._responses: OrderedDict[str, _StoredResponse] = OrderedDict()
        """The least recently used response comes first."""
        self.size_bytes = 0
        self._lock = threading.RLock()
        """Protects `_responses`, as large requests are resolved and stored in threads. Not held for work that grows
        with a request."""

    def __len__(self) -> int:
        return len(self._responses)

    def resolve(self, request: Request) -> ResolvedRequest:
        """Returns the request with the conversation that it continues and the parts that it references.

        Raises:
            UnknownResponseError: The response before it is not stored, or nothing of what it references is.
        """
        if request.previous_response is None and not any(
            isinstance(p, PreviousResponseRef) for m in request.messages for p in m.parts
        ):
            return ResolvedRequest(
                request, input_messages=request.messages[request.instruction_count :] if request.store else ()
            )
        self._evict()
        before = tuple(self._conversation(request.previous_response)) if request.previous_response else ()
        warnings: list[Notice] = []
        filled = tuple(self._fill_references(request.messages, warnings))
        conversation = filled[request.instruction_count :]
        messages = (*filled[: request.instruction_count], *before, *conversation)
        if not (before or conversation):
            raise UnknownResponseError("none of the referenced responses is stored; send their content")
        id = request.previous_response.reply_id if request.previous_response else ""
        return ResolvedRequest(
            msgspec.structs.replace(request, messages=messages, previous_response=None),
            id,
            conversation,
            tuple(warnings),
        )

    def response_body(self, id: str) -> bytes | None:
        """Returns the body of a stored response; None: it is not stored."""
        self._evict()
        stored = self._touch(id)[0]
        return stored.body if stored and stored.body else None

    def input_messages(self, id: str) -> tuple[Message, ...] | None:
        """Returns the conversation that a stored response answered, without instructions; None: the response is not
        stored.
        """
        self._evict()
        last, *before = self._touch(id)
        if last is None:
            return None
        messages: list[Message] = []
        for stored in filter(None, reversed(before)):
            messages += stored.input_messages
            if parts := tuple(part for part in stored.parts if part is not None):
                messages.append(Message("assistant", parts))
        return (*messages, *last.input_messages)

    def delete(self, id: str) -> bool:
        """Deletes a response. Returns whether it was stored."""
        with self._lock:
            stored = self._responses.pop(id, None)
            self.size_bytes -= stored.size_bytes if stored else 0
            return stored is not None

    def add(self, recalled: ResolvedRequest, reply: Reply, body: bytes = b"") -> None:
        """Stores a response and evicts the least recently used ones; a response larger than the limit is not stored.

        Args:
            recalled: The request, as `resolve` returned it.
            reply: The response.
            body: The response as the client gets it when it asks for this id.
        """
        values = len(reply.parts) + sum(1 + len(message.parts) for message in recalled.input_messages)
        text_bytes = len(msgspec.json.encode((recalled.input_messages, reply.parts))) + len(body)
        size_bytes = text_bytes + values * OBJECT_BYTES
        if size_bytes > self._max_bytes:
            return
        parts = tuple(_detach(part) if _is_complete(part) else None for part in reply.parts)
        messages = tuple(
            msgspec.structs.replace(m, parts=tuple(map(_detach, m.parts)), extra=_copy_extra(m.extra))
            for m in recalled.input_messages
        )
        with self._lock:
            self._responses[reply.id] = _StoredResponse(
                recalled.previous_id, messages, parts, body, size_bytes, self._now_s()
            )
            self.size_bytes += size_bytes
            self._touch(reply.id)
            self._evict()

    def _evict(self) -> None:
        """Removes what is too old or too much."""
        oldest_s = self._now_s() - self._ttl_s
        with self._lock:
            while self._responses:
                id, stored = next(iter(self._responses.items()))
                within_limits = len(self._responses) <= self._max_responses and self.size_bytes <= self._max_bytes
                if stored.used_s >= oldest_s and within_limits:
                    return
                self.size_bytes -= stored.size_bytes
                del self._responses[id]

    def _touch(self, id: str) -> list[_StoredResponse | None]:
        """The response and those before it, all marked as used; at the end None if one is not stored."""
        replies: list[_StoredResponse | None] = []
        with self._lock:
            while id:
                stored = self._responses.get(id)
                if stored is not None:
                    stored.used_s = self._now_s()
                    self._responses.move_to_end(id)
                replies.append(stored)
                id = stored.previous_id if stored else ""
        return replies

    def _conversation(self, previous: PreviousResponseRef) -> Iterator[Message]:
        for stored in reversed(self._touch(previous.reply_id)):
            if stored is None:
                message = f"answer {quote(previous.reply_id)} not found: responses are stored for a while only"
                raise UnknownResponseError(f"{message}; send the whole conversation", previous.path)
            yield from stored.input_messages
            if parts := tuple(part for part in stored.parts if part is not None):
                yield Message("assistant", parts)

    def _fill_references(self, messages: tuple[Message, ...], warnings: list[Notice]) -> Iterator[Message]:
        """The messages with parts in place of references; a part that is not stored is left out."""
        known: dict[str, _StoredResponse | None] = {}
        for message in messages:
            filled = [
                self._referenced_part(part, known) if isinstance(part, PreviousResponseRef) else part
                for part in message.parts
            ]
            warnings += [_unknown_reference(p) for p, f in zip(message.parts, filled, strict=True) if f is None]
            parts = tuple(part for part in filled if part is not None)
            if parts or not message.parts:
                yield msgspec.structs.replace(message, parts=parts) if parts != message.parts else message

    def _referenced_part(self, named: PreviousResponseRef, known: dict[str, _StoredResponse | None]) -> Part | None:
        """`known`: responses that were looked up already, because each look-up goes through the whole conversation."""
        if named.reply_id not in known:
            known[named.reply_id] = self._touch(named.reply_id)[0]
        stored = known[named.reply_id]
        parts = stored.parts if stored else ()
        return parts[named.number] if named.number is not None and named.number < len(parts) else None


def _unknown_reference(part: Part) -> Notice:
    path = part.path if isinstance(part, PreviousResponseRef) else ""
    return Notice("unknown_reference", f"what {path} names is not stored here; it was dropped", detail=path)


def _is_complete(part: Part) -> bool:
    if not isinstance(part, ToolCall):
        return True
    try:
        return bool(json_cursor.parse(part.arguments).object())
    except RequestError:
        return False


def _detach(part: Part) -> Part:
    """A copy of the part whose JSON does not keep the bytes of its request in memory."""
    match part:
        case PreviousResponseRef():
            return part
        case UnknownPart():
            return msgspec.structs.replace(part, raw=part.raw.copy())
        case ToolResult():
            inner = tuple(map(_detach, part.parts))
            return msgspec.structs.replace(part, parts=inner, extra=_copy_extra(part.extra))
        case _:
            return msgspec.structs.replace(part, extra=_copy_extra(part.extra))


def _copy_extra(extra: ExtraFields) -> ExtraFields:
    return {name: raw.copy() for name, raw in extra.items()}
