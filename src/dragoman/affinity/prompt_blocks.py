"""Cuts the prompt of a request into blocks, each with a hash of everything up to its end.

    tools │ system │ user │ assistant │ … → 0x51…, 0xa7…, 0x0c…, …        two requests have the same hashes up to the
                                                                          block in which they begin to differ

What models do not read, or what changes between the turns of a conversation, is left out: fields that these types do
not model, such as `cache_control`, ids of calls, and reasoning, which most chat templates drop. Blocks grow with the
prompt, so their number is logarithmic, and at most about a sixteenth of a known prefix goes unnoticed.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from dragoman.core.messages import (
    SYSTEM_ROLES,
    Audio,
    Document,
    Image,
    MediaSource,
    Message,
    PreviousResponseRef,
    Refusal,
    Request,
    Text,
    ToolCall,
    ToolResult,
    UnknownPart,
    tools_before_conversation,
)

BLOCK_BYTES: Final = 256
"""Minimum size of a block, unless a message ends earlier."""
_GROWTH: Final = 16
"""A block has at least a sixteenth of the bytes before it."""
_MARKED_MESSAGES: Final = 16
"""Number of messages whose ends are also ends of blocks: where most conversations part."""
_MEDIA_CHARS: Final = 2048
"""How much of the beginning and of the end of a file is hashed, with its length."""
_EARLIER_BYTES: Final = 64 * 1024
"""What an earlier conversation counts that a request refers to by the id of its response."""
_PERSON: Final = b"dragoman prefix"


class PromptBlocks(NamedTuple):
    """The blocks of a prompt, in their order."""

    hashes: tuple[int, ...]
    """64-bit hashes, each of the prompt up to the end of its block."""
    ends: tuple[int, ...]
    """Number of bytes up to the end of each block."""
    size_bytes: int
    """Size of the prompt, the rest after the last block included."""
    conversation: int
    """Hash of the prompt up to the end of the first message that is not an instruction."""


def prompt_blocks(request: Request) -> PromptBlocks:
    """Returns the blocks of the prompt of a request; its cost is linear in the prompt."""
    chain = _Chain()
    if request.previous_response is not None:
        chain.feed(_response_text(request.previous_response.reply_id))
        chain.size_bytes += _EARLIER_BYTES
        chain.end_block()
    if tools := tools_before_conversation(request.tools):
        texts = (f"{tool.kind}\0{tool.name}\0{tool.description}\0{tool.parameters}\0" for tool in tools)
        chain.feed("".join(texts))
        chain.end_block()
    conversation = 0
    for number, message in enumerate(request.messages):
        chain.feed("\0".join((message.role, *_texts(message), "")))
        if number < _MARKED_MESSAGES:
            chain.end_block()
        if not conversation and message.role not in SYSTEM_ROLES:
            conversation = chain.hash()
    return PromptBlocks(tuple(chain.hashes), tuple(chain.ends), chain.size_bytes, conversation or chain.hash())


def response_hash(reply_id: str) -> int:
    """Returns the hash of the first block of requests that continue this response by its id."""
    chain = _Chain()
    chain.feed(_response_text(reply_id))
    return chain.hash()


def _response_text(reply_id: str) -> str:
    return f"response\0{reply_id}"


class _Chain:
    """The running hash of a prompt."""

    def __init__(self) -> None:
        self.hashes: list[int] = []
        self.ends: list[int] = []
        self.size_bytes = 0
        self._next_end = BLOCK_BYTES
        self._hasher = blake2b(digest_size=8, person=_PERSON)

    def feed(self, text: str) -> None:
        """Adds text, and ends each block that is full."""
        data = memoryview(text.encode("utf-8", "surrogatepass"))
        begin = 0
        while (end := begin + self._next_end - self.size_bytes) <= len(data):
            self._hasher.update(data[begin:end])
            self.size_bytes += end - begin
            begin = end
            self.end_block()
        self._hasher.update(data[begin:])
        self.size_bytes += len(data) - begin

    def end_block(self) -> None:
        """Ends the block, unless it is empty."""
        if not self.ends or self.ends[-1] < self.size_bytes:
            self.hashes.append(self.hash())
            self.ends.append(self.size_bytes)
            self._next_end = self.size_bytes + max(BLOCK_BYTES, self.size_bytes // _GROWTH)

    def hash(self) -> int:
        """Returns the hash of everything so far."""
        return int.from_bytes(self._hasher.digest())


def _texts(message: Message) -> Iterator[str]:
    for part in message.parts:
        match part:
            case Text(text) | Refusal(text):
                yield text
            case ToolCall(_, name, arguments):
                yield f"{name}\0{arguments}"
            case ToolResult(_, parts):
                yield from (each.text if type(each) is Text else _other(each) for each in parts)
            case _:
                yield _other(part)


def _other(part: object) -> str:
    match part:
        case Image(source) | Document(source) | Audio(source):
            return _media(source)
        case UnknownPart(type=kind, raw=raw):
            return f"{kind}\0{len(bytes(raw))}"
        case PreviousResponseRef(reply_id, number):
            return f"{reply_id}\0{number}"
        case _:  # reasoning
            return ""


def _media(source: MediaSource) -> str:
    data = source.data or source.text
    sample = data if len(data) <= 2 * _MEDIA_CHARS else data[:_MEDIA_CHARS] + data[-_MEDIA_CHARS:]
    return f"{source.url}\0{source.file_id}\0{len(data)}\0{sample}"
