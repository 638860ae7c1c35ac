"""Keeps recent responses, for requests that continue one of them or reference parts of them.

    resolved = store.resolve(request)           `resolved.request` is complete: it goes to a backend
    store.add(resolved, reply, body)            once the response is complete, if the request wants it stored
    store.response_body(id), store.input_messages(id), store.delete(id)     for /v1/responses/{id} and its input_items

A response is kept with the messages of its request and the ids of the responses before it, so a long conversation is
stored once, and read in few steps. The least recently used responses are evicted first, and a response counts as used
before those that continue it: of a conversation that is evicted, the newest response goes first, and the rest can
still be continued.

The responses are in a `StateStore`. While it is out of order, those that cannot be stored wait in a `ResponseOutbox`.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from dragoman.core.errors import RequestError, UnknownResponseError, quote
from dragoman.core.events import Notice
from dragoman.core.messages import Message, Part, PreviousResponseRef, Reply, Request, ToolCall, has_part
from dragoman.gateway.storage.response_outbox import ResponseOutbox
from dragoman.gateway.storage.stored_response import MAX_ANCESTORS, StoredResponse, decode, detach, encode
from dragoman.state.memory_store import MemoryStateStore
from dragoman.state.store import StateKind, StateStore
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
    ancestors: tuple[str, ...] = ()
    """The ids of all responses before it, the one that it continued first."""
    input_messages: tuple[Message, ...] = ()
    """Its own messages without instructions, for responses that continue this one."""
    warnings: tuple[Notice, ...] = ()
    owner: str = ""
    """The name of the API key to which a response belongs; empty: to no named key."""


class ResponseStore:
    """Responses by id, with limits of their number, total size in bytes, and time since the last use in seconds.

    All methods can be called in any thread.
    """

    def __init__(
        self,
        state: StateStore | None = None,
        max_responses: int = MAX_RESPONSES,
        max_bytes: int = MAX_BYTES,
        ttl_s: float = TTL_S,
    ) -> None:
        """Args:
        state: Where the responses are; None: in the memory of this process.
        max_responses: Maximum number of responses; 0: none is stored.
        max_bytes: Maximum total size; 0: none is stored.
        ttl_s: Time after the last use after which a response is deleted, in seconds.
        """
        self._state = MemoryStateStore() if state is None else state
        self._kind = StateKind("responses", encode, decode, ttl_s, True, True, max_responses, max_bytes)
        self._outbox = ResponseOutbox(self._state, self._kind) if self._state.does_io else None

    def __len__(self) -> int:
        """Returns the number of stored responses."""
        return self._state.usage(self._kind)[0]

    @property
    def size_bytes(self) -> int:
        """The total size of the stored responses."""
        return self._state.usage(self._kind)[1]

    @property
    def does_io(self) -> bool:
        """Whether calls wait for a disk or a network, so that they belong in a thread."""
        return self._outbox is not None

    @property
    def outbox(self) -> ResponseOutbox | None:
        """The responses that could not be stored yet; None: the store is in this process."""
        return self._outbox

    def delete(self, id: str) -> bool:
        """Deletes a response. Returns whether it was stored.

        Raises:
            BackendUnavailableError: The store cannot be used.
        """
        was_stored = self._state.delete(self._kind, id)
        return (self._outbox is not None and self._outbox.discard(id)) or was_stored

    def close(self) -> None:
        """Releases files and connections; a later call opens them again."""
        if self._outbox is not None:
            self._outbox.close()
        self._state.close()

    def blocks(self, request: Request) -> bool:
        """Whether resolving this request belongs in a thread."""
        return self.does_io and _continues(request)

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
        ids: list[str] = []
        previous = request.previous_response
        before = tuple(self._conversation(previous, owner, ids)) if previous else ()
        warnings: list[Notice] = []
        filled = tuple(self._fill_references(request.messages, owner, warnings))
        conversation = filled[request.instruction_count :]
        messages = (*filled[: request.instruction_count], *before, *conversation)
        if not (before or conversation):
            raise UnknownResponseError("none of the referenced responses is stored; send their content")
        return ResolvedRequest(
            msgspec.structs.replace(request, messages=messages, previous_response=None),
            tuple(ids),
            conversation,
            tuple(warnings),
            owner,
        )

    def response_body(self, id: str, owner: str = "") -> bytes | None:
        """Returns the body of a stored response; None: it is not stored, or belongs to another key than `owner`.

        Raises:
            BackendUnavailableError: The store cannot be read.
        """
        stored = self._chain(id)[0]
        return stored.body if stored and stored.body and stored.is_visible_to(owner) else None

    def input_messages(self, id: str) -> tuple[Message, ...] | None:
        """Returns the conversation that a stored response answered, without instructions; None: the response is not
        stored.

        Raises:
            BackendUnavailableError: The store cannot be read.
        """
        last, *before = self._chain(id)
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
        if size_bytes > self._kind.max_bytes or not self._kind.max_entries:
            return
        parts = tuple(part if _is_complete(part) else None for part in reply.parts)
        nearest = recalled.ancestors[:MAX_ANCESTORS]
        stored = detach(StoredResponse(nearest, recalled.input_messages, parts, body, recalled.owner))
        if self._outbox is None:
            self._state.put(self._kind, reply.id, stored, size_bytes, recalled.ancestors)
        else:
            self._outbox.put(reply.id, stored, size_bytes, recalled.ancestors)

    def _chain(self, id: str, ids: list[str] | None = None) -> list[StoredResponse | None]:
        """Returns the response and those before it, newest first, and marks them as used in this order.

        The last one is None if it is not stored, or no longer.

        Args:
            id: The id of the response.
            ids: Gets the ids of the responses.
        """
        chain: list[StoredResponse | None] = []
        names: Sequence[str] = (id,)
        while names:
            found = self._read(names)
            if None in found:
                return [*chain, *found[: found.index(None) + 1]]
            if ids is not None:
                ids += names
            chain += found
            names = found[-1].ancestors if found[-1] else ()
        return chain

    def _read(self, ids: Sequence[str]) -> list[StoredResponse | None]:
        """Returns the responses in the order of their ids, also those that could not be stored yet."""
        if not self._outbox:  # it is empty, too
            return self._state.get_many(self._kind, ids)
        unstored = {id: self._outbox.get(id) for id in ids}
        others = [id for id in ids if unstored[id] is None]
        unstored.update(zip(others, self._state.get_many(self._kind, others) if others else (), strict=True))
        return [unstored[id] for id in ids]

    def _conversation(self, previous: PreviousResponseRef, owner: str, ids: list[str]) -> Iterator[Message]:
        last, *before = self._chain(previous.reply_id, ids)
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
            known[named.reply_id] = self._chain(named.reply_id)[0]
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
