"""The pictures of terminals in the pages: made of what commands show, and fit to be shown."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from support.paths import ROOT

sys.path.insert(0, str(ROOT / "docs"))

import pictures

LARGEST_BYTES = 300_000
ID = re.compile("call_[0-9a-f]{24}")
COLOURED = pictures.Picture((r"printf 'one \033[32mtwo\033[0m \033[1mthree\033[0m\r\nfour'",))


def words(file: Path) -> str:
    """All that stands in a picture."""
    return "".join(ElementTree.parse(file).getroot().itertext()).replace("\xa0", " ")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One for each test, as tests run beside each other."""
    monkeypatch.setattr(pictures, "HOME", tmp_path / "ada")
    return tmp_path / "ada"


def test_explain_shows_what_the_command_says_now() -> None:
    """But for the ids, which are new each time."""
    shown = ID.sub("", words(pictures.FOLDER / "explain.svg"))
    lines = pictures.screen(pictures.recorded(pictures.PICTURES["explain"]))
    assert len(lines) > 15
    for line in lines:
        assert ID.sub("", line.removeprefix("$")) in shown


def test_pictures_can_be_shown_anywhere() -> None:
    """Each is one file, which runs nothing and fetches nothing."""
    files = {file.stem: file for file in pictures.FOLDER.iterdir()}
    assert set(files) == set(pictures.PICTURES)
    for file in files.values():
        text = file.read_text()
        assert len(text) < LARGEST_BYTES
        assert not re.search(r"<script|<image|<foreignObject|@import|@font-face|url\(|href=\"http", text)
        assert not re.search(r"/root|/home/|/Users/", words(file))


def test_text_is_text_with_its_colours(home: Path, tmp_path: Path) -> None:
    """The same each time; nothing of the home stays."""
    files = [tmp_path / "first.svg", tmp_path / "second.svg"]
    for file in files:
        pictures.written(COLOURED, pictures.recorded(COLOURED), file)
        assert not home.exists()
    text = files[0].read_text()
    assert text == files[1].read_text()
    assert re.search(r'class="color2">two', text)
    assert re.search(r'font-weight="bold"[^>]*>three', text)
    assert "@keyframes" not in text


def test_one_that_moves(tmp_path: Path) -> None:
    moving = replace(COLOURED, moves=True)
    pictures.written(moving, pictures.recorded(moving), tmp_path / "moving.svg")
    text = (tmp_path / "moving.svg").read_text()
    assert "@keyframes" in text
    assert "printf" in words(tmp_path / "moving.svg")


@pytest.mark.parametrize("what", [str(Path.home()), str(ROOT / "src")])
def test_what_is_private_is_not_shown(what: str, tmp_path: Path) -> None:
    """Also where the end of a line comes in between."""
    picture = pictures.Picture((f"printf {'-' * 80}{what}",))
    with pytest.raises(SystemExit, match="the picture would show"):
        pictures.written(picture, pictures.recorded(picture), tmp_path / "made.svg")
    assert not (tmp_path / "made.svg").exists()
