"""The API key of a request."""

import math
from typing import Final

import msgspec

from dragoman.config.keys import KeyConfig


class ApiKey(msgspec.Struct, frozen=True):
    """A valid API key.

    It is built again when the keys are read again: what outlives a request belongs to the name.
    """

    name: str
    """The name; empty: one of `server.api_keys`, or no key is needed."""
    config: KeyConfig
    expires_s: float = math.inf
    """Seconds since 1970 at which it expires."""

    @property
    def is_admin(self) -> bool:
        """Whether it may use everything that concerns all clients."""
        return self.config.admin


UNNAMED: Final = ApiKey("", KeyConfig(admin=True))
"""A key with all rights and without limits; also what requests have if no keys are set."""
