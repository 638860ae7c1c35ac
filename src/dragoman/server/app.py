"""The ASGI application: routing, authentication, lifespan.

    POST /v1/chat/completions, /v1/responses, /v1/messages     the dialects, each at its own path
    POST /v1/messages/count_tokens, /v1/responses/input_tokens the number of tokens of a request
    POST /v1/embeddings, /v1/completions, …                    untranslated, to the server that has the model (`paths`)
    POST /v1/responses/compact                                 a conversation as a summary (`compaction`)
    GET  /v1/models, /v1/models/{id}                           in a shape that clients of both vendors understand
    POST /models/load, /models/unload                          a model into memory, or out of it (`models`)
    GET, DELETE /v1/responses/{id}                             stored responses (`stored`)
    GET, DELETE /v1/examples                                   examples of tool calls (`keys.examples`)
    GET  /health, /ready                                       state of the backends; 503 from /ready if none is ready
    POST /mcp                                                  the tools of MCP servers that clients may use
    GET  /metrics                                              for Prometheus (docs/metrics.md)
    GET  /console                                              the page that explains exchanges (package `console`)
    HEAD, GET /                                                connection checks of clients

A plain ASGI callable: it can be mounted in any ASGI application, whose lifespan it then follows.
"""

import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dragoman import __version__, dialects, trace_context
from dragoman.config.server import NO_CAPTURE, CaptureConfig, ServerConfig
from dragoman.core.errors import (
    DragomanError,
    MethodNotAllowedError,
    NotFoundError,
    WebSocketUnsupportedError,
    quote,
)
from dragoman.core.hooks import OnError
from dragoman.gateway.gateway import Gateway
from dragoman.mcp_client.combined_server import PERMISSIONS
from dragoman.off_loop import off_loop
from dragoman.records.writer import RecordWriter
from dragoman.server import paths, stored
from dragoman.server.base_exchange import Route, encode_headers, error_headers, respond
from dragoman.server.capture.recorder import CaptureRecorder
from dragoman.server.client_watch import Asgi, Client, Receive, Scope, Send
from dragoman.server.exchange import Exchange
from dragoman.server.keys.access import USAGE_PATH, check_path, usage_body
from dragoman.server.keys.admission import identify, observe_sent
from dragoman.server.keys.examples import EXAMPLES_METHODS, EXAMPLES_PATH, examples_body
from dragoman.server.keys.key import NO_RIGHTS, REQUEST_KEY, ApiKey
from dragoman.server.keys.ring import KeyRing
from dragoman.server.models.loading import ModelLoading
from dragoman.server.models.model_list import list_response, model_response
from dragoman.server.observe import debug_log
from dragoman.server.observe.access_log import AccessRecord
from dragoman.server.observe.finish import POLLED_PATHS, FinishedExchanges
from dragoman.server.observe.live_feed import LiveFeed
from dragoman.server.observe.metrics import CONTENT_TYPE, Metrics
from dragoman.server.observe.server_span import ServerSpan
from dragoman.server.passthrough import Passthrough
from dragoman.server.reload import admin
from dragoman.server.reload.report import ReloadReport
from dragoman.server.reload.snapshot import NewCaptures, Snapshot
from dragoman.usage_limits.admission import UsageLimits
from dragoman.wire.dialect import Dialect

if TYPE_CHECKING:
    from dragoman.tracing.exchange import Tracing

_PATHS_WITHOUT_KEY: Final = ("/", "/health", "/ready")
"""Paths that need no API key."""
_MODELS: Final = "/v1/models"
_MCP: Final = "/mcp"
_KEY_PATHS: Final = (_MODELS, USAGE_PATH, EXAMPLES_PATH)
_ONE_MODEL: Final = "/v1/models/{id}"
_ONE_RESPONSE: Final = "/v1/responses/{id}"


class App:
    """The gateway as an ASGI application."""

    def __init__(
        self,
        gateway: Gateway,
        config: ServerConfig,
        on_error: Iterable[OnError] = (),
        capture: CaptureConfig = NO_CAPTURE,
        shared_dir: Path | None = None,
        keys: KeyRing | None = None,
        tracing: "Tracing | None" = None,
        records: RecordWriter | None = None,
        limits: UsageLimits | None = None,
    ) -> None:
        """Args:
            gateway: answers the requests.
            config: the settings of the server.
            on_error: called after each exchange that failed, with the exception and the id in `x-request-id`.
            capture: which exchanges are written to disk.
            shared_dir: a private folder that all processes of this gateway share; None: it has one process.
            keys: the API keys; None: those of `config`, which have no names.
            tracing: begins the spans of requests; None: there are no traces.
            records: writes a record of each exchange, and is closed by its owner; None: there are none.
            limits: counts the use of keys with a name, and limits it; None: nothing does.

        Raises:
            ConfigError: captures are enabled, but their folder cannot be written.
        """
        self._tracing = tracing
        self.is_draining = False
        """Whether the gateway is about to stop, so that `/ready` has status 503."""
        self.snapshot = Snapshot(gateway, config, capture, keys)
        """The configuration of requests that begin now."""
        self.reload: Callable[[str], Awaitable[ReloadReport]] | None = None
        """Reloads the configuration; None: it cannot be reloaded."""
        served = [dialects.get(name) for name in dialects.names()]
        self._by_path = {d.path: Route(d) for d in served}
        self._by_path |= {d.token_counting.path: Route(d, d.token_counting) for d in served if d.token_counting}
        self._by_path |= {path: Route(dialects.get("openai_chat"), passed=path) for path in paths.PASSTHROUGH_PATHS}
        responses = dialects.get(stored.NAME)
        self._by_path[f"{responses.path}/compact"] = Route(responses, compacts=True)
        chat = dialects.get("openai_chat")
        self._by_path |= {"/models/load": Route(chat, loads=True), "/models/unload": Route(chat, loads=False)}
        self.console: Asgi | None = None
        """Serves the paths of the console; None: there is no console."""
        self.page_streams = 0
        """Number of responses to pages of the console that are streams."""
        self.feed: LiveFeed | None = None
        """The exchanges for pages that watch them; None: there are no such pages."""
        self._new_captures: NewCaptures | None = None
        self._capture_switch = threading.Lock()
        self._gets = {"/": self._root, "/health": self._health, "/ready": self._ready}
        self._limits = limits
        self._metrics = Metrics(gateway, shared_dir, records) if config.metrics else None
        self._finished = FinishedExchanges(self._metrics, records, on_error)
        if self._metrics:
            self._gets["/metrics"] = self._counted

    def replace(self, snapshot: Snapshot) -> None:
        """Puts another configuration in force: requests that begin from now on use it."""
        with self._capture_switch:
            snapshot.capture_for_console(self._new_captures)
            self.snapshot = snapshot
        if self._metrics:
            self._metrics.follow(snapshot.gateway)

    def serve_console(self, console: Asgi, feed: LiveFeed) -> None:
        """Serves the console, which watches the exchanges that begin from now on.

        Args:
            console: serves its paths.
            feed: receives the exchanges.
        """
        self.console, self.feed, self._finished.feed = console, feed, feed

    def capture_for_console(self, make: NewCaptures | None) -> None:
        """Captures exchanges that begin from now on for the console, if they are not captured to disk anyway.

        Args:
            make: returns the captures of a configuration; None: exchanges are not captured.
        """
        with self._capture_switch:
            self._new_captures = make
            self.snapshot.capture_for_console(make)

    def count_reload(self, report: ReloadReport) -> None:
        """Counts a reload of the configuration."""
        if self._metrics:
            self._metrics.reloads.count(report.result)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one ASGI scope."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            if paths.CONSOLE in scope["path"] and self.console is not None and paths.is_console_path(scope):
                await self.console(scope, receive, send)
            else:
                await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request with the configuration of its beginning."""
        snapshot = self.snapshot
        snapshot.begin()
        try:
            await self._respond(snapshot, scope, receive, send)
        finally:
            snapshot.end()

    async def _respond(self, snapshot: Snapshot, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request and logs it; every response has its request id and the CORS headers."""
        gateway, config = snapshot.gateway, snapshot.config
        method, own_path = scope["method"], paths.own_path(scope)
        path, model = paths.resolve_path(own_path, partial(self._is_served, snapshot))
        headers = paths.join_headers(scope["headers"])
        record = AccessRecord(method, own_path, gateway.prices)
        record.trace = trace_context.read(headers)
        fields = {"x-request-id": record.id, "request-id": record.id}
        route = self._by_path.get(path)
        if route is not None and model:
            route = route._replace(model=model)
        posted = route if method == "POST" else None
        span = None if self._tracing is None else self._begin_span(snapshot, scope, path, headers, record)
        if posted:
            self._count_begin(record)

        def send_tracked(message: MutableMapping[str, Any]) -> Awaitable[None]:
            if record.admission is not None and posted is not None:
                observe_sent(record, message, posted.dialect.name)
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message["headers"] = [*message["headers"], *encode_headers(fields)]
            return send(message)

        capture: CaptureRecorder | None = None
        try:
            fields |= snapshot.check_origin(headers)
            own_key = scope.get(REQUEST_KEY) or _authenticate(snapshot.keys, method, path, headers)
            key = identify(record, own_key, posted, self._limits)
            if route is not None and headers.get("upgrade", "").lower() == "websocket":
                raise WebSocketUnsupportedError(f"no WebSocket is served at {quote(path)}; send POST")
            if path == _MCP and gateway.mcp_endpoint is not None and method == "POST":
                scope = {**scope, PERMISSIONS: key.client.permissions}
                await gateway.mcp_endpoint(scope, receive, send_tracked)
            elif posted is not None and (posted.passed or posted.loads is not None):
                client = Client.from_scope(scope, receive, send_tracked)
                answer = Passthrough if posted.passed else ModelLoading
                await answer(posted, gateway, config, record, client).run(headers)
            elif posted is not None:
                capture = self._begin_capture(snapshot, method, path, headers, record)
                observer = debug_log.with_debug_log(capture, record.id)
                client = Client.from_scope(
                    scope, receive, observer.wrap_send(send_tracked) if observer else send_tracked
                )
                await Exchange(posted, gateway, config, record, client, observer).run(headers)
            else:
                await self._get(snapshot, scope, path, headers, send_tracked, key)
        except DragomanError as error:
            record.on_error(error)
            dialect = self._dialect_for(path, headers)
            await respond(send_tracked, dialect.status(error), dialect.write_error(error), error_headers(error))
        finally:
            self._finished.add(snapshot, posted, record, capture, span)

    def _count_begin(self, record: AccessRecord) -> None:
        """A request of an API begins."""
        if self._metrics:
            self._metrics.begin()
        if self.feed is not None:
            self.feed.begin(record, None)

    def _begin_capture(
        self, snapshot: Snapshot, method: str, path: str, headers: Mapping[str, str], record: AccessRecord
    ) -> CaptureRecorder | None:
        """Returns what captures an exchange; None: nothing does.

        Raises:
            RequestError: the header that asks for a capture has an unknown value.
        """
        if not (captures := snapshot.captures):  # another thread may switch them off
            return None
        capture = captures.begin(method, path, {k: v for k, v in headers.items() if k != "content-encoding"})
        if self.feed is not None:
            self.feed.begin(record, capture)
        return capture

    def _begin_span(
        self, snapshot: Snapshot, scope: Scope, path: str, headers: Mapping[str, str], record: AccessRecord
    ) -> ServerSpan | None:
        if self._tracing is None or path in POLLED_PATHS:
            return None
        return ServerSpan(self._tracing, scope, self._documented_path(snapshot, path), headers, record)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.snapshot.gateway.start()
                except DragomanError as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.snapshot.gateway.close()
                if self._limits is not None:
                    await self._limits.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def _is_served(self, snapshot: Snapshot, path: str) -> bool:
        if path in self._by_path or path in self._gets or path in _KEY_PATHS:
            return True
        if path == admin.PATH:
            return self.reload is not None
        if path == _MCP:
            return snapshot.gateway.mcp_endpoint is not None
        return path.removeprefix(f"{_MODELS}/") not in (path, "") or stored.is_served(path)

    def _documented_path(self, snapshot: Snapshot, path: str) -> str:
        """Returns the path as documented, such as `/v1/models/{id}`; empty: nothing is served there."""
        if not self._is_served(snapshot, path):
            return ""
        if path in self._by_path or path in self._gets or path in (_MCP, *_KEY_PATHS):
            return path
        return _ONE_RESPONSE if stored.is_served(path) else _ONE_MODEL

    def _not_found(self, method: str, path: str) -> NotFoundError:
        gets = (*self._gets, *_KEY_PATHS, _ONE_MODEL, _ONE_RESPONSE)
        routes = [*(f"POST {p}" for p in self._by_path), *(f"GET {p}" for p in gets)]
        return paths.not_found(method, path, self._by_path, routes)

    async def _get(
        self, snapshot: Snapshot, scope: Scope, path: str, headers: Mapping[str, str], send: Send, key: ApiKey
    ) -> None:
        """Answers all requests that are not requests of a dialect; `key` has no rights where none is needed."""
        gateway, method = snapshot.gateway, scope["method"]
        if not self._is_served(snapshot, path):
            raise self._not_found(method, path)
        allowed = self._allowed(path)
        if method not in allowed:
            raise MethodNotAllowedError(path, method, allowed)
        query = scope.get("query_string", b"").decode("latin-1")
        if method == "OPTIONS":
            await send(
                {"type": "http.response.start", "status": 204, "headers": encode_headers({"allow": ", ".join(allowed)})}
            )
            await send({"type": "http.response.body", "body": b""})
        elif path == admin.PATH and self.reload is not None:
            await admin.answer_reload(self.reload, snapshot, send)
        elif path in self._gets:
            await self._gets[path](snapshot, send, key.is_admin)
        elif path == USAGE_PATH:
            await respond(send, 200, await usage_body(key, self._limits))
        elif path == EXAMPLES_PATH:
            await respond(send, 200, await examples_body(gateway.examples, method, key.client))
        elif stored.is_served(path):
            store = gateway.response_store
            arguments = (store, method, path, query, key.name)
            await respond(send, 200, await off_loop(store.does_io, stored.answer_stored, *arguments))
        else:
            await gateway.refresh_local_models()
            models, dialect = gateway.models(key.client), self._dialect_for(path, headers)
            id = path.removeprefix(f"{_MODELS}/")
            body = list_response(models, dialect, query) if path == _MODELS else model_response(models, dialect, id)
            await respond(send, 200, msgspec.json.encode(body))

    def _allowed(self, path: str) -> Sequence[str]:
        if path == _MCP:
            return ("POST", "OPTIONS")  # without sessions, a stream of GET would stay open for nothing
        if path in self._by_path or path == admin.PATH:
            return ("POST", "OPTIONS")
        return EXAMPLES_METHODS if path == EXAMPLES_PATH else stored.methods(path) or ("GET", "HEAD", "OPTIONS")

    def _dialect_for(self, path: str, headers: Mapping[str, str]) -> Dialect:
        """Returns the dialect for an error response at a path that belongs to no dialect."""
        if route := self._by_path.get(path):
            return route.dialect
        return dialects.get("anthropic_messages" if "anthropic-version" in headers else "openai_chat")

    async def _root(self, snapshot: Snapshot, send: Send, known: bool) -> None:
        await respond(send, 200, msgspec.json.encode({"name": "dragoman", "version": __version__}))

    async def _health(self, snapshot: Snapshot, send: Send, known: bool) -> None:
        """Answers `/health`; backends and processes only with an API key, if keys are set."""
        workers = snapshot.config.workers
        own = {"workers": workers, "process": os.getpid()} if workers > 1 else {}
        more = {"version": __version__, **own, "backends": snapshot.gateway.health()} if known else {}
        await respond(send, 200, msgspec.json.encode({"status": "ok", **more}))

    async def _counted(self, snapshot: Snapshot, send: Send, known: bool) -> None:
        assert self._metrics is not None
        await respond(send, 200, await self._metrics.text(), {"content-type": CONTENT_TYPE})

    async def _ready(self, snapshot: Snapshot, send: Send, known: bool) -> None:
        states = snapshot.gateway.health()
        ready = not self.is_draining and any(s["ready"] for s in states)  # if one backend fails, others can answer
        await respond(
            send,
            200 if ready else 503,
            msgspec.json.encode({"ready": ready, **({"backends": states} if known else {})}),
        )


def _authenticate(keys: KeyRing, method: str, path: str, headers: Mapping[str, str]) -> ApiKey:
    """Returns the API key of a request; where none is needed, one without rights if the request has none.

    Raises:
        AuthError: the key is missing or not valid.
        ForbiddenError: the path is for other keys.
    """
    if method == "OPTIONS" or path in _PATHS_WITHOUT_KEY:
        return keys.find(headers) or NO_RIGHTS
    key = keys.authenticate(headers)
    check_path(key, path)
    return key
