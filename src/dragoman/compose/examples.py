"""Connects a gateway with the examples that it learns."""

from pathlib import Path

from dragoman.compose.state import state_store
from dragoman.config import Config
from dragoman.gateway.examples.memory import ExampleMemory
from dragoman.gateway.gateway import Gateway
from dragoman.redaction.redact import Redactor


def remember_examples(gateway: Gateway, config: Config, shared_dir: Path | None) -> None:
    """Lets a gateway learn examples, if `examples.enabled` is set.

    Args:
        gateway: The gateway.
        config: Its settings.
        shared_dir: The private folder of several gateway processes; None: there is one process.

    Raises:
        ConfigError: The store of the settings cannot be used.
    """
    if config.examples.enabled:
        redactor = Redactor((*gateway.secret_values(), *config.server.api_keys))
        gateway.examples = ExampleMemory(config.examples, state_store(config.state, shared_dir), redactor)
