"""Token counts that a server's API reports."""

import logging
from collections.abc import Collection, Mapping

import msgspec

from dragoman.backends.http.connection import UpstreamConnection
from dragoman.core.errors import BackendUnavailableError, RequestError
from dragoman.wire.dialect import TokenCounting

log = logging.getLogger("dragoman.backends.http")


def count_body(body: bytes, forwarded_fields: Collection[str]) -> bytes:
    """Returns the body for counting the tokens of the request with this body."""
    written = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({name: raw for name, raw in written.items() if name in forwarded_fields})


async def fetch_count(
    name: str, connection: UpstreamConnection, counting: TokenCounting, body: bytes, headers: Mapping[str, str]
) -> int | None:
    """Returns the server's token count, or None if the request fails, or the count is an estimate.

    Args:
        name: The server's name in the settings.
        connection: Its connection.
        counting: The token counting of its API.
        body: The body, from `count_body`.
        headers: Headers of the request.
    """
    try:
        response = await connection.request(counting.path, body, headers)
        if response.status != 200 or response.headers.get("x-dragoman-token-count") == "estimated":
            return None
        return counting.read_count(response.body)
    except (BackendUnavailableError, RequestError) as e:
        log.warning("%s does not count tokens: %s", name, e)
        return None
