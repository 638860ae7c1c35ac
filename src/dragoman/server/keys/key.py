"""The API key of a request."""

import hashlib
import math
from typing import Final

import msgspec

from dragoman.config.keys import KeyConfig, expiry_time
from dragoman.core.client import ANONYMOUS, ClientFacts, Permissions

REQUEST_KEY: Final = "dragoman.request_key"
"""Name of the `ApiKey` in the ASGI scope of a request that this process makes itself; requests of clients have none."""


class ApiKey(msgspec.Struct, frozen=True):
    """A valid API key.

    It is built again when the keys are read again: what outlives a request belongs to the name.
    """

    name: str
    """The name; empty: one of `server.api_keys`, or no key is needed."""
    config: KeyConfig
    expires_s: float = math.inf
    """Seconds since 1970 at which it expires."""
    client: ClientFacts = ANONYMOUS
    """The facts about a client with this key."""

    @classmethod
    def from_config(cls, name: str, config: KeyConfig) -> "ApiKey":
        """Returns the key of these checked settings."""
        limited = config.models or config.upstreams or config.tools
        permissions = Permissions(config.models, config.upstreams, config.tools) if limited else None
        client = ClientFacts(key=name, permissions=permissions)
        return cls(name, config, expiry_time(config.expires, f"at keys.{name}.expires"), client)

    @classmethod
    def unnamed(cls, digest: bytes) -> "ApiKey":
        """Returns the key of a secret without a name.

        Args:
            digest: The SHA-256 of the secret.
        """
        return cls("", UNNAMED.config, client=ClientFacts(secret_id=hashlib.sha256(digest).hexdigest()))

    @property
    def is_admin(self) -> bool:
        """Whether it may use everything that concerns all clients."""
        return self.config.admin


UNNAMED: Final = ApiKey("", KeyConfig(admin=True))
"""A key with all rights and without limits; also what requests have if no keys are set."""
NO_RIGHTS: Final = ApiKey("", KeyConfig())
"""Stands for a missing key at paths that need none."""
