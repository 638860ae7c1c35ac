"""The first key is created for settings that are valid only with a key."""

from pathlib import Path

import pytest

from dragoman import cli
from dragoman import config as settings
from dragoman.core.errors import ConfigError


def test_first_key_opens_a_gateway_that_others_can_reach(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[server]\nhost = "0.0.0.0"\n')
    with pytest.raises(ConfigError, match="keys create"):
        settings.load(path, {}, {})
    assert cli.main(["keys", "list", "--config", str(path)]) == 0
    assert cli.main(["keys", "create", "alice", "--config", str(path)]) == 0
    assert "sk-dragoman-" in capsys.readouterr().out
    assert settings.load(path, {}, {})[0].server.host == "0.0.0.0"
