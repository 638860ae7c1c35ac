"""Keeps recent responses, for requests that continue one of them or reference parts of them.

    resolved = store.resolve(request)           `resolved.request` is complete: it goes to a backend
    store.add(resolved, reply, body)            once the response is complete, if the request wants it stored
    store.response_body(id), store.input_messages(id), store.delete(id)     for /v1/responses/{id} and its input_items

A response is kept with the messages of its request and the id of the response before it, so a long conversation is
stored once. The least recently used responses are evicted first, and a response counts as used before those that
continue it: of a conversation that is evicted, the newest response goes first, and the rest can still be continued.

`MemoryResponseStore` keeps them in this process, `SqliteResponseStore` in a file that several processes share.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import msgspec

from dragoman.core.errors import RequestError, UnknownResponseError, quote
from dragoman.core.events import Notice
from dragoman.core.messages import Message, Part, PreviousResponseRef, Reply, Request, ToolCall, has_part
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
    owner: str = ""
    """The name of the API key to which a response belongs; empty: to no named key."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response, and what a request that continues it needs."""

    previous_id: str
    """The id of the response that it continued; empty: none."""
    input_messages: tuple[Message, ...]
    parts: tuple[Part | None, ...]
    """The parts of the response; None for an incomplete call, which must not count as a call that was made."""
    body: bytes
    """The whole response, as its API has it."""
    size_bytes: int
    owner: str = ""
    """The name of the API key that made it; empty: none that has a name."""

    def is_visible_to(self, owner: str) -> bool:
        """Whether a key of this name may see it; keys without a name, "", see all."""
        return owner in ("", self.owner)


class ResponseStore(ABC):
    """Responses by id, with limits of their number, total size in bytes, and time since the last use in seconds.

    Implementations store and evict; how a request is resolved is the same for all. All methods can be called in any
    thread.
    """

    does_io: ClassVar[bool]
    """Whether calls wait for a disk or a network, so that they belong in a thread."""

    def __init__(self, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_BYTES, ttl_s: float = TTL_S) -> None:
        self._max_responses, self._max_bytes, self._ttl_s = max_responses, max_bytes, ttl_s

    @abstractmethod
    def __len__(self) -> int:
        """Returns the number of stored responses."""

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """The total size of the stored responses."""

    @abstractmethod
    def delete(self, id: str) -> bool:
        """Deletes a response. Returns whether it was stored."""

    @abstractmethod
    def _chain(self, id: str) -> list[StoredResponse | None]:
        """Returns the response and those before it, newest first, and marks them as used in this order.

        The last one is None if it is not stored, or no longer.
        """

    @abstractmethod
    def _load(self, id: str) -> StoredResponse | None:
        """Returns the response, None if it is not stored; marks it and those before it as used."""

    @abstractmethod
    def _put(self, id: str, stored: StoredResponse) -> None:
        """Stores a response, marks it and those before it as used, and evicts until the limits hold."""

    @abstractmethod
    def close(self) -> None:
        """Releases files and connections; a later call opens them again."""

    def blocks(self, request: Request) -> bool:
        """Whether resolving and storing this request belongs in a thread."""
        return self.does_io and (request.store or _continues(request))

    def resolve(self, request: Request, owner: str = "") -> ResolvedRequest:
        """Returns the request with the conversation that it continues and the parts that it references.

        Args:
            request: The request.
            owner: The name of its API key, for which responses of other keys are not stored; empty: it sees all.

        Raises:
            UnknownResponseError: The response before it is not stored, or nothing of what it references is.
            BackendUnavailableError: The store cannot be read.
        """
        if not _continues(request):
            return ResolvedRequest(
                request,
                input_messages=request.messages[request.instruction_count :] if request.store else (),
                owner=owner,
            )
        before = tuple(self._conversation(request.previous_response, owner)) if request.previous_response else ()
        warnings: list[Notice] = []
        filled = tuple(self._fill_references(request.messages, owner, warnings))
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
            owner,
        )

    def response_body(self, id: str, owner: str = "") -> bytes | None:
        """Returns the body of a stored response; None: it is not stored, or belongs to another key than `owner`."""
        stored = self._load(id)
        return stored.body if stored and stored.body and stored.is_visible_to(owner) else None

    def input_messages(self, id: str) -> tuple[Message, ...] | None:
        """Returns the conversation that a stored response answered, without instructions; None: the response is not
        stored.
        """
        last, *before = self._chain(id) or [None]
        if last is None:
            return None
        messages: list[Message] = []
        for stored in filter(None, reversed(before)):
            messages += stored.input_messages
            if parts := tuple(part for part in stored.parts if part is not None):
                messages.append(Message("assistant", parts))
        return (*messages, *last.input_messages)

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
        parts = tuple(part if _is_complete(part) else None for part in reply.parts)
        stored = StoredResponse(recalled.previous_id, recalled.input_messages, parts, body, size_bytes, recalled.owner)
        self._put(reply.id, stored)

    def _conversation(self, previous: PreviousResponseRef, owner: str) -> Iterator[Message]:
        last, *before = self._chain(previous.reply_id) or [None]
        is_visible = last is not None and last.is_visible_to(owner)  # then those before it belong to its conversation
        for stored in reversed([last if is_visible else None, *before]):
            if stored is None:
                message = f"answer {quote(previous.reply_id)} not found: responses are stored for a while only"
                raise UnknownResponseError(f"{message}; send the whole conversation", previous.path)
            yield from stored.input_messages
            if parts := tuple(part for part in stored.parts if part is not None):
                yield Message("assistant", parts)

    def _fill_references(self, messages: tuple[Message, ...], owner: str, warnings: list[Notice]) -> Iterator[Message]:
        """The messages with parts in place of references; a part that is not stored is left out."""
        known: dict[str, StoredResponse | None] = {}
        for message in messages:
            filled = [
                self._referenced_part(part, owner, known) if isinstance(part, PreviousResponseRef) else part
                for part in message.parts
            ]
            warnings += [_unknown_reference(p) for p, f in zip(message.parts, filled, strict=True) if f is None]
            parts = tuple(part for part in filled if part is not None)
            if parts or not message.parts:
                yield msgspec.structs.replace(message, parts=parts) if parts != message.parts else message

    def _referenced_part(
        self, named: PreviousResponseRef, owner: str, known: dict[str, StoredResponse | None]
    ) -> Part | None:
        """`known`: responses that were looked up already, because each look-up goes through the whole conversation."""
        if named.reply_id not in known:
            known[named.reply_id] = self._load(named.reply_id)
        stored = known[named.reply_id]
        parts = stored.parts if stored and stored.is_visible_to(owner) else ()
        return parts[named.number] if named.number is not None and named.number < len(parts) else None


def _continues(request: Request) -> bool:
    """Whether the request needs what is stored."""
    return request.previous_response is not None or has_part(request.messages, PreviousResponseRef)


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
