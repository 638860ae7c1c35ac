"""Settings of limits."""

from pathlib import Path

import pytest

from dragoman import config
from dragoman.config.values import is_secret_setting
from dragoman.core.errors import ConfigError


@pytest.mark.parametrize("url", ["http://host", "redis://", "host:6379", "memory://x"])
def test_url_of_another_server_is_an_error(tmp_path: Path, url: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'[limits]\nurl = "{url}"')
    with pytest.raises(ConfigError, match=r"expected a URL like redis://127.0.0.1:6379/0, got .* - at limits.url"):
        config.load(file, {}, {})


def test_password_in_url_is_not_shown() -> None:
    assert is_secret_setting("limits.url", "redis://:secret@host:6379/0")
    assert not is_secret_setting("limits.url", "redis://host:6379/0")
