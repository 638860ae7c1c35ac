"""Which format a model writes, by its name: rows of `families.toml`, where also the rules of a pattern are stated."""

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import TypeVar

import msgspec
from msgspec import Struct

from dragoman.core.errors import ConfigError


class NamedRow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that is known of models of certain names."""

    names: tuple[str, ...]
    """Regular expressions for whole words of a name."""
    source: str
    """Where that is stated, with its date."""


class Family(NamedRow, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Models that write the same format."""

    format: str
    """The name of the format; "auto": none is known."""


R = TypeVar("R", bound=NamedRow)


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    family: tuple[Family, ...]


def read(data: bytes) -> tuple[Family, ...]:
    """The rows of a TOML file, in its order.

    Raises: ConfigError: a field is unknown, missing or wrong, or a pattern is no regular expression.
    """
    try:
        found = msgspec.toml.decode(data, type=_File).family
        for family in found:
            _pattern(family.names)
    except (msgspec.DecodeError, re.error) as error:
        raise ConfigError(f"families file: {error}") from error
    return found


@cache
def families() -> tuple[Family, ...]:
    """All rows."""
    return read(resources.files(__package__).joinpath("families.toml").read_bytes())


def find(model: str) -> Family | None:
    """The family of a model of this name; None: it is not known."""
    return first_match(families(), model)


def first_match(rows: Sequence[R], model: str) -> R | None:
    """The first row that fits a model of this name, as a hub, an engine or a path of files has it.

    `Qwen/Qwen3-8B`, `qwen3:8b`, `hf.co/unsloth/Qwen3-8B-GGUF:Q4_K_M`, `models--Qwen--Qwen3-8B/snapshots/1a2b`. The
    last part of a path says most; one before it counts where no row fits those behind.
    """
    for part in reversed(re.split(r"[/\\]|--", model.lower())):
        words = re.sub(r"[_:@\s]", "-", part)
        for row in rows:
            if _pattern(row.names).search(words):
                return row
    return None


@cache
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    """A point before a digit goes on with a word: 3 is not 3.5."""
    return re.compile(rf"(?<![a-z0-9])(?:{'|'.join(names)})(?![a-z0-9]|\.[0-9])")
