"""A stored response as a value, and as bytes for stores outside this process."""

from dataclasses import dataclass, replace
from typing import Final

import msgspec

from dragoman.core.messages import ExtraFields, Message, Part, PreviousResponseRef, ToolResult, UnknownPart
from dragoman.gateway.storage import response_codec

MAX_ANCESTORS: Final = 32
"""Number of responses that one read of a store finds, after the first one."""
_LENGTH_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response, and what a request that continues it needs."""

    ancestors: tuple[str, ...]
    """The ids of the responses that it continued, at most `MAX_ANCESTORS`, the nearest one first."""
    input_messages: tuple[Message, ...]
    parts: tuple[Part | None, ...]
    """The parts of the response; None for an incomplete call, which must not count as a call that was made."""
    body: bytes
    """The whole response, as its API has it."""
    owner: str = ""
    """The name of the API key that made it; empty: none that has a name."""

    def is_visible_to(self, owner: str) -> bool:
        """Whether a key of this name may see it; keys without a name, "", see all."""
        return owner in ("", self.owner)


def encode(stored: StoredResponse) -> bytes:
    """Returns the response as bytes."""
    facts = msgspec.json.encode((stored.ancestors, stored.owner))
    conversation = response_codec.encode(stored.input_messages, stored.parts)
    return b"".join((_length(facts), facts, _length(conversation), conversation, stored.body))


def decode(written: bytes) -> StoredResponse:
    """Returns the response that `encode` wrote.

    Raises:
        ValueError: It was written by a version with other types.
    """
    facts, rest = _split(written)
    conversation, body = _split(rest)
    ancestors, owner = msgspec.json.decode(facts, type=tuple[tuple[str, ...], str])
    messages, parts = response_codec.decode(conversation)
    return StoredResponse(ancestors, messages, parts, body, owner)


def detach(stored: StoredResponse) -> StoredResponse:
    """Returns a copy whose JSON does not keep the bytes of its request in memory."""
    messages = tuple(
        msgspec.structs.replace(m, parts=tuple(map(_detach, m.parts)), extra=_copy_extra(m.extra))
        for m in stored.input_messages
    )
    return replace(stored, input_messages=messages, parts=tuple(part and _detach(part) for part in stored.parts))


def _detach(part: Part) -> Part:
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


def _length(data: bytes) -> bytes:
    return len(data).to_bytes(_LENGTH_BYTES, "big")


def _split(data: bytes) -> tuple[bytes, bytes]:
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
    if not _LENGTH_BYTES <= end <= len(data):
        raise ValueError("expected a length and so many bytes, got fewer")
    return data[_LENGTH_BYTES:end], data[end:]
