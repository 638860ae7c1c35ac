"""Test coverage of each format: `format_coverage.toml`, which docs/generate.py writes."""

from functools import cache
from importlib import resources

import msgspec
from msgspec import Struct


class FormatCoverage(Struct, frozen=True, forbid_unknown_fields=True):
    """The number of test cases of a format's reader."""

    cases: int
    """Our own cases, all read correctly with every split into chunks."""
    fixtures: int = 0
    """Cases of the neutral suite canitoolcall."""
    passed: int = 0
    """How many of those give the expected result when calls are passed on as they arrive."""


@cache
def format_coverage() -> dict[str, FormatCoverage]:
    """Returns the coverage by format."""
    return msgspec.toml.decode(
        resources.files(__package__).joinpath("format_coverage.toml").read_bytes(), type=dict[str, FormatCoverage]
    )
