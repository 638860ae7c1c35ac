"""Connects a gateway with the examples that it learns."""

import os
from collections.abc import Mapping
from pathlib import Path

from dragoman.compose.state import state_store
from dragoman.config import Config
from dragoman.config.keys import plain_secrets
from dragoman.gateway.examples.memory import ExampleMemory
from dragoman.gateway.gateway import Gateway
from dragoman.redaction.redact import Redactor, secret_variables


def remember_examples(
    gateway: Gateway, config: Config, shared_dir: Path | None, environ: Mapping[str, str] = os.environ
) -> None:
    """Lets a gateway learn examples, if `examples.enabled` is set.

    Args:
        gateway: The gateway.
        config: Its settings.
        shared_dir: The private folder of several gateway processes; None: there is one process.
        environ: The environment variables, whose secrets are not stored.

    Raises:
        ConfigError: The store of the settings cannot be used.
    """
    if config.examples.enabled:
        own = (*config.server.api_keys, *plain_secrets(config.keys, environ))
        redactor = Redactor((*own, *gateway.secret_values(), *secret_variables(environ)))
        gateway.examples = ExampleMemory(config.examples, state_store(config.state, shared_dir), redactor)
