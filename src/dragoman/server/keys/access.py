"""What an API key may do besides asking models, and what it may learn about itself."""

from datetime import UTC, datetime
from typing import Final

import msgspec

from dragoman.config.keys import KeyConfig
from dragoman.core.errors import ForbiddenError, quote
from dragoman.server.keys.key import ApiKey
from dragoman.usage_limits.admission import UsageLimits
from dragoman.usage_limits.report import usage_report

USAGE_PATH: Final = "/v1/usage"
"""Path at which a client gets the facts about its own key."""
_ADMIN_PATHS: Final = frozenset({"/metrics", "/models/load", "/models/unload"})
_ADMIN_PREFIX: Final = "/admin/"
_LIMITS: Final = [name for name in KeyConfig.__struct_fields__ if "_per_" in name or name == "max_concurrency"]


def check_path(key: ApiKey, path: str) -> None:
    """Refuses paths that concern all clients to keys that are not for administration.

    Raises:
        ForbiddenError: The key is not.
    """
    if not key.is_admin and (path in _ADMIN_PATHS or path.startswith(_ADMIN_PREFIX)):
        raise ForbiddenError(
            f"expected an API key with admin = true for {quote(path)}, got {key.name} - at keys.{key.name}.admin"
        )


async def usage_body(key: ApiKey, usage: UsageLimits | None) -> bytes:
    """Returns the facts about a key as JSON: what it may use, until when, its limits and its use; null: no limit.

    Args:
        key: The key.
        usage: The use of all keys; None: nothing counts it.

    Raises:
        BackendUnavailableError: The use cannot be read.
    """
    config = key.config
    expires = None if key.expires_s == float("inf") else datetime.fromtimestamp(key.expires_s, UTC).isoformat()
    used = await usage_report(usage, key.name, config) if usage is not None and key.name else {}
    return msgspec.json.encode(
        {
            "object": "key",
            "name": key.name or None,
            "admin": key.is_admin,
            "models": config.models or None,
            "upstreams": config.upstreams or None,
            "tools": config.tools or None,
            "expires_at": expires,
            "limits": {name: getattr(config, name) or None for name in _LIMITS},
        }
        | used
    )
