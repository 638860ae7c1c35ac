"""Names and ids that are legal in one API and not in another: spelled otherwise, and back; nothing is kept in between.

    names = Names(["fs.read", "weather"], NAME_FORM)   NAME_FORM: letters, digits, `_` and `-`, at most 64
    names.sent("fs.read")                             fs_read_4074bc02
    names.back("fs_read_4074bc02")                    fs.read

A name that is legal stays. Of any other the illegal characters become `_`, and behind it stand 8 hexadecimal digits of
its SHA-256: the same in every process, so that the next request, wherever it is answered, spells it the same way. Back
it comes by way of the tools that the request offers.

An id that is not legal everywhere is written as letters and digits that hold the whole of it: `dm`, then base 32. Some
clients strip all punctuation from ids, which leaves that alone; others send it back as it is, and the server gets its
own again. An id too long for that is a digest, the same each time.

Source: https://platform.openai.com/docs/api-reference/chat/create (function.name), https://docs.anthropic.com/en/api/messages
(tools.name, tool_use.id; 2026-11).
"""

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from msgspec.structs import replace

from dragoman.core.messages import Part, Request, ToolCall, ToolResult

NewId: TypeAlias = Callable[[], str]
"""Gives a fresh random id of `[A-Za-z0-9]{24}`: randomness is passed in, so that tests are stable."""
NAME_FORM: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Of OpenAI's APIs."""
LONG_NAME_FORM: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
"""Of Anthropic's."""
ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""An id that every API takes."""
ANY: Final = re.compile(r".+", re.DOTALL)
"""Of servers that take any string."""

_DIGITS: Final = 8
_MARK: Final = "dm"
_SUM_BYTES: Final = 2
_LONGEST_BYTES: Final = 36
"""Of an id that is written whole: with mark and sum it has 63 characters then."""


class Names:
    """How the tools of one request are called by a server of an API whose names are of this form."""

    __slots__ = ("_back", "_legal", "_sent")

    def __init__(self, offered: Iterable[str], legal: re.Pattern[str]) -> None:
        self._legal = legal
        self._sent: dict[str, str] = {}
        self._back: dict[str, str] = {}
        for name in sorted(offered, key=lambda name: not legal.fullmatch(name)):  # the legal ones keep theirs
            sent = self._spelled(name)
            digits = _DIGITS
            while self._back.get(sent, name) != name:
                digits += 1
                sent = self._spelled(name, digits)
            self._sent[name], self._back[sent] = sent, name

    def sent(self, name: str) -> str:
        """The name for the server; of a tool that is not offered any more, as it was spelled before."""
        return self._sent.get(name) or self._spelled(name)

    def back(self, name: str) -> str:
        """The client's name of a tool; one that is nobody's stays."""
        return self._back.get(name, name)

    def offered(self) -> Iterable[str]:
        """The names as the server knows them."""
        return self._back.keys()

    def _spelled(self, name: str, digits: int = _DIGITS) -> str:
        if self._legal.fullmatch(name):
            return name
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
        readable = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[: 63 - digits]
        return f"{readable}_{digest}"


def spelled(request: Request, names: re.Pattern[str], ids: re.Pattern[str]) -> Request:
    """The request with names of tools and ids of calls of these forms, wherever they stand in it."""
    parts = [part for message in request.messages for part in message.parts]
    called = [part.name for part in parts if isinstance(part, ToolCall)]
    kept = {id for part in parts if (id := _id(part)) and id_for(id, ids) == id}
    is_legal = all(map(names.fullmatch, (*(tool.name for tool in request.tools if tool.name), *called)))
    if is_legal and all(not id or id in kept for id in map(_id, parts)):
        return request
    table = Names((tool.name for tool in request.tools if tool.name), names)
    choice = request.tool_choice
    return replace(
        request,
        tools=tuple(replace(tool, name=tool.name and table.sent(tool.name)) for tool in request.tools),
        tool_choice=replace(choice, name=table.sent(choice.name)) if choice.name else choice,
        messages=tuple(
            replace(message, parts=tuple(_spelled(part, table, ids) for part in message.parts))
            for message in request.messages
        ),
    )


def _id(part: Part) -> str:
    return part.id if isinstance(part, ToolCall) else part.call_id if isinstance(part, ToolResult) else ""


def _spelled(part: Part, table: Names, ids: re.Pattern[str]) -> Part:
    match part:
        case ToolCall(id, name):
            return replace(part, id=id_for(id, ids), name=table.sent(name))
        case ToolResult(id):
            return replace(part, call_id=id_for(id, ids))
        case _:
            return part


def legal_id(id: str) -> str:
    """An id that every API and client takes; `own_id` gives the id back."""
    if ID.fullmatch(id) and not (id.startswith(_MARK) and own_id(id) != id):
        return id
    raw = id.encode("utf-8", "surrogatepass")
    if len(raw) > _LONGEST_BYTES:
        return "dmx" + hashlib.sha256(raw).hexdigest()[:32]
    return _MARK + base64.b32encode(_sum(raw) + raw).decode().rstrip("=").lower()


def own_id(id: str) -> str:
    """The id that `legal_id` was given; any other stays as it is."""
    if not id.startswith(_MARK):
        return id
    text = id.removeprefix(_MARK).upper()
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
        found = raw[_SUM_BYTES:].decode("utf-8", "surrogatepass")
    except (binascii.Error, UnicodeDecodeError):
        return id
    return found if found and raw[:_SUM_BYTES] == _sum(raw[_SUM_BYTES:]) else id


def id_for(id: str, legal: re.Pattern[str]) -> str:
    """The id for a server that takes ids of this form: its own, where it is one that was spelled otherwise."""
    own = own_id(id)
    return own if legal.fullmatch(own) else legal_id(own)


def _sum(raw: bytes) -> bytes:
    return hashlib.sha256(b"dragoman" + raw).digest()[:_SUM_BYTES]


def random_id() -> str:
    """24 characters that nobody has had."""
    return secrets.token_hex(12)
