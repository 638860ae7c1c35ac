"""A server behind, asked by one of the APIs: OpenAI-compatible ones, Anthropic's, another gateway.

    Request ─dialect.write_request→ POST; bytes ─dialect.reader.feed→ events

    backend = Http("lmstudio", HttpConfig(url="http://127.0.0.1:1234/v1"), os.environ)

What its API cannot say of a request is told in warnings right behind Start. The server's own errors become ours, with
their status; where it says that the conversation is too long, that is told in the words that each API has for it.
A server that refuses the proof of thoughts, as the vendors' own do when another model had them, is asked once more
without thoughts, and one that refuses a setting by name without that (`refused`). Its redirects are not followed, and
no proxy of the environment is used.

aiohttp, because its parser in C keeps a streamed chunk cheap (docs/performance.md).
"""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import msgspec

from dragoman import dialects
from dragoman.backends.http_config import HttpConfig
from dragoman.backends.refused import without
from dragoman.backends.stops import StopStrings
from dragoman.core import shape
from dragoman.core.contracts import Dialect, Model, Outgoing, Turn
from dragoman.core.errors import BackendError, ConfigError, DragomanError, RequestError, SilenceError, UpstreamError
from dragoman.core.events import AnyEvent, Finish, Start, Warning
from dragoman.core.outgoing import fitted
from dragoman.core.targets import Target, relaxing
from dragoman.core.upstream_errors import answered_error
from dragoman.core.values import Reasoning, Request

log = logging.getLogger("dragoman.backends.http")

_ASKED_AT_MOST: Final = 8
"""Times that one request is sent, each time without something that the server has refused."""
_LIST_TIMEOUT_S: Final = 5.0
"""For its list of models, which must not hold up the start; and for a count of tokens."""
_LIST_AGAIN_S: Final = 3.0
_ERROR_LIMIT_BYTES: Final = 64 * 1024
_SIGNATURE: Final = re.compile(
    r"invalid.{0,40}signature|signature.{0,40}(invalid|required)|encrypted content.{0,200}could not be verified"
    r"|invalid `data` in `redacted_thinking`|thinking.{0,40}blocks.{0,80}cannot be modified"
    r"|item with id .rs_.{0,80}not found|reasoning_content",
    re.IGNORECASE | re.DOTALL,
)
"""The words of Anthropic's API, and of OpenAI's (https://github.com/openai/codex/issues/8145, 2026-11)."""


class Http:
    """One server."""

    def __init__(self, name: str, config: HttpConfig, environ: Mapping[str, str]) -> None:
        """Raises: ConfigError: the API is unknown, or the key's variable is not set."""
        self._name = name
        self._config = config
        self._dialect = _dialect(name, config)
        self._target = _target(name, config)
        at = urlsplit(config.url)
        self._where = f"{at.scheme}://{at.netloc.rpartition('@')[2]}"
        """For people: neither a password in the URL nor what stands behind the host."""
        self._key = _key(name, config, environ)
        self._headers = {"content-type": "application/json", **self._dialect.sign(self._key)}
        self._models = tuple(self._model(model) for model in config.models)
        self._session: aiohttp.ClientSession | None = None
        self._active = 0
        self._lister: asyncio.Future[None] | None = None
        """Asks for models until the server is there."""

    def models(self) -> Sequence[Model]:
        """Those of the settings, else those that it listed; each under `NAME/model` too."""
        return self._models

    def state(self) -> Mapping[str, object]:
        """Where it is, and whether it has told its models."""
        return {"backend": self._name, "url": self._where, "ready": bool(self._models), "active": self._active}

    async def start(self) -> None:
        """Open the pool of connections, and ask for the models."""
        limits = aiohttp.ClientTimeout(
            total=None, sock_connect=self._config.connect_timeout_s, sock_read=self._config.silence_s
        )
        self._session = aiohttp.ClientSession(
            timeout=limits,
            headers=self._headers,
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),  # what a server sets for one client is not for the others
        )
        if not self._models and not await self._list():
            self._lister = asyncio.ensure_future(self._list_later())

    async def close(self) -> None:
        """Close the pool."""
        if self._lister is not None:
            self._lister.cancel()
            await asyncio.wait({self._lister})
        if self._session is not None:
            await self._session.close()

    async def count_tokens(self, request: Request) -> int | None:
        """What the server counts; None where its API has no question for that, or it does not answer it, or estimates.

        Raises: UnsupportedError: its API cannot say what is asked.
        """
        counting = self._dialect.counting
        if counting is None:
            return None
        asked, _ = fitted(request, self._target) if self._target else (request, ())
        written = msgspec.json.decode(
            self._dialect.write_request(asked, request.model).body, type=dict[str, msgspec.Raw]
        )
        body = msgspec.json.encode({name: raw for name, raw in written.items() if name in counting.members})
        assert self._session is not None, "not started"
        try:
            async with (
                asyncio.timeout(_LIST_TIMEOUT_S),
                self._session.post(
                    self._url(counting.path), data=body, headers=self._own(request), allow_redirects=False
                ) as response,
            ):
                if response.status != 200 or "x-dragoman-estimated" in response.headers:
                    return None
                return counting.read_count(await _head(response))
        except (aiohttp.ClientError, TimeoutError, RequestError) as e:
            log.warning("%s does not count tokens: %s", self._name, str(e) or type(e).__name__)
            return None

    async def ask(self, request: Request, turn: Turn) -> AsyncGenerator[AnyEvent, None]:
        """The answer's events; closing the generator closes the connection, which stops the server.

        Raises: UnsupportedError: its API cannot say what is asked. RemoteError: it cannot be reached, or refuses.
        """
        self._active += 1
        try:
            async with aclosing(self._answered(request, turn)) as events:
                async for event in events:
                    yield event
        finally:
            self._active -= 1

    async def _answered(self, request: Request, turn: Turn) -> AsyncGenerator[AnyEvent, None]:
        outgoing = self._outgoing(request)
        for left in reversed(range(_ASKED_AT_MOST)):
            try:
                async with aclosing(self._asked(outgoing, request, turn)) as events:
                    async for event in events:
                        yield event
                return
            except UpstreamError as error:
                amended = self._amended(outgoing, request, error) if left else None
                if amended is None:
                    raise
                outgoing = amended

    def _outgoing(self, request: Request) -> Outgoing:
        asked, limited = self._limited(request)
        asked, adapted = fitted(asked, self._target) if self._target else (asked, ())
        outgoing = self._dialect.write_request(asked, request.model)
        return outgoing._replace(warnings=(*limited, *adapted, *outgoing.warnings))

    def _amended(self, outgoing: Outgoing, request: Request, error: UpstreamError) -> Outgoing | None:
        """What to ask in place of what the server has refused, where there is something."""
        amended, what = None, "a setting"
        if error.status in (400, 404, 422) and _SIGNATURE.search(error.message):
            amended, what = self._outgoing(without_thoughts(request)), "the proof of thoughts"
        elif error.status in (400, 422) and request.dialect != self._dialect.name:
            amended = without(outgoing, error.message)
        if amended is None or amended.body == outgoing.body:
            return None
        log.warning("%s refused %s; it is asked once more without", self._name, what)
        return amended

    async def _asked(self, outgoing: Outgoing, request: Request, turn: Turn) -> AsyncGenerator[AnyEvent, None]:
        reader = self._dialect.reader(request, turn)
        stop = StopStrings(outgoing.watched)
        broken: BackendError | None = None
        async with aclosing(self._post(outgoing, request)) as pieces:
            try:
                async for piece in pieces:
                    for event in stop.pass_on(_warned(reader.feed(piece), outgoing)):
                        yield event
                    if stop.found:
                        break
            except BackendError as error:
                broken = error
        last = reader.close() if not stop.found else []
        lacks_its_end_only = bool(last) and isinstance(last[-1], Finish)
        if broken is not None and not lacks_its_end_only:
            raise broken
        for event in stop.pass_on(_warned(last, outgoing)):
            yield event
        if stop.found:
            yield Finish("stop_sequence", stop.found)

    def _limited(self, request: Request) -> tuple[Request, tuple[Warning, ...]]:
        """The request with no more tokens asked for than the server gives."""
        most, asked = self._config.max_tokens, request.max_tokens
        if asked is None and most:
            return msgspec.structs.replace(request, max_tokens=most), ()
        if not most or asked is None or asked <= most:
            return request, ()
        told = Warning(
            "lowered_limit", f"max_tokens is {most}, the most that {self._name} gives; {asked} were asked for"
        )
        return msgspec.structs.replace(request, max_tokens=most), (told,)

    async def _post(self, outgoing: Outgoing, request: Request) -> AsyncGenerator[bytes, None]:
        """The bytes of the answer as they come.

        Raises: UpstreamError: the server's own error. BackendError: it cannot be reached, or broke off.
            SilenceError.
        """
        assert self._session is not None, "not started"
        try:
            async with await self._sent(outgoing.body, self._own(request)) as response:
                if response.status >= 300:
                    retry_after = response.headers.get("retry-after", "")
                    words = await _head(response)
                    if self._key:  # which some servers repeat
                        words = words.replace(self._key.encode(), "…".encode())
                    raise answered_error(response.status, words, retry_after)
                async for piece in response.content.iter_any():
                    yield piece
        except aiohttp.SocketTimeoutError:
            raise SilenceError(f"{self._name} said nothing for {self._config.silence_s:g} s") from None
        except aiohttp.ServerTimeoutError:
            raise BackendError(f"{self._name} could not be reached at {self._where} in time") from None
        except aiohttp.ClientConnectorError as e:
            raise BackendError(f"{self._name} cannot be reached at {self._where}: {e.os_error.strerror}") from None
        except aiohttp.ClientError as e:
            raise BackendError(f"{self._name} broke the connection off: {type(e).__name__}") from None

    async def _sent(self, body: bytes, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        """The answer's beginning; asked again where a connection that was kept open had just been closed."""
        assert self._session is not None, "not started"
        url = self._url(self._dialect.path)
        try:
            return await self._session.post(url, data=body, headers=headers, allow_redirects=False)
        except aiohttp.ServerDisconnectedError:
            return await self._session.post(url, data=body, headers=headers, allow_redirects=False)

    def _url(self, path: str) -> str:
        """Where this path is: a base URL of OpenAI's APIs has their version in it, unless it is a bare host."""
        base = self._config.url.rstrip("/")
        if base.endswith("/v1"):
            return base.removesuffix("/v1") + path
        own = self._dialect.versioned and urlsplit(base).path.strip("/")
        return base + (path.removeprefix("/v1") if own else path)

    def _own(self, request: Request) -> Mapping[str, str]:
        """The client's headers, where they are for this API."""
        return request.headers if request.dialect == self._dialect.name else {}

    async def _list_later(self) -> None:
        """Ask again until it is there; that it is not has been logged."""
        while not self._models:
            await asyncio.sleep(_LIST_AGAIN_S)
            await self._list(quiet=True)
        log.info("%s is there, with %d models", self._name, len(self._models))

    async def _list(self, *, quiet: bool = False) -> bool:
        """Ask for its models; whether it has any."""
        assert self._session is not None, "not started"
        try:
            async with (
                asyncio.timeout(_LIST_TIMEOUT_S),
                self._session.get(self._url("/v1/models"), allow_redirects=False) as response,
            ):
                body = await response.read()
                if response.status >= 300:
                    raise answered_error(response.status, body[:_ERROR_LIMIT_BYTES])
                found = [item.fields().need("id").string() for item in shape.at(body).fields().items("data")]
        except (aiohttp.ClientError, TimeoutError, DragomanError) as e:
            if not quiet:
                told = str(e) or type(e).__name__
                log.warning("%s tells no models (%s); start it, or name them in its settings", self._name, told)
            return False
        self._models = tuple(map(self._model, found))
        return bool(self._models)

    def _model(self, id: str) -> Model:
        return Model(id, owner=self._name, aliases=(f"{self._name}/{id}",))


async def _head(response: aiohttp.ClientResponse) -> bytes:
    """As much of a body as one looks at."""
    head = b""
    async for piece in response.content.iter_any():
        head += piece
        if len(head) >= _ERROR_LIMIT_BYTES:
            break
    return head[:_ERROR_LIMIT_BYTES]


def _warned(events: Sequence[AnyEvent], outgoing: Outgoing) -> Iterator[AnyEvent]:
    """The events, with the warnings about the request right behind Start."""
    for event in events:
        yield event
        if isinstance(event, Start):
            yield from outgoing.warnings


def without_thoughts(request: Request) -> Request:
    """The request without what the model thought before."""
    messages = (
        msgspec.structs.replace(m, parts=tuple(p for p in m.parts if not isinstance(p, Reasoning)))
        if m.role == "assistant"
        else m
        for m in request.messages
    )
    return msgspec.structs.replace(request, messages=tuple(messages))


def _dialect(name: str, config: HttpConfig) -> Dialect:
    try:
        return dialects.get(config.api)
    except ConfigError as e:
        raise ConfigError(f"{e.message} - at servers.{name}.api") from None


def _target(name: str, config: HttpConfig) -> Target | None:
    try:
        return relaxing(config.schemas) if config.schemas else None
    except ConfigError as e:
        raise ConfigError(f"{e.message} - at servers.{name}.schemas") from None


def _key(name: str, config: HttpConfig, environ: Mapping[str, str]) -> str:
    if not config.key_env:
        return config.key
    if not environ.get(config.key_env):
        raise ConfigError(f"expected a key in the variable {config.key_env}, got none - at servers.{name}.key_env")
    return environ[config.key_env]
