"""Reads the pixel size of a base64 image from its first bytes, without decoding it.

Source: https://www.w3.org/TR/png-3/#11IHDR (2025-06), https://www.w3.org/Graphics/GIF/spec-gif89a.txt (1990-07),
https://www.w3.org/Graphics/JPEG/itu-t81.pdf, B.2 (1992-09).
"""

from binascii import Error, a2b_base64
from typing import Final

HEAD_CHARS: Final = 65_536
"""Maximum base64 characters to examine: in a JPEG, metadata of cameras and editors precedes the size."""

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Second bytes of the JPEG markers that begin a frame."""


def image_size(data: str) -> tuple[int, int] | None:
    """Returns width and height in pixels of a PNG, GIF or JPEG; None if they cannot be read."""
    try:
        short = a2b_base64(data[:64])
        head = a2b_base64(data[:HEAD_CHARS]) if short[:2] == b"\xff\xd8" else short
    except (Error, ValueError):
        return None
    if head[:8] == _PNG and len(head) >= 24:
        return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])
    if head[:4] == b"GIF8" and len(head) >= 10:
        return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    return _jpeg(head) if head[:2] == b"\xff\xd8" else None


def _jpeg(head: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        if head[at + 1] in _FRAMES:
            return int.from_bytes(head[at + 7 : at + 9]), int.from_bytes(head[at + 5 : at + 7])
        at += 2 + int.from_bytes(head[at + 2 : at + 4])
    return None
