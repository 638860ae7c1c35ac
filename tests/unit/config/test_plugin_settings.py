"""Settings of plug-ins: secrets are not shown, and defaults are not reported as set."""

from pathlib import Path

import pytest

from dragoman import config as settings
from dragoman.config.values import is_secret_setting


@pytest.mark.parametrize(
    ("key", "value", "secret"),
    [
        ("backends.a.plugin", "pipe", False),
        ("backends.a.command", ["cat"], False),
        ("backends.a.api_key", "k", True),
        ("backends.a.ACCESS_TOKEN", "t", True),
        ("backends.a.headers", {"Authorization": "x"}, True),
        ("backends.a.more", {"inner": [{"password": "x"}]}, True),
        ("backends.a.url", "http://user:secret@host/", True),
        ("hooks.settings", {"audit": {"token": "t"}}, True),
        ("hooks.settings", {"audit": {"city": "Rome"}}, False),
        ("hooks.enabled", ("audit",), False),
    ],
)
def test_secrets_of_plugin_settings_are_recognized(key: str, value: object, secret: bool) -> None:
    assert is_secret_setting(key, value) is secret


def test_default_of_hook_settings_is_not_a_change() -> None:
    defaults = {key: default for key, _, default, _ in settings.setting_docs()}
    assert defaults["hooks.settings"] == settings.Config().hooks.settings == {}


def test_settings_of_plugins_have_their_origin(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[backends.a]\nplugin = "x"\n[formats.f]\nopener = "<f>"\n')
    config, origin = settings.load(file, {}, {})
    assert config.backends == {"a": {"plugin": "x"}}
    assert {"backends.a.plugin", "formats.f.opener"} <= origin.keys()
    assert dict(settings.setting_values(config))["backends.a.plugin"] == "x"
