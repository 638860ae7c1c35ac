"""The finding of `dragoman doctor` about the vendors' price list."""

import pytest

from dragoman.backends.http.config import HttpConfig
from dragoman.cli.doctor.local import settings_found
from dragoman.config import Config


def test_prices_are_found_for_the_url_of_a_vendor(monkeypatch: pytest.MonkeyPatch) -> None:
    vendor = Config(upstreams={"openai": HttpConfig(url="https://api.openai.com/v1")})
    (found,) = [finding for finding in settings_found(None, vendor, {}) if finding.what == "prices"]
    assert found.verdict == "note"
    assert found.text.startswith("prices of vendors: genai-prices ")
    monkeypatch.setattr("dragoman.extras.missing_extras", lambda *names: list(names))
    (missing,) = [finding for finding in settings_found(None, vendor, {}) if finding.what == "prices"]
    assert (missing.text, missing.fix.startswith("pip install")) == ("the prices of vendors are not known", True)


def test_prices_are_not_looked_for_with_servers_of_this_network() -> None:
    local = Config(upstreams={"lan": HttpConfig(url="http://192.168.1.20:8000/v1")})
    assert not [finding for finding in settings_found(None, local, {}) if finding.what == "prices"]
