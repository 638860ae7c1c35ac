"""What the commands `console` and `watch` share: the console of a running gateway, or why it has none."""

from typing import Final, TypeVar

import msgspec

from dragoman.cli._common import missing_extras_message
from dragoman.cli.doctor.gateway_client import GatewayClient
from dragoman.console.api import ConsoleState, ErrorBody
from dragoman.core.errors import BackendUnavailableError, ConfigError

API: Final = "/console/api"
CHANGE: Final = {"x-dragoman-console": "1"}
"""Header of requests that change something."""
_OK: Final = 200
_KEY_NEEDED: Final = 401
_ABSENT: Final = 404
T = TypeVar("T")


async def fetch_state(gateway: GatewayClient) -> ConsoleState:
    """Returns the state of the console.

    Raises:
        BackendUnavailableError: the gateway does not respond.
        ConfigError: it has no console, or the console needs another key.
    """
    return await fetch(gateway, "/state", ConsoleState)


async def fetch(gateway: GatewayClient, path: str, shape: type[T], timeout_s: float = 10.0) -> T:
    """Returns what the API of the console answers.

    Args:
        gateway: the gateway.
        path: the path below `/console/api`.
        shape: the type of the value.
        timeout_s: time for the whole response.

    Raises:
        BackendUnavailableError: the gateway does not respond.
        ConfigError: it has no console, or the console needs another key.
    """
    status, body = await gateway.request("GET", f"{API}{path}", timeout_s=timeout_s)
    return read_answer(gateway, path, status, body, shape)


def read_answer(gateway: GatewayClient, path: str, status: int, body: bytes, shape: type[T]) -> T:
    """Returns the value of a response.

    Args:
        gateway: the gateway, for messages.
        path: the path below `/console/api`, for messages.
        status: the status of the response.
        body: its body.
        shape: the type of the value.

    Raises:
        BackendUnavailableError: the response is an error.
        ConfigError: there is no console, or it needs another key.
    """
    if status == _KEY_NEEDED:
        raise ConfigError(f"the console of {gateway.url} needs an API key with admin = true: set DRAGOMAN_API_KEY")
    if status == _ABSENT and path == "/state":
        raise ConfigError(no_console(gateway.url))
    if status != _OK:
        reason = error_message(status, body)
        raise BackendUnavailableError(f"the console of {gateway.url} cannot answer {path}: {reason}")
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BackendUnavailableError(
            f"the console of {gateway.url} is of another version ({gateway.version}) - at {path}: {error}"
        ) from None


def error_message(status: int, body: bytes) -> str:
    """Returns the message of a response with an error, or its status.

    Args:
        status: the status.
        body: the body.
    """
    try:
        return msgspec.json.decode(body, type=ErrorBody).error.message
    except (msgspec.DecodeError, UnicodeDecodeError):
        return f"status {status}"


def no_console(url: str) -> str:
    """Returns why a gateway has no console, and what to do."""
    if missing := missing_extras_message("console", doing="the console"):
        return f"the gateway at {url} has no console: {missing}; restart the gateway then"
    return (
        f"the gateway at {url} has no console: console.enabled = true turns it on (by default it is on if only this "
        "machine can reach the gateway); restart the gateway then"
    )
