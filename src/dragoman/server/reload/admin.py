"""POST /admin/reload: reloads the configuration, and reports what has changed as JSON."""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from dragoman.config.checks import is_reachable
from dragoman.core.errors import ForbiddenError
from dragoman.server.base_exchange import respond
from dragoman.server.client_watch import Send
from dragoman.server.reload.report import ReloadReport
from dragoman.server.reload.snapshot import Snapshot

PATH: Final = "/admin/reload"
_REJECTED: Final = 422


async def answer_reload(reload: Callable[[str], Awaitable[ReloadReport]], snapshot: Snapshot, send: Send) -> None:
    """Answers a request whose API key, if there are keys, and origin were checked.

    Args:
        reload: reloads the configuration; its argument is the cause, for the log.
        snapshot: the configuration of the request.
        send: sends the response.

    Raises:
        ForbiddenError: other machines can reach the gateway, and it has no keys.
    """
    if not snapshot.keys.is_on and is_reachable(snapshot.config):
        raise ForbiddenError(
            "expected a gateway with API keys, as other machines can reach this one: set server.api_keys, run "
            "`dragoman keys create NAME --admin`, or reload it with SIGHUP"
        )
    report = await reload(f"POST {PATH}")
    await respond(send, _REJECTED if report.result == "rejected" else 200, msgspec.json.encode(report))
