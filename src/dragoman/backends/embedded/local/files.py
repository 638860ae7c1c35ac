"""The list of models on this machine: unique names, sizes, and what their files say, read once for each file."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Final

from dragoman.backends.embedded import gguf
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.local import stores
from dragoman.backends.embedded.local.stores import FoundFile, Origin
from dragoman.core.errors import ConfigError

log = logging.getLogger("dragoman.embedded")

_ENCODERS: Final = frozenset(
    ("bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "modern-bert", "neo-bert", "eurobert")
) | {"t5encoder", "gemma-embedding", "wavtokenizer-dec"}
"""Architectures that write no text; with a pooling type, the engine makes embeddings with them."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model on this machine."""

    id: str
    aliases: tuple[str, ...]
    path: Path
    size_bytes: int
    origin: Origin
    shape: gguf.Shape


class LocalFiles:
    """The models of this machine; `models` is a snapshot, which `refresh` replaces."""

    def __init__(self, config: EmbeddedConfig, default: FoundFile | None = None) -> None:
        """
        Args:
            config: the settings.
            default: the model of the settings, which is the first of the list; None: only list what is found.
        """
        self._config, self._default = config, default
        self._scan: stores.Scan | None = None
        self._lock = Lock()
        self._shapes: dict[tuple[Path, int, int], gguf.Shape | None] = {}
        """By path, size and time; None: a file that is left out, which was logged."""
        self.models: Mapping[str, LocalModel] = {}
        """By id."""

    def refresh(self) -> bool:
        """Looks at the folders again if they have changed, and returns whether the list has; blocks."""
        with self._lock:
            if self._scan is not None and self._scan.is_current():
                return False
            self._scan = stores.scan(self._config.folders, discover=self._config.discover)
            models = self._named([*([self._default] if self._default else []), *self._scan.files])
            if models == self.models:
                return False
            self.models = models
            return True

    def _named(self, files: list[FoundFile]) -> dict[str, LocalModel]:
        """Returns the models by unique names: of two files of the same name, the later one gets a prefix."""
        models: dict[str, LocalModel] = {}
        for file in _distinct(files):
            name = file.name if file.name not in models else f"{file.prefix or file.origin}/{file.name}"
            if name in models or (shape := self._shape(file)) is None:
                continue
            models[name] = LocalModel(name, file.aliases, file.path, file.size_bytes, file.origin, shape)
        return models

    def _shape(self, file: FoundFile) -> gguf.Shape | None:
        try:
            status = file.path.stat()
        except OSError:
            return None
        key = (file.path, status.st_size, status.st_mtime_ns)
        if key not in self._shapes:
            shape = _read_shape(*key)
            if isinstance(shape, str):
                log.info("%s is not served: %s", file.path, shape)
            self._shapes[key] = None if isinstance(shape, str) else shape
        return self._shapes[key]


def find_model(config: EmbeddedConfig, name: str) -> FoundFile | None:
    """Returns the file of a model on this machine, by its name or an alias; None: there is none.

    Args:
        config: the settings.
        name: a name that `/v1/models` lists, or an alias.
    """
    files = _distinct(list(stores.scan(config.folders, discover=config.discover).files))
    return next((file for file in files if name in (file.name, f"{file.prefix}/{file.name}", *file.aliases)), None)


def _distinct(files: list[FoundFile]) -> list[FoundFile]:
    """Returns each file once, however many paths lead to it; the other names are aliases.

    A pulled model may share its bytes with the Hugging Face cache, by a second name of the same file.
    """
    known: dict[Path, FoundFile] = {}
    pulled: set[tuple[int, int]] = set()
    for file in files:
        try:
            real, status = file.path.resolve(), file.path.stat()
        except OSError:
            continue
        identity = (status.st_dev, status.st_ino)
        if file.origin == "huggingface" and identity in pulled:
            continue
        if file.origin in ("settings", "pulled"):
            pulled.add(identity)
        if (earlier := known.get(real)) is None:
            known[real] = file
        else:
            names = dict.fromkeys((*earlier.aliases, file.name, *file.aliases))
            known[real] = earlier._replace(aliases=tuple(name for name in names if name != earlier.name))
    return list(known.values())


@lru_cache(maxsize=1024)  # a header takes tenths of a second, and several parts of a gateway read it
def _read_shape(path: Path, size_bytes: int, mtime_ns: int) -> gguf.Shape | str:
    """Returns the sizes in the header of a file of this size and time, or why the file is not served."""
    try:
        shape = gguf.shape(path)
    except ConfigError as error:
        return error.message
    if shape.kind not in ("model", "") or shape.architecture in ("", "clip") or not shape.has_vocabulary:
        return "it is not a language model"
    if shape.architecture in _ENCODERS and not shape.pooling:
        return f"models of the architecture {shape.architecture} write no text"
    return shape
