"""How agents and SDKs identify themselves: the rows of `clients.toml`."""

from functools import cache
from importlib import resources

import msgspec
from msgspec import Struct

from dragoman.core.errors import ConfigError


class ClientRole(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of an agent, and the conditions by which its requests are recognized; all that are stated must hold."""

    role: str
    header: str = ""
    """Name of a header, in lower case, that the request must have."""
    values: tuple[str, ...] = ()
    """Values of the header, one of which is required; empty: any."""
    system: tuple[str, ...] = ()
    """Texts, one of which one of the first blocks of the system prompt must contain near its start."""
    last_message: tuple[str, ...] = ()
    """Texts, one of which the last message must contain near its start."""
    answer_field: str = ""
    """A property that the schema of the response must have."""
    has_tools: bool | None = None
    """Whether tools are offered; None: either."""
    models: tuple[str, ...] = ()
    """Texts, one of which the name of the model must contain."""


class KnownClient(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An agent or SDK."""

    name: str
    """Its name in logs, records and conditions of routes."""
    title: str
    """The name as users know it."""
    source: str
    """Where the facts of this row come from, with the date."""
    products: tuple[str, ...] = ()
    """The first product names of its header `user-agent`, in lower case."""
    system: tuple[str, ...] = ()
    """Texts near the start of the system prompt of an agent that sends the `user-agent` of an SDK."""
    sessions: tuple[str, ...] = ()
    """Headers with the id of the conversation, the preferred one first."""
    is_sdk: bool = False
    """Whether programs of any kind use it, so that it has no roles."""
    roles: tuple[ClientRole, ...] = ()


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    client: tuple[KnownClient, ...]


def read(data: bytes) -> tuple[KnownClient, ...]:
    """Decodes the rows of a TOML file, in their order.

    Raises:
        ConfigError: A field is unknown, missing or invalid.
    """
    try:
        return msgspec.toml.decode(data, type=_File).client
    except msgspec.DecodeError as error:
        raise ConfigError(f"clients file: {error}") from error


@cache
def clients() -> tuple[KnownClient, ...]:
    """Returns all rows."""
    return read(resources.files(__package__).joinpath("clients.toml").read_bytes())


@cache
def roles() -> tuple[str, ...]:
    """Returns all roles that a request can have."""
    named = {role.role for client in clients() for role in client.roles}
    return ("main", *sorted(named))
