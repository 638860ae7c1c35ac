"""How many texts prove that a format is read as it should be: `format_coverage.toml`, which docs/generate.py counts."""

from functools import cache
from importlib import resources

import msgspec
from msgspec import Struct


class FormatCoverage(Struct, frozen=True, forbid_unknown_fields=True):
    """What a format's reader has been tried on."""

    cases: int
    """Of our own, all read as they should be, in every cut."""
    fixtures: int = 0
    """Of the neutral suite canitoolcall."""
    passed: int = 0
    """Of those, how many are read as they expect, calls passed on as they come."""


@cache
def format_coverage() -> dict[str, FormatCoverage]:
    """By format."""
    return msgspec.toml.decode(
        resources.files(__package__).joinpath("format_coverage.toml").read_bytes(), type=dict[str, FormatCoverage]
    )
