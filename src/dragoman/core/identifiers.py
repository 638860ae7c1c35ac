"""Converts tool names and ids that an API does not allow to valid ones, and back, without stored state.

    names = ToolNameMap(["fs.read", "weather"], NAME_FORM)   NAME_FORM: letters, digits, `_` and `-`, at most 64
    names.sent("fs.read")                             fs_read_4074bc02
    names.back("fs_read_4074bc02")                    fs.read

A valid name is not changed. In any other name invalid characters become `_`, followed by 8 hexadecimal digits of its
SHA-256. The result is the same in every process, so later requests of a conversation get the same name. Names are
converted back by way of the tools in the request.

An id that is not valid everywhere is encoded as letters and digits: `dm`, then base 32. Some clients strip all
punctuation from ids, which does not affect this form; others send the id back unchanged. The server receives its own id
again in both cases. An id that is too long for this becomes a digest, the same each time.

Source: https://platform.openai.com/docs/api-reference/chat/create (function.name), https://docs.anthropic.com/en/api/messages
(tools.name, tool_use.id; 2026-11).
"""

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeAlias

from msgspec.structs import replace

from dragoman.core.messages import Part, Request, ToolCall, ToolResult

NewId: TypeAlias = Callable[[], str]
"""Returns a new random id of `[A-Za-z0-9]{24}`; passed in, so that tests are deterministic."""
NAME_LIMIT_CHARS: Final = 128
"""Maximum length of a tool name in any of the APIs."""
NAME_FORM: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Tool names in OpenAI's APIs."""
LONG_NAME_FORM: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
"""Tool names in Anthropic's API."""
CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Call ids that every API accepts."""
ANY_STRING: Final = re.compile(r".+", re.DOTALL)
"""Names or ids without restrictions."""

_DIGITS: Final = 8
_ENCODED_PREFIX: Final = "dm"
_SUM_BYTES: Final = 2
_MAX_ENCODED_BYTES: Final = 36
"""Maximum length of an id that is encoded whole: 63 characters with mark and checksum."""


class ToolNameMap:
    """Maps the tool names of one request to names that a server's API allows."""

    __slots__ = ("_legal", "_original_names", "_sent_names")

    def __init__(self, offered: Iterable[str], legal: re.Pattern[str]) -> None:
        self._legal = legal
        names = list(offered)
        self._sent_names: dict[str, str] = {}
        self._original_names = self._sent_names
        if all(map(legal.fullmatch, names)):  # the most frequent case
            self._sent_names.update(zip(names, names, strict=True))
            return
        self._original_names = {}
        # Valid names are assigned first, so that they are not changed.
        for name in sorted(names, key=lambda name: not legal.fullmatch(name)):
            sent = self._spelled(name)
            digits = _DIGITS
            while self._original_names.get(sent, name) != name:
                digits += 1
                sent = self._spelled(name, digits)
            self._sent_names[name], self._original_names[sent] = sent, name

    def sent(self, name: str) -> str:
        """Returns the server's name of a tool; also for tools that are no longer offered."""
        return self._sent_names.get(name) or self._spelled(name)

    @property
    def is_identity(self) -> bool:
        """Whether all tools keep their names."""
        return self._sent_names is self._original_names

    def back(self, name: str) -> str:
        """Returns the client's name of a tool; unknown names are returned unchanged."""
        return self._original_names.get(name, name)

    def offered(self) -> Collection[str]:
        """Returns the server's names of all tools."""
        return self._original_names.keys()

    def _spelled(self, name: str, digits: int = _DIGITS) -> str:
        if self._legal.fullmatch(name):
            return name
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
        readable = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[: 63 - digits]
        return f"{readable}_{digest}"


def rename_for_api(request: Request, names: re.Pattern[str], ids: re.Pattern[str]) -> Request:
    """Returns the request with all tool names and call ids converted to these forms."""
    called_names: set[str] = {tool.name for tool in request.tools if tool.name}
    used_ids: set[str] = set()
    for message in request.messages:
        for part in message.parts:
            if type(part) is ToolCall:
                called_names.add(part.name)
                used_ids.add(part.id)
            elif type(part) is ToolResult:
                used_ids.add(part.call_id)
    if not (called_names or used_ids):
        return request
    if all(map(names.fullmatch, called_names)) and all(not id or encode_id(id, ids) == id for id in used_ids):
        return request
    table = ToolNameMap((tool.name for tool in request.tools if tool.name), names)
    choice = request.tool_choice
    return replace(
        request,
        tools=tuple(replace(tool, name=tool.name and table.sent(tool.name)) for tool in request.tools),
        tool_choice=replace(choice, name=table.sent(choice.name)) if choice.name else choice,
        messages=tuple(
            replace(message, parts=tuple(_rename_part(part, table, ids) for part in message.parts))
            for message in request.messages
        ),
    )


def call_ids(request: Request) -> tuple[str, ...]:
    """Returns the ids of the calls in the conversation."""
    return tuple(part.id for message in request.messages for part in message.parts if isinstance(part, ToolCall))


def _rename_part(part: Part, table: ToolNameMap, ids: re.Pattern[str]) -> Part:
    match part:
        case ToolCall(id, name):
            return replace(part, id=encode_id(id, ids), name=table.sent(name))
        case ToolResult(id):
            return replace(part, call_id=encode_id(id, ids))
        case _:
            return part


def valid_call_id(id: str) -> str:
    """Returns an id that every API and client accepts; `original_id` reverses it."""
    if CALL_ID.fullmatch(id) and not (id.startswith(_ENCODED_PREFIX) and original_id(id) != id):
        return id
    raw = id.encode("utf-8", "surrogatepass")
    if len(raw) > _MAX_ENCODED_BYTES:
        return "dmx" + hashlib.sha256(raw).hexdigest()[:32]
    return _ENCODED_PREFIX + base64.b32encode(_checksum(raw) + raw).decode().rstrip("=").lower()


def original_id(id: str) -> str:
    """Returns the id that `valid_call_id` was given; any other id is returned unchanged."""
    if not id.startswith(_ENCODED_PREFIX):
        return id
    text = id.removeprefix(_ENCODED_PREFIX).upper()
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
        id_text = raw[_SUM_BYTES:].decode("utf-8", "surrogatepass")
    except (binascii.Error, UnicodeDecodeError):
        return id
    return id_text if id_text and raw[:_SUM_BYTES] == _checksum(raw[_SUM_BYTES:]) else id


def encode_id(id: str, legal: re.Pattern[str]) -> str:
    """Returns the id for a server with this form of ids: the original id if the server accepts it."""
    own = original_id(id)
    return own if legal.fullmatch(own) else valid_call_id(own)


def _checksum(raw: bytes) -> bytes:
    return hashlib.sha256(b"dragoman" + raw).digest()[:_SUM_BYTES]


def random_id() -> str:
    """Returns 24 random hexadecimal characters."""
    return secrets.token_bytes(12).hex()
