"""Learns examples from requests, and puts them into the prompts of small models.

    request of a client ─its last call, with a result without error→ examples of its API key
    request of a later conversation ─→ the same request, with `Tool.examples`

Examples of a key are one value in the state store, so no request of another key can reach them. A conversation keeps
the examples of its first request, because a prompt that changes at its beginning is read again from there.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec

from dragoman.core.client import ClientFacts
from dragoman.core.errors import BackendUnavailableError
from dragoman.core.messages import Request, Text, Tool
from dragoman.gateway.examples.config import ExamplesConfig
from dragoman.gateway.examples.learned import (
    ConversationExamples,
    KeyExamples,
    LearnedExample,
    digest,
    tool_key,
    tool_keys,
)
from dragoman.gateway.examples.worked_calls import latest_worked_calls, may_have_secret
from dragoman.off_loop import off_loop
from dragoman.redaction.redact import Redactor
from dragoman.state.store import StateKind, StateStore

MAX_KEYS: Final = 1000
"""Maximum API keys with examples."""
MAX_BYTES: Final = 16 * 1024 * 1024
CONVERSATION_TTL_S: Final = 3600.0
"""How long a conversation without requests keeps its examples."""
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
        self._learning = threading.Lock()

    async def apply(self, request: Request, client: ClientFacts, upstream: str) -> Request:
        """Learns from a request, and returns it with examples if its upstream gets them.

        Args:
            request: The complete request.
            client: Who sent it.
            upstream: The name of the backend that is asked.
        """
        if not any(tool.kind == "function" for tool in request.tools):
            return request
        return await off_loop(self._store.does_io, self._apply, request, client, upstream)

    def _apply(self, request: Request, client: ClientFacts, upstream: str) -> Request:
        try:
            changed = self.with_examples(request, client) if upstream in self._config.upstreams else request
            self.learn(request, client)
        except BackendUnavailableError:  # logged by the store
            return request
        return changed

    def learn(self, request: Request, client: ClientFacts) -> None:
        """Stores the latest calls of a request that worked.

        Raises:
            BackendUnavailableError: The store cannot be used.
        """
        config = self._config
        worked = [
            (tool_key(tool), LearnedExample(call.arguments, self._now_s()))
            for tool, call in latest_worked_calls(request)
            if len(call.arguments) <= config.max_chars and not may_have_secret(call.arguments, self._redactor)
        ]
        if not worked:
            return
        with self._learning:  # another process may store at the same time; its example is learned with the next call
            stored = self._stored(client)
            examples = stored.since(self._now_s() - config.ttl_s)
            for key, example in worked:
                examples = examples.with_example(key, example, config.max_per_tool, config.max_tools)
            if examples is not stored:
                size_bytes = examples.chars + examples.count * _EXAMPLE_BYTES
                self._store.put(self._kind, client.key, examples, size_bytes)

    def with_examples(self, request: Request, client: ClientFacts) -> Request:
        """Returns the request with the examples that its conversation began with.

        Raises:
            BackendUnavailableError: The store cannot be used.
        """
        keys = tool_keys(request.prompt_tools or request.tools)
        conversation = _conversation_key(request, client, keys)
        stored = self._stored(client)
        pinned = self._store.get(CONVERSATIONS, conversation)
        if pinned is None:
            pinned = self._first_examples(stored, keys)
            size_bytes = len(conversation) + sum(len(key) + len(ids) * 24 for key, ids in pinned.tools.items())
            self._store.put(CONVERSATIONS, conversation, pinned, size_bytes)
        if not pinned.tools:
            return request

        def extended(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
            return tuple(_with_examples(tool, keys, pinned, stored) for tool in tools)

        return msgspec.structs.replace(
            request, tools=extended(request.tools), prompt_tools=extended(request.prompt_tools)
        )

    def usage(self, client: ClientFacts) -> KeyExamples:
        """Returns the examples of a client's API key.

        Raises:
            BackendUnavailableError: The store cannot be used.
        """
        return self._stored(client).since(self._now_s() - self._config.ttl_s)

    def delete(self, client: ClientFacts) -> KeyExamples:
        """Deletes the examples of a client's API key, also from conversations that began with them; returns them.

        Raises:
            BackendUnavailableError: The store cannot be used.
        """
        with self._learning:
            stored = self.usage(client)
            self._store.delete(self._kind, client.key)
        return stored

    @property
    def does_io(self) -> bool:
        """Whether calls wait for a disk or a network."""
        return self._store.does_io

    def _stored(self, client: ClientFacts) -> KeyExamples:
        return self._store.get(self._kind, client.key) or KeyExamples()

    def _first_examples(self, stored: KeyExamples, keys: dict[str, str]) -> ConversationExamples:
        """Returns the examples of the offered tools, in their order, up to the limit of a prompt."""
        left, tools = self._config.max_prompt_chars, dict[str, tuple[str, ...]]()
        recent = stored.since(self._now_s() - self._config.ttl_s)
        for key in keys.values():
            ids = []
            for example in recent.tools.get(key, ())[: self._config.max_per_tool]:
                if len(example.arguments) <= left:
                    left -= len(example.arguments)
                    ids.append(example.id)
            if ids:
                tools[key] = tuple(ids)
        return ConversationExamples(tools)


def _with_examples(tool: Tool, keys: dict[str, str], pinned: ConversationExamples, stored: KeyExamples) -> Tool:
    key = keys.get(tool.name, "")
    if tool.kind != "function" or not (ids := pinned.tools.get(key)):
        return tool
    texts = tuple(each.arguments for each in stored.tools.get(key, ()) if each.id in ids)
    return msgspec.structs.replace(tool, examples=texts) if texts else tool


def _conversation_key(request: Request, client: ClientFacts, keys: dict[str, str]) -> str:
    """Returns a key for all requests of a conversation: by the agent's id of it, else by the user's first text."""
    opening = client.session
    if not opening:
        first = next((message for message in request.messages if message.role == "user"), None)
        opening = "\n".join(part.text for part in first.parts if isinstance(part, Text)) if first else ""
    return digest(client.key, client.session, opening, *keys.values())
