"""Keys and values as stores outside this process have them."""

import hashlib
import logging
from typing import Final, TypeVar

from dragoman.state.store import StateKind

log = logging.getLogger("dragoman.state")

T = TypeVar("T")

_DIGEST_BYTES: Final = 20


def key_bytes(key: str) -> bytes:
    """Returns the key as bytes; keys come from clients, and may have lone surrogates."""
    return key.encode(errors="surrogatepass")


def key_digest(key: str) -> bytes:
    """Returns 20 bytes for the key: the keys of a server are short, and contain nothing of a request."""
    return hashlib.blake2b(key_bytes(key), digest_size=_DIGEST_BYTES).digest()


def decoded(kind: StateKind[T], stored: bytes | None) -> T | None:
    """Returns a stored value; None if there is none, or if another version has written it."""
    if stored is None:
        return None
    try:
        return kind.decode(stored)
    except (ValueError, RecursionError) as error:
        log.debug("a stored value of %s cannot be read: %s", kind.name, type(error).__name__)
        return None
