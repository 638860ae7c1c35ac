"""The terminal images in the docs: generated from command output, self-contained, without private paths."""

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
    """The text of an image."""
    return "".join(ElementTree.parse(file).getroot().itertext()).replace("\xa0", " ")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate directory for each test, as tests run in parallel."""
    monkeypatch.setattr(pictures, "HOME", tmp_path / "ada")
    return tmp_path / "ada"


def test_explain_image_shows_current_output() -> None:
    """Ids are ignored, as they are new each time."""
    shown = ID.sub("", words(pictures.FOLDER / "explain.svg"))
    lines = pictures.screen(pictures.recorded(pictures.PICTURES["explain"]))
    assert len(lines) > 15
    for line in lines:
        assert ID.sub("", line.removeprefix("$")) in shown


def test_images_are_small_and_self_contained() -> None:
    """Each is one file without scripts and external resources."""
    files = {file.stem: file for file in pictures.FOLDER.iterdir()}
    assert set(files) == set(pictures.PICTURES)
    for file in files.values():
        text = file.read_text()
        assert len(text) < LARGEST_BYTES
        assert not re.search(r"<script|<image|<foreignObject|@import|@font-face|url\(|href=\"http", text)
        assert not re.search(r"/root|/home/|/Users/", words(file))


def test_image_contains_text_with_colours(home: Path, tmp_path: Path) -> None:
    """The output is deterministic, and the temporary home is deleted."""
    files = [tmp_path / "first.svg", tmp_path / "second.svg"]
    for file in files:
        pictures.written(COLOURED, pictures.recorded(COLOURED), file)
        assert not home.exists()
    text = files[0].read_text()
    assert text == files[1].read_text()
    assert re.search(r'class="color2">two', text)
    assert re.search(r'font-weight="bold"[^>]*>three', text)
    assert "@keyframes" not in text


def test_animated_image_has_keyframes(tmp_path: Path) -> None:
    moving = replace(COLOURED, moves=True)
    pictures.written(moving, pictures.recorded(moving), tmp_path / "moving.svg")
    text = (tmp_path / "moving.svg").read_text()
    assert "@keyframes" in text
    assert "printf" in words(tmp_path / "moving.svg")


@pytest.mark.parametrize("what", [str(Path.home()), str(ROOT / "src")])
def test_private_path_in_image_is_rejected(what: str, tmp_path: Path) -> None:
    """This includes text that is wrapped at the end of a line."""
    picture = pictures.Picture((f"printf {'-' * 80}{what}",))
    with pytest.raises(SystemExit, match="the image would show"):
        pictures.written(picture, pictures.recorded(picture), tmp_path / "made.svg")
    assert not (tmp_path / "made.svg").exists()
