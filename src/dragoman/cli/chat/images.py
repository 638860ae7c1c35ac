"""Images for a message, read from files and sent as base64."""

import base64
from pathlib import Path
from typing import Final

from dragoman.cli._terminal import one_line
from dragoman.core.errors import ConfigError
from dragoman.core.messages import Image, MediaSource

_MAX_BYTES: Final = 20_000_000
_SIGNATURES: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
"""First bytes of the formats that all APIs accept; WebP has its own in `_media_type`."""


def load_image(path: str) -> Image:
    """Returns the image in this file.

    Args:
        path: The path; `~` is the home folder.

    Raises:
        ConfigError: The file cannot be read, is too large, or is not an image of a known format.
    """
    name = one_line(path)
    try:
        with Path(path).expanduser().open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"cannot read the image {name}: {reason}") from None
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"expected an image of at most {_MAX_BYTES // 1_000_000} MB, got a larger file: {name}")
    media_type = _media_type(data)
    if not media_type:
        raise ConfigError(f"expected a PNG, JPEG, GIF or WebP image, got another file: {name}")
    return Image(MediaSource(media_type=media_type, data=base64.b64encode(data).decode()))


def _media_type(data: bytes) -> str:
    """Returns the MIME type by the first bytes, or ""."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _SIGNATURES.items() if data.startswith(start)), "")
