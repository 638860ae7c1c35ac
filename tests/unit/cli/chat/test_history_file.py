"""The file of typed lines."""

import sys
from pathlib import Path

import pytest

from dragoman.cli.chat.history_file import HistoryFile, state_folder


def test_entries_of_several_lines_are_restored(tmp_path: Path) -> None:
    history = HistoryFile(tmp_path / "state" / "chat_history")
    for entry in ("one", "two\nthree", "two\nthree", "four"):
        history.add(entry)
    assert HistoryFile(tmp_path / "state" / "chat_history").load() == ["one", "two\nthree", "four"]


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
def test_only_the_user_can_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state" / "chat_history"
    HistoryFile(path).add("one")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(0o644)
    HistoryFile(path).add("two")
    assert path.stat().st_mode & 0o777 == 0o600


def test_long_history_is_shortened_and_damaged_lines_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "chat_history"
    path.write_text("".join(f'"{number}"\n' for number in range(1200)) + "{damaged\n[1]\n")
    entries = HistoryFile(path).load()
    assert (len(entries), entries[0], entries[-1]) == (1000, "200", "1199")
    assert len(path.read_text().splitlines()) == 1000
    if sys.platform != "win32":
        assert path.stat().st_mode & 0o777 == 0o600


def test_long_entry_and_unwritable_folder_are_ignored(tmp_path: Path) -> None:
    history = HistoryFile(tmp_path / "chat_history")
    history.add("x" * 10_001)
    assert history.load() == []
    (tmp_path / "file").touch()
    HistoryFile(tmp_path / "file" / "chat_history").add("one")


def test_state_folder_follows_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path))
    assert state_folder() == tmp_path
    monkeypatch.delenv("DRAGOMAN_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert state_folder() == tmp_path / "dragoman"
