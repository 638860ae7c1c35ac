"""A server behind, asked by one of the APIs: OpenAI-compatible ones, Anthropic's, another gateway.

    Request ─dialect.write_request→ POST; bytes ─dialect.reader.feed→ events

    backend = Http("lmstudio", HttpConfig(url="http://127.0.0.1:1234/v1"), os.environ)

What its API cannot say of a request is told in warnings right behind Start. The server's own errors become ours, with
their status; where it says that the conversation is too long, that is told in the words that each API has for it.
A server that refuses the proof of thoughts, as the vendors' own do when another model had them, is asked once more
without thoughts, and one that refuses a setting by name without that (`refused`). How it is asked is `asking`'s, what
goes wrong on the way to it `connection`'s.
"""

import logging
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import msgspec

from dragoman import dialects
from dragoman.backends import conversion_time
from dragoman.backends.http.auto_mode import Auto
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.http.connection import Connection, rest
from dragoman.backends.http.model_list import About, Listing
from dragoman.backends.http.model_modes import Way, Ways
from dragoman.backends.http.passthrough import HttpRelay
from dragoman.backends.http.request_plan import Asking
from dragoman.backends.http.unsupported_params import Refusals, without
from dragoman.core.backend import ExchangeContext, ServedModel
from dragoman.core.errors import BackendError, ConfigError, RequestError, UpstreamError, one_of, quote
from dragoman.core.events import AnyEvent, Failure, Finish, ReasoningDelta, Start, TextDelta, ToolCallDelta
from dragoman.core.messages import Reasoning, Request
from dragoman.off_loop import off_loop
from dragoman.wire.dialect import Dialect, TokenCounting, UpstreamRequest
from dragoman.wire.upstream_headers import passed_on

log = logging.getLogger("dragoman.backends.http.backend")

COMPACTED_BY: Final = ("auto", "server", "dragoman")
_COMPACTING: Final = ("api.openai.com", "chatgpt.com", "api.x.ai")
"""Hosts whose Responses API has compaction."""
_ASKED_AT_MOST: Final = 8
"""Times that one request is sent, each time without something that the server has refused."""
_REFUSES: Final = (400, 404, 422, 500, 501)
"""What servers answer where they cannot make a grammar of what they are sent."""
_GRAMMAR: Final = "the grammar"
_SIGNATURE: Final = re.compile(
    r"invalid.{0,40}signature|signature.{0,40}(invalid|required)|encrypted content.{0,200}could not be verified"
    r"|invalid `data` in `redacted_thinking`|thinking.{0,40}blocks.{0,80}cannot be modified"
    r"|item with id .rs_.{0,80}not found|reasoning_content",
    re.IGNORECASE | re.DOTALL,
)
"""The words of Anthropic's API, and of OpenAI's (https://github.com/openai/codex/issues/8145, 2026-11)."""


class Http:
    """One server."""

    def __init__(
        self,
        name: str,
        config: HttpConfig,
        environ: Mapping[str, str],
        *,
        may_probe: bool = False,
        may_recall: bool = False,
    ) -> None:
        """`may_probe`: models of mode `auto` are measured, unless the settings forbid it; `may_recall`: they are asked
        by what was found of them before, even so.

        Raises: ConfigError: the API is unknown, or the key's variable is not set.
        """
        self._name = name
        self._config = config
        self._dialect = _dialect(name, config)
        if config.compaction not in COMPACTED_BY:
            hint = one_of(config.compaction, COMPACTED_BY, "expected ")
            raise ConfigError(f"unknown {quote(config.compaction)}{hint} - at servers.{name}.compaction")
        self._asking = Asking(name, config, self._dialect)
        kind = self._asking.kind
        self._trusted = config.trusted or (kind is not None and kind.trusted)
        self.ways = Ways(name, config)
        """How each of its models is asked."""
        key = _key(name, config, environ)
        self._connection = Connection(name, config, self._dialect.sign(key), versioned=self._dialect.versioned, key=key)
        self._listing = None if config.models else Listing(name, self._connection)
        self._listed: tuple[str, ...] | None = None
        """Of which the models were made."""
        self._models: tuple[ServedModel, ...] = ()
        self._refusals = Refusals()
        may_probe = may_probe and _may_probe(config)
        self._auto: Auto | None = None
        if may_probe or may_recall:
            recognised = self._asking.recognised
            self._auto = Auto(name, config, self._connection, self.ways, recognised, measures=may_probe)

    def models(self) -> Sequence[ServedModel]:
        """Those of the settings, else those that it listed; each under `NAME/model` too."""
        listed = self._listing.ids if self._listing else self._config.models
        if listed is not self._listed:
            self._listed = listed
            self._models = tuple(map(self._model, listed))
        return self._models

    def _model(self, id: str) -> ServedModel:
        name, created = self._listing.about.get(id, About()) if self._listing else About()
        aliases = (f"{self._name}/{id}",)
        return ServedModel(id, self._config.context_tokens or None, self._name, aliases, name, created)

    def state(self) -> Mapping[str, object]:
        """Where it is, and whether it has told its models."""
        return {
            "backend": self._name,
            "url": self._connection.where,
            "ready": bool(self.models()),
            **self._connection.state(),
            "rescued": self._asking.rescued.total(),
        }

    def facts(self, model: str) -> Mapping[str, object]:
        """How it is asked for this model; see `SupportsReplay`."""
        return {"kind": "http", "url": self._connection.where, **self._asking.facts(model, self._way(model))}

    def shown(self, request: Request) -> Request:
        """See `SupportsReplay`."""
        return self._asking.own_words.restored(request)

    def secrets(self) -> Sequence[str]:
        """The key that it wants."""
        return (self._connection.key,) if self._connection.key else ()

    async def start(self) -> None:
        """Open the pool of connections, and ask for the models."""
        await self._connection.start()
        if self._listing:
            await self._listing.start()

    async def close(self) -> None:
        """Close the pool."""
        if self._listing:
            await self._listing.close()
        if self._auto is not None:
            await self._auto.close()
        await self._connection.close()

    async def refresh(self) -> None:
        """Ask for its models anew, unless the settings name them."""
        if self._listing:
            await self._listing.refresh()

    async def count_tokens(self, request: Request) -> int | None:
        """What the server counts; None where its API has no question for that, or it does not answer it, or estimates.

        Raises: UnsupportedError: its API cannot say what is asked.
        """
        counting = self._dialect.counting
        if counting is None:
            return None
        # Always in a thread, as the size of the request is not known here.
        body = await off_loop(True, self._counted, request, counting)
        try:
            said = await self._connection.asked(counting.path, body, self._own(request))
            if said.status != 200 or "x-dragoman-estimated" in said.headers:
                return None
            return counting.read_count(said.body)
        except (BackendError, RequestError) as e:
            log.warning("%s does not count tokens: %s", self._name, e)
            return None

    def _counted(self, request: Request, counting: TokenCounting) -> bytes:
        asked = self._asking.counted(request, self._way(request.model))
        written = msgspec.json.decode(asked, type=dict[str, msgspec.Raw])
        return msgspec.json.encode({name: raw for name, raw in written.items() if name in counting.members})

    def relay(self, request: Request, body: bytes, name: str, turn: ExchangeContext) -> HttpRelay | None:
        """The answer's bytes for a client of the server's own API, where its streams are trusted.

        Several choices are relayed in any case, as events have one.
        """
        passing = self._dialect.passing
        if not (self._trusted or request.choices > 1) or passing is None or request.dialect != self._dialect.name:
            return None
        if not self._asking.goes_as_it_came(request, self._way(request.model)):
            return None
        head, clean = dict[str, str](), self._connection.secrets.clean
        post = partial(self._connection.post, self._dialect.path, headers=self._own(request), began=head.update)
        return HttpRelay(self._dialect, passing, request, body, name, turn, post, clean, lambda: passed_on(head))

    def compacts(self, request: Request) -> bool:
        """Whether the server compacts conversations itself, as OpenAI's own does; see `Compacts`."""
        if self._dialect.name != "openai_responses" or request.dialect != self._dialect.name:
            return False
        host = urlsplit(self._config.url).hostname or ""
        return self._config.compaction == "server" or (
            self._config.compaction == "auto" and (host in _COMPACTING or host.endswith(".openai.azure.com"))
        )

    def edits_context(self, request: Request) -> bool:
        """Whether the server gets the conversation in its own API, and so edits it itself; see `EditsContext`."""
        return request.dialect == self._dialect.name and self._way(request.model).mode == "native"

    def forward(
        self, path: str, body: bytes, headers: Mapping[str, str], began: Callable[[Mapping[str, str]], None]
    ) -> AsyncGenerator[bytes, None]:
        """The bytes of the server's answer to this very body; `began` gets its headers first.

        Raises: RemoteError: it cannot be reached, or answers with an error.
        """
        return self._connection.post(path, body, headers, began=began)

    async def ask(self, request: Request, turn: ExchangeContext) -> AsyncGenerator[AnyEvent, None]:
        """The answer's events; closing the generator closes the connection, which stops the server.

        Raises: UnsupportedError: its API cannot say what is asked. RemoteError: it cannot be reached, or refuses.
        """
        way = self._way(request.model)
        await self._asking.prepare(request.model, way, self._connection)
        with conversion_time.counted():
            # A template is rendered in another process, which is waited for.
            in_thread = turn.large or way.endpoint == "completions"
            outgoing = await off_loop(in_thread, self._asking.outgoing, request, way)
        if request.dialect != self._dialect.name:
            outgoing = await off_loop(turn.large, self._refusals.heeded, request.model, outgoing)
        left_out = ""
        for left in reversed(range(_ASKED_AT_MOST)):
            try:
                async with aclosing(self._asked(outgoing, request, turn, way)) as events:
                    async for event in events:
                        self._saw(request.model, event)
                        yield event
                if left_out == _GRAMMAR:
                    self._asking.goes_without(request, way)
                return
            except UpstreamError as error:
                amended, left_out = None, ""
                if left:
                    amended, left_out = await off_loop(in_thread, self._amended, outgoing, request, way, error)
                if amended is None:
                    raise
                outgoing = amended

    def _way(self, model: str) -> Way:
        """How this model is about to be asked."""
        if self._auto is not None:
            self._auto.use(model)
        return self.ways.of(model)

    def _saw(self, model: str, event: AnyEvent) -> None:
        if self._auto is not None:
            self._auto.saw(model, event)

    def _amended(
        self, outgoing: UpstreamRequest, request: Request, way: Way, error: UpstreamError
    ) -> tuple[UpstreamRequest | None, str]:
        """What to ask in place of what the server has refused, where there is something; without what that is."""
        amended, what = None, "a setting"
        if error.status in (400, 404, 422) and _SIGNATURE.search(error.message):
            amended, what = self._asking.outgoing(without_thoughts(request), way), "the proof of thoughts"
        elif error.status in (400, 422) and request.dialect != self._dialect.name:
            amended = without(outgoing, error.message)
            self._refusals.remember(request.model, error.message, outgoing, amended)
        if amended is None and error.status in _REFUSES and (way.mode == "inject" or outgoing.written_as):
            amended, what = self._asking.outgoing(request, way, hold=False), _GRAMMAR
        if amended is None or amended.body == outgoing.body:
            return None, ""
        log.warning("%s refused %s; it is asked once more without", self._name, what)
        return amended, what

    async def _asked(
        self, outgoing: UpstreamRequest, request: Request, turn: ExchangeContext, way: Way
    ) -> AsyncGenerator[AnyEvent, None]:
        reading = await off_loop(turn.large, self._asking.reading, request, turn, way, outgoing)
        broken: BackendError | None = None
        spent = conversion_time.counted()
        path, head = self._asking.path(way), dict[str, str]()
        posted = self._connection.post(path, outgoing.body, self._own(request), began=head.update)
        async with aclosing(turn.heard(path, outgoing.body, posted)) as pieces:
            try:
                async for piece in pieces:
                    with spent:
                        events = reading.feed(piece)
                    if reading.ended and not reading.enough:
                        await rest(pieces)
                    for event in events:
                        yield self._for_client(event, head)
                    if reading.enough:
                        break
            except BackendError as error:
                broken = error
        last = reading.close()
        lacks_its_end_only = bool(last) and isinstance(last[-1], Finish)
        if broken is not None and not lacks_its_end_only:
            raise broken
        for event in last:
            yield self._for_client(event, head)

    def _for_client(self, event: AnyEvent, head: Mapping[str, str]) -> AnyEvent:
        """The event with what clients are told of the answer's headers, and without secrets in errors."""
        match event:
            case TextDelta() | ToolCallDelta() | ReasoningDelta():  # as most are
                return event
            case Start():
                return msgspec.structs.replace(event, headers=passed_on(head))
            case Failure(error):
                return Failure(self._connection.secrets.clean(error))
            case _:
                return event

    def _own(self, request: Request) -> Mapping[str, str]:
        """The client's headers, where they are for this API."""
        return request.headers if request.dialect == self._dialect.name else {}


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


def _may_probe(config: HttpConfig) -> bool:
    return not (config.key or config.key_env) if config.probe is None else config.probe


def _key(name: str, config: HttpConfig, environ: Mapping[str, str]) -> str:
    if not config.key_env:
        return config.key
    if not environ.get(config.key_env):
        raise ConfigError(f"expected a key in the variable {config.key_env}, got none - at servers.{name}.key_env")
    return environ[config.key_env]
