"""Finds the API key of a request by the secret that it presents.

A secret is looked up by its SHA-256, so the time does not depend on the number of keys. It depends on the digest only,
which a client cannot choose without trying secrets; the digests are compared in constant time all the same.
"""

import hashlib
import hmac
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from dragoman.config import Config
from dragoman.config.keys import KeyConfig, plain_secrets, secret_digests
from dragoman.config.keys_file import read_keys
from dragoman.core.errors import AuthError, ConfigError, DragomanError
from dragoman.server.keys.key import UNNAMED, ApiKey

log = logging.getLogger("dragoman.server.keys")

ReadKeys: TypeAlias = Callable[[Path], Mapping[str, KeyConfig]]
"""Reads and checks a keys file; raises ConfigError."""
_ABSENT: Final = (0, 0, 0)
_LOOK_FOR_S: Final = 1.0
"""How often a keys file that does not exist yet is looked for."""
_HEADERS: Final = ("x-api-key", "api-key")
"""Headers with a secret, next to `authorization`; `api-key` is Azure's."""


class _Secret(NamedTuple):
    key: ApiKey
    digest: bytes
    until_s: float
    """Seconds since 1970 up to which it is accepted."""


class NamedKey(NamedTuple):
    """A key with a name, and where it is from."""

    key: ApiKey
    is_in_file: bool
    """Whether it is in the keys file, and not in the settings."""


class KeysFile(NamedTuple):
    """A file with keys, which may not exist yet."""

    path: Path
    read: ReadKeys


class KeyRing:
    """All API keys. A keys file is read again as soon as it has changed."""

    def __init__(
        self,
        keys: Mapping[str, KeyConfig],
        unnamed: Iterable[str] = (),
        file: KeysFile | None = None,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Args:
            keys: The checked keys of the settings, by name.
            unnamed: Secrets with all rights.
            file: The keys file; None: there is none.
            environ: The environment variables.
            clock: Returns the seconds since 1970.

        Raises:
            ConfigError: The keys file is wrong, or two keys have the same name or secret.
        """
        self._keys, self._unnamed, self._file, self._environ, self._clock = keys, tuple(unnamed), file, environ, clock
        self._secrets: dict[bytes, _Secret] = {}
        self._named: list[NamedKey] = []
        self._version = 0
        self._look_s = 0.0
        """Time before which the keys file is not looked for."""
        self._seen = _ABSENT if file is None else _signature(file.path)
        self._is_file_used = self._seen != _ABSENT
        self._build(file.read(file.path) if file is not None and self._is_file_used else {})

    @classmethod
    def from_config(cls, config: Config, environ: Mapping[str, str] = os.environ) -> "KeyRing":
        """Returns the ring of the keys in these settings, and in their keys file.

        Args:
            config: The settings.
            environ: The environment variables.

        Raises:
            ConfigError: The keys file is wrong, or two keys have the same name or secret.
        """
        path = config.server.keys_path
        file = KeysFile(Path(path), partial(read_keys, environ=environ)) if path else None
        return cls(config.keys, config.server.api_keys, file, environ)

    def plain_secrets(self) -> list[str]:
        """Returns the secrets that are known, to redact them: not those of which there is only a digest."""
        return [*self._unnamed, *plain_secrets(self._keys, self._environ)]

    def named(self) -> list[NamedKey]:
        """Returns the keys with a name, those of the settings first, also expired and revoked ones."""
        if self._file is not None:
            self._refresh(self._file)
        return list(self._named)

    @property
    def unnamed_count(self) -> int:
        """Number of secrets without a name, which have all rights."""
        return len(self._unnamed)

    @property
    def is_on(self) -> bool:
        """Whether requests need a key; also with a keys file in which all keys are revoked."""
        return bool(self._secrets) or self._is_file_used

    def authenticate(self, headers: Mapping[str, str]) -> ApiKey:
        """Returns the key of a request; other headers may contain another key of the client.

        Raises:
            AuthError: The request has no key, or it is unknown, expired or revoked.
        """
        if self._file is not None:
            self._refresh(self._file)
        if not self.is_on:
            return UNNAMED
        refusal = "expected an API key in 'Authorization: Bearer …' or 'x-api-key'; got none that is known"
        for token in _tokens(headers):
            digest = hashlib.sha256(token.encode("latin-1")).digest()
            secret = self._secrets.get(digest)
            if secret is None or not hmac.compare_digest(secret.digest, digest):
                continue
            if not (refused := self._refusal(secret)):
                return secret.key
            refusal = refused
        raise AuthError(refusal)

    def find(self, headers: Mapping[str, str]) -> ApiKey | None:
        """Returns the key of a request, as `authenticate`; None: it has no valid one."""
        try:
            return self.authenticate(headers)
        except AuthError:
            return None

    def version(self) -> int:
        """Returns a number that grows whenever keys have changed. Looks whether the keys file has."""
        if self._file is not None:
            self._refresh(self._file)
        return self._version

    def find_admin(self, matches: Callable[[bytes], bool]) -> ApiKey | None:
        """Returns the key of a session: one with the right to administer, that is valid now; None: the session is over.

        Args:
            matches: returns whether the session is one of the secret with this SHA-256.
        """
        if self._file is not None:
            self._refresh(self._file)
        for secret in self._secrets.values():
            if secret.key.is_admin and matches(secret.digest):
                return None if self._refusal(secret) else secret.key
        return None

    def _refusal(self, secret: _Secret) -> str:
        """Returns why a secret that is known is not accepted; "": it is."""
        key = secret.key
        if key.config.revoked:
            return f"the API key {key.name} was revoked; ask for another one"
        if self._clock() < secret.until_s:
            return ""
        if secret.until_s < key.expires_s:
            return f"this secret of the API key {key.name} was replaced; use the new one"
        return f"the API key {key.name} expired ({key.config.expires}); ask for another one"

    def _refresh(self, file: KeysFile) -> None:
        """Reads the keys file again if it has changed; a file that is wrong changes nothing.

        From the first time that there is a file, requests need a key, also when it is deleted.
        """
        if not self._is_file_used:
            now_s = time.monotonic()
            if now_s < self._look_s:
                return
            self._look_s = now_s + _LOOK_FOR_S
        seen = _signature(file.path)
        if seen == self._seen:
            return
        self._seen, self._is_file_used = seen, True
        try:
            self._build({} if seen == _ABSENT else file.read(file.path))
        except DragomanError as error:
            log.error("%s; the keys stay as they were", error)
            return
        if seen == _ABSENT:
            log.error("the keys file %s is missing; none of its keys is accepted", file.path)
        else:
            log.info("the keys in %s have changed", file.path)

    def _build(self, from_file: Mapping[str, KeyConfig]) -> None:
        """Replaces all keys.

        Raises:
            ConfigError: Two keys have the same name or secret.
        """
        if both := next((name for name in from_file if name in self._keys), None):
            path = self._file.path if self._file else ""
            raise ConfigError(f"expected keys.{both} in one file, got it in the settings and in {path}")
        secrets = {
            digest: _Secret(ApiKey.unnamed(digest), digest, float("inf"))
            for digest in (hashlib.sha256(text.encode()).digest() for text in self._unnamed)
        }
        named = []
        for name, config in {**self._keys, **from_file}.items():
            key = ApiKey.from_config(name, config)
            named.append(NamedKey(key, is_in_file=name in from_file))
            for digest, until_s in secret_digests(config, self._environ):
                if (other := secrets.get(digest)) is not None and other.key is not key:
                    owner = f"keys.{other.key.name}" if other.key.name else "server.api_keys"
                    raise ConfigError(f"expected a secret of its own, got that of {owner} - at keys.{name}")
                secrets[digest] = _Secret(key, digest, until_s)
        self._secrets, self._named = secrets, named
        self._version += 1


def _tokens(headers: Mapping[str, str]) -> Iterator[str]:
    """Yields the secrets that a request presents."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and (token := token.strip()):
        yield token
    for name in _HEADERS:
        if token := headers.get(name, ""):
            yield token


def _signature(path: Path) -> tuple[int, int, int]:
    """Returns what changes with a file: a replaced file is another inode."""
    try:
        status = os.stat(path)
    except OSError:
        return _ABSENT
    return status.st_ino, status.st_mtime_ns, status.st_size
