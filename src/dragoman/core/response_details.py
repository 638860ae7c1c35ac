"""What an answer has besides its text and calls: token probabilities, sources, audio, images, facts about the service.

A reader passes each on as a `Detail`. One without a `dialect` is in the form of OpenAI Responses, and both OpenAI APIs
have it; any other is for clients of its own API alone.
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
"""Whether a message of Responses is a commentary or the final answer; it comes before the text, or after it."""
OF_TEXT: Final = (LOGPROBS, ANNOTATIONS, CITATIONS, PHASE)
"""Details of the text that they follow, or, where none is open, of the next one; each but the phase is a list."""
PROGRESS: Final = "prompt_progress"
"""How far llama-server has read the prompt, for a client that asked for it (`return_progress`)."""
SERVICE: Final = ("service_tier", "system_fingerprint", "provider", "timings", "context_management", "container")
"""Facts about the service, not content: no warning where a client's API has no place for them."""
ONE_TEXT: Final = ("openai_chat",)
"""APIs whose message has one text, whatever came between its parts."""
SPOKEN: Final = ("audio", "images")
"""Content, without which an answer may be empty."""

_SHARED: Final = ("openai_chat", "openai_responses")
_JOINED: Final = ("data", "transcript")
"""Members of audio that come in pieces."""

_list: Final = msgspec.json.Decoder(list[Raw]).decode
_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_string: Final = msgspec.json.Decoder(str).decode
_encode: Final = msgspec.json.Encoder().encode


def is_for(dialect: str, client: str) -> bool:
    """Whether a client of this API can have a detail of that one."""
    return dialect == client or (not dialect and client in _SHARED)


def merged(pieces: Sequence[JsonText]) -> Raw:
    """The whole of a detail that came in pieces: lists and audio are joined, of anything else the last one counts."""
    kind = pieces[-1][:1]
    same = [piece for piece in pieces if piece[:1] == kind]
    if kind == "[":
        return Raw(_encode([item for piece in same for item in _list(piece)]))
    if kind != "{" or len(same) == 1:
        return Raw(pieces[-1].encode())
    members = [_members(piece) for piece in same]
    whole = {name: raw for each in members for name, raw in each.items()}
    for name in _JOINED:
        texts = [_string(each[name]) for each in members if bytes(each.get(name, b"")[:1]) == b'"']
        whole |= {name: Raw(_encode("".join(texts)))} if texts else {}
    return Raw(_encode(whole))


def phase_of(part: Part) -> Raw | None:
    """The phase of the message that a text of an earlier answer stood in."""
    return part.extra.get(PHASE) if isinstance(part, Text) else None


def items(details: Raw | None) -> list[Raw]:
    """The items of such a list."""
    return [] if details is None else _list(details)
