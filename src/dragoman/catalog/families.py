"""Formats of model families by patterns of model names: the rows of `families.toml`, which states their rules."""

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import TypeVar

import msgspec
from msgspec import Struct

from dragoman.core.errors import ConfigError


class NamedRow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fact about all models with certain names."""

    names: tuple[str, ...]
    """Regular expressions for whole words of a name."""
    source: str
    """Where the fact is stated, with the date."""


class Family(NamedRow, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Models that write the same format."""

    format: str
    """The name of the format; "auto": not known."""


R = TypeVar("R", bound=NamedRow)


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    family: tuple[Family, ...]


def read(data: bytes) -> tuple[Family, ...]:
    """Decodes the rows of a TOML file, in their order.

    Raises:
        ConfigError: A field is unknown, missing or invalid, or a pattern is not a regular expression.
    """
    try:
        families = msgspec.toml.decode(data, type=_File).family
        for family in families:
            _pattern(family.names)
    except (msgspec.DecodeError, re.error) as error:
        raise ConfigError(f"families file: {error}") from error
    return families


@cache
def families() -> tuple[Family, ...]:
    """Returns all rows."""
    return read(resources.files(__package__).joinpath("families.toml").read_bytes())


def find(model: str) -> Family | None:
    """Returns the family of a model with this name; None: it is not known."""
    return first_match(families(), model)


def first_match(rows: Sequence[R], model: str) -> R | None:
    """Returns the first row that matches a model's name on a hub or in an engine, or its path; None: no row matches.

    For example `Qwen/Qwen3-8B`, `qwen3:8b`, `hf.co/unsloth/Qwen3-8B-GGUF:Q4_K_M`,
    `models--Qwen--Qwen3-8B/snapshots/1a2b`. The
    last part of a path is matched first; an earlier part counts only if no row matches a later one.
    """
    for part in reversed(re.split(r"[/\\]|--", model.lower())):
        normalized = re.sub(r"[_:@\s]", "-", part)
        for row in rows:
            if _pattern(row.names).search(normalized):
                return row
    return None


@cache
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    """A point before a digit continues a word: 3 does not match 3.5."""
    return re.compile(rf"(?<![a-z0-9])(?:{'|'.join(names)})(?![a-z0-9]|\.[0-9])")
