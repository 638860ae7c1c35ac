"""The files of saved prefixes: a folder of bounded size, which several gateways can share.

`KEY-TEXT.kv` is the engine's state, `KEY-TEXT.json` describes it and is written last. KEY stands for the model and
the engine, TEXT for the prefix. The time of use is the time of change of the description.
"""

import hashlib
import logging
import os
import secrets
import shutil
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from dragoman.backends.embedded.prefixes.boundary import common_chars

log = logging.getLogger("dragoman.embedded")

_PART: Final = ".part"
_ABANDONED_S: Final = 3600.0
"""Age at which a file without description belongs to no running process."""
_UNUSED_S: Final = 30 * 24 * 3600.0
"""Time without use after which a prefix is removed."""
_MIN_FREE_BYTES: Final = 1_000_000_000
"""Free space that is left on the disk."""
_CHUNK_BYTES: Final = 1 << 20
_DIGEST_CHARS: Final = 24


class SavedPrefix(msgspec.Struct, frozen=True):
    """The description of a file."""

    text: str
    tokens: int
    size_bytes: int
    crc32: int
    model: str
    """The name of the model's file, for people."""


class PrefixFiles:
    """The saved prefixes of one model. All methods take time: call them in a thread."""

    def __init__(self, folder: Path, key: str, model: str, limit_bytes: int) -> None:
        """
        Args:
            folder: for all models; created if necessary.
            key: stands for everything on which the state depends besides the text.
            model: the name of the model's file.
            limit_bytes: maximum size of all files in the folder.

        Raises:
            OSError: the folder cannot be used.
        """
        self._folder, self._model, self._limit_bytes = folder, model, limit_bytes
        self._key = _digest(key)
        self._read: dict[str, tuple[int, SavedPrefix]] = {}
        """Descriptions by file name, with the times of change."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        self._sweep()

    def recent(self) -> list[SavedPrefix]:
        """Returns the prefixes of this model, the most recently used first."""
        self._refresh()
        return [saved for _, saved in sorted(self._read.values(), key=lambda entry: -entry[0])]

    def best(self, prompt: str) -> tuple[SavedPrefix, int] | None:
        """Returns the prefix that has most in common with a prompt, and how many characters."""
        found = [(saved, common_chars(saved.text, prompt)) for saved in self.recent()]
        # Of equally good ones, that which has less besides.
        return max(found, key=lambda entry: (entry[1], -len(entry[0].text)), default=None)

    def find(self, text: str) -> SavedPrefix | None:
        """Returns the prefix of exactly this text."""
        return next((saved for saved in self.recent() if saved.text == text), None)

    def new_name(self) -> str:
        """Returns the name of a file for the engine to write.

        Raises:
            OSError: there is little space left.
        """
        free = shutil.disk_usage(self._folder).free
        if free < _MIN_FREE_BYTES:
            raise OSError(f"only {free // 1_000_000} MB are free in {self._folder}")
        return f"{secrets.token_hex(8)}{_PART}"

    def add(self, name: str, text: str, tokens: int) -> SavedPrefix | None:
        """Adds a file that the engine has written, and removes others for it; returns None if it is too large.

        Args:
            name: result of `new_name`.
            text: the prefix.
            tokens: its length.

        Raises:
            OSError: the file is missing, or the description cannot be written.
        """
        path = self._folder / name
        path.chmod(0o600)
        size_bytes = path.stat().st_size
        if not self._make_room(size_bytes):
            path.unlink()
            return None
        saved = SavedPrefix(text, tokens, size_bytes, _crc32(path), self._model)
        path.replace(self.path(saved))
        description = self._folder / f"{secrets.token_hex(8)}{_PART}"
        with open(os.open(description, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(msgspec.json.encode(saved))
        description.replace(self._description(saved))
        return saved

    def discard(self, name: str) -> None:
        """Removes a file that the engine has written, if there is one."""
        _remove(self._folder / name)

    def path(self, saved: SavedPrefix) -> Path:
        """Returns the file with the engine's state."""
        return self._folder / f"{self._key}-{_digest(saved.text)}.kv"

    def is_intact(self, saved: SavedPrefix) -> bool:
        """Returns whether the file has its size and checksum."""
        try:
            path = self.path(saved)
            return path.stat().st_size == saved.size_bytes and _crc32(path) == saved.crc32
        except OSError:
            return False

    def mark_used(self, saved: SavedPrefix) -> None:
        """Records that a prefix has been used now."""
        try:
            os.utime(self._description(saved))
        except OSError as error:
            log.debug("the time of use was not recorded: %s", error)

    def remove(self, saved: SavedPrefix) -> None:
        """Removes a prefix, if it is still there."""
        _remove(self._description(saved))
        _remove(self.path(saved))

    def total(self) -> tuple[int, int]:
        """Returns the number of saved prefixes of all models, and their size in bytes."""
        try:
            files = [entry.stat().st_size for entry in os.scandir(self._folder) if entry.name.endswith(".kv")]
        except OSError:
            return 0, 0
        return len(files), sum(files)

    def _description(self, saved: SavedPrefix) -> Path:
        return self.path(saved).with_suffix(".json")

    def _refresh(self) -> None:
        """Reads the descriptions that are new."""
        found: dict[str, tuple[int, SavedPrefix]] = {}
        for path, changed_ns in self._descriptions():
            if not path.name.startswith(f"{self._key}-"):
                continue
            known = self._read.get(path.name)
            saved = known[1] if known is not None else _read_description(path)
            if saved is not None:
                found[path.name] = (changed_ns, saved)
        self._read = found

    def _descriptions(self) -> Iterator[tuple[Path, int]]:
        """Yields the descriptions of all models, with their times of change."""
        for path in self._paths():
            if path.suffix == ".json":
                try:
                    yield path, path.stat().st_mtime_ns
                except OSError:
                    continue  # another process has removed it

    def _paths(self) -> list[Path]:
        try:
            return list(self._folder.iterdir())
        except OSError as error:
            log.info("the saved prefixes cannot be listed: %s", error)
            return []

    def _make_room(self, size_bytes: int) -> bool:
        """Removes the least recently used prefixes until so much fits; returns False if it never does."""
        if size_bytes > self._limit_bytes:
            return False
        used = self.total()[1]
        for path, _ in sorted(self._descriptions(), key=lambda entry: entry[1]):
            if used + size_bytes <= self._limit_bytes:
                break
            used -= _remove(path.with_suffix(".kv"))
            _remove(path)
        return True

    def _sweep(self) -> None:
        """Removes what was not used for long, and what crashed processes left behind."""
        now_s = time.time()
        for path in self._paths():
            try:
                age_s = now_s - path.stat().st_mtime
            except OSError:
                continue
            has_description = path.suffix == ".json" or path.with_suffix(".json").exists()
            if path.suffix in (".kv", _PART) and not has_description and age_s > _ABANDONED_S:
                _remove(path)
            elif path.suffix == ".json" and (age_s > _UNUSED_S or not path.with_suffix(".kv").exists()):
                _remove(path.with_suffix(".kv"))
                _remove(path)
        self._make_room(0)


def _read_description(path: Path) -> SavedPrefix | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=SavedPrefix)
    except (OSError, msgspec.DecodeError) as error:
        log.info("the saved prefix %s cannot be read: %s", path, error)
        return None


def _crc32(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            crc = zlib.crc32(chunk, crc)
    return crc


def _remove(path: Path) -> int:
    """Removes a file, and returns its size; 0 if there is none."""
    try:
        size_bytes = path.stat().st_size
        path.unlink()
    except OSError:
        return 0
    return size_bytes


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
