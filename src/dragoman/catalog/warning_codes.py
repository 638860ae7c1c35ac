"""The warning codes: `warnings.toml`, of which docs/generate.py writes the meanings to docs/warnings.md."""

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

RemedyCondition: TypeAlias = Literal["is_cut", "reask_is_off", "choice_is_free", "can_constrain"]
"""A limit ended the response; the model was not and will not be re-asked; the request does not require a call; the
upstream server may be able to enforce whole calls, and does not yet.
"""
_REFERENCE: Final = re.compile(r" \(\[[^\]]+\]\([^)]+\)\)")
"""A link in parentheses, which the sentence does not need."""
_LINK: Final = re.compile(r"\[([^\[\]]+)\]\([^()]+\)")


class WarningRemedy(Struct, frozen=True, forbid_unknown_fields=True):
    """What to change in the exchanges that meet a condition."""

    when: RemedyCondition
    text: str
    setting: str = ""
    """Key of the setting that changes it, if there is one."""


class WarningCode(Struct, frozen=True, forbid_unknown_fields=True):
    """What a warning means, and what to change."""

    meaning: str
    """As Markdown, with links between pages of the documentation."""
    for_gateway: str = ""
    """The meaning for users of the gateway; empty: the same."""
    remedy: str = ""
    """What to change; empty: nothing."""
    setting: str = ""
    """Key of the setting that changes it, if there is one."""
    remedies: tuple[WarningRemedy, ...] = ()
    """What to change besides, if it applies to the exchange; these are named first."""

    @property
    def meaning_text(self) -> str:
        """The meaning for users of the gateway, without links."""
        return _LINK.sub(r"\1", _REFERENCE.sub("", self.for_gateway or self.meaning))


@cache
def warning_codes() -> Mapping[str, WarningCode]:
    """Returns the warnings by code."""
    data = resources.files(__package__).joinpath("warnings.toml").read_bytes()
    return msgspec.toml.decode(data, type=dict[str, WarningCode])
