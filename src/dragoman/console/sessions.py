"""Sessions of browsers that signed in with an API key.

A session is a signed time of expiry and key, in a cookie that scripts cannot read and other sites do not send. Nothing
is stored, so it holds for all processes of a gateway; it ends with the key: revoked, replaced or expired.
"""

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from dragoman.server.keys.key import ApiKey
from dragoman.server.keys.ring import KeyRing

COOKIE: Final = "dragoman_console"
LIFETIME_S: Final = 12 * 3600
"""Time after which a browser must sign in again."""
_SECRET_FILE: Final = "console-secret"
_SECRET_BYTES: Final = 32


class Sessions:
    """Signs and verifies the cookies of one gateway."""

    def __init__(self, secret: bytes, clock: Callable[[], float] = time.time) -> None:
        """Args:
        secret: signs the sessions; the same in all processes of a gateway.
        clock: returns the seconds since 1970.
        """
        self._secret, self._clock = secret, clock

    def begin(self, secret: str) -> str:
        """Returns the value of the cookie for a session.

        Args:
            secret: the API key, which was verified.
        """
        expires = str(int(self._clock()) + LIFETIME_S)
        return f"{expires}.{self._sign(expires, hashlib.sha256(secret.encode('latin-1')).digest())}"

    def find(self, cookie: str, keys: KeyRing) -> ApiKey | None:
        """Returns the key of a session; None: it is forged, over, or its key is not valid any more.

        Args:
            cookie: the value of the cookie.
            keys: the API keys.
        """
        expires, _, signature = cookie.partition(".")
        if not (expires.isascii() and expires.isdecimal() and len(expires) < 16) or int(expires) <= self._clock():
            return None
        presented = signature.encode()
        return keys.find_admin(lambda digest: hmac.compare_digest(self._sign(expires, digest).encode(), presented))

    def _sign(self, expires: str, digest: bytes) -> str:
        return hmac.new(self._secret, expires.encode() + b"." + digest, hashlib.sha256).hexdigest()


def session_secret(shared_dir: Path | None) -> bytes:
    """Returns the secret that signs sessions: random, and the same in all processes that share a folder.

    Args:
        shared_dir: the private folder; None: there is one process.

    Raises:
        OSError: the folder cannot be written to.
    """
    secret = secrets.token_bytes(_SECRET_BYTES)
    if shared_dir is None:
        return secret
    path, own = shared_dir / _SECRET_FILE, shared_dir / f"{_SECRET_FILE}-{os.getpid()}"
    own.touch(mode=0o600)
    own.write_bytes(secret)
    with suppress(FileExistsError):
        os.link(own, path)  # all of the file at once, and only by the first process
    own.unlink()
    return path.read_bytes()
