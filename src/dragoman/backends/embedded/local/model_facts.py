"""What people and commands want to know about the models of this machine, without loading them."""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from dragoman import __version__
from dragoman.backends.embedded import gguf, weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.local import memory, stores
from dragoman.backends.embedded.local.files import LocalFiles, LocalModel
from dragoman.backends.embedded.local.stores import FoundFile
from dragoman.backends.embedded.media import NO_PROJECTOR, Projector, find_projector, read_projector
from dragoman.backends.embedded.model_format import Evidence, find_format
from dragoman.catalog import models as catalog
from dragoman.core.errors import ConfigError, DragomanError
from dragoman.core.messages import Message, Request, Text, Tool
from dragoman.parsing.format import Format

_CACHE_FILE: Final = "model-facts.json"
_QUESTION: Final = Request("", (Message("user", (Text("Hello!"),)),), (Tool("greet", "Greets.", '{"type": "object"}'),))


class LocalModels(NamedTuple):
    """The models of this machine, that of the settings first."""

    models: Mapping[str, LocalModel]
    """By id."""
    default: str
    """The id of the model of the settings, which may not be on this machine."""

    def settings_of(self, model: LocalModel, config: EmbeddedConfig) -> EmbeddedConfig:
        """Returns the settings with which a model is run."""
        return settings_for(config, model, is_default=model.id == self.default)


class FormatFacts(msgspec.Struct, frozen=True):
    """The format of a model's calls, and how it was found."""

    name: str
    by: Evidence
    why: str
    has_template: bool
    """Whether the file contains a chat template."""
    reply_opening: str
    """The part of each reply that the chat template begins; "": none, or the template cannot be rendered here."""


class _Cached(msgspec.Struct, frozen=True):
    size_bytes: int
    mtime_ns: int
    model: str
    facts: FormatFacts


class _CacheFile(msgspec.Struct, frozen=True):
    version: str = ""
    """Of Dragoman; another version may find other formats."""
    files: dict[str, _Cached] = {}


class LocalModelFinder:
    """Finds the models of this machine; files that have not changed since the last time are not read again."""

    def __init__(self, config: EmbeddedConfig) -> None:
        """
        Raises:
            ConfigError: the model of the settings is unknown.
        """
        self.config = config
        self._default = _default_file(config)
        found = stores.Scan()
        found.add(self._default)
        self._files = LocalFiles(config, found.files[0] if found.files else self._default)

    def find(self) -> LocalModels:
        """Returns the models, as a gateway with these settings serves them."""
        self._files.refresh()
        return LocalModels(self._files.models, self._default.name)


def find_local_models(config: EmbeddedConfig) -> LocalModels:
    """Returns the models of this machine, as a gateway with these settings serves them.

    Raises:
        ConfigError: the model of the settings is unknown.
    """
    return LocalModelFinder(config).find()


def settings_for(
    config: EmbeddedConfig, model: LocalModel, *, is_default: bool, projector: str | None = None
) -> EmbeddedConfig:
    """Returns the settings for a model; some of them are for the model that they name only.

    Args:
        config: the settings.
        model: the model.
        is_default: whether they name it.
        projector: its projector; "": it has none; None: the one in its folder, if the model has one of its own.
    """
    if is_default:
        return config
    has_folder = projector is None and model.origin in ("lmstudio", "huggingface")
    return msgspec.structs.replace(
        config,
        model=str(model.path) if has_folder else "",
        projector=projector or "",
        context_window=min(config.context_window, model.shape.context_window),
    )


def profile_of(model: LocalModel) -> catalog.ModelProfile | None:
    """Returns the model's row of the catalogue; None: it is not in it."""
    if model.origin not in ("settings", "pulled"):
        return None
    return next((profile for profile in catalog.models() if profile.name == model.id), None)


def projector_of(model: LocalModel, config: EmbeddedConfig) -> Projector:
    """Returns the model's projector, which is not for anything if there is none or it cannot be read.

    Args:
        model: the model.
        config: its own settings, see `settings_for`.
    """
    try:
        path = find_projector(model.path, config)
        return read_projector(path) if path else NO_PROJECTOR
    except ConfigError:
        return NO_PROJECTOR


def needed_bytes(model: LocalModel, config: EmbeddedConfig) -> int:
    """Returns the estimated memory of the model when it is loaded, with its projector.

    Args:
        model: the model.
        config: its own settings, see `settings_for`.
    """
    projector = projector_of(model, config)
    extra = projector.path.stat().st_size if projector is not NO_PROJECTOR else 0
    return memory.needed_bytes(model.size_bytes + extra, model.shape, config)


def read_formats(models: Iterable[LocalModel]) -> dict[str, FormatFacts]:
    """Returns the call formats of these models, by id; of models that write text only.

    Finding one takes tenths of a second, so the results are kept in the cache folder until the file changes, except
    those of a template that could not be rendered.
    """
    path = weights.cache_dir() / _CACHE_FILE
    known = _read_cache(path)
    entries: dict[str, _Cached] = {}
    found: dict[str, FormatFacts] = {}
    for model in models:
        if model.shape.pooling:
            continue
        with suppress(OSError, ConfigError):  # it was deleted or damaged meanwhile
            status, key = model.path.stat(), str(model.path)
            stamp = (status.st_size, status.st_mtime_ns, model.id)
            cached = known.get(key)
            if cached is None or (cached.size_bytes, cached.mtime_ns, cached.model) != stamp:
                opening, facts = _find_format(model)
                if opening is None:
                    found[model.id] = facts
                    continue
                cached = _Cached(*stamp, facts)
            entries[key], found[model.id] = cached, cached.facts
    if any(known.get(key) is not entry for key, entry in entries.items()):
        _write_cache(path, known | entries)
    return found


def _find_format(model: LocalModel) -> tuple[str | None, FormatFacts]:
    """Returns the opening of a model's replies, None if the template could not be rendered; and its facts."""
    metadata = gguf.metadata(model.path)
    format = find_format(model.id, profile_of(model), metadata)
    opening = _reply_opening(metadata, format.format)
    has_template = bool(metadata.chat_template)
    return opening, FormatFacts(format.format.name, format.by, format.why, has_template, opening or "")


def _reply_opening(metadata: gguf.Metadata, format: Format) -> str | None:
    with suppress(DragomanError):  # without the extra `templates`, and for a template that rejects the question
        from dragoman.backends.text_mode.chat_template import ChatTemplate

        template = ChatTemplate(
            metadata.chat_template, metadata.bos, metadata.eos, metadata.control_tokens, metadata.user_tokens
        )
        return template.render(_QUESTION, format).suffix
    return None


def _default_file(config: EmbeddedConfig) -> FoundFile:
    name = config.model or catalog.default().name
    if name.endswith(".gguf") and not name.startswith("hf:"):
        path = Path(name).expanduser()
        return FoundFile(path.stem, path, "settings")
    path = weights.weights_path(name)
    if name.startswith("hf:"):
        return FoundFile(path.stem, path, "pulled", aliases=(name,))
    profile = catalog.get(name)
    return FoundFile(profile.name, path, "pulled", aliases=profile.aliases)


def _read_cache(path: Path) -> dict[str, _Cached]:
    try:
        cached = msgspec.json.decode(path.read_bytes(), type=_CacheFile)
    except (OSError, msgspec.DecodeError):
        return {}
    return cached.files if cached.version == __version__ else {}


def _write_cache(path: Path, files: dict[str, _Cached]) -> None:
    remaining = {key: entry for key, entry in files.items() if os.path.exists(key)}
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with suppress(OSError):  # they are found again next time
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(msgspec.json.encode(_CacheFile(__version__, remaining)))
        os.replace(part, path)
