"""Requests of APIs that are not translated: embeddings, completions, rerank, audio, images and moderations.

    client ─JSON or form, model NAME→ gateway ─the same, with the server's own name of the model→ upstream server

The bytes of the upstream response are sent to the client as they arrive. All else is as for translated APIs: keys,
hosts, limits, aliases and `SERVER/model`, concurrency, retries, and failover to the next server before the response has
begun. Only servers of the settings are used, at fixed paths; redirects are not followed.
"""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple

import msgspec

from dragoman.config.server import ServerConfig
from dragoman.core.backend import Backend
from dragoman.core.errors import (
    DragomanError,
    NotFoundError,
    RemoteError,
    RequestError,
    UnsupportedError,
    UpstreamError,
    loggable_message,
    quote,
)
from dragoman.core.events import Start, UsageUpdate
from dragoman.core.messages import Request, Usage
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.routing.router import backend_name
from dragoman.server import form
from dragoman.server.base_exchange import BaseExchange, Route, encode_headers, log, with_model
from dragoman.server.client_watch import Client, ClientWatch
from dragoman.server.keys.admission import admit_untranslated
from dragoman.server.observe.access_log import AccessRecord
from dragoman.text import json_cursor
from dragoman.wire.response_headers import client_headers
from dragoman.wire.sse import Decoder, encode

_MODEL_BYTES: Final = 1024
_MAX_USAGE_BYTES: Final = 8 * 1024 * 1024
"""Maximum size of a response in which the usage is looked for; embeddings may be larger."""
_STREAM: Final = "text/event-stream"
_OPERATIONS: Final = {"/v1/completions": "text_completion"}
"""Names of operations in spans that differ from the last part of the path."""
_FORWARDED_HEADERS: Final = ("content-type", "content-disposition", "retry-after")
"""Headers of the upstream response that are sent to the client."""


class _PassthroughRequest(NamedTuple):
    """The request of the client, and where it names its model."""

    body: bytes
    content_type: str
    model: str
    at: tuple[int, int] | None = None
    """In a form: start and end of the value in the body."""

    def named(self, model: str) -> bytes:
        """Returns the body with another name of the model."""
        if model == self.model:
            return self.body
        if self.at is None:
            return with_model(self.body, model)
        begin, end = self.at
        return self.body[:begin] + model.encode() + self.body[end:]


class Passthrough(BaseExchange):
    """One untranslated request and its response."""

    def __init__(
        self, route: Route, gateway: Gateway, config: ServerConfig, record: AccessRecord, client: Client
    ) -> None:
        super().__init__(route.dialect, config, record, client)
        self._path, self._named, self._gateway = route.passed, route.model, gateway
        self._usage = _UsageReader()

    async def _serve(self, headers: Mapping[str, str]) -> None:
        body = await self._body(headers)
        outgoing = _read_request(body, headers.get("content-type", "application/json"), self._named)
        request = Request(outgoing.model or self._only_model(), ())
        self._record.on_request("passthrough", request)
        carried = {"content-type": outgoing.content_type}
        if "accept" in headers:
            carried["accept"] = headers["accept"]
        carried |= self._record.trace
        async with ClientWatch(self._client, self._config.write_timeout_s) as self._watch:
            is_json = outgoing.content_type == "application/json"
            await admit_untranslated(self._record, self._gateway, request, len(body) if is_json else 0)
            routes = await self._gateway.routes_or_refresh(request, self._record.client)
            backends = [
                (backend, planned.model) for backend, planned in routes if backend.forwards(self._path, planned.model)
            ]
            if not backends:
                names = " and ".join(backend_name(backend) for backend, _ in routes)
                message = f"model {quote(request.model)} is served by {names}, which has no {self._path} for it"
                raise UnsupportedError(f"{message}; ask for a model that has it", "model")
            await self._first_of(backends, outgoing, carried)

    def _only_model(self) -> str:
        """Returns a model of the only server, for a request that names none.

        Raises: RequestError: there are several servers, so the request must name a model.
        """
        owners = {model.owner: model.id for model in reversed(self._gateway.models(self._record.client))}
        if len(owners) != 1:
            raise RequestError("missing required field 'model', by which the server is chosen", "model")
        return next(iter(owners.values()))

    async def _first_of(
        self, backends: Sequence[tuple[Backend, str]], request: _PassthroughRequest, headers: Mapping[str, str]
    ) -> None:
        """Sends the response of the first server that begins one."""
        for left, (backend, model) in zip(reversed(range(len(backends))), backends, strict=True):
            body = request.named(model) if request.model else request.body
            self._record.attempts.begin(backend_name(backend), model)
            try:
                await self._traced_pass(backend, model, body, headers)
                return
            except RemoteError as error:
                self._record.attempts.fail(error)
                is_about_the_request = isinstance(error, UpstreamError) and error.status in (400, 413, 415, 422)
                if self._has_started or not left or is_about_the_request:
                    raise self._for_client(backend, error) from None
                reason = loggable_message(error)
                log.warning("%s could not answer (%s); trying the next server", backend_name(backend), reason)

    def _for_client(self, backend: Backend, error: RemoteError) -> DragomanError:
        """Returns the error for the client; for a server without this API one that names the server."""
        if isinstance(error, UpstreamError) and error.status in (404, 405, 501):
            name, why = backend_name(backend), "it does not have this API, or not this model in it"
            message = f"{name} answered {error.status} at {self._path}: {why}"
            return NotFoundError(message)  # the server's own message may repeat the request, and this one is logged
        return error

    async def _traced_pass(self, backend: Backend, model: str, body: bytes, headers: Mapping[str, str]) -> None:
        spans = self._record.attempts.spans
        if spans is None:
            await self._pass(backend, body, headers)
            return

        async def send() -> None:
            await self._pass(backend, body, spans.upstream_headers(headers))

        await spans.forward(_OPERATIONS.get(self._path, self._path.rpartition("/")[2]), backend, model, send)

    async def _pass(self, backend: Backend, body: bytes, headers: Mapping[str, str]) -> None:
        fields: dict[str, str] = {}
        async with aclosing(backend.forward(self._path, body, headers, fields.update)) as answer:
            async for piece in answer:
                if not self._has_started:
                    await self._start(fields)
                self._usage.feed(piece)
                await self._send_counted({"type": "http.response.body", "body": piece, "more_body": True})
        if not self._has_started:
            await self._start(fields)
        self._count()
        await self._end(b"")

    async def _fail(self, error: DragomanError) -> None:
        if self._has_started and self._ending is None and not self._ended:
            self._record.on_error(error)
            return  # the connection is closed before the end of the body, so the client knows that it is truncated
        await super()._fail(error)

    async def _start(self, fields: Mapping[str, str]) -> None:
        self._has_started = True
        kind = fields.get("content-type", "application/octet-stream")
        self._usage.is_stream = kind.startswith(_STREAM)
        forwarded = client_headers(fields)
        headers = {name: fields[name] for name in _FORWARDED_HEADERS if name in fields} | forwarded
        headers |= self._record.attempt_headers()
        if self._usage.is_stream:
            self._ending = lambda error: encode(self._dialect.write_error(error))
            headers["cache-control"] = "no-cache"
        elif "content-encoding" not in fields and "content-length" in fields:
            headers["content-length"] = fields["content-length"]
        model = self._record.request.model if self._record.request else ""
        self._record.observe(Start("", model, 0, headers=forwarded))
        await self._send_counted({"type": "http.response.start", "status": 200, "headers": encode_headers(headers)})

    def _count(self) -> None:
        if (usage := self._usage.close()) is not None:
            self._record.observe(UsageUpdate(usage))


def _read_request(body: bytes, content_type: str, named: str) -> _PassthroughRequest:
    """Raises: RequestError: the body is neither JSON nor a form, or its model is not text."""
    if boundary := form.boundary(content_type):
        at = form.form_field(body, boundary, "model")
        value = body[at[0] : min(at[1], at[0] + _MODEL_BYTES)].decode("utf-8", "replace").strip() if at else ""
        request = _PassthroughRequest(body, content_type, value, at)
        if not named:
            return request
        if at is None:
            head = b'--%b\r\ncontent-disposition: form-data; name="model"\r\n\r\n' % boundary
            body, begin = head + named.encode() + b"\r\n" + body, len(head)
        else:
            body, begin = request.named(named), at[0]
        return _PassthroughRequest(body, content_type, named, (begin, begin + len(named.encode())))
    body = with_model(body, named) if named else body
    model = json_cursor.parse(body).fields().pop("model")
    return _PassthroughRequest(body, "application/json", model.string() if model is not None else "")


class _Tokens(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class _UsageBody(msgspec.Struct):
    usage: _Tokens | None = None


class _UsageReader:
    """Reads the usage that a response reports, in JSON or in an event of a stream; unreadable data is ignored."""

    def __init__(self) -> None:
        self.is_stream = False
        self._decoder = Decoder()
        self._body = bytearray()
        self._last = b""
        self._ends = False

    def feed(self, piece: bytes) -> None:
        """Adds a piece of the response."""
        if self._ends:
            return
        try:
            if not self.is_stream:
                self._body += piece
                self._ends = len(self._body) > _MAX_USAGE_BYTES
            else:
                payloads = [event.data for event in self._decoder.feed(piece) if b'"usage"' in event.data]
                self._last = payloads[-1] if payloads else self._last
        except UpstreamError:
            self._ends = True

    def close(self) -> Usage | None:
        """Returns the reported usage, or None."""
        try:
            usage = msgspec.json.decode(self._last if self.is_stream else bytes(self._body), type=_UsageBody).usage
        except (msgspec.DecodeError, RecursionError):
            return None
        if self._ends or usage is None:
            return None
        counts = (usage.prompt_tokens or usage.input_tokens or 0, usage.completion_tokens or usage.output_tokens or 0)
        return Usage(max(0, counts[0]), max(0, counts[1]))
