"""Locks, seats and mapped files; different objects act as different processes."""

from pathlib import Path

import pytest

from dragoman import shared_files
from dragoman.core.errors import ConfigError
from dragoman.shared_files import FileLock, claim_seat, file_name, is_locked, map_file


def test_lock_is_held_by_one(tmp_path: Path) -> None:
    one, two = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert not is_locked(tmp_path / "lock")
    assert one.try_acquire()
    assert not one.try_acquire()
    assert not two.try_acquire()
    assert is_locked(tmp_path / "lock")
    one.release()
    assert two.try_acquire()
    two.close()
    two.close()
    assert one.try_acquire()
    one.close()


def test_seats_are_taken_in_order_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_files, "MAX_PROCESSES", 3)
    assert [claim_seat(tmp_path / "seats") for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ConfigError, match="at most 3 processes"):
        claim_seat(tmp_path / "seats")


def test_mapped_file_is_private_shared_and_grows_only(tmp_path: Path) -> None:
    one = map_file(tmp_path / "file", 10)
    one[:3] = b"abc"
    larger, smaller = map_file(tmp_path / "file", 10_000), map_file(tmp_path / "file", 5)
    assert (larger[:4], larger[-1], smaller[:]) == (b"abc\0", 0, b"abc\0\0")
    larger[3] = 7
    assert one[3] == 7
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "file").stat().st_size == 10_000


@pytest.mark.parametrize("name", ["", "../up", "a/b", "nul\0", "\ud800", "x" * 10_000])
def test_any_name_has_a_file_name(name: str, tmp_path: Path) -> None:
    (tmp_path / file_name(name)).touch()
    assert file_name(name) != file_name(f"{name} ")
