"""The notation in which a model of this machine writes tool calls: by the catalogue, or detected."""

from typing import Literal, NamedTuple, TypeAlias

from dragoman import formats
from dragoman.backends.embedded import gguf
from dragoman.catalog.models import ModelProfile
from dragoman.identify import By, detect_format
from dragoman.parsing.format import Format

Evidence: TypeAlias = By | Literal["catalogue"]
_DEFAULT = "hermes"
"""The most widespread one."""


class ModelFormat(NamedTuple):
    """A model's format, and how it was found."""

    format: Format
    by: Evidence
    why: str
    """The evidence in a sentence."""


def find_format(name: str, profile: ModelProfile | None, metadata: gguf.Metadata) -> ModelFormat:
    """Returns the format of a model; without evidence, the most widespread one.

    Args:
        name: the name under which it is served.
        profile: its row of the catalogue; None: it is not in it.
        metadata: the metadata of its file.
    """
    if profile is not None:
        return ModelFormat(formats.get(profile.format), "catalogue", f"the catalogue has {profile.name}")
    found = detect_format(name, chat_template=metadata.chat_template)
    if found.by == "nothing":
        return ModelFormat(formats.get(_DEFAULT), found.by, f"{found.why}; {_DEFAULT} is the most widespread format")
    return ModelFormat(found.format, found.by, found.why)
