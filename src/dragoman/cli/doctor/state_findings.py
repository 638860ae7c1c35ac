"""Whether the servers of shared state can be used."""

import asyncio
import logging
from typing import Final

from dragoman.cli.doctor.finding import Finding, check
from dragoman.compose.state import state_store
from dragoman.core.errors import BackendUnavailableError, ConfigError
from dragoman.state.config import StateConfig

_READ_LOG: Final = "doctor"


async def state_found(config: StateConfig) -> list[Finding]:
    """Returns a finding for each server that the settings name; the tables of a database are created."""
    servers = {
        "state.url": StateConfig(url=config.url),
        "state.database_url": StateConfig(database_url=config.database_url),
    }
    named = {name: server for name, server in servers.items() if server != StateConfig()}
    logger = logging.getLogger("dragoman.state")
    logger.addFilter(_is_error)  # the findings have the reason
    try:
        return await asyncio.gather(*(asyncio.to_thread(_finding, name, server) for name, server in named.items()))
    finally:
        logger.removeFilter(_is_error)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _finding(name: str, server: StateConfig) -> Finding:
    try:
        store = state_store(server, None)
        store.read_log(_READ_LOG)
        store.close()
    except ConfigError as error:
        return check(name, "no", error.message)
    except BackendUnavailableError as error:
        reason = "; ".join(getattr(error, "__notes__", ())) or error.message
        return check(name, "no", f"cannot be used: {reason}")
    return Finding(name, "ok", "responds; replicas share its state")
