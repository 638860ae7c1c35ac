"""Request bodies with a `content-encoding`: gzip, deflate, zstd, and several of them applied in order.

Decoding stops as soon as the limit is exceeded, so that a small body cannot become a large one. It takes time linear in
input and output: the number of gzip members and zstd frames is limited, and the window of a frame to 8 MiB.

Source: https://www.rfc-editor.org/rfc/rfc9110#name-content-encoding, https://www.rfc-editor.org/rfc/rfc9659 (the window
of zstd), 2026-11. `deflate` is the zlib format there; raw deflate, which some clients send, is read too.
"""

import importlib
import sys
import zlib
from collections.abc import Callable
from typing import Final, Protocol

from dragoman.core.errors import ContentEncodingError, RequestError, RequestTooLargeError, quote

MAX_ENCODINGS: Final = 3
"""Maximum number of encodings of one body; clients use one."""
_MAX_MEMBERS: Final = 1000
"""Maximum number of gzip members or zstd frames in one body; each needs a new decoder."""
_STEP_BYTES: Final = 64 * 1024
_WINDOW_LOG: Final = 23


class _Decoder(Protocol):
    """Decoder of one gzip member or one zstd frame; it keeps the input that did not fit into the output."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    @property
    def needs_input(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Inflate:
    """The decoder of zlib with the interface of the one of zstd."""

    def __init__(self, wbits: int) -> None:
        self._decoder = zlib.decompressobj(wbits)

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._decoder.unconsumed_tail

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._decoder.decompress(self._decoder.unconsumed_tail + data, max_length)


def _gzip(head: bytes) -> _Decoder:
    return _Inflate(16 + zlib.MAX_WBITS)


def _deflate(head: bytes) -> _Decoder:
    is_wrapped = len(head) == 2 and head[0] & 0x0F == 8 and (head[0] << 8 | head[1]) % 31 == 0
    return _Inflate(zlib.MAX_WBITS if is_wrapped else -zlib.MAX_WBITS)


def _zstd(head: bytes) -> _Decoder:
    try:
        module = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    except ImportError:
        raise ContentEncodingError(
            "zstd needs the package backports.zstd, which is not installed", ACCEPTED[:2]
        ) from None
    decoder: _Decoder = module.ZstdDecompressor(options={module.DecompressionParameter.window_log_max: _WINDOW_LOG})
    return decoder


_MAKERS: Final[dict[str, Callable[[bytes], _Decoder]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "zstd": _zstd,
}
ACCEPTED: Final = ("gzip", "deflate", "zstd")
"""Encodings that a client may use; for the `accept-encoding` header of an error."""


def parse_content_encoding(field: str) -> list[str]:
    """Returns the encodings of a `content-encoding` header, in the order in which they were applied.

    Raises: ContentEncodingError: an encoding is not supported, or there are too many.
    """
    names = [name for each in field.split(",") if (name := each.strip().lower()) not in ("", "identity")]
    for name in names:
        if name not in _MAKERS:
            raise ContentEncodingError(
                f"expected content-encoding {', '.join(ACCEPTED)} or identity, got {quote(name)}", ACCEPTED
            )
    if len(names) > MAX_ENCODINGS:
        raise ContentEncodingError(f"expected at most {MAX_ENCODINGS} content encodings, got {len(names)}", ACCEPTED)
    return names


def decode_body(body: bytes, encodings: list[str], limit_bytes: int) -> bytes:
    """Returns the decoded body.

    Raises: RequestTooLargeError: it exceeds `limit_bytes`. RequestError: it is damaged or truncated.
    """
    for name in reversed(encodings):
        body = _decode_layer(body, name, limit_bytes)
    return body


def _decode_layer(body: bytes, name: str, limit_bytes: int) -> bytes:
    out, at = bytearray(), 0
    for _ in range(_MAX_MEMBERS):
        decoder = _MAKERS[name](body[at : at + 2])
        while not decoder.eof:
            piece = body[at : at + _STEP_BYTES] if decoder.needs_input else b""
            if decoder.needs_input and not piece:
                raise RequestError(f"expected a whole body encoded as {name}, got one that is cut off")
            at += len(piece)
            out += _step(decoder, piece, name)
            if len(out) > limit_bytes:
                message = f"expected a body of at most {limit_bytes} bytes when it is decoded, got more"
                raise RequestTooLargeError(f"{message} (setting server.max_body_bytes)")
        at -= len(decoder.unused_data)
        if at >= len(body) or name == "deflate":
            return bytes(out)
    raise RequestError(f"expected at most {_MAX_MEMBERS} members in a body encoded as {name}, got more")


def _step(decoder: _Decoder, piece: bytes, name: str) -> bytes:
    try:
        return decoder.decompress(piece, _STEP_BYTES)
    except Exception as e:  # noqa: BLE001 zlib.error, or ZstdError of a package that may not be installed
        raise RequestError(f"expected a body encoded as {name}, got bytes that cannot be decoded ({e})") from None
