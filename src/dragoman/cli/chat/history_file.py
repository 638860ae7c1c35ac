"""The lines that the user typed, kept between chats in a file that only the user can read.

Each line of the file is one entry as a JSON string, because an entry may have several lines.
"""

import json
import os
import sys
from pathlib import Path
from typing import Final

_MAX_ENTRIES: Final = 1000
_MAX_CHARS: Final = 10_000
"""A longer entry, such as pasted text, is not stored."""


def state_folder() -> Path:
    """Returns the folder for what Dragoman keeps of its user between runs."""
    own = os.environ.get("DRAGOMAN_HOME")
    if own:
        return Path(own).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "dragoman"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "dragoman"


class HistoryFile:
    """The file. One that cannot be read or written is ignored, as it is a convenience."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last = ""

    def load(self) -> list[str]:
        """Returns the entries, the oldest first, and shortens a file that has become long."""
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        entries = [entry for line in lines if (entry := _entry(line))]
        if len(entries) > _MAX_ENTRIES:
            entries = entries[-_MAX_ENTRIES:]
            self._rewrite(entries)
        self._last = entries[-1] if entries else ""
        return entries

    def add(self, entry: str) -> None:
        """Appends an entry, unless it repeats the last one or is very long."""
        if entry == self._last or len(entry) > _MAX_CHARS:
            return
        self._last = entry
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(self._path, "a", encoding="utf-8", opener=_private) as file:
                os.chmod(self._path, 0o600)  # a file that exists may have another mode
                file.write(json.dumps(entry) + "\n")
        except OSError:
            pass

    def _rewrite(self, entries: list[str]) -> None:
        shortened = self._path.with_suffix(f".{os.getpid()}")
        try:
            with open(shortened, "w", encoding="utf-8", opener=_private) as file:
                file.writelines(json.dumps(entry) + "\n" for entry in entries)
            shortened.replace(self._path)
        except OSError:
            shortened.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _entry(line: str) -> str:
    try:
        entry = json.loads(line)
    except ValueError:
        return ""
    return entry if isinstance(entry, str) else ""
