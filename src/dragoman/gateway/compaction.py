"""Compaction for clients of OpenAI Responses in front of any backend: the same model writes a summary.

    input: […, {"type": "compaction_trigger"}]  → output: [{"type": "compaction", "encrypted_content": "dragoman.1.…"}]
    input: [{"type": "compaction", …}, …]       → the summary as a message of the user, before what follows

A conversation that ends with a trigger is sent to the backend with a request for a summary in the trigger's place: the
same model, prompt and tools, so that a prompt cache holds, but no tool may be called. Nothing is stored here: the
summary is in the item, which the client sends back. It is signed, not encrypted, as the client has the conversation
anyway; any process with the same key opens it, and what was changed or cut gets an error. A Responses server that
compacts by itself gets the items as they came.

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
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final, Protocol, runtime_checkable

import msgspec
from msgspec.structs import replace

from dragoman.core.backend import Backend, ExchangeContext
from dragoman.core.errors import (
    BackendUnavailableError,
    RequestError,
    UnknownModelError,
    UnsupportedError,
    UpstreamError,
)
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
from dragoman.core.messages import Message, Part, Request, Text, ToolChoice, UnknownPart

DIALECT: Final = "openai_responses"
TRIGGER: Final = "compaction_trigger"
ITEMS: Final = ("compaction", "compaction_summary", "context_compaction")
"""Types of items that hold a sealed conversation; the second and the third are older names."""
_OURS: Final = "dragoman.1."
_MAC_BYTES: Final = 32
_SUMMARY_BYTES: Final = 4 * 1024 * 1024
_ASK: Final = """\
The conversation above is about to be replaced by a summary, and the summary is all that you will see of it when the \
work goes on. Write that summary now, as plain text for yourself, with these parts:
1. Task: what the user wants, with every requirement, limit and preference, in the user's own words where they matter.
2. State: what has been done and found out so far. Keep names of files, functions, commands, values and error messages \
exactly as they are.
3. Decisions: what was decided, and why; what was tried and did not work.
4. Next: what is left to do, the next step first.
Leave out what no longer matters. Do not call a tool, do not continue the task and do not address the user."""
_LEAD: Final = "Summary of the conversation so far, which it replaces:\n\n"


@runtime_checkable
class Compacts(Protocol):
    """A backend with servers that may compact conversations by themselves."""

    def compacts(self, request: Request) -> bool:
        """Whether the server is to do it."""


class Seal:
    """Signs summaries, and opens what it has signed."""

    def __init__(self, key: bytes | None = None, *, checks: bool = True) -> None:
        """`key`: any bytes; None: random ones. Without `checks` it opens what others have signed, for replays."""
        self._key = hashlib.sha256(b"dragoman compaction" + (secrets.token_bytes(32) if key is None else key)).digest()
        self._checks = checks

    def close(self, summary: str) -> str:
        """The sealed text of an item."""
        data = zlib.compress(summary.encode())
        return _OURS + base64.urlsafe_b64encode(self._mac(data) + data).decode()

    def open(self, sealed: str, path: str = "") -> str:
        """The summary in an item.

        Raises: UnsupportedError: another server has sealed it. RequestError: it is damaged, or of another key.
        """
        if not sealed.startswith(_OURS):
            told = "expected a compaction item that was made here, got one that only the server that made it can open"
            raise UnsupportedError(f"{told}; send the conversation without it, or ask a model of that server", path)
        try:
            whole = base64.b64decode(sealed.removeprefix(_OURS), altchars=b"-_", validate=True)
            mac, data = whole[:_MAC_BYTES], whole[_MAC_BYTES:]
            if not (hmac.compare_digest(mac, self._mac(data)) or not self._checks):
                raise ValueError
            return zlib.decompressobj().decompress(data, _SUMMARY_BYTES).decode()
        except (ValueError, binascii.Error, zlib.error):
            told = "expected a compaction item as it was made here, got one that is damaged or sealed with another key"
            raise RequestError(f"{told} (setting memory.seal_key); send the conversation without it", path) from None

    def _mac(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, "sha256")


def concerns(request: Request) -> bool:
    """Whether there is a trigger or a sealed item in the request."""
    if request.dialect not in ("", DIALECT):
        return False
    return any(isinstance(p, UnknownPart) and p.type in (TRIGGER, *ITEMS) for m in request.messages for p in m.parts)


def triggered(request: Request) -> Request:
    """The request with a trigger at its end, if it has none; for the endpoint that needs none."""
    if is_asked(request):
        return request
    raw = msgspec.Raw(json.dumps({"type": TRIGGER}).encode())
    return replace(request, messages=(*request.messages, Message("user", (UnknownPart(TRIGGER, raw, "$.input"),))))


def is_asked(request: Request) -> bool:
    """Whether the conversation is to be compacted.

    Raises: RequestError: the trigger is not the last item.
    """
    parts = [part for message in request.messages for part in message.parts]
    found = [n for n, part in enumerate(parts) if isinstance(part, UnknownPart) and part.type == TRIGGER]
    if found and found != [len(parts) - 1]:
        raise RequestError(f"expected {TRIGGER} once, as the last item, got items after it", "$.input")
    return bool(found)


def opened(request: Request, seal: Seal, *, foreign: bool) -> Request:
    """The request with summaries in place of sealed items. `foreign`: items of other servers stay as they are.

    Raises: RequestError: an item cannot be opened.
    """
    messages: list[Message] = []
    for message in request.messages:
        parts: list[Part] = []
        for part in message.parts:
            sealed = _sealed(part)
            if sealed is None or (foreign and not sealed.startswith(_OURS)):
                parts.append(part)
                continue
            if parts:
                messages.append(replace(message, parts=tuple(parts)))
                parts = []
            path = part.path if isinstance(part, UnknownPart) else ""
            messages.append(Message("user", (Text(_LEAD + seal.open(sealed, path)),)))
        if parts or not message.parts:
            messages.append(replace(message, parts=tuple(parts)) if len(parts) != len(message.parts) else message)
    return replace(request, messages=tuple(messages))


def opened_for(
    request: Request, plan: Callable[[Request], Sequence[tuple[Backend, Request]]], seal: Seal
) -> tuple[Request, bool]:
    """The request as the first backend of the plan is to get it, and whether it is to be compacted here.

    Raises: RequestError: an item cannot be opened.
    """
    try:
        (backend, planned), *_ = plan(request)
        passes = isinstance(backend, Compacts) and backend.compacts(planned)
    except (UnknownModelError, BackendUnavailableError):  # which the client is told later
        passes = False
    request = opened(request, seal, foreign=passes)
    return request, is_asked(request) and not passes


def asking(request: Request) -> Request:
    """The request for the summary.

    Raises: RequestError: there is nothing to summarize.
    """
    *said, _ = request.messages
    if not said[request.instructions :]:
        raise RequestError(f"expected a conversation before {TRIGGER}, got none", "$.input")
    shapes = ("text", "tool_choice", "context_management")  # of an answer that is not asked for now
    extra = {name: raw for name, raw in request.extra.items() if name not in shapes}
    return replace(
        request,
        messages=(*said, Message("user", (Text(_ASK),))),
        tool_choice=ToolChoice("none") if request.tools else request.tool_choice,
        response_schema="",
        stop=(),
        extra=extra,
        keep=False,
    )


async def summarized(
    events: AsyncGenerator[AnyEvent, None], seal: Seal, turn: ExchangeContext
) -> AsyncGenerator[AnyEvent, None]:
    """The events of an answer whose one part is the sealed summary, made of those of the summary."""
    texts: list[str] = []
    async with aclosing(events):
        async for event in events:
            match event:
                case TextDelta(text):
                    texts.append(text)
                case Finish(reason):
                    if reason == "length":
                        told = "the summary reached the token limit of the request or the model, and lacks its end"
                        yield Notice("truncated_summary", told)
                    break
                case Start() | Notice() | UsageUpdate() | Failure():
                    yield event
                case _:
                    pass  # reasoning, and calls of a model that makes some all the same
            if isinstance(event, Failure):
                return
    summary = "".join(texts).rpartition("</think>")[2].strip()
    if not summary:
        yield Failure(UpstreamError("the model wrote no summary of the conversation"))
        return
    item = {"id": f"cmp_{turn.id}", "type": "compaction", "encrypted_content": seal.close(summary)}
    yield VendorBlock(DIALECT, "compaction", json.dumps(item))
    yield Finish("stop")


def _sealed(part: Part) -> str | None:
    """What is sealed in an item; None: this is no such item."""
    if not isinstance(part, UnknownPart) or part.type not in ITEMS:
        return None
    found = json.loads(bytes(part.raw)).get("encrypted_content")
    return found if isinstance(found, str) else ""
