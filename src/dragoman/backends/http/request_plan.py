"""How one server is asked, and what reads its answer.

    native    Request → the API's words; bytes → the API's reader → events
    parse     the same, and text among the events is read as the model's format has it
    inject    plain turns or, for `completions`, a prompt; text is read as in `parse`

Each method is given the `Way` of the request's model; one request keeps it to its end, whatever is measured meanwhile.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from typing import Final

import msgspec

from dragoman import formats
from dragoman.backends.http import constrained_decoding
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.http.connection import Connection
from dragoman.backends.http.model_modes import AUTO, Way
from dragoman.backends.http.response import Reading
from dragoman.backends.http.tool_choice import heeded
from dragoman.backends.request_limits import for_server, refuse_overlong, spared
from dragoman.backends.text_mode import completions
from dragoman.backends.text_mode import request as text_mode_request
from dragoman.backends.text_mode.content_fallback import losses, readable
from dragoman.backends.text_mode.response import Reread
from dragoman.backends.text_mode.verbatim_history import Listener, OwnWords
from dragoman.catalog import servers
from dragoman.catalog.servers import Kind
from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import ConfigError
from dragoman.core.events import Notice
from dragoman.core.identifiers import ANY
from dragoman.core.messages import Reasoning, Request
from dragoman.identify import FormatMatch, detect_format
from dragoman.parsing.format import Format
from dragoman.prompting import trim
from dragoman.prompting.prompt_budget import Budget
from dragoman.schema.targets import Target, relaxing
from dragoman.wire.dialect import Dialect, UpstreamRequest
from dragoman.wire.translation import fitted

log = logging.getLogger("dragoman.backends.http.backend")

REFUSED_LIMIT: Final = 1024
"""Sets of tools that are remembered for having been refused."""


class Asking:
    """What one server is told, and what is made of what it says."""

    def __init__(self, name: str, config: HttpConfig, dialect: Dialect) -> None:
        """Raises: ConfigError: a kind, a target of schemas or a tier of trimming is none."""
        self._name, self._config, self._dialect = name, config, dialect
        self.kind = _kind(name, config)
        self._target = _target(name, config, self.kind)
        self._trim = trim.checked(config.trim, f"servers.{name}.trim")
        self._budget = Budget(config.prompt_tokens, config.tools)
        self.own_words = OwnWords()
        """What models wrote of late whose text is read here."""
        self._templates = completions.Templates(name, config.first_byte_s)
        self._refused: set[bytes] = set()
        """What a server would not be held to with a free choice, by `_key`."""
        self._told: dict[str, FormatMatch] = {}
        """What such a file says of its model's text, where the server renders it itself."""
        self.rescued: Counter[str] = Counter()
        """By model, the calls that were found in its text."""

    def recognised(self, kind: Kind) -> None:
        """What is known of its kind counts where the settings do not say otherwise."""
        self.kind, self._target = kind, _target(self._name, self._config, kind)

    def facts(self, model: str, way: Way) -> Mapping[str, object]:
        """How this model is asked, for one who has neither the server nor its files; see `SupportsReplay`."""
        hidden = ("url", "key", "key_env", "models", "per_model")
        settings = {k: v for k, v in msgspec.to_builtins(self._config).items() if k not in hidden}
        told = self._templates.facts(model, way.template) if way.endpoint == "completions" else {}
        if way.template in self._told:
            told = {"template": completions.read(way.template, self._name)}
        kind = self.kind.name if self.kind else ""
        way_taken = {name: getattr(way, name) for name in ("mode", "format", "endpoint", "constrain", "why")}
        return {"name": self._name, "settings": settings, "server": kind, "way": way_taken, **told}

    def take(self, model: str, way: Way, facts: Mapping[str, str]) -> None:
        """Take a chat template from such facts, in place of a file or the server's word."""
        if way.endpoint == "completions":
            self._templates.take(model, way.template, facts["template"], facts.get("eos", ""))
        else:
            self._told[way.template] = detect_format(chat_template=facts["template"])

    async def prepare(self, model: str, way: Way, connection: Connection) -> None:
        """Have at hand what asking this model in this way needs.

        Raises: ConfigError, BackendError: there is no chat template to make prompts of.
        """
        if way.endpoint == "chat" and way.mode != "native" and way.template and way.template not in self._told:
            source = completions.read(way.template, self._name)
            self._told[way.template] = await asyncio.to_thread(detect_format, chat_template=source)
        if way.endpoint == "completions":
            await self._templates.prepare(model, way.template, connection)

    def path(self, way: Way) -> str:
        """Where the server is asked."""
        return completions.PATH if way.endpoint == "completions" else self._dialect.path

    def goes_as_it_came(self, request: Request, way: Way) -> bool:
        """Whether a request of the server's own API has nothing in it to be changed.

        Raises: ContextOverflowError: it is too long for the model.
        """
        asked, _ = self._shortened(request)
        refuse_overlong(asked, self._config.context_tokens)
        return way.mode == "native" and asked is request and self._taken(request)[0] == request

    def counted(self, request: Request, way: Way) -> bytes:
        """The body that asks for the same, for its tokens to be counted.

        Raises: UnsupportedError: its API cannot say what is asked.
        """
        return self._written(self._shortened(request)[0], way).body

    def outgoing(self, request: Request, way: Way, *, hold: bool = True) -> UpstreamRequest:
        """The body that asks for the answer; `hold` the model to calls, unless the server has refused to.

        Raises: UnsupportedError: its API cannot say what is asked. ContextOverflowError: it is too long for the model.
        """
        asked, warnings = self._shortened(request)
        refuse_overlong(asked, self._config.context_tokens)
        outgoing = self._prompted(asked, way) if way.endpoint == "completions" else self._written(asked, way)
        outgoing = outgoing._replace(warnings=(*warnings, *outgoing.warnings))
        return self._held(outgoing, asked, way, hold)

    def reading(self, request: Request, turn: ExchangeContext, way: Way, outgoing: UpstreamRequest) -> Reading:
        """What reads the answer to that."""
        by_prompt = way.endpoint == "completions"
        reader = completions.Reader(request, turn) if by_prompt else self._dialect.reader(request, turn)
        told = self._told.get(way.template)
        opened = outgoing.opened or (told.prompt_tail if told else "")
        return Reading(reader, outgoing, self._reread(request, turn, way, opened, outgoing), Listener(self.own_words))

    def _format(self, request: Request, way: Way) -> Format:
        """What the model writes: as the settings say, else its template, else its name."""
        told = self._told.get(way.template)
        return told.format if told and not way.format and told.by != "nothing" else way.format_of(request.model)

    def _shortened(self, request: Request) -> tuple[Request, tuple[Notice, ...]]:
        """The request without what is not for this server, and no longer than it may be."""
        request, limited = self._limited(for_server(request, self._dialect, self._config.url))
        request, trimmed = spared(request, self._trim, self._budget)
        return request, (*limited, *trimmed)

    def _limited(self, request: Request) -> tuple[Request, tuple[Notice, ...]]:
        """The request with no more tokens asked for than the server gives."""
        most, asked = self._config.max_tokens, request.max_tokens
        if asked is None and most:
            return msgspec.structs.replace(request, max_tokens=most), ()
        if not most or asked is None or asked <= most:
            return request, ()
        told = Notice(
            "lowered_limit",
            f"max_tokens is {most}, the most that {self._name} gives; {asked} were asked for",
            detail="max_tokens",
        )
        return msgspec.structs.replace(request, max_tokens=most), (told,)

    def _written(self, request: Request, way: Way) -> UpstreamRequest:
        """The request in the words of the server's API."""
        shown, lost = self._shown(request, way)
        fit, given_up = self._taken(shown)
        outgoing = self._dialect.write_request(fit, request.model)
        outgoing = outgoing._replace(warnings=(*lost, *given_up, *outgoing.warnings))
        return outgoing if shown is request else outgoing._replace(watched=request.stop)

    def _taken(self, request: Request) -> tuple[Request, tuple[Notice, ...]]:
        """The request as this kind of server takes it, and what it lost; equal where it is taken as it is."""
        fit, given_up = heeded(request, self.kind.tool_choice if self.kind else ())
        fit, adapted = fitted(fit, self._target) if self._target else (fit, ())
        if self.kind and self.kind.thoughts and _has_thoughts(fit):
            fit = msgspec.structs.replace(fit, thoughts_as=self.kind.thoughts)
        return fit, (*given_up, *adapted)

    def _shown(self, request: Request, way: Way) -> tuple[Request, tuple[Notice, ...]]:
        """The request as its model is asked, and what is lost on that way."""
        match way.mode:
            case "native":
                return request, ()
            case "parse":
                return text_mode_request.parsed(self.own_words.restored(request)), ()
            case "inject":
                return text_mode_request.injected(self.own_words.restored(request), self._format(request, way))

    def _prompted(self, request: Request, way: Way) -> UpstreamRequest:
        """The request as a prompt."""
        shown = readable(self.own_words.restored(request))
        told = losses(request)
        if request.response_schema and text_mode_request.offered(request):
            shown, told = text_mode_request.told_schema(shown), (*told, text_mode_request.unconstrained_reply())
        prompt = self._templates.of(request.model, way.template).prompt(shown, self._format(request, way))
        outgoing = completions.written(shown, prompt)
        return outgoing._replace(warnings=(*told, *outgoing.warnings))

    def goes_without(self, request: Request, way: Way) -> None:
        """The server would not hold its model to such calls, and has answered without: so it is asked from now on."""
        if len(self._refused) >= REFUSED_LIMIT:
            self._refused.clear()
        self._refused.add(_key(request, self._to(request, way)))

    def _held(self, outgoing: UpstreamRequest, request: Request, way: Way, hold: bool) -> UpstreamRequest:
        """The request with what holds the model to what was asked for; unless the server has refused that."""
        to = self._to(request, way)
        free = request.tool_choice.mode == "auto" and not request.response_schema
        if to.fields and (not hold or (free and _key(request, to) in self._refused)):
            to = constrained_decoding.Held(
                {}, () if free else (constrained_decoding.unconstrained("the server refused the grammar"),)
            )
        if to.written_as:  # whatever its choice of tools is worth
            kept = tuple(told for told in outgoing.warnings if told.code != "unconstrained")
            outgoing = outgoing._replace(warnings=kept)
        return constrained_decoding.added(outgoing, to)

    def _to(self, request: Request, way: Way) -> constrained_decoding.Held:
        """What this server can be told to hold its model to this request's calls, or to the schema of its reply."""
        own = self.kind if self.kind and self.kind.api == self._dialect.name else None
        ways, tools = way.constrain or (own.constrain if own else ()), text_mode_request.offered(request)
        if way.mode != "inject":
            ways = tuple(name for name in ways if own and name in own.beside_tools)
            heeds = way.mode == "native" and own is not None and "required" in own.tool_choice
            is_free = request.tool_choice.mode not in ("required", "named") or request.response_schema
            if not (ways and tools) or heeds or is_free:
                return constrained_decoding.Held({})
        prompted = way.endpoint == "completions"
        if prompted and request.response_schema and not tools:
            return constrained_decoding.to_json(ways, request.response_schema)
        tools, back = text_mode_request.spelled(tools, self._form(request, way))
        sent = {name: spelled for spelled, name in back.items()}
        choice = msgspec.structs.replace(
            request.tool_choice, name=sent.get(request.tool_choice.name, request.tool_choice.name)
        )
        return constrained_decoding.to_calls(
            ways, self._format(request, way), tools, choice, self._target, prompted=prompted
        )

    def _form(self, request: Request, way: Way) -> re.Pattern[str]:
        """How names of tools are spelled in this request."""
        return ANY if request.dialect == self._dialect.name or way.mode == "inject" else self._dialect.names

    def _reread(
        self, request: Request, turn: ExchangeContext, way: Way, opened: str, outgoing: UpstreamRequest
    ) -> Reread | None:
        """What reads the text of the answer as the model wrote it; None where the server is known to have done that."""
        tools = text_mode_request.offered(request)
        rescues = self._config.rescue
        if way.mode == "native" and not (rescues or outgoing.written_as):
            return None
        tools, names = text_mode_request.spelled(tools, self._form(request, way))
        new = partial(text_mode_request.reader, request=request, tools=tools, turn=turn)
        known = None if way.mode == "native" else self._format(request, way)
        known = formats.get(outgoing.written_as) if outgoing.written_as else known
        leaks = text_mode_request.leaks(request, new) if rescues and (known is None or known.name != AUTO) else None
        reader = (lambda begins: new(known, prompt_tail=opened if begins else "")) if known else None
        saved = partial(self._saved, request.model)
        repeats = way.mode != "inject"  # models that know no tools write the same call again and again
        parallel = request.tool_choice.parallel
        return Reread(reader, leaks, turn.new_id, names, saved, parallel=parallel, repeats=repeats)

    def _saved(self, model: str) -> None:
        """A call of this model was found in its text."""
        self.rescued[model] += 1
        if self.rescued[model] == 1:
            log.warning('%s leaves calls of %s in the text; mode = "parse" reads them for sure', self._name, model)


def _key(request: Request, to: constrained_decoding.Held) -> bytes:
    return sha256(msgspec.json.encode((request.model, to.fields))).digest()


def _has_thoughts(request: Request) -> bool:
    return any(isinstance(part, Reasoning) for message in request.messages for part in message.parts)


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
