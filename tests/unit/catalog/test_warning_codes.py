"""The catalogue of warnings: what each code means, and which setting changes it."""

import re

import pytest

from dragoman.catalog.warning_codes import warning_codes
from support.paths import ROOT

SETTINGS = (ROOT / "docs/configuration.md").read_text()


@pytest.mark.parametrize("code", [code for code, known in warning_codes().items() if known.setting])
def test_setting_of_warning_exists(code: str) -> None:
    *sections, key = warning_codes()[code].setting.split(".")
    listed = f"- **`{key}`**" if sections else f"[{key}]"
    assert listed in SETTINGS
    assert warning_codes()[code].remedy


def test_meanings_without_links_are_plain_text() -> None:
    for known in warning_codes().values():
        assert not re.search(r"\]\(", known.meaning_text)
        assert known.meaning_text
