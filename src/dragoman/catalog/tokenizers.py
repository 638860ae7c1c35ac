"""Token estimates by model name: the rows of `tokenizers.toml`."""

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
    """Of the tokenizer, for users and benchmarks."""
    weights: dict[str, float]
    """By shape, as in `core.token_estimate`."""
    image: int = IMAGE_TOKENS
    """Maximum of tokens for an image."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    family: tuple[_Family, ...]


def read(data: bytes) -> tuple[_Family, ...]:
    """Decodes the rows of a TOML file, in their order.

    Raises:
        ConfigError: A field is unknown, missing or invalid, or the weights are not those of all shapes.
    """
    try:
        families = msgspec.toml.decode(data, type=_File).family
    except msgspec.DecodeError as error:
        raise ConfigError(f"tokens file: {error}") from error
    for family in families:
        if set(family.weights) != set(SHAPES):
            wrong = sorted(set(family.weights) ^ set(SHAPES))
            raise ConfigError(f"tokens file: expected a weight for each shape of {family.name}, see {wrong}")
    return families


@cache
def _families() -> tuple[_Family, ...]:
    return read(resources.files(__package__).joinpath("tokenizers.toml").read_bytes())


@cache
def estimators() -> Mapping[str, TokenEstimator]:
    """Returns all estimators, by the name of the tokenizer."""
    return MappingProxyType({family.name: TokenEstimator(family.weights, family.image) for family in _families()})


@lru_cache(maxsize=256)
def find(model: str) -> TokenEstimator:
    """Returns the estimator for a model with this name; the generic one if the model is not known."""
    family = first_match(_families(), model)
    return GENERIC if family is None else estimators()[family.name]
