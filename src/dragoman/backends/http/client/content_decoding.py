"""Decodes response bodies with a `content-encoding`, for servers that compress although they are asked not to.

Source: https://www.rfc-editor.org/rfc/rfc9110#name-content-encoding (2026-11). `deflate` is the zlib format there; raw
deflate, which some servers send, is read too.
"""

import zlib
from collections.abc import Iterator
from typing import Final

from dragoman.backends.http.client.errors import DecodingError

_STEP_BYTES: Final = 256 * 1024
"""Limit of one decoded piece, so that the reader of a small body that becomes large can stop in time."""
_MAX_EMPTY_BYTES: Final = 64 * 1024
"""Maximum bytes in a row that become nothing: endless empty blocks would never reach the reader's limit."""
_GZIP: Final = ("gzip", "x-gzip")


class ContentDecoder:
    """Decodes one body."""

    def __init__(self, encoding: str) -> None:
        """
        Args:
            encoding: the value of `content-encoding`.

        Raises:
            DecodingError: the encoding is not supported.
        """
        self._encoding = encoding.strip().lower()
        if self._encoding not in (*_GZIP, "deflate"):
            raise DecodingError(f"content-encoding {encoding}, which was not requested")
        self._decoder = zlib.decompressobj(16 + zlib.MAX_WBITS) if self._encoding in _GZIP else None
        self._head = b""
        self._empty_bytes = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields what these bytes become, in limited pieces that are not empty.

        Raises:
            DecodingError: the bytes are not in this encoding.
        """
        if self._decoder is None:  # two bytes tell the zlib format from raw deflate
            self._head += data
            if len(self._head) < 2:
                return
            data = self._head
            is_zlib = data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0
            self._decoder = zlib.decompressobj(zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS)
        decoder = self._decoder
        self._empty_bytes += len(data)
        try:
            while data or decoder.unconsumed_tail:
                if decoder.eof:
                    raise DecodingError(f"data after the end of {self._encoding}")
                if piece := decoder.decompress(data or decoder.unconsumed_tail, _STEP_BYTES):
                    self._empty_bytes = 0
                    yield piece
                data = b""
        except zlib.error:
            raise DecodingError(f"invalid {self._encoding}") from None
        if decoder.unused_data:
            raise DecodingError(f"data after the end of {self._encoding}")
        if self._empty_bytes > _MAX_EMPTY_BYTES:
            raise DecodingError(f"{self._encoding} without content")

    def close(self) -> None:
        """Call at the end of the body.

        Raises:
            DecodingError: the body is not complete.
        """
        if self._decoder is None or not self._decoder.eof:
            raise DecodingError(f"truncated {self._encoding}")
