"""An image that the clients of the Claude CLI send."""

import base64
import struct
import zlib
from typing import Final


def picture() -> str:
    """A valid PNG: 8 by 8 pixels, red."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\xff\0\0" * 8) * 8
    head = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(data).decode()


PICTURE: Final = picture()


IMAGE: Final = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}
"""The image block of the Messages API."""
