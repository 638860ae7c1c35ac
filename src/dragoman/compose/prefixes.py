"""Connects gateways that place requests by their prompts."""

from pathlib import Path

from dragoman.compose.state import state_store
from dragoman.config import Config
from dragoman.gateway.gateway import Gateway


def share_prefixes(gateway: Gateway, config: Config, shared_dir: Path | None, running: Gateway | None = None) -> None:
    """Lets a gateway know what others placed, if a rule has `balance = "prefix"`.

    Args:
        gateway: The gateway.
        config: Its settings.
        shared_dir: The private folder of several gateway processes; None: there is one process.
        running: The gateway that this one is to replace, whose placements it takes over; None: there is none.

    Raises:
        ConfigError: The store of the settings cannot be used.
    """
    if gateway.placer is None:
        return
    if running is not None and running.placer is not None:
        gateway.placer = running.placer
        return
    store = state_store(config.state, shared_dir)
    if store.does_io:
        gateway.placer.share(store)
