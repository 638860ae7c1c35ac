"""What a model counts as a token, by its name: rows of `tokenizers.toml`."""

from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import resources
from types import MappingProxyType

import msgspec

from dragoman.catalog.families import NamedRow, first_match
from dragoman.core.errors import ConfigError
from dragoman.core.token_estimate import GENERIC, IMAGE_TOKENS, SHAPES, TokenEstimator


class _Family(NamedRow, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    """Of the tokenizer, for people and benchmarks."""
    weights: dict[str, float]
    """Of each shape, as `core.tokens` has them."""
    image: int = IMAGE_TOKENS
    """The most tokens that a picture costs."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    family: tuple[_Family, ...]


def read(data: bytes) -> tuple[_Family, ...]:
    """The rows of a TOML file, in its order.

    Raises: ConfigError: a field is unknown, missing or wrong, or a weight is.
    """
    try:
        found = msgspec.toml.decode(data, type=_File).family
    except msgspec.DecodeError as error:
        raise ConfigError(f"tokens file: {error}") from error
    for family in found:
        if set(family.weights) != set(SHAPES):
            wrong = sorted(set(family.weights) ^ set(SHAPES))
            raise ConfigError(f"tokens file: expected a weight for each shape of {family.name}, see {wrong}")
    return found


@cache
def _families() -> tuple[_Family, ...]:
    return read(resources.files(__package__).joinpath("tokenizers.toml").read_bytes())


@cache
def estimators() -> Mapping[str, TokenEstimator]:
    """All that are known, by the name of the tokenizer."""
    return MappingProxyType({family.name: TokenEstimator(family.weights, family.image) for family in _families()})


@lru_cache(maxsize=256)
def find(model: str) -> TokenEstimator:
    """That of a model of this name; the generic one where nothing is known of it."""
    family = first_match(_families(), model)
    return GENERIC if family is None else estimators()[family.name]
