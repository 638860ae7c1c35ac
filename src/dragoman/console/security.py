"""Who may use the console: checks of each request, and headers of each response.

host, origin and Sec-Fetch-Site   of this gateway's own pages only, so that no other web page can use or read it
session or API key                for everything but the sign-in page, if the gateway has keys
X-Dragoman-Console, JSON          for requests that change something: another site's form can send neither
"""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote as quote_path
from urllib.parse import urlencode

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragoman.config.checks import is_reachable
from dragoman.console.responses import BODY_TIMEOUT, error_response
from dragoman.console.sessions import COOKIE, Sessions
from dragoman.core.errors import AuthError, DragomanError, ForbiddenError, quote
from dragoman.server import paths
from dragoman.server.app import App
from dragoman.server.keys.key import ApiKey

KEY: Final = "dragoman.key"
"""Name of the `ApiKey` of a request in its ASGI scope; absent: the request has none."""
CHANGE_HEADER: Final = "x-dragoman-console"
API: Final = f"{paths.CONSOLE}/api"
LOGIN: Final = f"{paths.CONSOLE}/login"
ASSETS: Final = f"{paths.CONSOLE}/assets"
_MAX_NEXT_CHARS: Final = 2000
"""Length of the address up to which a sign-in returns to its page."""
_SESSION: Final = re.compile(rf"(?:^|;[ \t]*){COOKIE}=([0-9a-f.]{{1,120}})(?:;|$)")
"""The session in a cookie header. `http.cookies` takes quadratic time for a header of backslashes (Python 3.11.7)."""
_READS: Final = ("GET", "HEAD")
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
"""Headers of every response: nothing of another host is loaded, and no other page can show or read it."""


class ConsoleGuard:
    """ASGI middleware that refuses requests from elsewhere and without a session."""

    def __init__(self, inner: ASGIApp, app: App, sessions: Sessions) -> None:
        """Args:
        inner: answers the requests that are allowed.
        app: the gateway, for its keys and host names.
        sessions: verifies cookies.
        """
        self._inner, self._app, self._sessions = inner, app, sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        path = paths.own_path(scope)
        headers = paths.join_headers(scope["headers"])

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = _HEADERS | ({} if path.startswith(f"{ASSETS}/") else {"cache-control": "no-store"})
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in own.items())]
            await send(message)

        try:
            self._app.snapshot.check_host(headers)
            self._check_site(scope, path, headers)
            key = self._find_key(headers)
            if key is None and _needs_key(path):
                raise AuthError("expected a session of an API key with admin = true; sign in at /console/login")
        except DragomanError as error:
            is_page = scope["method"] in _READS and not path.startswith(f"{API}/")
            location = login_address(path, scope["query_string"]) if isinstance(error, AuthError) and is_page else ""
            await refuse(error, location)(scope, receive, send_protected)
            return
        more = {BODY_TIMEOUT: self._app.snapshot.config.body_timeout_s} | ({} if key is None else {KEY: key})
        await self._inner({**scope, **more}, receive, send_protected)

    def _check_site(self, scope: Scope, path: str, headers: Mapping[str, str]) -> None:
        """Refuses requests of other web pages.

        Raises:
            ForbiddenError: the request is one.
        """
        reads = scope["method"] in _READS
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if origin is not None and origin.partition("://")[2] != headers.get("host", ""):
            raise ForbiddenError(f"expected a request of the console's own pages, got one of {quote(origin)}")
        opens_page = reads and not path.startswith(f"{API}/") and headers.get("sec-fetch-mode") == "navigate"
        if site not in ("same-origin", "none") and not (opens_page and headers.get("sec-fetch-dest") == "document"):
            raise ForbiddenError(f"expected a request of the console's own pages, got one that is {quote(site)}")
        if not reads and (
            headers.get(CHANGE_HEADER) != "1" or headers.get("content-type", "").partition(";")[0] != "application/json"
        ):
            raise ForbiddenError(f"expected the header {CHANGE_HEADER}: 1 and JSON, got a request without them")

    def _find_key(self, headers: Mapping[str, str]) -> ApiKey | None:
        """Returns the key of a request; None: it has none with the right to administer."""
        snapshot = self._app.snapshot
        key = snapshot.keys.find(headers)
        if not snapshot.keys.is_on:
            return None if is_reachable(snapshot.config) else key
        if key is not None and key.is_admin:
            return key
        cookie = read_cookie(headers)
        return self._sessions.find(cookie, snapshot.keys) if cookie else None


def _needs_key(path: str) -> bool:
    return not (path in (LOGIN, f"{paths.CONSOLE}/logout") or path.startswith(f"{ASSETS}/"))


def read_cookie(headers: Mapping[str, str]) -> str:
    """Returns the value of the session cookie; "": the request has no session.

    Args:
        headers: the headers of the request.
    """
    found = _SESSION.search(headers.get("cookie", ""))
    return found[1] if found else ""


def login_address(path: str, query: bytes) -> str:
    """Returns the address of the sign-in that leads to a page of the console afterwards.

    Args:
        path: the path of the page, decoded.
        query: its query, as the request has it.
    """
    page = quote_path(path, errors="replace") + (f"?{query.decode('latin-1')}" if query else "")
    is_kept = page != paths.CONSOLE and f"{path}/".startswith(f"{paths.CONSOLE}/")
    return f"{LOGIN}?{urlencode({'next': page})}" if is_kept and len(page) <= _MAX_NEXT_CHARS else LOGIN


def refuse(error: DragomanError, location: str = "") -> Any:
    """Returns the response to a request that is not answered.

    Args:
        error: why it is not.
        location: where a browser should go instead; "": nowhere.
    """
    if location:
        from starlette.responses import RedirectResponse

        return RedirectResponse(location, 303)
    is_unknown = isinstance(error, AuthError)
    return error_response(401 if is_unknown else 403, "unauthorized" if is_unknown else "forbidden", error.message)
