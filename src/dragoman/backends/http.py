"""A server behind, asked by one of the APIs: OpenAI-compatible ones, Anthropic's, another gateway.

    Request ─dialect.write_request→ POST; bytes ─dialect.reader.feed→ events

    backend = Http("lmstudio", HttpConfig(url="http://127.0.0.1:1234/v1"), os.environ)

What its API cannot say of a request is told in warnings right behind Start. The server's own errors become ours, with
their status; where it says that the conversation is too long, that is told in the words that each API has for it.
A server that refuses the proof of thoughts, as the vendors' own do when another model had them, is asked once more
without thoughts, and one that refuses a setting by name without that (`refused`). What goes wrong on the way to it is
`connection`'s.
"""

import logging
import re
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from dragoman import dialects
from dragoman.backends import as_text, completions, held
from dragoman.backends.auto import Auto
from dragoman.backends.connection import Connection
from dragoman.backends.http_config import HttpConfig
from dragoman.backends.listing import Listing
from dragoman.backends.local import for_server, refuse_overlong, spared
from dragoman.backends.own_words import Listener, OwnWords
from dragoman.backends.readable import readable
from dragoman.backends.reading import Reading
from dragoman.backends.refused import Refusals, without
from dragoman.backends.relay import HttpRelay
from dragoman.backends.reread import Reread
from dragoman.backends.ways import AUTO, Way, Ways
from dragoman.core import trim
from dragoman.core.contracts import Dialect, Model, Outgoing, Turn
from dragoman.core.errors import BackendError, ConfigError, RequestError, UpstreamError
from dragoman.core.events import AnyEvent, Finish, Warning
from dragoman.core.names import ANY
from dragoman.core.outgoing import fitted
from dragoman.core.targets import Target, relaxing
from dragoman.core.values import Reasoning, Request
from dragoman.profiles import servers
from dragoman.profiles.servers import Kind

if TYPE_CHECKING:  # it needs an extra that servers behind do not
    from dragoman.backends.template import ChatTemplate

log = logging.getLogger("dragoman.backends.http")

_ASKED_AT_MOST: Final = 8
"""Times that one request is sent, each time without something that the server has refused."""
_REFUSES: Final = (400, 404, 422, 500, 501)
"""What servers answer where they cannot make a grammar of what they are sent."""
_SIGNATURE: Final = re.compile(
    r"invalid.{0,40}signature|signature.{0,40}(invalid|required)|encrypted content.{0,200}could not be verified"
    r"|invalid `data` in `redacted_thinking`|thinking.{0,40}blocks.{0,80}cannot be modified"
    r"|item with id .rs_.{0,80}not found|reasoning_content",
    re.IGNORECASE | re.DOTALL,
)
"""The words of Anthropic's API, and of OpenAI's (https://github.com/openai/codex/issues/8145, 2026-11)."""


class Http:
    """One server."""

    def __init__(self, name: str, config: HttpConfig, environ: Mapping[str, str], *, may_probe: bool = False) -> None:
        """`may_probe`: models of mode `auto` are measured, unless the settings forbid it.

        Raises: ConfigError: the API is unknown, or the key's variable is not set.
        """
        self._name = name
        self._config = config
        self._dialect = _dialect(name, config)
        self._kind = _kind(name, config)
        self._target = _target(name, config, self._kind)
        self._trusted = config.trusted or (self._kind is not None and self._kind.trusted)
        self._trim = trim.checked(config.trim, f"servers.{name}.trim")
        self.ways = Ways(name, config)
        """How each of its models is asked."""
        key = _key(name, config, environ)
        self._connection = Connection(name, config, self._dialect.sign(key), versioned=self._dialect.versioned, key=key)
        self._listing = None if config.models else Listing(name, self._connection)
        self._listed: tuple[str, ...] | None = None
        """Of which the models were made."""
        self._models: tuple[Model, ...] = ()
        self._refusals = Refusals()
        self._own_words = OwnWords()
        """What models wrote of late whose text is read here."""
        self._templates: dict[str, ChatTemplate] = {}
        """By the file that the settings name; "": the one that the server tells."""
        self._rescued: Counter[str] = Counter()
        """By model, the calls that were found in its text."""
        may_probe = may_probe and config.probe
        self._auto = Auto(name, config, self._connection, self.ways, self._recognised) if may_probe else None

    def models(self) -> Sequence[Model]:
        """Those of the settings, else those that it listed; each under `NAME/model` too."""
        listed = self._listing.ids if self._listing else self._config.models
        if listed is not self._listed:
            self._listed = listed
            self._models = tuple(map(self._model, listed))
        return self._models

    def _model(self, id: str) -> Model:
        return Model(id, self._config.context_tokens or None, self._name, (f"{self._name}/{id}",))

    def state(self) -> Mapping[str, object]:
        """Where it is, and whether it has told its models."""
        return {
            "backend": self._name,
            "url": self._connection.where,
            "ready": bool(self.models()),
            **self._connection.state(),
            "rescued": self._rescued.total(),
        }

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
        asked, _ = spared(for_server(request, self._dialect, self._config.url), self._trim)
        shown, _ = self._shown(asked)
        asked, _ = fitted(shown, self._target) if self._target else (shown, ())
        written = msgspec.json.decode(
            self._dialect.write_request(asked, request.model).body, type=dict[str, msgspec.Raw]
        )
        body = msgspec.json.encode({name: raw for name, raw in written.items() if name in counting.members})
        try:
            said = await self._connection.asked(counting.path, body, self._own(request))
            if said.status != 200 or "x-dragoman-estimated" in said.headers:
                return None
            return counting.read_count(said.body)
        except (BackendError, RequestError) as e:
            log.warning("%s does not count tokens: %s", self._name, e)
            return None

    def relay(self, request: Request, body: bytes, name: str, turn: Turn) -> HttpRelay | None:
        """The answer's bytes for a client of the server's own API, where its streams are trusted."""
        passing = self._dialect.passing
        if not self._trusted or passing is None or request.dialect != self._dialect.name:
            return None
        asked, _ = spared(self._limited(for_server(request, self._dialect, self._config.url))[0], self._trim)
        if self._config.context_tokens:
            refuse_overlong(asked, self._config.context_tokens)
        fits = not self._config.schemas or not (request.tools or request.response_schema)
        if not fits or self._shown(asked)[0] is not request:
            return None
        post = partial(self._connection.post, self._dialect.path, headers=self._own(request))
        return HttpRelay(self._dialect, passing, request, body, name, turn, post)

    async def ask(self, request: Request, turn: Turn) -> AsyncGenerator[AnyEvent, None]:
        """The answer's events; closing the generator closes the connection, which stops the server.

        Raises: UnsupportedError: its API cannot say what is asked. RemoteError: it cannot be reached, or refuses.
        """
        if self._auto is not None:
            self._auto.use(request.model)
        way = self.ways.of(request.model)
        if way.endpoint == "completions" and way.template not in self._templates:
            self._templates[way.template] = await completions.template(self._name, way.template, self._connection)
        outgoing = self._outgoing(request)
        if request.dialect != self._dialect.name:
            outgoing = self._refusals.heeded(request.model, outgoing)
        for left in reversed(range(_ASKED_AT_MOST)):
            try:
                async with aclosing(self._asked(outgoing, request, turn)) as events:
                    async for event in events:
                        self._saw(request.model, event)
                        yield event
                return
            except UpstreamError as error:
                amended = self._amended(outgoing, request, error) if left else None
                if amended is None:
                    raise
                outgoing = amended

    def _saw(self, model: str, event: AnyEvent) -> None:
        if self._auto is not None:
            self._auto.saw(model, event)

    def _recognised(self, kind: Kind) -> None:
        """What is known of its kind counts where the settings do not say otherwise."""
        self._kind, self._target = kind, _target(self._name, self._config, kind)

    def _outgoing(self, request: Request, *, hold: bool = True) -> Outgoing:
        asked, limited = self._limited(for_server(request, self._dialect, self._config.url))
        asked, trimming = spared(asked, self._trim)
        refuse_overlong(asked, self._config.context_tokens)
        way = self.ways.of(request.model)
        outgoing = self._prompted(asked, way) if way.endpoint == "completions" else self._written(asked)
        outgoing = outgoing._replace(warnings=(*limited, *trimming, *outgoing.warnings))
        return self._held(outgoing, asked, way, hold) if way.mode == "inject" else outgoing

    def _written(self, request: Request) -> Outgoing:
        """The request in the words of the server's API."""
        shown, lost = self._shown(request)
        fit, adapted = fitted(shown, self._target) if self._target else (shown, ())
        if self._kind and self._kind.thoughts:
            fit = msgspec.structs.replace(fit, thoughts_as=self._kind.thoughts)
        outgoing = self._dialect.write_request(fit, request.model)
        outgoing = outgoing._replace(warnings=(*lost, *adapted, *outgoing.warnings))
        return outgoing if shown is request else outgoing._replace(watched=request.stop)

    def _prompted(self, request: Request, way: Way) -> Outgoing:
        """The request as a prompt."""
        shown = readable(self._own_words.restored(request))
        prompt = self._templates[way.template].prompt(shown, way.format_of(request.model))
        return completions.written(shown, prompt)

    def _held(self, outgoing: Outgoing, request: Request, way: Way, hold: bool) -> Outgoing:
        """The request with what holds the model to what was asked for; unless the server has refused that."""
        own = self._kind.constrain if self._kind and self._kind.api == self._dialect.name else ()
        ways, tools = way.constrain or own, as_text.offered(request)
        if way.endpoint == "completions" and request.response_schema and not tools:
            to = held.to_json(ways, request.response_schema)
        else:
            to = held.to_calls(ways, way.format_of(request.model), tools, request.tool_choice)
        if not hold and to.fields:
            to = held.Held({}, (held.unconstrained("the server refused the grammar"),))
        return held.added(outgoing, to)

    def _amended(self, outgoing: Outgoing, request: Request, error: UpstreamError) -> Outgoing | None:
        """What to ask in place of what the server has refused, where there is something."""
        amended, what = None, "a setting"
        if error.status in (400, 404, 422) and _SIGNATURE.search(error.message):
            amended, what = self._outgoing(without_thoughts(request)), "the proof of thoughts"
        elif error.status in (400, 422) and request.dialect != self._dialect.name:
            amended = without(outgoing, error.message)
            self._refusals.remember(request.model, error.message, outgoing, amended)
        if amended is None and error.status in _REFUSES and self.ways.of(request.model).mode == "inject":
            amended, what = self._outgoing(request, hold=False), "the grammar"
        if amended is None or amended.body == outgoing.body:
            return None
        log.warning("%s refused %s; it is asked once more without", self._name, what)
        return amended

    async def _asked(self, outgoing: Outgoing, request: Request, turn: Turn) -> AsyncGenerator[AnyEvent, None]:
        by_prompt = self.ways.of(request.model).endpoint == "completions"
        reader = completions.Reader(request, turn) if by_prompt else self._dialect.reader(request, turn)
        path = completions.PATH if by_prompt else self._dialect.path
        reading = Reading(reader, outgoing, self._reread(request, turn, outgoing.opened), Listener(self._own_words))
        broken: BackendError | None = None
        posted = self._connection.post(path, outgoing.body, self._own(request))
        async with aclosing(posted) as pieces:
            try:
                async for piece in pieces:
                    for event in reading.feed(piece):
                        yield event
                    if reading.enough:
                        break
            except BackendError as error:
                broken = error
        last = reading.close()
        lacks_its_end_only = bool(last) and isinstance(last[-1], Finish)
        if broken is not None and not lacks_its_end_only:
            raise broken
        for event in last:
            yield event

    def _shown(self, request: Request) -> tuple[Request, tuple[Warning, ...]]:
        """The request as its model is asked, and what is lost on that way."""
        way = self.ways.of(request.model)
        match way.mode:
            case "native":
                return request, ()
            case "parse":
                return as_text.parsed(self._own_words.restored(request)), ()
            case "inject":
                return as_text.injected(self._own_words.restored(request), way.format_of(request.model))

    def _reread(self, request: Request, turn: Turn, opened: str) -> Reread | None:
        """What reads the text of the answer as the model wrote it; None where the server is known to have done that."""
        way, tools = self.ways.of(request.model), as_text.offered(request)
        rescues = self._config.rescue and bool(tools)
        if way.mode == "native" and not rescues:
            return None
        form = ANY if request.dialect == self._dialect.name or way.mode == "inject" else self._dialect.names
        tools, names = as_text.spelled(tools, form)
        new = partial(as_text.reader, request=request, tools=tools, turn=turn)
        known = None if way.mode == "native" else way.format_of(request.model)
        leaks = as_text.leaks(request, new) if rescues and (known is None or known.name != AUTO) else None
        reader = partial(new, known, prompt_tail=opened) if known else None
        saved = partial(self._saved, request.model)
        return Reread(reader, leaks, turn.new_id, names, saved, parallel=request.tool_choice.parallel)

    def _saved(self, model: str) -> None:
        """A call of this model was found in its text."""
        self._rescued[model] += 1
        if self._rescued[model] == 1:
            log.warning('%s leaves calls of %s in the text; mode = "parse" reads them for sure', self._name, model)

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


def _kind(name: str, config: HttpConfig) -> Kind | None:
    try:
        return servers.get(config.kind) if config.kind else None
    except ConfigError as e:
        raise ConfigError(f"{e.message} - at servers.{name}.kind") from None


def _target(name: str, config: HttpConfig, kind: Kind | None) -> Target | None:
    """What the settings say, or else the kind, where what the API takes is not that."""
    schemas = config.schemas or (kind.schemas if kind else "")
    try:
        return relaxing(schemas) if schemas else None
    except ConfigError as e:
        raise ConfigError(f"{e.message} - at servers.{name}.schemas") from None


def _key(name: str, config: HttpConfig, environ: Mapping[str, str]) -> str:
    if not config.key_env:
        return config.key
    if not environ.get(config.key_env):
        raise ConfigError(f"expected a key in the variable {config.key_env}, got none - at servers.{name}.key_env")
    return environ[config.key_env]
