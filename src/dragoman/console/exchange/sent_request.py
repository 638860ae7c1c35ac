"""Sends an edited request through this gateway, as a client would, and relays the response as it arrives.

The request is captured if captures are on. It can be sent to one upstream server: it then has a key that may use no
other.
"""

from collections.abc import MutableMapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dragoman import dialects
from dragoman.console.captures import ConsoleCaptures
from dragoman.console.responses import read_json
from dragoman.console.security import KEY
from dragoman.console.services import ConsoleServices
from dragoman.core.client import Permissions
from dragoman.core.errors import ForbiddenError, NotFoundError, RequestError, one_of, quote
from dragoman.gateway.routing.router import backend_name
from dragoman.server.capture.store import HEADER
from dragoman.server.client_watch import ON_DISCONNECT, Asgi
from dragoman.server.keys.key import REQUEST_KEY, UNNAMED, ApiKey

AGENT: Final = "dragoman-console"
_ENVELOPE_BYTES: Final = 64 * 1024
_PATTERN_CHARS: Final = "[*?"


class SendOrder(msgspec.Struct, forbid_unknown_fields=True):
    """A request to send."""

    path: str
    """The path of one of the APIs."""
    body: msgspec.Raw
    model: str = ""
    """The model to use instead of that of the body; empty: that of the body."""
    upstream: str = ""
    """The only backend that may answer; empty: any."""
    like: str = ""
    """Request id of a captured exchange, whose headers for the upstream server are sent too; empty: none."""


async def send_request(services: ConsoleServices, request: Request) -> Response:
    """Returns the response of the gateway to the request in the body.

    Args:
        services: The services of the console.
        request: The request of the page, with a `SendOrder`.

    Raises:
        RequestError: The order is not valid.
        NotFoundError: There is no such upstream server.
        ForbiddenError: The key of the session may not use it.
    """
    app = services.app
    order = await read_json(request, SendOrder, app.snapshot.config.max_body_bytes + _ENVELOPE_BYTES)
    known = [dialects.get(name).path for name in dialects.names()]
    if order.path not in known:
        raise RequestError(f"unknown path {quote(order.path)}{one_of(order.path, known, 'expected ')} - at path")
    key = request.scope.get(KEY) or UNNAMED
    headers = await _headers(services.captures, order)
    headers["host"] = request.headers.get("host", "")
    scope = {
        "type": "http",
        "asgi": request.scope["asgi"],
        "http_version": "1.1",
        "scheme": request.scope.get("scheme", "http"),
        "method": "POST",
        "path": order.path,
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        "client": request.scope.get("client"),
        "server": request.scope.get("server"),
        "extensions": {
            name: value for name, value in (request.scope.get("extensions") or {}).items() if name == ON_DISCONNECT
        },
        REQUEST_KEY: _pinned(services, key, order.upstream) if order.upstream else key,
    }
    return _GatewayResponse(app, scope, _body(order))


def _body(order: SendOrder) -> bytes:
    """Returns the body, with the model of the order if it has one.

    Raises:
        RequestError: The body is not a JSON object.
    """
    try:
        fields = msgspec.json.decode(order.body, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        raise RequestError(f"expected a JSON object, got something else: {error} - at body") from None
    if not order.model:
        return bytes(order.body)
    return msgspec.json.encode({**fields, "model": order.model})


async def _headers(captures: ConsoleCaptures, order: SendOrder) -> dict[str, str]:
    headers = {"content-type": "application/json", "user-agent": AGENT, HEADER: "on"}
    capture = await captures.load(order.like) if order.like else None
    if capture is not None:
        sent = capture.json("request.json").get("headers", {})
        names = {name for each in dialects.names() for name in dialects.get(each).forwarded_headers}
        headers |= {name: value for name, value in sent.items() if name in names and value.isascii()}
    return headers


def _pinned(services: ConsoleServices, key: ApiKey, upstream: str) -> ApiKey:
    """Returns the key, which may use no other upstream server.

    Raises:
        NotFoundError: There is no such server.
        ForbiddenError: The key may not use it.
    """
    known = sorted(backend_name(backend) for backend in services.app.snapshot.gateway.backends)
    if upstream not in known:
        raise NotFoundError(f"unknown upstream {quote(upstream)}{one_of(upstream, known, 'expected ')} - at upstream")
    permissions = key.client.permissions or Permissions()
    if not permissions.admits_upstream(upstream):
        raise ForbiddenError(f"the API key {key.name} may not use the upstream {quote(upstream)} - at upstream")
    pattern = "".join(f"[{char}]" if char in _PATTERN_CHARS else char for char in upstream)
    client = replace(key.client, permissions=replace(permissions, upstreams=(pattern,)))
    return replace(key, client=client)


class _GatewayResponse(Response):
    """The response of the gateway to a request of its own."""

    def __init__(self, app: Asgi, scope: dict[str, Any], body: bytes) -> None:
        super().__init__()
        self._app, self._scope, self._request_body = app, scope, body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets the gateway answer in this response's place."""
        pending = [self._request_body]

        async def receive_body() -> MutableMapping[str, Any]:
            if pending:
                return {"type": "http.request", "body": pending.pop(), "more_body": False}
            return await receive()

        await self._app(self._scope, receive_body, send)
