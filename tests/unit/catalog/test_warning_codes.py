"""The catalogue of warnings: what each code means, and which setting changes it."""

import re

import pytest

from dragoman.catalog.warning_codes import warning_codes
from support.paths import ROOT

SETTINGS = (ROOT / "docs/configuration.md").read_text()


@pytest.mark.parametrize("code", [code for code, known in warning_codes().items() if known.setting or known.remedies])
def test_setting_of_warning_exists(code: str) -> None:
    known = warning_codes()[code]
    for setting, text in [(known.setting, known.remedy), *((each.setting, each.text) for each in known.remedies)]:
        *sections, key = setting.split(".")
        assert not key or (f"- **`{key}`**" if sections else f"[{key}]") in SETTINGS
        assert text or not key


def test_meanings_without_links_are_plain_text() -> None:
    for known in warning_codes().values():
        assert not re.search(r"\]\(|\((guard|servers|deviations|security|tokens)\)", known.meaning_text)
        assert not re.search("of the library|raw", known.meaning_text)
        assert known.meaning_text
