"""Text that clients send back unread, as the vendors' own `encrypted_content`; it is not encrypted."""

import base64
import binascii
from typing import Final

OPAQUE_PREFIX: Final = "dragoman.text.1."
"""Beginning of every opaque text."""


def opaque(text: str) -> str:
    """Returns the text in a form that clients send back unread. It is not encrypted."""
    return OPAQUE_PREFIX + base64.urlsafe_b64encode(text.encode()).decode()


def read_opaque(value: str) -> str | None:
    """Returns the text in what `opaque` returned; None: the value is not from Dragoman, or was changed."""
    if not is_opaque(value):
        return None
    try:
        return base64.b64decode(value[len(OPAQUE_PREFIX) :], b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None


def is_opaque(value: str) -> bool:
    """Returns whether the value looks like one that `opaque` returned."""
    return value.startswith(OPAQUE_PREFIX)
