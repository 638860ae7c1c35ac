"""Which of a repository's GGUF files to download: their quantizations, and the best one for a memory size.

The choice, if the user names none; memory is that of the machine, or the setting `embedded.memory_mb`:

1. Q8_0, Q6_K or Q5_K_M, the first that needs at most half of the memory.
2. Q4_K_M, if it needs at most 80 % of the memory.
3. The largest other quantization that needs at most 80 %, smaller than Q4_K_M if there is one.
4. The smallest unquantized file (F16, BF16, F32) that needs at most half of the memory.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from dragoman.backends.embedded.weights.job import format_size
from dragoman.core.errors import ConfigError, nearest, quote

_LARGE: Final = ("Q8_0", "Q6_K", "Q5_K_M")
_USUAL: Final = "Q4_K_M"
_UNQUANTIZED: Final = ("F16", "FP16", "BF16", "F32", "FP32")
_HALF, _MOST = 0.5, 0.8
_REPACKED: Final = ("Q4_0", "Q2_K", "Q4_K", "IQ4_NL")
"""Quantizations whose main type is copied into another order, see `gguf`."""
_REPACKED_SHARE: Final = 0.75
"""Some of the tensors of such a file, often the largest, are of another type."""
_LABEL: Final = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|[BN]?V?F(?:P)?(?:4|16|32)|MXFP4(?:_MOE)?))(?=$|[-._/])", re.I
)
_PART: Final = re.compile(r"^(.+)-(\d{5})-of-(\d{5})\.gguf", re.I)
_MOST_LISTED: Final = 40


class HubFile(NamedTuple):
    """A file of a repository."""

    path: str
    size_bytes: int
    sha256: str
    """Of its content; "": the Hub does not state it."""


class HubModel(NamedTuple):
    """A model in one quantization."""

    quantization: str
    """In capitals; "": the file's name does not contain it."""
    files: tuple[HubFile, ...]
    """Its parts, in their order."""

    @property
    def size_bytes(self) -> int:
        """The size of all parts."""
        return sum(file.size_bytes for file in self.files)


def repacked_share(quantization: str) -> float:
    """Returns the share of the weights that the engine copies on load, estimated from the quantization's name."""
    return _REPACKED_SHARE if quantization.removeprefix("UD-").startswith(_REPACKED) else 0.0


def quantization_of(path: str) -> str:
    """Returns the quantization that a file's name, or the name of its folder, contains; "": none."""
    place = PurePosixPath(path)
    for name in (_PART.sub(r"\1.gguf", place.name).removesuffix(".gguf"), place.parent.as_posix()):
        if found := _LABEL.findall(name):
            return str(found[-1]).upper()
    return ""


def is_projector(path: str) -> bool:
    """Whether the name is that of a projector, with which a model sees images."""
    return "mmproj" in PurePosixPath(path).name.lower()


def group_models(files: Sequence[HubFile]) -> list[HubModel]:
    """Returns the models of these GGUF files; a model of which a part is missing is left out."""
    groups: dict[str, list[HubFile]] = {}
    counts: dict[str, int] = {}
    for file in sorted(files):
        name = PurePosixPath(file.path).name.lower()
        if not name.endswith(".gguf") or is_projector(file.path) or "imatrix" in name:
            continue
        part = _PART.fullmatch(file.path)
        key = part[1] if part else file.path
        groups.setdefault(key, []).append(file)
        counts[key] = int(part[3]) if part else 1
    return [
        HubModel(quantization_of(group[0].path), tuple(group))
        for key, group in groups.items()
        if len(group) == counts[key]
    ]


def choose_model(
    repository: str, models: Sequence[HubModel], label: str, needed: Callable[[HubModel], int], memory_bytes: int
) -> HubModel:
    """Returns the model to download.

    Args:
        repository: its name, for errors.
        models: the models of the repository.
        label: the quantization that the user wants, or its beginning; "": the best one for this memory.
        needed: returns the estimated memory of a model.
        memory_bytes: the memory for models.

    Raises:
        ConfigError: there is no such model, several match, or none fits; the message lists the models.
    """
    if not models:
        raise ConfigError(f"the repository {repository} has no GGUF files; Dragoman runs no other ones")
    if label:
        return _only(repository, _labelled(repository, models, label.upper()))
    if len(models) == 1:
        return models[0]
    suitable = _best_label(models, needed, memory_bytes)
    if suitable is None:
        smallest = min(models, key=needed)
        raise ConfigError(
            f"no model of {repository} fits into {format_size(memory_bytes)} of memory: expected at most "
            f"{_MOST:.0%} of it, the smallest needs about {format_size(needed(smallest))}; to download one "
            f"nevertheless, name its quantization, such as hf:{repository}:{smallest.quantization}"
        )
    return _only(repository, [model for model in models if model.quantization == suitable])


def describe_models(models: Sequence[HubModel]) -> str:
    """Returns the quantizations with their sizes, the smallest first, for errors."""
    ordered = sorted(models, key=lambda model: model.size_bytes)
    labels = [f"{model.quantization or model.files[0].path} ({format_size(model.size_bytes)})" for model in ordered]
    more = [f"{len(labels) - _MOST_LISTED} more"] if len(labels) > _MOST_LISTED else []
    return ", ".join([*labels[:_MOST_LISTED], *more])


def _labelled(repository: str, models: Sequence[HubModel], label: str) -> list[HubModel]:
    exact = [model for model in models if model.quantization == label]
    found = exact or [model for model in models if model.quantization.startswith(label)]
    if found:
        return found
    hint = nearest(label, [model.quantization for model in models])
    raise ConfigError(f"{repository} has no quantization {quote(label)}{hint}; it has {describe_models(models)}")


def _only(repository: str, found: Sequence[HubModel]) -> HubModel:
    if len(found) == 1:
        return found[0]
    if len({model.quantization for model in found}) > 1:
        raise ConfigError(f"several quantizations of {repository} match: {describe_models(found)}; name one of them")
    names = ", ".join(f"hf:{repository}/{model.files[0].path}" for model in found[:_MOST_LISTED])
    raise ConfigError(f"{repository} has several models in this quantization; name the file: {names}")


def _best_label(models: Sequence[HubModel], needed: Callable[[HubModel], int], memory_bytes: int) -> str | None:
    def is_suitable(model: HubModel, share: float) -> bool:
        return needed(model) <= memory_bytes * share

    by_label = {model.quantization: model for model in models}
    for label in _LARGE:
        if label in by_label and is_suitable(by_label[label], _HALF):
            return label
    usual = by_label.get(_USUAL)
    if usual is not None and is_suitable(usual, _MOST):
        return _USUAL
    limit = usual.size_bytes if usual is not None else None
    others = [model for model in models if model.quantization not in _UNQUANTIZED]
    if limit is not None:
        others = [model for model in others if model.size_bytes < limit]
    suitable = [model for model in others if is_suitable(model, _MOST)]
    if suitable:
        return max(suitable, key=lambda model: model.size_bytes).quantization
    unquantized = [model for model in models if model.quantization in _UNQUANTIZED and is_suitable(model, _HALF)]
    return min(unquantized, key=lambda model: model.size_bytes).quantization if unquantized else None
