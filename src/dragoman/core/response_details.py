"""Response data other than text and calls: token probabilities, sources, audio, images, service data.

A reader emits each as a `Detail`. A detail without a `dialect` is in the form of OpenAI Responses, for clients of both
OpenAI APIs; any other is for clients of its own API only.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw

from dragoman.core.messages import JsonText, Part, Text

LOGPROBS: Final = "logprobs"
ANNOTATIONS: Final = "annotations"
CITATIONS: Final = "citations"
PHASE: Final = "phase"
"""Whether a message of Responses is commentary or the final answer; arrives before or after the text."""
TEXT_DETAILS: Final = (LOGPROBS, ANNOTATIONS, CITATIONS, PHASE)
"""Details of the text before them or, if no text is open, of the next text; all but the phase are lists."""
PROGRESS: Final = "prompt_progress"
"""Progress of prompt evaluation in llama-server, for clients that requested it (`return_progress`)."""
SERVICE: Final = ("service_tier", "system_fingerprint", "provider", "timings", "context_management", "container")
"""Data about the service, not content: dropped without a warning if the client's API has no field for it."""
SINGLE_TEXT_APIS: Final = ("openai_chat",)
"""APIs whose messages have a single text, whatever is between its parts."""
NON_TEXT_CONTENT: Final = ("audio", "images")
"""Content that may replace all text of a response."""

_SHARED: Final = ("openai_chat", "openai_responses")
_CHUNKED_FIELDS: Final = ("data", "transcript")
"""Fields of audio that arrive in chunks."""

_list: Final = msgspec.json.Decoder(list[Raw]).decode
_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_string: Final = msgspec.json.Decoder(str).decode
_encode: Final = msgspec.json.Encoder().encode


def is_for(dialect: str, client: str) -> bool:
    """Returns whether a detail of this dialect is for clients of the API `client`."""
    return dialect == client or (not dialect and client in _SHARED)


def join_chunks(pieces: Sequence[JsonText]) -> Raw:
    """Joins the chunks of a detail: lists and audio are concatenated; of other values the last one is used."""
    kind = pieces[-1][:1]
    if len(pieces) == 1 and kind != "[":
        return Raw(pieces[0].encode())
    same_kind = [piece for piece in pieces if piece[:1] == kind]
    if kind == "[":
        return Raw(_encode([item for piece in same_kind for item in _list(piece)]))
    if kind != "{" or len(same_kind) == 1:
        return Raw(pieces[-1].encode())
    members = [_members(piece) for piece in same_kind]
    joined = {name: raw for each in members for name, raw in each.items()}
    for name in _CHUNKED_FIELDS:
        texts = [_string(each[name]) for each in members if bytes(each.get(name, b"")[:1]) == b'"']
        joined |= {name: Raw(_encode("".join(texts)))} if texts else {}
    return Raw(_encode(joined))


def phase_of(part: Part) -> Raw | None:
    """Returns the phase of the message that contained this text of an earlier response."""
    return part.extra.get(PHASE) if isinstance(part, Text) else None


def list_items(details: Raw | None) -> list[Raw]:
    """Returns the items of a list detail."""
    return [] if details is None else _list(details)
