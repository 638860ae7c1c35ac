"""Edits a keys file: comments stay, and a gateway that reads it meanwhile gets the old or the new version."""

import contextlib
import hashlib
import os
import secrets
import stat
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from dragoman.cli.keys.table_text import set_values
from dragoman.config.keys import KeyConfig, check_key_name, expiry_time
from dragoman.config.keys_file import read_keys
from dragoman.config.values import toml
from dragoman.core.errors import ConfigError, nearest

PREFIX: Final = "sk-dragoman-"
"""Begins each generated secret, so that programs that search for secrets recognize it."""
_SECRET_BYTES: Final = 32
_HEAD: Final = """\
# API keys of Dragoman, edited by `dragoman keys` and by hand. A running gateway uses a change at once.
# Secrets are not stored, only their SHA-256.
"""


class KeysEditor:
    """Creates, replaces and revokes keys in a keys file."""

    def __init__(self, path: Path, environ: Mapping[str, str], now: datetime) -> None:
        """Args:
        path: The keys file, which may not exist yet.
        environ: The environment variables.
        now: The time, with a zone.
        """
        self._path, self._environ = path.resolve(), environ  # a link stays a link
        self._now = now.astimezone(UTC).replace(microsecond=0)

    def create(self, name: str, values: Mapping[str, object]) -> str:
        """Adds a key, and returns its secret, which is not stored.

        Args:
            name: Its name.
            values: Its settings that are not at their default.

        Raises:
            ConfigError: There is a key of this name, or a setting is wrong.
        """
        check_key_name(name)
        secret = new_secret()
        with self._locked():
            text, keys = self._read()
            if name in keys:
                state = "was revoked, and its name still owns stored responses" if keys[name].revoked else "exists"
                raise ConfigError(f"the key {name} {state}: choose another name - at keys.{name}, from {self._path}")
            written = {"sha256": _sha256(secret), **values}
            lines = [f"[keys.{name}]", *(f"{k} = {toml(v)}" for k, v in written.items())]
            self._write("\n".join([text.rstrip("\n"), "", *lines, ""]), name)
        return secret

    def rotate(self, name: str, grace: timedelta) -> str:
        """Replaces the secret of a key, and returns the new one; the old one is accepted for the grace time.

        Raises:
            ConfigError: There is no such key, or it is revoked.
        """
        secret = new_secret()
        with self._locked():
            text, keys = self._read()
            key = self._existing(name, keys)
            if key.revoked:
                raise ConfigError(f"the key {name} was revoked: create another one - at keys.{name}, from {self._path}")
            remaining = [(old.sha256, old.expires) for old in key.previous if _is_later(old.expires, self._now)]
            if grace:
                old_digest = key.sha256 or _sha256(key.secret or self._environ[key.secret_env])
                remaining.append((old_digest, (self._now + grace).isoformat()))
            tables = [f"{{ sha256 = {toml(digest)}, expires = {toml(expires)} }}" for digest, expires in remaining]
            previous = f"[{', '.join(tables)}]" if tables else None
            values = {"sha256": toml(_sha256(secret)), "secret": None, "secret_env": None, "previous": previous}
            self._change(text, name, values)
        return secret

    def revoke(self, name: str) -> None:
        """Revokes a key: its secrets are refused. Its name stays in the file.

        Raises:
            ConfigError: There is no such key.
        """
        with self._locked():
            text, keys = self._read()
            if not self._existing(name, keys).revoked:
                self._change(text, name, {"previous": None, "revoked": toml(self._now.isoformat())})

    def _change(self, text: str, name: str, values: Mapping[str, str | None]) -> None:
        changed = set_values(text, f"keys.{name}", values)
        if changed is None:
            raise self._unreadable(name)
        self._write(changed, name)

    def _existing(self, name: str, keys: Mapping[str, KeyConfig]) -> KeyConfig:
        if name not in keys:
            raise ConfigError(f"there is no key {name}{nearest(name, keys)} - in {self._path}")
        return keys[name]

    def _unreadable(self, name: str) -> ConfigError:
        return ConfigError(
            f"expected lines of its own after [keys.{name}], got another form: edit {self._path} by hand"
        )

    def _read(self) -> tuple[str, dict[str, KeyConfig]]:
        """Returns the text of the file, and its keys."""
        if not self._path.exists():
            return _HEAD, {}
        return self._path.read_text(encoding="utf-8"), read_keys(self._path, self._environ)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Waits until no other process edits the file.

        Raises:
            ConfigError: The file cannot be read or written.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with _lock(self._path.parent):
                yield
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise ConfigError(f"cannot write the keys file {self._path}: {why}") from None

    def _write(self, text: str, name: str) -> None:
        """Replaces the file at once, with the mode and owner that it had.

        Args:
            text: The new content.
            name: The key that has changed.

        Raises:
            ConfigError: The text is not a valid keys file.
            OSError: It cannot be written.
        """
        fd, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
        new = Path(name)
        try:
            with open(fd, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            self._check(new, name)
            _copy_access(self._path, new)
            new.replace(self._path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise

    def _check(self, new: Path, name: str) -> None:
        try:
            tomllib.loads(new.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError:
            raise self._unreadable(name) from None
        try:
            read_keys(new, self._environ)
        except ConfigError as error:
            raise ConfigError(error.message.replace(str(new), str(self._path))) from None


def new_secret() -> str:
    """Returns a random secret of 256 bits."""
    return PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _is_later(expires: str, now: datetime) -> bool:
    return expiry_time(expires, "") > now.timestamp()


def _copy_access(old: Path, new: Path) -> None:
    """Sets mode and owner of a new file to those of the old one, or to those of its folder's owner.

    Root may edit the file of a gateway that runs as another user.
    """
    exists = old.exists()
    status = (old if exists else old.parent).stat()
    if exists:
        new.chmod(stat.S_IMODE(status.st_mode))
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        os.chown(new, status.st_uid, status.st_gid)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Waits until no other process edits a file in this folder; not on Windows, which has no such lock."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
