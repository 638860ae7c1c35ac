"""`dragoman models rm`: deletes a model that Dragoman downloaded."""

import argparse
import asyncio
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.local import stores
from dragoman.backends.embedded.local.files import LocalModel
from dragoman.backends.embedded.local.find_model import find_model, unknown_model
from dragoman.backends.embedded.local.model_facts import LocalModels, find_local_models
from dragoman.backends.embedded.weights.removal import files_of_weights, remove_weights, size_of
from dragoman.cli._terminal import printable
from dragoman.cli.models.loaded import find_states, gateway_address, load_settings, unload
from dragoman.core.errors import ConfigError, DragomanError


def run(args: argparse.Namespace) -> int:
    """Deletes the model, after a question at the terminal.

    Raises:
        ConfigError: it is unknown, belongs to another program, or is pinned; or there is no terminal and no `--yes`.
        RemoteError: the gateway does not unload it.
    """
    config = load_settings(args)
    local = find_local_models(config.embedded)
    model = find_model(local, args.name)
    if model is not None and model.path.parent != weights.cache_dir() / "weights":
        raise ConfigError(_refusal(model))
    file = model.path if model else _partial_download(local, args.name)
    name = model.id if model else args.name
    files = files_of_weights(file)
    size_bytes = size_of(files)
    state = (find_states(args, config) or {}).get(name)
    if not args.yes and not _confirm(name, file, size_bytes, state):
        print("nothing was deleted", file=sys.stderr)
        return 0
    if state is not None:
        asyncio.run(unload(gateway_address(args, config), name))
    shared = _in_hub_cache(file, config.embedded)
    remove_weights(files)
    _report(args, name, files, size_bytes, shared)
    if model is not None and model.id == local.default:
        print("it is the model of the settings: `dragoman serve` downloads it again", file=sys.stderr)
    return 0


def _refusal(model: LocalModel) -> str:
    match model.origin:
        case "ollama":
            return f"{model.id} belongs to Ollama; to delete it: ollama rm {shlex.quote(model.id)}"
        case "lmstudio":
            return f"{model.id} belongs to LM Studio, which deletes it in its list of models; its file is {model.path}"
        case "huggingface":
            file = model.aliases[0].removeprefix("hf:") if model.aliases else ""
            return f"{model.id} is in the Hugging Face cache; to delete it: hf cache rm {shlex.quote(f'hf://models/{file}')}"
        case _:
            return f"{model.id} is a file of yours, which was not downloaded by Dragoman; delete {model.path} yourself"


def _partial_download(local: LocalModels, name: str) -> Path:
    """Returns where the weights would be, for a model of which only a part was downloaded.

    Raises: ConfigError: there is nothing of it.
    """
    try:
        file = weights.weights_path(name)
    except DragomanError:
        raise unknown_model(local, name) from None
    if not files_of_weights(file):
        raise unknown_model(local, name)
    return file


def _confirm(name: str, file: Path, size_bytes: int, state: Mapping[str, Any] | None) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError(f"deleting {name} needs a yes: add --yes, as there is no terminal to ask at")
    where = f"{weights.format_size(size_bytes)}, in {file.parent}"
    loaded = f"; it is {state['state']} in the running gateway, and unloaded first" if state else ""
    print(printable(f"delete {name} ({where}){loaded}? [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _in_hub_cache(file: Path, config: EmbeddedConfig) -> str:
    """Returns the name of the same bytes in the Hugging Face cache; "": they are not there."""
    if not file.is_file() or file.stat().st_nlink == 1:
        return ""
    for found in stores.scan((), discover=config.discover).files:
        if found.origin == "huggingface" and found.aliases and found.path.exists() and found.path.samefile(file):
            return found.aliases[0].removeprefix("hf:")
    return ""


def _report(args: argparse.Namespace, name: str, files: list[Path], size_bytes: int, shared: str) -> None:
    if args.json:
        print(json.dumps({"name": name, "size_bytes": size_bytes, "deleted": [str(file) for file in files]}, indent=2))
    else:
        print(printable(f"deleted {name}, {weights.format_size(size_bytes)}"))
    if shared:
        command = f"hf cache rm {shlex.quote(f'hf://models/{shared}')}"
        print(
            f"the Hugging Face cache has the same file and keeps its bytes; to delete it too: {command}",
            file=sys.stderr,
        )
