"""Connection to an upstream server: a pool of connections, with transport failures mapped to Dragoman's errors.

    a free slot (`concurrency_limit`) → the breaker is closed (`circuit_breaker`) → connected within connect_timeout_s
    → first byte within first_byte_timeout_s → each further byte within idle_timeout_s

Failed requests are retried (`retry`) only before the first byte.

Any byte is a sign of life, also a comment of the server's; a broken connection is reported at once. Each of these steps
can be cancelled: closing the response closes the connection.

`client` is the HTTP client, `proxy` selects the proxy.
"""

import asyncio
import logging
import os
import random
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import msgspec

from dragoman.backends.http import retry
from dragoman.backends.http.client.errors import (
    ConnectError,
    ConnectTimeout,
    DecodingError,
    HttpError,
    LocalProtocolError,
    ProxyError,
    ReadTimeout,
    RemoteDisconnected,
    RemoteProtocolError,
)
from dragoman.backends.http.client.http_client import HttpClient, Response
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.http.proxy import proxy_for
from dragoman.backends.http.quota_reset import reset_in_s
from dragoman.backends.http.retry import AttemptFailed
from dragoman.backends.http.upstream_response import UpstreamResponse
from dragoman.backends.quota import UpstreamQuota
from dragoman.backends.shared_state import SharedState
from dragoman.core.errors import (
    BackendUnavailableError,
    ConfigError,
    DragomanError,
    RemoteError,
    UpstreamTimeoutError,
    loggable_message,
)
from dragoman.redaction.secret_redactor import SecretRedactor
from dragoman.wire.upstream_errors import error_from_response

log = logging.getLogger("dragoman.backends.http")

ERROR_BODY_LIMIT_BYTES: Final = 64 * 1024
"""How much of an error response's body is read."""
RESPONSE_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""Limit of a short response's body: far more than the largest list of models."""
REQUEST_TIMEOUT_S: Final = 5.0
"""Timeout of requests for metadata, such as the list of models, which must not delay anything else."""

OnRetry: TypeAlias = Callable[[DragomanError, float], None]


class HttpResponse(NamedTuple):
    """A short response that was read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class UpstreamConnection:
    """The connection pool of one server."""

    def __init__(
        self,
        name: str,
        config: HttpConfig,
        headers: Mapping[str, str],
        *,
        versioned: bool,
        key: str,
        shared: SharedState | None = None,
    ) -> None:
        """
        Args:
            name: the server's name in the settings.
            config: the server's settings.
            headers: headers of every request.
            versioned: whether the base URL contains the API version.
            key: the API key, which is removed from all errors.
            shared: what all processes of the gateway share; None: it has one process.

        Raises:
            ConfigError: the URL, the key or the proxy cannot be used.
        """
        at = urlsplit(config.url)
        self.display_url = f"{at.scheme}://{at.netloc.rpartition('@')[2]}"
        """Scheme and host, for people: without the password in the URL, and without the path."""
        self._site = f"{at.scheme}://{at.netloc}"
        self._name, self._config, self.key = name, config, key
        self.secret_values = SecretRedactor(key, config.url)
        """Removes what clients must not read from the server's errors, as some servers repeat it."""
        self._headers = {"content-type": "application/json", **headers}
        self._versioned = versioned
        self._proxy = proxy_for(config.url, config.proxy, os.environ, f"upstreams.{name}.proxy")
        self._client = self._new_client()
        shared = shared or SharedState()
        settings = msgspec.json.encode(config) if shared.is_shared else b""
        self._limiter = shared.limiter(name, config.max_concurrency, config.max_queue, settings)
        self._breaker = shared.breaker(name, settings)
        self._quota = UpstreamQuota(name, shared.quota_times(name, settings))

    async def start(self) -> None:
        """Opens the pool."""
        self._client.start()

    async def close(self) -> None:
        """Closes the pool."""
        await self._client.close()

    def health(self) -> Mapping[str, object]:
        """Returns the number of active and waiting requests, and the state of the breaker, for /health."""
        active, waiting = self._limiter.total()
        limited = {"limited_s": limited} if (limited := self._quota.limited_models()) else {}
        return {"active": active, "waiting": waiting, "breaker": self._breaker.state, **limited}

    async def stream_post(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        is_trial: bool = False,
        on_headers: Callable[[Mapping[str, str]], None] = lambda headers: None,
        on_retry: OnRetry | None = None,
        model: str = "",
        insists: bool = False,
    ) -> AsyncGenerator[bytes, None]:
        """Sends a POST and yields the bytes of the response as they arrive.

        Args:
            path: path of the API, such as `/v1/chat/completions`.
            body: JSON.
            headers: headers of this request alone.
            is_trial: sends a request that the server may not support: it is not retried, and the circuit breaker
                ignores its outcome.
            on_headers: is called with the headers of a successful response, names in lower case.
            on_retry: is called before each retry, with the error of the last attempt and the delay in seconds.
            model: the model, which gets no requests while it has reached a limit; empty: limits are not looked at.
            insists: whether the server is asked also while its circuit breaker is open.

        Raises:
            UpstreamError: the server returned an error.
            BackendUnavailableError: the server cannot be reached, broke the connection, or its circuit breaker is open.
            UpstreamTimeoutError: the server sent nothing for too long.
            QueueFullError: the queue for a slot is full.
        """
        response = await self.open(
            path, body, headers, is_trial=is_trial, on_retry=on_retry, model=model, insists=insists
        )
        try:
            on_headers(response.headers)
            while piece := await response.read():
                yield piece
        finally:
            await response.close()

    async def open(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        is_trial: bool = False,
        on_retry: OnRetry | None = None,
        on_queued: Callable[[float], None] | None = None,
        model: str = "",
        insists: bool = False,
    ) -> UpstreamResponse:
        """Sends a POST and returns its response once the head has arrived; close it in any case.

        Args:
            path: path of the API, such as `/v1/chat/completions`.
            body: JSON.
            headers: headers of this request alone.
            is_trial: see `stream_post`.
            on_retry: see `stream_post`.
            on_queued: is called with the seconds that a slot was waited for.
            model: see `stream_post`.
            insists: see `stream_post`.

        Raises:
            RemoteError: see `stream_post`; also raised by `read` of the response.
            QueueFullError: the queue for a slot is full.
        """
        breaker, limiter = self._breaker, self._limiter
        self._quota.ensure_available(model)
        if not insists:
            breaker.ensure_closed()
        began_s = time.perf_counter()
        slot = await limiter.begin(False)
        if on_queued is not None:
            on_queued(time.perf_counter() - began_s)
        guarded = None
        try:
            once = is_trial or breaker.state != "closed"  # no retries for a server that has failed so often
            if not is_trial:
                (request := breaker.guard(insists=insists)).begin()
                guarded = request
            retries = 0 if once else self._config.max_retries
            response = await self._send_with_retries(path, body, headers, retries, on_retry)
        except BaseException as error:
            if guarded is not None:
                guarded.end(error)
            self._quota.observe(model, error)
            limiter.end(*slot)
            raise
        self._quota.clear(model)
        return UpstreamResponse(response, guarded, limiter, slot, self._connection_error, self._config.idle_timeout_s)

    async def request(
        self,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> HttpResponse:
        """Sends a GET, or a POST if there is a body, and returns the whole response, whatever its status.

        Args:
            path: The path of the API, such as /v1/models.
            body: The body; None: a GET.
            headers: Headers to add to those of the settings.
            timeout_s: Time limit for the whole response.

        Raises:
            BackendUnavailableError: there is no response in time, or the circuit breaker is open (checked for POST
                only). Its cause is the OSError if the connection failed.
        """
        if body is not None:
            self._breaker.ensure_closed()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._request_once_or_twice(path, body, headers, timeout_s)
        except ConnectError as e:
            raise BackendUnavailableError(_os_error_reason(e.os_error)) from e.os_error
        except (TimeoutError, ConnectTimeout, ReadTimeout):
            raise BackendUnavailableError(f"no answer within {timeout_s:g} s") from None
        except HttpError as e:
            raise BackendUnavailableError(str(e) or type(e).__name__) from None

    async def _request_once_or_twice(
        self, path: str, body: bytes | None, headers: Mapping[str, str] | None, timeout_s: float
    ) -> HttpResponse:
        """Sends a request, and again on a new connection if the server had just closed the kept one."""
        client, method = self._client, "GET" if body is None else "POST"
        try:
            response = await client.send(method, self._target(path), body, headers, timeout_s=timeout_s)
        except RemoteDisconnected:
            response = await client.send(method, self._target(path), body, headers, timeout_s=timeout_s, is_retry=True)
        try:
            is_error = response.status >= 300
            data = await response.read_body(ERROR_BODY_LIMIT_BYTES if is_error else RESPONSE_LIMIT_BYTES)
        finally:
            response.close()
        return HttpResponse(
            response.status, response.headers, self.secret_values.hide_bytes(data) if is_error else data
        )

    def url(self, path: str) -> str:
        """Returns the URL of this path. A base URL of OpenAI's APIs contains the version, unless it is a bare host."""
        base = self._config.url.rstrip("/")
        if base.endswith("/v1"):
            return base.removesuffix("/v1") + path
        own = self._versioned and urlsplit(base).path.strip("/")
        return base + (path.removeprefix("/v1") if own else path)

    def _target(self, path: str) -> str:
        """Returns path and query of the URL of this path."""
        return self.url(path).removeprefix(self._site)

    def _new_client(self) -> HttpClient:
        config = self._config
        try:
            return HttpClient(config.url, self._headers, proxy=self._proxy, connect_timeout_s=config.connect_timeout_s)
        except LocalProtocolError as e:
            raise ConfigError(f"{e} - at upstreams.{self._name}") from None

    async def _send_with_retries(
        self, path: str, body: bytes, headers: Mapping[str, str], retries: int, on_retry: OnRetry | None
    ) -> Response:
        """Sends the request, with retries, and returns the response once its headers have arrived."""
        attempt = 0
        while True:
            try:
                return await self._send(path, body, headers, is_retry=attempt > 0)
            except AttemptFailed as failed:
                delay_s = retry.retry_delay_s(failed, attempt, retries, random.random())
                if delay_s is None:
                    raise failed.error from None
                log.warning("%s is retried in %.1f s: %s", self._name, delay_s, loggable_message(failed.error))
                if on_retry is not None:
                    on_retry(failed.error, delay_s)
            attempt += 1
            await retry.sleep(delay_s)

    async def _send(self, path: str, body: bytes, headers: Mapping[str, str], *, is_retry: bool) -> Response:
        """Sends the request once."""
        timeout_s = self._config.first_byte_timeout_s
        try:
            response = await self._client.send(
                "POST", self._target(path), body, headers, timeout_s=timeout_s, is_retry=is_retry
            )
            if response.status < 300:
                return response
            try:
                async with asyncio.timeout(timeout_s):
                    head = await response.read_body(ERROR_BODY_LIMIT_BYTES)
            finally:
                response.close()
        except (HttpError, TimeoutError) as e:
            raise AttemptFailed(
                self._connection_error(e, False),
                connection_closed=isinstance(e, RemoteDisconnected),
                permanent=isinstance(e, LocalProtocolError),
            ) from None
        raise self._attempt_failed(response, head)

    def _attempt_failed(self, response: Response, head: bytes) -> AttemptFailed:
        fields = response.headers
        now = datetime.now(UTC)
        delay_s = retry.retry_after_s(fields, now)
        if delay_s is None:
            delay_s = reset_in_s(response.status, fields, head, now)
        head, setting = self.secret_values.hide_bytes(head), f"upstreams.{self._name}.url"
        error = self.secret_values.clean_error(error_from_response(response.status, head, delay_s, fields, setting))
        return AttemptFailed(error, permanent=fields.get("x-should-retry") == "false")

    def _connection_error(self, error: Exception, has_started: bool) -> RemoteError:
        """Returns the error for a transport failure, with the setting that applies."""
        config = self._config
        match error:
            case ConnectTimeout():
                message = (
                    f"{self._name} could not be reached at {self.display_url} within {config.connect_timeout_s:g} s"
                )
                return BackendUnavailableError(f"{message} (setting connect_timeout_s)")
            case ReadTimeout() if has_started:
                return UpstreamTimeoutError(
                    f"{self._name} sent nothing for {config.idle_timeout_s:g} s (setting idle_timeout_s)"
                )
            case ReadTimeout() | TimeoutError():
                message = f"{self._name} sent no response within {config.first_byte_timeout_s:g} s"
                return UpstreamTimeoutError(f"{message} (setting first_byte_timeout_s)")
            case ProxyError():
                message = f"{self._name} cannot be reached at {self.display_url}"
                return BackendUnavailableError(
                    f"{message}: the proxy cannot be reached, or refuses (setting proxy, HTTPS_PROXY)"
                )
            case ConnectError():
                return BackendUnavailableError(
                    f"{self._name} cannot be reached at {self.display_url}: {_os_error_reason(error.os_error)}"
                )
            case RemoteDisconnected():
                return BackendUnavailableError(f"{self._name} closed the connection before its response")
            case DecodingError():
                return BackendUnavailableError(f"{self._name} at {self.display_url} sent a response with {error}")
            case RemoteProtocolError() if not has_started:
                return BackendUnavailableError(f"{self._name} at {self.display_url} sent an invalid HTTP response")
            case LocalProtocolError():
                return BackendUnavailableError(f"the request cannot be sent to {self._name}: {error}")
            case _:
                return BackendUnavailableError(f"{self._name} closed the connection in the middle of its response")


def _os_error_reason(error: OSError) -> str:
    """Returns why there is no connection: the text of the error number, except for TLS and host names that are not
    found.
    """
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted, {error.verify_message}"
        case ssl.SSLError():
            return f"it does not speak TLS, {error.reason.lower().replace('_', ' ')}"
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number)
        case _:
            return error.strerror or type(error).__name__
