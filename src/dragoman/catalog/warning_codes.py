"""The warning codes: `warnings.toml`, of which docs/generate.py writes the meanings to docs/warnings.md."""

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Final

import msgspec
from msgspec import Struct

_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_REFERENCE: Final = re.compile(r" \(\[[^\]]+\]\([^)]+\)\)")
"""A link in parentheses, without which the text is complete."""


class WarningCode(Struct, frozen=True, forbid_unknown_fields=True):
    """What a warning means, and what to change."""

    meaning: str
    """As Markdown, with links between pages of the documentation."""
    remedy: str = ""
    """What to change; empty: nothing."""
    setting: str = ""
    """Key of the setting that changes it, if there is one."""

    @property
    def meaning_text(self) -> str:
        """The meaning without links."""
        return _LINK.sub(r"\1", _REFERENCE.sub("", self.meaning))


@cache
def warning_codes() -> Mapping[str, WarningCode]:
    """Returns the warnings by code."""
    data = resources.files(__package__).joinpath("warnings.toml").read_bytes()
    return msgspec.toml.decode(data, type=dict[str, WarningCode])
