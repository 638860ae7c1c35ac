"""Which files of a repository on the Hugging Face Hub are downloaded."""

from dataclasses import replace
from typing import Final, NamedTuple

from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.local import memory
from dragoman.backends.embedded.weights import format_size
from dragoman.backends.embedded.weights.hub_repository import (
    HubChoice,
    RepositoryName,
    fetch_shape,
    list_repository,
    pick_projector,
)
from dragoman.backends.embedded.weights.quantization import HubModel, choose_model, repacked_share

_UNKNOWN_MEMORY_BYTES: Final = 8_000_000_000
"""Assumed where the memory of the machine cannot be found out."""
_CACHE_SHARE: Final = 0.25
"""Size of the KV cache, as a share of the weights, of a model whose header cannot be read."""


class ChosenFiles(NamedTuple):
    """Files to download."""

    files: HubChoice
    reason: str
    """What was chosen, in a sentence for the user."""


def choose_from_hub(name: RepositoryName, config: EmbeddedConfig) -> ChosenFiles:
    """Returns the files of the model that suits this machine, or of the quantization that the user named.

    Args:
        name: the repository.
        config: the settings, for the memory and the context.

    Raises:
        ConfigError: there is no such model, several match, or none fits.
        UpstreamError: the Hub cannot be reached, or failed.
    """
    repository = list_repository(name.repo)
    smallest = min(repository.models, key=lambda model: model.size_bytes, default=None)
    shape = fetch_shape(name.repo, smallest.files[0].path) if smallest else None

    def needed(model: HubModel) -> int:
        share = repacked_share(model.quantization)
        if shape is None:
            return round(model.size_bytes * (1 + share + _CACHE_SHARE)) + memory.PROCESS_BYTES
        return memory.needed_bytes(model.size_bytes, replace(shape, repacked_share=share), config)

    memory_bytes = config.memory_mb * memory.MB or memory.total_bytes() or _UNKNOWN_MEMORY_BYTES
    model = choose_model(name.repo, repository.models, name.quantization, needed, memory_bytes)
    files = HubChoice(name.repo, model, pick_projector(repository, model))
    others = f" of {len(repository.models)} models" if len(repository.models) > 1 else ""
    reason = (
        f"chosen{others}: {files.name}, {format_size(model.size_bytes)}; needs about "
        f"{format_size(needed(model))} of {format_size(memory_bytes)} of memory"
    )
    if files.projector:
        reason += f"; with its projector for images, {format_size(files.projector.size_bytes)}"
    return ChosenFiles(files, reason)
