"""Compaction for clients of OpenAI Responses, with any backend: the same model writes a summary.

    input: […, {"type": "compaction_trigger"}]  → output: [{"type": "compaction", "encrypted_content": "dragoman.1.…"}]
    input: [{"type": "compaction", …}, …]       → the summary as a user message, before what follows

A conversation that ends with a trigger is sent to the backend with a request for a summary in the trigger's place: with
the same model, prompt and tools, so that a prompt cache stays valid, but no tool may be called. Nothing is stored: the
summary is in the item, which the client sends back. It is signed, not encrypted, because the client has the
conversation anyway. Any process with the same key can open it; an item that was changed or truncated is an error. A
Responses server that compacts conversations itself gets the items unchanged.

Source: https://developers.openai.com/api/docs/guides/compaction, the types in the openai package 3.52 and
https://github.com/openai/codex/pull/22809 (2026-11).
"""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import BackendUnavailableError, RequestError, UnsupportedError, UpstreamError
from dragoman.core.events import (
    AnyEvent,
    Failure,
    Finish,
    Notice,
    Start,
    TextDelta,
    UsageUpdate,
    VendorBlock,
)
from dragoman.core.messages import FoldedCalls, Message, Part, Request, Text, ToolChoice, UnknownPart
from dragoman.core.stage import EventStage
from dragoman.gateway.routing.router import ModelRoute
from dragoman.steps.progress import request_calls
from dragoman.steps.validate import MAX_STEPS

DIALECT: Final = "openai_responses"
TRIGGER: Final = "compaction_trigger"
ITEM_TYPES: Final = ("compaction", "compaction_summary", "context_compaction")
"""Types of items that contain a sealed conversation; the second and the third are older names."""
_SEAL_PREFIX: Final = "dragoman.1."
_MAC_BYTES: Final = 32
_MAX_SUMMARY_BYTES: Final = 4 * 1024 * 1024
_SUMMARY_PROMPT: Final = """\
The conversation above is about to be replaced by a summary, and the summary is all that you will see of it when the \
work goes on. Write that summary now, as plain text for yourself, with these parts:
1. Task: what the user wants, with every requirement, limit and preference, in the user's own words where they matter.
2. State: what has been done and found out so far. Keep names of files, functions, commands, values and error messages \
exactly as they are.
3. Decisions: what was decided, and why; what was tried and did not work.
4. Next: what is left to do, the next step first.
Leave out what no longer matters. Do not call a tool, do not continue the task and do not address the user."""
_BEFORE_CALLS: Final = "\0"
"""What separates a summary from the calls of its turn, as JSON."""
_CALLS: Final = msgspec.json.Decoder(FoldedCalls)
_SUMMARY_HEADING: Final = "Summary of the conversation so far, which it replaces:\n\n"


class Seal:
    """Signs summaries, and verifies and opens what it has signed."""

    def __init__(
        self, key: bytes | None = None, *, checks: bool = True, shared: Callable[[], Sequence[bytes]] | None = None
    ) -> None:
        """Args:
        key: Any bytes; None: random ones.
        checks: False: the signature is not verified, for replays.
        shared: Returns the keys that all replicas use instead, of which the first one signs.
        """
        own = (secrets.token_bytes(32) if key is None else key,)
        self._keys = shared or (lambda: own)
        self._checks = checks

    def seal(self, summary: str) -> str:
        """Returns the sealed text of an item.

        Raises:
            BackendUnavailableError: The key cannot be read.
        """
        data = zlib.compress(summary.encode())
        return _SEAL_PREFIX + base64.urlsafe_b64encode(_mac(self._keys()[0], data) + data).decode()

    def unseal(self, sealed: str, path: str = "") -> str:
        """Returns the summary in an item; `path` is the item's place in the request, for errors.

        Raises:
            UnsupportedError: The item was sealed by another server.
            RequestError: The item is damaged, or was sealed with another key.
            BackendUnavailableError: The key cannot be read.
        """
        if not sealed.startswith(_SEAL_PREFIX):
            message = "expected a compaction item of this gateway, got one that only the server that made it can open"
            raise UnsupportedError(f"{message}; send the conversation without it, or ask a model of that server", path)
        try:
            decoded = base64.b64decode(sealed.removeprefix(_SEAL_PREFIX), altchars=b"-_", validate=True)
            mac, data = decoded[:_MAC_BYTES], decoded[_MAC_BYTES:]
            if self._checks and not any(hmac.compare_digest(mac, _mac(key, data)) for key in self._keys()):
                raise ValueError
            # The limit may be in the middle of a character.
            return zlib.decompressobj().decompress(data, _MAX_SUMMARY_BYTES).decode(errors="ignore")
        except (ValueError, binascii.Error, zlib.error):
            message = "expected a compaction item of this gateway, got one that is damaged or sealed with another key"
            raise RequestError(
                f"{message} (setting response_store.seal_key); send the conversation without it", path
            ) from None


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(hashlib.sha256(b"dragoman compaction" + key).digest(), data, "sha256")


def uses_compaction(request: Request) -> bool:
    """Returns whether the request contains a trigger or a sealed item."""
    if request.dialect not in ("", DIALECT):
        return False
    return any(type(p) is UnknownPart and p.type in (TRIGGER, *ITEM_TYPES) for m in request.messages for p in m.parts)


def with_trigger(request: Request) -> Request:
    """Returns the request with a trigger at its end, for the endpoint that implies one."""
    if is_requested(request):
        return request
    raw = msgspec.Raw(json.dumps({"type": TRIGGER}).encode())
    return replace(request, messages=(*request.messages, Message("user", (UnknownPart(TRIGGER, raw, "$.input"),))))


def is_requested(request: Request) -> bool:
    """Returns whether the request asks for compaction.

    Raises:
        RequestError: The trigger is not the last item.
    """
    parts = [part for message in request.messages for part in message.parts]
    positions = [n for n, part in enumerate(parts) if isinstance(part, UnknownPart) and part.type == TRIGGER]
    if positions and positions != [len(parts) - 1]:
        raise RequestError(f"expected {TRIGGER} once, as the last item, got items after it", "$.input")
    return bool(positions)


def unseal_items(request: Request, seal: Seal, *, foreign: bool) -> Request:
    """Returns the request with summaries in place of sealed items.

    Args:
        request: The request of the client.
        seal: Opens the items.
        foreign: Whether items of other servers stay as they are.

    Raises:
        RequestError: An item cannot be opened.
    """
    messages: list[Message] = []
    folded: FoldedCalls | None = None
    for message in request.messages:
        parts: list[Part] = []
        for part in message.parts:
            sealed = _sealed_text(part)
            if sealed is None or (foreign and not sealed.startswith(_SEAL_PREFIX)):
                parts.append(part)
                continue
            if parts:
                messages.append(replace(message, parts=tuple(parts)))
                parts = []
            path = part.path if isinstance(part, UnknownPart) else ""
            summary, calls = _unpacked(seal.unseal(sealed, path))
            text = _SUMMARY_HEADING + summary
            messages.append(Message("user", (Text(text),)))
            folded = None if calls is None else replace(calls, summary=text)
        if parts or not message.parts:
            messages.append(replace(message, parts=tuple(parts)) if len(parts) != len(message.parts) else message)
    return replace(request, messages=tuple(messages), folded=folded)


def prepare_request(request: Request, route: ModelRoute | None, seal: Seal) -> tuple[Request, bool]:
    """Returns the request for a backend, and whether the gateway has to compact the conversation.

    Args:
        request: The complete request.
        route: The backend; None: the request names no model.
        seal: Opens the items.

    Raises:
        RequestError: An item cannot be opened.
    """
    passes = route is not None and route.backend.compacts(route.request)
    request = unseal_items(request, seal, foreign=passes)
    return request, is_requested(request) and not passes


def summary_request(request: Request) -> Request:
    """Returns the request for the summary.

    Raises:
        RequestError: There is nothing to summarize.
    """
    *messages, _ = request.messages
    if not messages[request.instruction_count :]:
        raise RequestError(f"expected a conversation before {TRIGGER}, got none", "$.input")
    shapes = ("text", "tool_choice", "context_management")  # these describe a response that is not requested now
    extra = {name: raw for name, raw in request.extra.items() if name not in shapes}
    return replace(
        request,
        messages=(*messages, Message("user", (Text(_SUMMARY_PROMPT),))),
        tool_choice=ToolChoice("none") if request.tools else request.tool_choice,
        response_schema="",
        stop=(),
        extra=extra,
        store=False,
    )


class SealedSummary(EventStage):
    """Makes a response whose only part is the sealed summary, from the events of the summary."""

    def __init__(self, seal: Seal, context: ExchangeContext, request: Request) -> None:
        self._seal, self._item_id = seal, f"cmp_{context.id}"
        self._calls = request_calls(replace(request, messages=request.messages[:-1]))
        """Calls of the present turn, for its steps; the last message asks for the summary."""
        self._texts: list[str] = []

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns Start, warnings, usage and a failure; the text is kept until Finish."""
        out: list[AnyEvent] = []
        for event in events:
            match event:
                case TextDelta(text):
                    self._texts.append(text)
                case Finish(reason):
                    return [*out, *self._finish(is_truncated=reason == "length")]
                case Start() | Notice() | UsageUpdate() | Failure():
                    out.append(event)
                case _:
                    pass  # reasoning, and calls of a model that makes some although it must not
        return out

    def _finish(self, *, is_truncated: bool) -> list[AnyEvent]:
        self.finished = True
        out: list[AnyEvent] = []
        if is_truncated:
            message = "the summary reached the token limit of the request or the model, and lacks its end"
            out.append(Notice("truncated_summary", message))
        summary = "".join(self._texts).rpartition("</think>")[2].replace(_BEFORE_CALLS, "").strip()
        if not summary:
            return [*out, Failure(UpstreamError("the model wrote no summary of the conversation"))]
        if self._calls.calls:
            summary += _BEFORE_CALLS + msgspec.json.encode(_needed(self._calls)).decode()
        try:
            sealed = self._seal.seal(summary)
        except BackendUnavailableError as error:
            return [*out, Failure(error)]
        item = {"id": self._item_id, "type": "compaction", "encrypted_content": sealed}
        return [*out, VendorBlock(DIALECT, "compaction", json.dumps(item)), Finish("stop")]


def _needed(calls: FoldedCalls) -> FoldedCalls:
    """Returns the calls with as many successful ones of each tool as steps can require."""
    counts: Counter[str] = Counter()
    done = []
    for name, digest in calls.done:
        counts[name] += 1
        if counts[name] <= MAX_STEPS:
            done.append((name, digest))
    return replace(calls, done=tuple(done))


def _unpacked(text: str) -> tuple[str, FoldedCalls | None]:
    """Returns the summary, and the calls of its turn; None if it lacks them, or their JSON is not complete."""
    summary, _, calls = text.partition(_BEFORE_CALLS)
    if not calls.startswith("{"):
        return summary + calls.replace(_BEFORE_CALLS, ""), None  # a summary of an earlier version
    try:
        return summary, _CALLS.decode(calls)
    except msgspec.DecodeError:
        return summary, None


def _sealed_text(part: Part) -> str | None:
    """The sealed text in an item; None: the part is not such an item."""
    if not isinstance(part, UnknownPart) or part.type not in ITEM_TYPES:
        return None
    sealed = json.loads(bytes(part.raw)).get("encrypted_content")
    return sealed if isinstance(sealed, str) else ""
