"""Encodes requests, events and errors as MessagePack, for two processes of this machine; nothing in it is executed.

    frame = length (4 bytes, big-endian) · MessagePack

Values that MessagePack does not have are extensions:

    1  a struct: its class name, then its fields in order      4  an error: the class names, its text, its fields
    2  `msgspec.Raw`: JSON text, byte for byte                 5  an integer of more than 64 bits: its digits
    3  a named tuple: its type's name, field names, values

Structs are those of `core.events` and `core.messages`; any other struct arrives as the mapping that captures contain
(`{"is": NAME, …}`), and a named tuple as a type with the same name and fields. An error whose class the reader does not
have becomes its nearest known base class.
"""

import asyncio
import functools
import socket
from collections import namedtuple
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.msgpack import Ext

from dragoman.core import errors, events, messages
from dragoman.core.errors import DragomanError

LENGTH_BYTES: Final = 4
_STRUCT, _RAW, _TUPLE, _ERROR, _BIG_INT = 1, 2, 3, 4, 5
_MAX_INT: Final = 2**64
_MIN_INT: Final = -(2**63)
_PLAIN: Final = (str, bytes, bool, float, type(None))


def _structs(*modules: Any) -> dict[str, type[msgspec.Struct]]:
    found = (value for module in modules for value in vars(module).values())
    return {cls.__name__: cls for cls in found if isinstance(cls, type) and issubclass(cls, msgspec.Struct)}


STRUCTS: Final[Mapping[str, type[msgspec.Struct]]] = _structs(events, messages)
"""The structs that arrive as the same class."""
ERRORS: Final[Mapping[str, type[DragomanError]]] = {
    cls.__name__: cls
    for module in (errors, events)
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, DragomanError)
}
"""The errors that arrive as the same class."""


def encode(value: object) -> bytes:
    """Returns the value as a frame."""
    data = _encode(_packed(value))
    return len(data).to_bytes(LENGTH_BYTES) + data


def decode(data: bytes) -> Any:
    """Returns the value of a frame's content, without its length.

    Raises: msgspec.DecodeError: it is not MessagePack.
    """
    return _decoder.decode(data)


async def read_frame(reader: asyncio.StreamReader, *, thread_bytes: int = 256 * 1024) -> Any:
    """Returns the value of the next frame; None if the other process has closed the connection.

    Args:
        reader: the connection.
        thread_bytes: size from which a frame is decoded in a thread.
    """
    try:
        size = int.from_bytes(await reader.readexactly(LENGTH_BYTES))
        data = await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return await asyncio.to_thread(decode, data) if size >= thread_bytes else decode(data)


def receive_frame(connection: socket.socket) -> Any:
    """Returns the value of the next frame of a blocking socket.

    Raises: OSError: the connection was closed, or a timeout was exceeded.
    """
    return decode(_receive(connection, int.from_bytes(_receive(connection, LENGTH_BYTES))))


def _receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("the other process closed the connection")
        data += piece
    return bytes(data)


def _packed(value: Any) -> Any:
    """Returns the value with extensions in place of what MessagePack does not have."""
    match value:
        case str() | bytes() | bool() | float() | None:
            return value
        case int():
            return value if _MIN_INT <= value < _MAX_INT else Ext(_BIG_INT, str(value).encode())
        case msgspec.Struct():
            return _packed_struct(value)
        case msgspec.Raw():
            return Ext(_RAW, bytes(value))
        case tuple() if hasattr(value, "_fields"):
            parts = [type(value).__name__, list(value._fields), *map(_packed, value)]
            return Ext(_TUPLE, _encode(parts))
        case Mapping():
            return {name: each if isinstance(each, _PLAIN) else _packed(each) for name, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [each if isinstance(each, _PLAIN) else _packed(each) for each in value]
        case DragomanError():
            return Ext(_ERROR, _encode(_error_parts(value)))
        case _:
            return _packed(msgspec.to_builtins(value))


def _packed_struct(value: msgspec.Struct) -> Any:
    cls = type(value)
    if STRUCTS.get(cls.__name__) is cls:
        return Ext(_STRUCT, _encode([cls.__name__, *(_packed(getattr(value, f)) for f in cls.__struct_fields__)]))
    fields = ((f, getattr(value, f.name)) for f in msgspec.structs.fields(cls))
    return {"is": cls.__name__} | {f.name: _packed(each) for f, each in fields if each != f.default and each != {}}


def _error_parts(error: DragomanError) -> list[Any]:
    names = [cls.__name__ for cls in type(error).__mro__ if issubclass(cls, DragomanError)]
    return [names, str(error), {name: _packed(each) for name, each in vars(error).items()}]


def _unpacked(code: int, data: memoryview) -> Any:
    if code == _RAW:
        return msgspec.Raw(bytes(data))
    if code == _BIG_INT:
        return int(bytes(data))
    parts = _decoder.decode(data)
    if code == _STRUCT:
        return STRUCTS[parts[0]](*map(_field, parts[1:]))
    if code == _TUPLE:
        name, fields, *values = parts
        return _tuple_type(name, tuple(fields))(*values)
    return _error(*parts)


def _field(value: Any) -> Any:
    """Returns a field of a struct, in which all sequences are tuples, also within mappings."""
    if isinstance(value, dict):
        return {name: _field(each) for name, each in value.items()}
    return tuple(map(_field, value)) if isinstance(value, list) else value


def _error(names: Sequence[str], text: str, fields: Mapping[str, Any]) -> DragomanError:
    cls = next((ERRORS[name] for name in names if name in ERRORS), DragomanError)
    error = cls.__new__(cls, text)  # not by its constructor, which composes the text of other arguments
    Exception.__init__(error, text)
    vars(error).update({name: _field(value) for name, value in fields.items()})
    return error


@functools.cache
def _tuple_type(name: str, fields: tuple[str, ...]) -> Any:
    return namedtuple(name, fields)


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(ext_hook=_unpacked)
