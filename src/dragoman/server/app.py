"""The ASGI application: routes, who may ask, life and death.

    POST /v1/chat/completions, /v1/messages     the dialects, each under its own path
    GET  /v1/models, /v1/models/{id}            one object that both families of clients understand
    GET  /health, /ready                        what runs; whether it can answer (503 while not)
    HEAD, GET /                                 probes of clients

A plain ASGI callable: it can be mounted anywhere that runs ASGI, with the lifespan of its host.
"""

import hmac
import logging
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from dragoman import __version__, dialects
from dragoman.core.contracts import Dialect, Model
from dragoman.core.errors import AuthError, DragomanError, ForbiddenError, NotFoundError, quote
from dragoman.gateway import Gateway
from dragoman.server.answer import Exchange, Receive, Scope, Send, error_headers, respond
from dragoman.server.config import LOOPBACK, ServerConfig

log = logging.getLogger("dragoman.server")


class App:
    """The gateway as an ASGI application."""

    def __init__(self, gateway: Gateway, config: ServerConfig) -> None:
        self._gateway = gateway
        self._config = config
        self._hosts = {*LOOPBACK, *config.allowed_hosts, config.host}
        self._by_path = {d.path: d for d in map(dialects.get, dialects.names())}
        self._gets = {"/": self._root, "/health": self._health, "/ready": self._ready, "/v1/models": self._models}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
            try:
                self._admit(scope["path"], headers)
                await self._route(scope, headers, receive, send)
            except DragomanError as error:
                dialect = self._dialect_for(scope["path"], headers)
                await respond(send, dialect.status(error), dialect.write_error(error), error_headers(error))

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self._gateway.start()
                except DragomanError as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._gateway.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _route(self, scope: Scope, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        dialect = self._by_path.get(path)
        if dialect is not None and method == "POST":
            await Exchange(dialect, self._gateway, self._config, receive, send).run(headers)
        elif method in ("GET", "HEAD") and path in self._gets:
            await self._gets[path](send)
        elif method == "GET" and path.startswith("/v1/models/"):
            await self._model(path.removeprefix("/v1/models/"), send)
        elif method == "OPTIONS":
            await respond(send, 200, b"{}", {"allow": "GET, HEAD, POST, OPTIONS"})
        else:
            served = ", ".join([*(f"POST {p}" for p in self._by_path), *(f"GET {p}" for p in self._gets)])
            raise NotFoundError(f"nothing is served at {method} {quote(path)}; there are {served}")

    def _admit(self, path: str, headers: Mapping[str, str]) -> None:
        """Refuse strangers: a foreign Host or Origin is a web page in the user's browser (DNS rebinding).

        Raises: ForbiddenError, AuthError.
        """
        asked = [("host", f"//{headers.get('host', '')}")]
        if "origin" in headers:
            asked.append(("origin", headers["origin"]))
        for what, url in asked:
            if "*" not in self._hosts and _host_name(url) not in self._hosts:
                got = quote(headers.get(what, ""))
                raise ForbiddenError(f"{what} {got} is not served; add it to server.allowed_hosts if it should be")
        if self._config.keys and path not in ("/", "/health", "/ready"):
            scheme, _, token = headers.get("authorization", "").partition(" ")
            key = headers.get("x-api-key") or (token.strip() if scheme.lower() == "bearer" else "")
            if not any(hmac.compare_digest(key.encode(), known.encode()) for known in self._config.keys):
                raise AuthError(
                    "expected an API key in 'Authorization: Bearer …' or 'x-api-key'; got none that is known"
                )

    def _dialect_for(self, path: str, headers: Mapping[str, str]) -> Dialect:
        """In whose shape an error is told where the path names no dialect."""
        name = "anthropic_messages" if "anthropic-version" in headers else "openai_chat"
        return self._by_path.get(path) or dialects.get(name)

    async def _root(self, send: Send) -> None:
        await respond(send, 200, msgspec.json.encode({"name": "dragoman", "version": __version__}))

    async def _health(self, send: Send) -> None:
        body = {"status": "ok", "version": __version__, "backends": self._gateway.state()}
        await respond(send, 200, msgspec.json.encode(body))

    async def _ready(self, send: Send) -> None:
        states = self._gateway.state()
        ready = bool(states) and all(s["ready"] for s in states)
        await respond(send, 200 if ready else 503, msgspec.json.encode({"ready": ready, "backends": states}))

    async def _models(self, send: Send) -> None:
        models = [_model_object(m) for m in self._gateway.models()]
        ids = [m["id"] for m in models]
        body = {
            "object": "list",
            "data": models,
            "has_more": False,
            "first_id": ids[0] if ids else None,
            "last_id": ids[-1] if ids else None,
        }
        await respond(send, 200, msgspec.json.encode(body))

    async def _model(self, name: str, send: Send) -> None:
        for model in self._gateway.models():
            if model.id == name:
                await respond(send, 200, msgspec.json.encode(_model_object(model)))
                return
        raise NotFoundError(f"unknown model {quote(name)}; GET /v1/models lists all")


def _model_object(model: Model) -> dict[str, object]:
    """OpenAI's and Anthropic's fields of a model in one."""
    return {
        "id": model.id,
        "object": "model",
        "created": 0,
        "owned_by": model.owner,
        "type": "model",
        "display_name": model.id,
        "created_at": "1970-01-01T00:00:00Z",
        "context_length": model.context_tokens,
    }


def _host_name(url: str) -> str:
    """The name without the port: `//[::1]:80` → `::1`; "" where there is none, or it is no name at all."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
