"""The models to choose from, best first: of servers, of files on this machine, to download, of Claude Code."""

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.gguf import Shape
from dragoman.backends.embedded.local.files import LocalModel
from dragoman.catalog import models as catalog
from dragoman.catalog.models import ModelProfile
from dragoman.cli.init.machine import FoundServer, Machine
from dragoman.core.errors import ConfigError, nearest, quote

ChoiceKind: TypeAlias = Literal["server", "file", "download", "claude"]

CLAUDE_MODEL: Final = "sonnet"
_NOT_CHAT: Final = re.compile(r"(?i)embed|rerank|whisper|(?:^|[/_-])bge-|tts")
"""Names of models that write no text."""
_AGENT_BYTES: Final = 900_000_000
"""Models in smaller files seldom write the calls of an agent."""
_MEMORY_PER_BYTE: Final = 2.0
"""Memory of a model whose file is not here, for each byte of it, without the KV cache."""
_CACHE_BYTES_PER_TOKEN: Final = 30_000
"""Of such a model: that of the models in the catalogue for agents of 1 to 2 billion parameters."""
_DEFAULTS: Final = EmbeddedConfig()
_ORIGINS: Final = {
    "pulled": "downloaded",
    "ollama": "Ollama's file",
    "lmstudio": "LM Studio's file",
    "huggingface": "in the Hugging Face cache",
}


class ModelChoice(NamedTuple):
    """A model that agents can use."""

    kind: ChoiceKind
    name: str
    """The model as requests name it."""
    about: str
    """For the user: where it is, its size, its use."""
    server: FoundServer | None = None
    setting: str = ""
    """Value of `embedded.model`."""
    shape: Shape | None = None
    """Sizes in the file's header."""
    size_bytes: int = 0

    @property
    def is_embedded(self) -> bool:
        """Whether Dragoman runs it itself."""
        return self.kind in ("file", "download")


def list_choices(machine: Machine) -> list[ModelChoice]:
    """Returns the models, the default first."""
    files = [_file_choice(model, machine.memory_bytes) for model in machine.files]
    suitable = [choice for choice in files if is_agent_model(choice) and is_small_enough(choice, machine.memory_bytes)]
    suitable.sort(key=lambda choice: -choice.size_bytes)
    downloads = list(_downloads(machine, [choice.name for choice in files]))
    larger = [choice for choice in downloads if is_agent_model(choice)] if not suitable else []
    others = sorted((choice for choice in files if choice not in suitable), key=lambda choice: choice.size_bytes)
    small = [choice for choice in downloads if not is_agent_model(choice)]
    claude = [
        ModelChoice("claude", CLAUDE_MODEL, "Claude Code's own models, with your login; also for other agents")
    ] * machine.has_claude_login
    return [*_server_choices(machine), *suitable, *larger, *others, *small, *claude]


def find_choice(name: str, choices: list[ModelChoice]) -> ModelChoice:
    """Returns the model with this name; of several, the first.

    Raises: ConfigError: there is none; the message suggests the nearest.
    """
    for choice in choices:
        if name in (choice.name, f"{choice.server.name}/{choice.name}" if choice.server else ""):
            return choice
    if row := catalog.find(name):
        return next((choice for choice in choices if choice.name == row.name), None) or _download_choice(row)
    names = list(dict.fromkeys([*(choice.name for choice in choices), *(row.name for row in catalog.models())]))
    hint = nearest(name, names) or f"; expected one of {', '.join(names)}"
    raise ConfigError(f"unknown model {quote(name)}{hint}")


def is_agent_model(choice: ModelChoice) -> bool:
    """Whether the model is of use to an agent, as far as its catalogue row or its size tells."""
    if choice.is_embedded and (row := catalog.find(choice.name)):
        return row.agents
    return not choice.is_embedded or choice.size_bytes >= _AGENT_BYTES


def is_small_enough(choice: ModelChoice, memory_bytes: int | None, config: EmbeddedConfig = _DEFAULTS) -> bool:
    """Whether the model fits into memory with these settings.

    Args:
        choice: a model that Dragoman runs itself.
        memory_bytes: the memory for models; None: unknown.
        config: the context window and the concurrency slots.
    """
    if memory_bytes is None:
        return True
    if choice.shape is None:
        tokens = (config.context_window or 8192) * config.max_concurrency
        return choice.size_bytes * _MEMORY_PER_BYTE + tokens * _CACHE_BYTES_PER_TOKEN <= memory_bytes
    from dragoman.backends.embedded.local.memory import needed_bytes  # the amount of memory is known, so psutil is here

    return needed_bytes(choice.size_bytes, choice.shape, config) <= memory_bytes


def served_on_request(machine: Machine, choice: ModelChoice) -> list[str]:
    """Returns the other models on this machine, which an embedded model's gateway serves too."""
    return [model.id for model in machine.files if choice.is_embedded and model.id != choice.name]


def _server_choices(machine: Machine) -> Iterator[ModelChoice]:
    for server in machine.servers:
        for model in server.models:
            if not _NOT_CHAT.search(model):
                yield ModelChoice("server", model, server.title, server)


def _file_choice(model: LocalModel, memory_bytes: int | None) -> ModelChoice:
    about = f"{weights.format_size(model.size_bytes)}, {_ORIGINS.get(model.origin, 'on this machine')}"
    choice = ModelChoice("file", model.id, about, None, _setting(model), model.shape, model.size_bytes)
    if not is_agent_model(choice):
        return choice._replace(about=f"{about}; small, to try things out")
    return (
        choice
        if is_small_enough(choice, memory_bytes)
        else choice._replace(about=f"{about}; more than the memory available")
    )


def _setting(model: LocalModel) -> str:
    """Returns the value of `embedded.model` for this model: its name, unless that means a model of the catalogue."""
    return str(model.path) if catalog.find(model.id) and model.origin != "pulled" else model.id


def _downloads(machine: Machine, here: list[str]) -> Iterator[ModelChoice]:
    """Yields the smallest model for agents that fits into memory, and the default model."""
    agents = [_download_choice(row) for row in catalog.models() if row.agents and row.name not in here]
    yield from [choice for choice in agents if is_small_enough(choice, machine.memory_bytes)][:1]
    if catalog.default().name not in here:
        yield _download_choice(catalog.default())


def _download_choice(row: ModelProfile) -> ModelChoice:
    use = "" if row.agents else "; small, to try things out"
    about = f"{weights.format_size(row.size_bytes)} to download{use}"
    return ModelChoice("download", row.name, about, None, row.name, None, row.size_bytes)
