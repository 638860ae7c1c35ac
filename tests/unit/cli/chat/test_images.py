"""Images from files."""

import base64
from pathlib import Path

import pytest

from dragoman.cli.chat import images
from dragoman.core.errors import ConfigError


@pytest.mark.parametrize(
    ("start", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n..", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a..", "image/gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
def test_format_is_known_by_first_bytes(start: bytes, media_type: str, tmp_path: Path) -> None:
    (tmp_path / "image.dat").write_bytes(start)
    source = images.load_image(str(tmp_path / "image.dat")).source
    assert (source.media_type, base64.b64decode(source.data)) == (media_type, start)


def test_unusable_files_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes.txt").write_text("text")
    with pytest.raises(ConfigError, match="expected a PNG, JPEG, GIF or WebP image, got another file"):
        images.load_image(str(tmp_path / "notes.txt"))
    with pytest.raises(ConfigError, match="No such file"):
        images.load_image(str(tmp_path / "missing.png"))
    with pytest.raises(ConfigError, match="cannot read"):
        images.load_image("a\0b")
    monkeypatch.setattr(images, "_MAX_BYTES", 3)
    with pytest.raises(ConfigError, match="got a larger file"):
        images.load_image(str(tmp_path / "notes.txt"))
