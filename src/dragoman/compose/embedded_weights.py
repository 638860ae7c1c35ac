"""The weights of embedded models: where they are, and their download."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.local.files import find_model
from dragoman.backends.embedded.local.stores import FoundFile
from dragoman.catalog import models
from dragoman.compose.progress import Report, no_report
from dragoman.core.errors import ConfigError

LARGE_BYTES: Final = 500_000_000
"""Reading weights of this size to verify their checksum takes a second or more."""


def get_weights(
    config: EmbeddedConfig, report: Report = no_report, download: Callable[[str], Path] = weights.download
) -> Path:
    """Returns the weights of the configured model, and downloads them first if they are missing.

    Args:
        config: the settings of the embedded model.
        report: receives what takes long.
        download: downloads the weights of the model of this name and returns their path.

    Raises:
        ConfigError: the model is unknown, or its weights are missing and may not be downloaded.
        RemoteError: the download failed.
    """
    model = config.model or models.default().name
    if is_weights_file(model) or not config.auto_download or _local_file(config, model) or weights.is_downloaded(model):
        return find_weights(config, report)
    report(f"downloading the weights of {model} (first use only)")
    path = download(model)
    if not config.model:
        report("this small model is for trying things out; for agents: dragoman pull qwen2.5-coder-1.5b")
    return path


def find_weights(config: EmbeddedConfig, report: Report = no_report) -> Path:
    """Returns the weights of the configured model, which are on this machine; `report` receives what takes long.

    Raises:
        ConfigError: the model is unknown, or its weights are missing or have changed.
    """
    model = config.model or models.default().name
    local = _local_file(config, model)
    return local.path if local else weights.find_weights(model, _report_large(model, report))


def embedded_model_name(config: EmbeddedConfig) -> str:
    """Returns the name under which the embedded model is served.

    Raises: ConfigError: the model is unknown, or its weights are missing and may not be downloaded.
    """
    if not config.enabled:
        raise ConfigError("nothing to serve: embedded.enabled is false and no other backend is configured")
    model = config.model or models.default().name
    if _local_file(config, model):
        return model
    file = is_weights_file(model)
    path = weights.find_weights(model) if file or not config.auto_download else weights.weights_path(model)
    return path.stem if file or model.startswith("hf:") else models.get(model).name


def is_embedded_model(model: str, config: EmbeddedConfig) -> bool:
    """Whether this names a model that can be embedded: a GGUF file, or one on Hugging Face, in the catalogue, or here.

    Args:
        model: the name.
        config: the settings, with the folders of models.
    """
    return bool(model) and (_has_weights(model) or _local_file(config, model) is not None)


def _has_weights(model: str) -> bool:
    """Whether `weights` knows this name."""
    return is_weights_file(model) or model.startswith("hf:") or models.find(model) is not None


def _local_file(config: EmbeddedConfig, model: str) -> FoundFile | None:
    """Returns the file of a model that only this machine has a name for, such as one of Ollama."""
    return None if _has_weights(model) else find_model(config, model)


def is_weights_file(model: str) -> bool:
    """Whether this is the path of a GGUF file, not the name of a model in the catalogue or on Hugging Face."""
    return model.endswith(".gguf") and not model.startswith("hf:")


def _report_large(model: str, report: Report) -> weights.Progress:
    """Reports, once, that large weights are being verified."""
    reported: list[str] = []

    def progress(done: int, total: int, what: str) -> None:
        if not reported and total - done >= LARGE_BYTES:
            reported.append(what)
            report(f"{what} the weights of {model}, which are new here or have changed")

    return progress
