"""Request to events: which backend answers, and what every answer is held to.

    body ─dialect.read_request→ Request ─Gateway.answer→ events ─dialect.ResponseWriter.send→ SSE or JSON

Whatever a backend does, what leaves here begins with Start, ends with Finish or Failure, names only offered tools, and
tells how many tokens it took. Where several backends have the model, the next is asked when one fails before its answer
has begun. An answer that may be gone on from is kept for a while (`memory`); nothing else outlives its request.
"""

import asyncio
import dataclasses
import logging
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple, Protocol, runtime_checkable

import msgspec

from dragoman import dialects
from dragoman.catalog import tokenizers
from dragoman.core.backend import (
    Backend,
    ExchangeContext,
    PassthroughResponse,
    ServedModel,
    SupportsPassthrough,
    SupportsReplay,
)
from dragoman.core.call_limit import one_call, with_one_call
from dragoman.core.collect import collect
from dragoman.core.complete_calls import with_whole_calls
from dragoman.core.errors import (
    BackendUnavailableError,
    ConfigError,
    RemoteError,
    UnknownModelError,
    UpstreamError,
    logged,
    one_of,
    quote,
)
from dragoman.core.events import (
    AnyEvent,
    Finish,
    Notice,
    Start,
)
from dragoman.core.messages import PreviousResponseRef, Request
from dragoman.core.token_estimate import GENERIC
from dragoman.dialects.openai_responses.client_tools import as_functions
from dragoman.gateway import compaction
from dragoman.gateway.backend_events import answered
from dragoman.gateway.compaction import Seal
from dragoman.gateway.response_store import Memory, Passed, Recalled
from dragoman.guard.policy import Delivery, GuardPolicy
from dragoman.off_loop import off_loop
from dragoman.wire.context_edits import EditsContext, apply_edits_for
from dragoman.wire.history import repair_history
from dragoman.wire.translation import require_single_choice

log = logging.getLogger("dragoman.gateway.gateway")

DEFAULT: Final = GuardPolicy()


class Count(NamedTuple):
    """How large a request is."""

    tokens: int
    estimated: bool
    cleared: int | None = None
    """Tokens that context edits removed; None where the request asks for none that are carried out here."""


@runtime_checkable
class TakesNames(Protocol):
    """A backend that has more models than it can list."""

    def takes(self, name: str) -> str | None:
        """Its own name of the model that this means; None: it has none of that name."""


class Gateway:
    """Knows the backends and their models."""

    def __init__(
        self,
        backends: Sequence[Backend],
        aliases: Mapping[str, str | Sequence[str]] | None = None,
        memory: Memory | None = None,
        policy: GuardPolicy = DEFAULT,
        seal: Seal | None = None,
    ) -> None:
        """`aliases`: other names, each of one model or of several, the next of which is asked when one fails.
        `policy`: how calls are guarded. `seal`: what compacted conversations are signed with; None: a random key.
        """
        self._backends = tuple(backends)
        self._relays = {id(backend): backend for backend in backends if isinstance(backend, SupportsPassthrough)}
        self._aliases = {alias: targets(meant) for alias, meant in (aliases or {}).items()}
        self.memory = Memory() if memory is None else memory
        self._policy = policy
        self._seal = seal or Seal()
        self.progress: Callable[[str], None] | None = None
        """Takes the line to show while a model reads a prompt."""

    async def start(self) -> None:
        """Make every backend ready."""
        for backend in self._backends:
            await backend.start()
        self._check_aliases()

    def _check_aliases(self) -> None:
        """An alias that leads nowhere is a slip; while a backend knows no models yet, nobody can tell."""
        known = self._by_name()
        for alias, target in ((alias, target) for alias, meant in self._aliases.items() for target in meant):
            if not self._served(target) and all(backend.models() for backend in self._backends):
                raise unserved(alias, target, known)

    async def close(self) -> None:
        """End every backend."""
        for backend in self._backends:
            await backend.close()

    def models(self) -> list[ServedModel]:
        """What can be asked for, each name once: the models, then what else they are called."""
        known = self._by_name()
        first = {alias: next(filter(self._served, meant), "") for alias, meant in self._aliases.items()}
        named = {alias: _also_called(known.get(m, ServedModel(m)), alias) for alias, m in first.items() if m}
        return list((known | named).values())

    def _by_name(self) -> dict[str, ServedModel]:
        """Of models of one name the first, which is the one that is asked."""
        names: dict[str, ServedModel] = {}
        own = [model for backend in self._backends for model in backend.models()]
        for model in own:
            names.setdefault(model.id, model)
        for model in own:
            for alias in model.aliases:
                names.setdefault(alias, _also_called(model, alias))
        return names

    def state(self) -> list[Mapping[str, object]]:
        """Facts of each backend for /health."""
        return [backend.state() for backend in self._backends]

    def plan(self, request: Request) -> "list[tuple[Backend, Request]]":
        """The backends that can answer, in the order in which they are asked, and the request under their own name.

        Raises: UnknownModelError: nobody offers the model. BackendUnavailableError: a backend that may have it is down.
        """
        meant = dialects.get(request.dialect).meant_by(request.model) if request.dialect else request.model
        names = dict.fromkeys((request.model, meant))
        for offering in (self._offering, self._taking):
            for name in names:
                meant_by_it = self._aliases.get(name)
                served = offering(name) if meant_by_it is None else [s for m in meant_by_it for s in self._served(m)]
                if served:
                    return [(each, msgspec.structs.replace(request, model=id)) for each, id in dict.fromkeys(served)]
        known = [model.id for model in self.models()]
        if waiting := [_name(backend) for backend in self._backends if not backend.models()]:
            raise BackendUnavailableError(
                f"unknown model {quote(request.model)}, but {' and '.join(waiting)} may have it and is not there yet",
                retry_after_s=3,
            )
        raise UnknownModelError(request.model, known)

    async def find(self, request: Request) -> "list[tuple[Backend, Request]]":
        """As `plan`; where nobody has the model, the backends first learn whether they have it by now."""
        try:
            return self.plan(request)
        except (UnknownModelError, BackendUnavailableError):
            await asyncio.gather(*(backend.refresh() for backend in self._backends))
            return self.plan(request)

    def _offering(self, wanted: str) -> "list[tuple[Backend, str]]":
        """Who has a model of this name, and its own name there; where it is one's own, what is merely also called so
        is another.
        """
        own = [(each, m.id) for each in self._backends for m in each.models() if m.id == wanted]
        return own or [(each, m.id) for each in self._backends for m in each.models() if wanted in m.aliases]

    def _served(self, wanted: str) -> "list[tuple[Backend, str]]":
        """Who has a model of this name, listed or not."""
        return self._offering(wanted) or self._taking(wanted)

    def _taking(self, wanted: str) -> "list[tuple[Backend, str]]":
        """Who would take a name that nobody lists, and its own name there."""
        takers = [each for each in self._backends if isinstance(each, TakesNames)]
        return [(each, name) for each in takers if (name := each.takes(wanted)) is not None]

    def relay(self, request: Request, body: bytes, turn: ExchangeContext) -> PassthroughResponse | None:
        """The answer's bytes, where nothing has to be changed in it or in the body; None: `answer` has its events.

        So it is also where several backends may answer, as one of them may have to stand in for another.
        """
        if request.keep or request.previous or (request.tools and not request.tool_choice.parallel):
            return None
        try:
            [(backend, planned), *others] = self.plan(request)
        except (UnknownModelError, BackendUnavailableError):
            return None
        if (others and request.choices == 1) or id(backend) not in self._relays or compaction.concerns(request):
            return None
        relay = self._relays[id(backend)].relay(planned, body, request.model, turn)
        if relay is None or repair_history(planned.messages)[1]:
            return None
        if any(isinstance(part, PreviousResponseRef) for message in planned.messages for part in message.parts):
            return None
        if turn.tap is not None:
            turn.tap.asks(backend, planned)
        return relay

    def answer(
        self, request: Request, turn: ExchangeContext, delivery: Delivery | None = None
    ) -> AsyncGenerator[AnyEvent, None]:
        """The events of one answer; closing the generator stops the model. `delivery`: of its calls, if not as usual.

        Raises: DragomanError: before Start; later the stream ends with Failure.
        """
        if turn.large:
            return self._answered_off_loop(request, turn, delivery)
        return self._answer(request, turn, delivery)

    async def _answered_off_loop(
        self, request: Request, turn: ExchangeContext, delivery: Delivery | None
    ) -> AsyncGenerator[AnyEvent, None]:
        async with aclosing(await asyncio.to_thread(self._answer, request, turn, delivery)) as events:
            async for event in events:
                yield event

    def _answer(
        self, request: Request, turn: ExchangeContext, delivery: Delivery | None
    ) -> AsyncGenerator[AnyEvent, None]:
        require_single_choice(request)
        recalled = self.memory.recall(one_call(request))
        recalled = recalled._replace(request=self._understood(recalled.request))
        turn = dataclasses.replace(turn, leave=self._policy.disabled_repairs)
        if compaction.concerns(recalled.request):
            opened, is_asked = compaction.opened_for(recalled.request, self.plan, self._seal)
            recalled = recalled._replace(request=opened)
            if is_asked:
                asked = compaction.asking(opened)
                events = compaction.summarized(self._events(asked, turn, None), self._seal, turn)
                return self._remembered(request, recalled._replace(before="", said=()), events, turn)
        policy = self._policy_of(recalled.request, delivery)
        hold_chars = (
            0 if policy and request.stream else self._policy.buffered_chars(delivery, stream=request.stream)
        )  # a guard holds them itself
        events = with_whole_calls(self._events(recalled.request, turn, policy), hold_chars)
        if request.tools and not recalled.request.tool_choice.parallel:
            events = with_one_call(events)
        return self._remembered(request, recalled, events, turn) if request.keep or recalled.warnings else events

    def _understood(self, request: Request) -> Request:
        """The request with the tools of its own API as functions, unless it goes to a server of that API.

        Raises: RequestError: an item of such a tool lacks what it must have.
        """
        try:
            (backend, planned), *_ = self.plan(request)
        except (UnknownModelError, BackendUnavailableError):  # which the client is told later
            return request
        passes = isinstance(backend, EditsContext) and backend.edits_context(planned)
        return request if passes else as_functions(request)

    @property
    def policy(self) -> GuardPolicy:
        """How calls are guarded."""
        return self._policy

    def secrets(self) -> list[str]:
        """What its backends are to show to nobody."""
        backends = (backend for backend in self._backends if isinstance(backend, SupportsReplay))
        return [secret for backend in backends for secret in backend.secrets()]

    def _policy_of(self, request: Request, delivery: Delivery | None) -> GuardPolicy | None:
        """How the calls of this answer are guarded, if it may have some."""
        if not (self._policy.enabled and _may_call(request)):
            return None
        policy = msgspec.structs.replace(self._policy, delivery=delivery) if delivery else self._policy
        if request.stream or policy.delivery != "short":
            return policy
        return msgspec.structs.replace(policy, hold_chars=sys.maxsize)  # nothing flows to this client anyway

    async def _remembered(
        self, request: Request, recalled: Recalled, events: AsyncGenerator[AnyEvent, None], turn: ExchangeContext
    ) -> AsyncGenerator[AnyEvent, None]:
        """The same events, kept where they may be; behind Start what was missing in the request."""
        passed = Passed()
        async with aclosing(events):
            async for event in events:
                passed.add(event)
                if request.keep and isinstance(event, Finish):  # before the client can go on from it
                    reply = collect(passed.events, request.dialect)
                    body = dialects.get(request.dialect).write_reply(reply, request)
                    await off_loop(turn.large, self.memory.keep, recalled, reply, body)
                yield event
                if isinstance(event, Start):
                    for warning in recalled.warnings:
                        yield warning

    async def count(self, request: Request, *, large: bool = False) -> Count:
        """The tokens of the prompt; an estimate where the backend cannot tell, or the request names no model.

        Raises: DragomanError: the request could not be answered either.
        """
        request = await off_loop(large, self._counted, request)
        if not request.model:
            return Count(await off_loop(large, GENERIC.estimate_request, request), estimated=True)
        (backend, planned), *_ = await self.find(request)
        messages, mended = await off_loop(large, repair_history, planned.messages)
        if mended:
            planned = msgspec.structs.replace(planned, messages=messages)
        vocabulary = tokenizers.find(planned.model)
        edit = await off_loop(large, apply_edits_for, backend, planned, vocabulary)
        cleared = edit.cleared_tokens if edit.applied else None
        if (tokens := await backend.count_tokens(edit.request)) is not None:
            return Count(tokens, estimated=False, cleared=cleared)
        return Count(await off_loop(large, vocabulary.estimate_request, edit.request), estimated=True, cleared=cleared)

    def _counted(self, request: Request) -> Request:
        """Returns the request that is to be counted: whole, and as it would be compacted."""
        request = self._understood(self.memory.recall(request).request)
        if compaction.concerns(request):
            request, is_asked = compaction.opened_for(request, self.plan, self._seal)
            request = compaction.asking(request) if is_asked else request
        return request

    async def _events(
        self, request: Request, turn: ExchangeContext, policy: GuardPolicy | None
    ) -> AsyncGenerator[AnyEvent, None]:
        """Of the first backend that begins an answer."""
        (backend, planned), *others = await self.find(request)
        messages, warnings = await off_loop(turn.large, repair_history, request.messages)
        while True:
            ordered = msgspec.structs.replace(planned, messages=messages) if warnings else planned
            edit = await off_loop(turn.large, apply_edits_for, backend, ordered, tokenizers.find(planned.model))
            answer = _asked(backend, edit.request, turn, policy)
            try:
                async with aclosing(answered(answer, edit, request, tuple(warnings), turn.large)) as events:
                    async for event in events:
                        yield event
                return
            except RemoteError as error:  # before Start, so that nothing has gone on
                if not others or _is_about_the_request(error):
                    raise
                told = f"{_name(backend)} could not answer ({logged(error)})"
            left = _name(backend)
            (backend, planned), *others = others
            log.warning("%s; %s is asked for %s", told, _name(backend), quote(planned.model))
            way = f"{left} > {_name(backend)}"
            warnings = (*warnings, Notice("failed_over", f"{told}; {_name(backend)} was asked", detail=way))


def _is_about_the_request(error: RemoteError) -> bool:
    """What this server refuses in it another would, or should not be sent in its place."""
    return isinstance(error, UpstreamError) and error.status in (400, 405, 413, 414, 415, 422)


def _name(backend: Backend) -> str:
    return str(backend.state().get("backend", ""))


def _may_call(request: Request) -> bool:
    return any(tool.kind == "function" for tool in request.tools)


def _asked(
    backend: Backend, request: Request, turn: ExchangeContext, policy: GuardPolicy | None
) -> AsyncGenerator[AnyEvent, None]:
    """What the backend answers, its calls guarded."""
    if policy is None:
        return turn.ask(backend, request)
    from dragoman.gateway.guarded_stream import (
        guarded,  # which wants an extra that whoever only knows the gateway need not have
    )

    answer = guarded(backend, request, turn, policy)
    if not (request.response_schema and _may_call(request)):
        return answer
    from dragoman.gateway.reply_schema_check import checked_reply  # which wants that extra too

    return checked_reply(answer, backend, request, turn, policy)


def _also_called(model: ServedModel, alias: str) -> ServedModel:
    return dataclasses.replace(model, id=alias, display_name="")


def targets(meant: str | Sequence[str]) -> tuple[str, ...]:
    """The models that an alias stands for."""
    return (meant,) if isinstance(meant, str) else tuple(meant)


def unserved(alias: str, target: str, known: Iterable[str]) -> ConfigError:
    """The error for an alias of a model that nobody offers."""
    return ConfigError(
        f"no backend serves {quote(target)}{one_of(target, sorted(known), 'served: ')} - at aliases.{alias}"
    )
