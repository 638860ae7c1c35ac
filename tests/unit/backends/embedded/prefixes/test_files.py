import os
import shutil
import stat
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from dragoman.backends.embedded.prefixes.files import PrefixFiles, SavedPrefix

DAY_S = 24 * 3600


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "prefixes"


def files(folder: Path, key: str = "model", limit: int = 1000) -> PrefixFiles:
    return PrefixFiles(folder, key, f"{key}.gguf", limit)


def add(to: PrefixFiles, folder: Path, text: str, size: int = 100) -> SavedPrefix | None:
    name = to.new_name()
    (folder / name).write_bytes(os.urandom(size))
    return to.add(name, text, len(text))


def saved_texts(found: PrefixFiles) -> list[str]:
    return [saved.text for saved in found.recent()]


def test_other_gateway_finds_prefix(folder: Path) -> None:
    first, second = files(folder), files(folder)
    assert second.best("abc") is None
    saved = add(first, folder, "abc")
    assert saved is not None
    assert second.best("abcdef") == (saved, 3)
    assert second.is_intact(saved)
    assert second.total() == (1, 100)
    first.remove(saved)
    assert second.best("abcdef") is None
    assert not second.is_intact(saved)


def test_other_model_has_other_files(folder: Path) -> None:
    add(files(folder), folder, "abc")
    assert files(folder, "other").best("abc") is None


def test_best_prefix_has_most_in_common(folder: Path) -> None:
    found = files(folder)
    for text in ("ab", "abcdxx", "abcd", "x"):
        add(found, folder, text)
    best = found.best("abcde")
    assert best is not None
    assert (best[0].text, best[1]) == ("abcd", 4)


def test_least_recently_used_are_removed_for_new_one(folder: Path) -> None:
    found = files(folder)
    for number, text in enumerate("abc"):
        saved = add(found, folder, text, 300)
        assert saved is not None
        os.utime(found.path(saved).with_suffix(".json"), (number, number))
        if text == "a":
            oldest = saved
    found.mark_used(oldest)
    add(found, folder, "d", 300)
    assert sorted(saved_texts(found)) == ["a", "c", "d"]
    assert found.total()[1] <= 1000


def test_prefix_over_limit_is_not_kept(folder: Path) -> None:
    found = files(folder)
    add(found, folder, "a")
    assert add(found, folder, "b", 1001) is None
    assert saved_texts(found) == ["a"]
    assert len(list(folder.iterdir())) == 2


def test_smaller_limit_applies_at_next_start(folder: Path) -> None:
    add(files(folder), folder, "a", 900)
    assert saved_texts(files(folder, limit=800)) == []
    assert list(folder.iterdir()) == []


def test_old_and_abandoned_files_are_removed_at_start(folder: Path) -> None:
    found = files(folder)
    for text in ("new", "old"):
        add(found, folder, text)
    old = next(saved for saved in found.recent() if saved.text == "old")
    past = time.time() - 31 * DAY_S
    for path in (found.path(old), found.path(old).with_suffix(".json")):
        os.utime(path, (past, past))
    for name in ("crashed.part", "without-description.kv"):
        (folder / name).write_bytes(b"x")
        os.utime(folder / name, (past, past))
    (folder / "being-written.part").write_bytes(b"x")
    assert saved_texts(files(folder)) == ["new"]
    assert {path.suffix for path in folder.iterdir()} == {".kv", ".json", ".part"}
    assert len(list(folder.iterdir())) == 3


def test_state_used_again_is_kept_however_old(folder: Path) -> None:
    found = files(folder)
    saved = add(found, folder, "a")
    assert saved is not None
    past = time.time() - 31 * DAY_S
    os.utime(found.path(saved), (past, past))
    assert saved_texts(files(folder)) == ["a"]


def test_damaged_description_is_ignored(folder: Path) -> None:
    found = files(folder)
    saved = add(found, folder, "a")
    assert saved is not None
    found.path(saved).with_suffix(".json").write_bytes(b"{")
    assert files(folder).recent() == []
    assert add(found, folder, "a") is not None
    assert saved_texts(files(folder)) == ["a"]


def test_files_are_for_this_user_only(folder: Path) -> None:
    found = files(folder)
    add(found, folder, "a")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_nothing_is_written_to_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        free: int = 5_000_000

    found = files(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage())
    with pytest.raises(OSError, match="only 5 MB are free"):
        found.new_name()


def test_text_that_is_not_unicode_is_not_saved(folder: Path) -> None:
    found = files(folder)
    with pytest.raises(ValueError, match="surrogates"):
        add(found, folder, "\ud800")
    assert found.recent() == []
