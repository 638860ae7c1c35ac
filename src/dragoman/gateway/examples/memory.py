"""Learns examples from requests, and puts them into the prompts of small models.

    request of a client ─its last call, with a result without error→ examples of its API key
    request of a later conversation ─→ the same request, with `Tool.examples`

Examples of a key are one value in the state store, so no request of another key can reach them. A conversation keeps
the texts of the examples of its first request, because a prompt that changes at its beginning is read again from there.
The time of a deletion is a value of its own: another process that has read the examples before may store them after it.
"""

import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from dragoman.core.client import ClientFacts
from dragoman.core.errors import BackendUnavailableError
from dragoman.core.messages import JsonText, Request, Text, Tool
from dragoman.gateway.examples.config import ExamplesConfig
from dragoman.gateway.examples.learned import (
    ConversationExamples,
    KeyExamples,
    LearnedExample,
    digest,
    tool_key,
    tool_keys,
)
from dragoman.gateway.examples.worked_calls import latest_worked_calls, may_have_secret, may_have_worked_calls
from dragoman.off_loop import off_loop
from dragoman.redaction.redact import Redactor
from dragoman.state.store import StateKind, StateStore

MAX_KEYS: Final = 1000
"""Maximum API keys with examples."""
MAX_BYTES: Final = 16 * 1024 * 1024
CONVERSATION_TTL_S: Final = 3600.0
"""How long a conversation without requests keeps its examples, and one with the same first text gets the same ones."""
_EXAMPLE_BYTES: Final = 100
"""What an example needs besides its text."""
_encode: Final = msgspec.msgpack.Encoder().encode

CONVERSATIONS: Final = StateKind(
    "conversation_examples",
    _encode,
    msgspec.msgpack.Decoder(ConversationExamples).decode,
    CONVERSATION_TTL_S,
    is_renewed=True,
)


class ExampleMemory:
    """The examples of all API keys."""

    def __init__(
        self,
        config: ExamplesConfig,
        store: StateStore,
        redactor: Redactor,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            config: The settings.
            store: Where the examples are.
            redactor: Finds secrets; a call with one is not stored.
            now_s: The time, in seconds since 1970.
        """
        self._config, self._store, self._redactor, self._now_s = config, store, redactor, now_s
        self._kind = StateKind(
            "examples",
            _encode,
            msgspec.msgpack.Decoder(KeyExamples).decode,
            config.ttl_s,
            max_entries=MAX_KEYS,
            max_bytes=MAX_BYTES,
        )
        self._deletions = StateKind(
            "example_deletions",
            _encode,
            msgspec.msgpack.Decoder(float).decode,
            2 * max(config.ttl_s, CONVERSATION_TTL_S),  # longer than anything that was stored before
            is_renewed=True,
        )
        self._locks = weakref.WeakValueDictionary[str, threading.Lock]()
        """Of the keys whose examples are written now."""
        self._locking = threading.Lock()

    async def apply(self, request: Request, client: ClientFacts, upstream: str, *, is_large: bool = False) -> Request:
        """Learns from a request, and returns it with examples if its upstream gets them.

        Args:
            request: The complete request.
            client: Who sent it.
            upstream: The name of the backend that is asked.
            is_large: Whether the request is large, so that work on it belongs in a thread.
        """
        if not any(tool.kind == "function" for tool in request.tools):
            return request
        gets_examples = upstream in self._config.upstreams
        if not (gets_examples or may_have_worked_calls(request)):
            return request
        return await off_loop(is_large or self._store.does_io, self._apply, request, client, gets_examples)

    def _apply(self, request: Request, client: ClientFacts, gets_examples: bool) -> Request:
        try:
            changed = self.with_examples(request, client) if gets_examples else request
            self.learn(request, client)
        except BackendUnavailableError:  # logged by the store
            return request
        return changed

    def learn(self, request: Request, client: ClientFacts) -> None:
        """Stores the latest calls of a request that worked; not while another request of the key stores some.

        Raises:
            BackendUnavailableError: The store cannot be used.
        """
        config, now_s = self._config, self._now_s()
        worked = [
            (tool_key(tool), LearnedExample(call.arguments, now_s))
            for tool, call in latest_worked_calls(request, config.max_chars, config.max_per_tool)
            if not may_have_secret(call.arguments, self._redactor)
        ]
        owner = _owner(client)
        if not worked or self._extended(owner, worked) is None:
            return
        lock = self._lock_of(owner)
        if not lock.acquire(blocking=False):
            return  # no thread waits for a slow store; the key learns from a later call
        try:  # another process may store at the same time; its example is learned with a later call
            examples = self._extended(owner, worked)
            if examples is not None:
                size_bytes = examples.chars + examples.count * _EXAMPLE_BYTES
                self._store.put(self._kind, owner, examples, size_bytes)
        finally:
            lock.release()

    def with_examples(self, request: Request, client: ClientFacts) -> Request:
        """Returns the request with the examples that its conversation began with.

        Raises:
            BackendUnavailableError: The store cannot be used.
        """
        keys = tool_keys(request.prompt_tools or request.tools)
        owner, now_s = _owner(client), self._now_s()
        conversation = _conversation_key(request, client, keys)
        pinned = self._store.get(CONVERSATIONS, conversation)
        if pinned is None or self._begins(request, pinned, now_s) or self._is_deleted(owner, pinned):
            before, pinned = pinned, ConversationExamples(now_s, self._first_examples(self._stored(owner), keys))
            if before is None or before.tools or pinned.tools:
                texts = [text for each in pinned.tools.values() for text in each]
                size_bytes = len(conversation) + sum(len(text) + _EXAMPLE_BYTES for text in texts)
                self._store.put(CONVERSATIONS, conversation, pinned, size_bytes)
        examples = pinned.tools
        if not examples:
            return request

        def extended(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
            return tuple(_with_examples(tool, examples.get(keys.get(tool.name, ""), ())) for tool in tools)

        return msgspec.structs.replace(
            request, tools=extended(request.tools), prompt_tools=extended(request.prompt_tools)
        )

    def usage(self, client: ClientFacts) -> KeyExamples:
        """Returns the examples of a client's API key.

        Raises:
            BackendUnavailableError: The store cannot be used.
        """
        return self._stored(_owner(client))

    def delete(self, client: ClientFacts) -> KeyExamples:
        """Deletes the examples of a client's API key; returns them. Conversations that began with them lose them too.

        Raises:
            BackendUnavailableError: The store cannot be used.
        """
        owner = _owner(client)
        with self._lock_of(owner):
            stored = self._stored(owner)
            self._store.put(self._deletions, owner, self._now_s(), len(owner) + _EXAMPLE_BYTES)
            self._store.delete(self._kind, owner)
        return stored

    @property
    def does_io(self) -> bool:
        """Whether calls wait for a disk or a network."""
        return self._store.does_io

    def _lock_of(self, owner: str) -> threading.Lock:
        with self._locking:
            lock = self._locks.get(owner)
            if lock is None:
                lock = self._locks[owner] = threading.Lock()
            return lock

    def _stored(self, owner: str) -> KeyExamples:
        """Returns the examples that are neither too old nor deleted."""
        stored: KeyExamples | None = self._store.get(self._kind, owner)
        if stored is None:
            return KeyExamples()
        return stored.after(max(self._deleted_s(owner), self._now_s() - self._config.ttl_s))

    def _deleted_s(self, owner: str) -> float:
        """Returns when the examples were deleted last; to be asked after they were read."""
        return self._store.get(self._deletions, owner) or 0.0

    def _extended(self, owner: str, worked: Iterable[tuple[str, LearnedExample]]) -> KeyExamples | None:
        """Returns the examples with those of calls that worked; None if they have them all."""
        stored = examples = self._stored(owner)
        for key, example in worked:
            examples = examples.with_example(key, example, self._config.max_per_tool, self._config.max_tools)
        return None if examples is stored else examples

    def _begins(self, request: Request, pinned: ConversationExamples, now_s: float) -> bool:
        """Returns whether a conversation begins, with the same first text as one that may have ended."""
        lasts_s = min(CONVERSATION_TTL_S, self._config.ttl_s)
        if pinned.tools and pinned.began_s > now_s - lasts_s:
            return False
        return not any(message.role == "assistant" for message in request.messages)

    def _is_deleted(self, owner: str, pinned: ConversationExamples) -> bool:
        return bool(pinned.tools) and pinned.began_s <= self._deleted_s(owner)

    def _first_examples(self, recent: KeyExamples, keys: dict[str, str]) -> dict[str, tuple[JsonText, ...]]:
        """Returns the latest examples of the offered tools, in their order, up to the limit of a prompt."""
        left, tools = self._config.max_prompt_chars, dict[str, tuple[JsonText, ...]]()
        for key in keys.values():
            texts: list[JsonText] = []
            for example in reversed(recent.tools.get(key, ())[-self._config.max_per_tool :]):
                if len(example.arguments) <= left:
                    left -= len(example.arguments)
                    texts.append(example.arguments)
            if texts:
                tools[key] = tuple(reversed(texts))
        return tools


def _with_examples(tool: Tool, texts: tuple[JsonText, ...]) -> Tool:
    if tool.kind != "function" or not texts:
        return tool
    return msgspec.structs.replace(tool, examples=texts)


def _owner(client: ClientFacts) -> str:
    """Returns the key of the examples: of the API key, else of its secret; clients without a secret share theirs."""
    return client.key or (f"secret {client.secret_id}" if client.secret_id else "")


def _conversation_key(request: Request, client: ClientFacts, keys: dict[str, str]) -> str:
    """Returns a key for all requests of a conversation: by the agent's id of it, else by the user's first text."""
    opening = client.session
    if not opening:
        first = next((message for message in request.messages if message.role == "user"), None)
        opening = "\n".join(part.text for part in first.parts if isinstance(part, Text)) if first else ""
    return digest(_owner(client), client.session, opening, *keys.values())
