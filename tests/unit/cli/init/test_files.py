"""Files that `dragoman init` writes: complete, private, and never over another file."""

import sys
from pathlib import Path

import pytest

from dragoman.cli.init.files import append_line, write_file
from dragoman.core.errors import ConfigError


def test_new_file_is_private_and_folders_are_created(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "config.toml"
    assert write_file(path, "é\n") is None
    assert path.read_text(encoding="utf-8") == "é\n"
    assert sys.platform == "win32" or path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_existing_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("old")
    with pytest.raises(ConfigError, match="exists already; nothing was changed"):
        write_file(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_copies_of_replaced_files_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    assert write_file(path, "1", replace=True) is None
    assert write_file(path, "2", replace=True) == tmp_path / "config.toml.old"
    assert write_file(path, "3", replace=True) == tmp_path / "config.toml.old2"
    assert [each.read_text() for each in sorted(tmp_path.iterdir())] == ["3", "1", "2"]


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "dotfiles.toml", tmp_path / "config.toml"
    target.write_text("old")
    link.symlink_to(target)
    write_file(link, "new", replace=True)
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot write .*not a directory"):
        write_file(tmp_path / "file" / "config.toml", "text")


@pytest.mark.parametrize(("before", "after"), [(None, "x\n"), ("", "x\n"), ("a\n", "a\nx\n"), ("a", "a\nx\n")])
def test_line_is_appended_as_a_line(before: str | None, after: str, tmp_path: Path) -> None:
    path = tmp_path / "folder" / ".bashrc"
    if before is not None:
        path.parent.mkdir()
        path.write_text(before)
    append_line(path, "x")
    assert path.read_text() == after
