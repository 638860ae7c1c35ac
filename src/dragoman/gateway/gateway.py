"""Routes a request to a backend and yields the events of its response.

    body ─dialect.read_request→ Request ─Gateway.generate→ events ─dialect.ResponseWriter.feed→ SSE or JSON

For any backend, the events begin with Start, end with Finish or Failure, name only tools that were offered, and report
token usage. If several backends serve the model, failover uses the next one when a backend fails before its response
has begun. Responses that a client can continue are kept in the `ResponseStore`; nothing else outlives its request.
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
from dragoman.core.call_limit import first_call_only, limit_to_one_call
from dragoman.core.collect import collect
from dragoman.core.complete_calls import with_complete_calls
from dragoman.core.errors import (
    BackendUnavailableError,
    ConfigError,
    RemoteError,
    UnknownModelError,
    UpstreamError,
    loggable_message,
    one_of,
    quote,
)
from dragoman.core.events import AnyEvent, Finish, Notice, Start
from dragoman.core.messages import PreviousResponseRef, Request
from dragoman.core.token_estimate import GENERIC
from dragoman.dialects.openai_responses.client_tools import as_functions
from dragoman.gateway import compaction
from dragoman.gateway.backend_events import events_for_client, guarded_events, has_functions
from dragoman.gateway.compaction import Seal
from dragoman.gateway.response_store import EventLog, ResolvedRequest, ResponseStore
from dragoman.guard.policy import ALL_REPAIRS, Buffering, GuardPolicy
from dragoman.off_loop import off_loop
from dragoman.wire.context_edits import EditsContext, apply_edits_for
from dragoman.wire.history import repair_history
from dragoman.wire.translation import require_single_choice

log = logging.getLogger("dragoman.gateway.gateway")

DEFAULT_POLICY: Final = GuardPolicy()


class TokenCount(NamedTuple):
    """The size of a request."""

    tokens: int
    estimated: bool
    cleared: int | None = None
    """Tokens that context edits removed; None if the request asks for none, or if the upstream server makes them."""


@runtime_checkable
class ResolvesModelNames(Protocol):
    """A backend that serves more models than it can list."""

    def resolve_model_name(self, name: str) -> str | None:
        """Returns the backend's own name of this model; None: it does not serve the model."""


class Gateway:
    """Selects a backend for each request by the name of the model, with fallback to others."""

    def __init__(
        self,
        backends: Sequence[Backend],
        model_aliases: Mapping[str, str | Sequence[str]] | None = None,
        response_store: ResponseStore | None = None,
        policy: GuardPolicy = DEFAULT_POLICY,
        seal: Seal | None = None,
    ) -> None:
        """Args:
        backends: All backends, the preferred ones first.
        model_aliases: Other names of models. A name for several models is a fallback list: the next is used when one
            fails.
        response_store: Responses that clients can continue; None: a new store with default limits.
        policy: Settings of the guard.
        seal: Signs compacted conversations; None: with a random key.
        """
        self._backends = tuple(backends)
        self._passthrough_backends = {
            id(backend): backend for backend in backends if isinstance(backend, SupportsPassthrough)
        }
        self._model_aliases = {alias: alias_targets(targets) for alias, targets in (model_aliases or {}).items()}
        self.response_store = ResponseStore() if response_store is None else response_store
        self._policy = policy
        self._seal = seal or Seal()
        self.progress: Callable[[str], None] | None = None
        """Called with a line to show while a model evaluates a prompt."""

    async def start(self) -> None:
        """Starts every backend and checks the aliases."""
        for backend in self._backends:
            await backend.start()
        self._check_aliases()

    def _check_aliases(self) -> None:
        """Rejects an alias of an unknown model; not while a backend does not know its models yet."""
        known = self._models_by_name()
        for alias, target in ((alias, target) for alias, targets in self._model_aliases.items() for target in targets):
            if not self._providers_of(target) and all(backend.models() for backend in self._backends):
                raise unknown_alias_target(alias, target, known)

    async def close(self) -> None:
        """Closes every backend."""
        for backend in self._backends:
            await backend.close()

    def models(self) -> list[ServedModel]:
        """Returns all models that can be requested, each name once: the models' own names, then aliases."""
        known = self._models_by_name()
        first = {alias: next(filter(self._providers_of, targets), "") for alias, targets in self._model_aliases.items()}
        named = {alias: _as_alias(known.get(m, ServedModel(m)), alias) for alias, m in first.items() if m}
        return list((known | named).values())

    def _models_by_name(self) -> dict[str, ServedModel]:
        names: dict[str, ServedModel] = {}
        own = [model for backend in self._backends for model in backend.models()]
        for model in own:
            names.setdefault(model.id, model)
        for model in own:
            for alias in model.aliases:
                names.setdefault(alias, _as_alias(model, alias))
        return names

    def health(self) -> list[Mapping[str, object]]:
        """Returns the facts about each backend for /health."""
        return [backend.health() for backend in self._backends]

    def route(self, request: Request) -> "list[tuple[Backend, Request]]":
        """Returns the backends that serve the model, in order of preference, each with the request under its own model
        name.

        Raises:
            UnknownModelError: No backend offers the model.
            BackendUnavailableError: A backend that may offer it is not ready yet.
        """
        names = {request.model: None}
        if request.dialect:
            names[dialects.get(request.dialect).resolve_display_name(request.model)] = None
        for offering in (self._listed_by, self._accepted_by):
            for name in names:
                targets = self._model_aliases.get(name)
                served = offering(name) if targets is None else [s for m in targets for s in self._providers_of(m)]
                if served:
                    return [(each, msgspec.structs.replace(request, model=id)) for each, id in dict.fromkeys(served)]
        known = [model.id for model in self.models()]
        if waiting := [_backend_name(backend) for backend in self._backends if not backend.models()]:
            raise BackendUnavailableError(
                f"unknown model {quote(request.model)}, but {' and '.join(waiting)} may have it and is not ready yet",
                retry_after_s=3,
            )
        raise UnknownModelError(request.model, known)

    async def route_or_refresh(self, request: Request) -> "list[tuple[Backend, Request]]":
        """As `route`, but the backends refresh their models first if none offers the model."""
        try:
            return self.route(request)
        except (UnknownModelError, BackendUnavailableError):
            await asyncio.gather(*(backend.refresh_models() for backend in self._backends))
            return self.route(request)

    def _listed_by(self, model: str) -> "list[tuple[Backend, str]]":
        """The backends that list this name, each with its own name of the model; own names precede aliases."""
        own = [(each, m.id) for each in self._backends for m in each.models() if m.id == model]
        return own or [(each, m.id) for each in self._backends for m in each.models() if model in m.aliases]

    def _providers_of(self, model: str) -> "list[tuple[Backend, str]]":
        return self._listed_by(model) or self._accepted_by(model)

    def _accepted_by(self, model: str) -> "list[tuple[Backend, str]]":
        """The backends that accept a name that none lists, each with its own name of the model."""
        takers = [each for each in self._backends if isinstance(each, ResolvesModelNames)]
        return [(each, name) for each in takers if (name := each.resolve_model_name(model)) is not None]

    def passthrough(self, request: Request, body: bytes, context: ExchangeContext) -> PassthroughResponse | None:
        """Returns the upstream response's bytes if neither it nor the body has to be changed; None: use `generate`.

        None is also returned if several backends serve the model, because failover needs the events.
        """
        one_call = request.tools and not request.tool_choice.parallel_tool_calls
        if request.store or request.previous_response or one_call:
            return None
        try:
            [(backend, planned), *others] = self.route(request)
        except (UnknownModelError, BackendUnavailableError):
            return None
        if (
            (others and request.choices == 1)
            or id(backend) not in self._passthrough_backends
            or compaction.uses_compaction(request)
        ):
            return None
        response = self._passthrough_backends[id(backend)].passthrough(planned, body, request.model, context)
        if response is None or repair_history(planned.messages)[1]:
            return None
        if any(isinstance(part, PreviousResponseRef) for message in planned.messages for part in message.parts):
            return None
        if context.observer is not None:
            context.observer.on_backend_call(backend, planned)
        return response

    def generate(
        self, request: Request, context: ExchangeContext, buffering: Buffering | None = None
    ) -> AsyncGenerator[AnyEvent, None]:
        """Yields the events of one response. Closing the generator stops the model.

        Args:
            request: The request of the client.
            context: The id, clock and observers of this exchange.
            buffering: How tool calls are buffered; None: as in the settings.

        Raises:
            DragomanError: Before Start; later the stream ends with Failure.
        """
        if context.is_large:
            return self._generate_off_loop(request, context, buffering)
        return self._generate(request, context, buffering)

    async def _generate_off_loop(
        self, request: Request, context: ExchangeContext, buffering: Buffering | None
    ) -> AsyncGenerator[AnyEvent, None]:
        async with aclosing(await asyncio.to_thread(self._generate, request, context, buffering)) as events:
            async for event in events:
                yield event

    def _generate(
        self, request: Request, context: ExchangeContext, buffering: Buffering | None
    ) -> AsyncGenerator[AnyEvent, None]:
        require_single_choice(request)
        recalled = self.response_store.resolve(limit_to_one_call(request))
        recalled = recalled._replace(request=self._with_function_tools(recalled.request))
        context = dataclasses.replace(context, disabled_repairs=set(ALL_REPAIRS) - self._policy.enabled_repairs)
        if compaction.uses_compaction(recalled.request):
            opened, needs_compaction = compaction.prepare_request(recalled.request, self.route, self._seal)
            recalled = recalled._replace(request=opened)
            if needs_compaction:
                events = self._events_with_failover(compaction.summary_request(opened), context, None)
                events = compaction.sealed_summary(events, self._seal, context)
                recalled = recalled._replace(previous_id="", input_messages=())
                return self._store_response(request, recalled, events, context.is_large)
        policy = self._policy_for(recalled.request, buffering)
        buffer_limit_chars = (
            0 if policy and request.stream else self._policy.buffer_limit(buffering, stream=request.stream)
        )  # the guard buffers them itself
        events = with_complete_calls(self._events_with_failover(recalled.request, context, policy), buffer_limit_chars)
        if request.tools and not recalled.request.tool_choice.parallel_tool_calls:
            events = first_call_only(events)
        if not request.store and not recalled.warnings:
            return events
        return self._store_response(request, recalled, events, context.is_large)

    def _with_function_tools(self, request: Request) -> Request:
        """The request with its API's own tools as functions, unless it goes to a server of the same API.

        Raises:
            RequestError: An item of such a tool lacks a required field.
        """
        try:
            (backend, planned), *_ = self.route(request)
        except (UnknownModelError, BackendUnavailableError):  # the client gets this error later
            return request
        passes = isinstance(backend, EditsContext) and backend.edits_context(planned)
        return request if passes else as_functions(request)

    @property
    def policy(self) -> GuardPolicy:
        """Settings of the guard."""
        return self._policy

    def secret_values(self) -> list[str]:
        """Returns the values of all backends that must not appear in logs or captures."""
        backends = (backend for backend in self._backends if isinstance(backend, SupportsReplay))
        return [secret for backend in backends for secret in backend.secret_values()]

    def _policy_for(self, request: Request, buffering: Buffering | None) -> GuardPolicy | None:
        """The guard's settings for this response; None: it cannot contain calls."""
        if not (self._policy.enabled and has_functions(request)):
            return None
        policy = msgspec.structs.replace(self._policy, buffering=buffering) if buffering else self._policy
        if request.stream or policy.buffering != "short":
            return policy
        return msgspec.structs.replace(policy, buffer_limit_chars=sys.maxsize)  # this client does not get a stream

    async def _store_response(
        self, request: Request, recalled: ResolvedRequest, events: AsyncGenerator[AnyEvent, None], is_large: bool
    ) -> AsyncGenerator[AnyEvent, None]:
        """Yields the events, with the store's warnings after Start; stores the response if it can be continued."""
        passed = EventLog()
        async with aclosing(events):
            async for event in events:
                passed.observe(event)
                if request.store and isinstance(event, Finish):  # before the client can continue it
                    reply = collect(passed.events, request.dialect)
                    body = dialects.get(request.dialect).write_reply(reply, request)
                    await off_loop(is_large, self.response_store.add, recalled, reply, body)
                yield event
                if isinstance(event, Start):
                    for warning in recalled.warnings:
                        yield warning

    async def count_tokens(self, request: Request, *, large: bool = False) -> TokenCount:
        """Returns the tokens of the prompt; an estimate if the backend cannot count them, or if the request names no
        model.

        Raises:
            DragomanError: The request could not be answered either.
        """
        request = await off_loop(large, self._request_to_count, request)
        if not request.model:
            return TokenCount(await off_loop(large, GENERIC.estimate_request, request), estimated=True)
        (backend, planned), *_ = await self.route_or_refresh(request)
        messages, warnings = await off_loop(large, repair_history, planned.messages)
        if warnings:
            planned = msgspec.structs.replace(planned, messages=messages)
        vocabulary = tokenizers.find(planned.model)
        edit = await off_loop(large, apply_edits_for, backend, planned, vocabulary)
        cleared = edit.cleared_tokens if edit.applied else None
        if (tokens := await backend.count_tokens(edit.request)) is not None:
            return TokenCount(tokens, estimated=False, cleared=cleared)
        return TokenCount(
            await off_loop(large, vocabulary.estimate_request, edit.request), estimated=True, cleared=cleared
        )

    def _request_to_count(self, request: Request) -> Request:
        request = self._with_function_tools(self.response_store.resolve(request).request)
        if compaction.uses_compaction(request):
            request, needs_compaction = compaction.prepare_request(request, self.route, self._seal)
            request = compaction.summary_request(request) if needs_compaction else request
        return request

    async def _events_with_failover(
        self, request: Request, context: ExchangeContext, policy: GuardPolicy | None
    ) -> AsyncGenerator[AnyEvent, None]:
        """Yields the events of the first backend that begins a response."""
        (backend, planned), *others = await self.route_or_refresh(request)
        messages, warnings = await off_loop(context.is_large, repair_history, request.messages)
        while True:
            ordered = msgspec.structs.replace(planned, messages=messages) if warnings else planned
            edit = await off_loop(context.is_large, apply_edits_for, backend, ordered, tokenizers.find(planned.model))
            answer = guarded_events(backend, edit.request, context, policy)
            try:
                answer = events_for_client(answer, edit, request, tuple(warnings), context.is_large)
                async with aclosing(answer):
                    async for event in answer:
                        yield event
                return
            except RemoteError as error:  # raised before Start, so no event was sent
                if not others or _is_request_error(error):
                    raise
                message = f"{_backend_name(backend)} could not answer ({loggable_message(error)})"
            left = _backend_name(backend)
            (backend, planned), *others = others
            log.warning("%s; %s is asked for %s", message, _backend_name(backend), quote(planned.model))
            path = f"{left} > {_backend_name(backend)}"
            warnings = (*warnings, Notice("failed_over", f"{message}; {_backend_name(backend)} was asked", detail=path))


def _is_request_error(error: RemoteError) -> bool:
    """Whether the error is about the request, so that another server would refuse it too or should not get it."""
    return isinstance(error, UpstreamError) and error.status in (400, 405, 413, 414, 415, 422)


def _backend_name(backend: Backend) -> str:
    return str(backend.health().get("backend", ""))


def _as_alias(model: ServedModel, alias: str) -> ServedModel:
    return dataclasses.replace(model, id=alias, display_name="")


def alias_targets(targets: str | Sequence[str]) -> tuple[str, ...]:
    """Returns the models that an alias stands for."""
    return (targets,) if isinstance(targets, str) else tuple(targets)


def unknown_alias_target(alias: str, target: str, known: Iterable[str]) -> ConfigError:
    """Returns the error about an alias of a model that no backend serves."""
    return ConfigError(
        f"no backend serves {quote(target)}{one_of(target, sorted(known), 'served: ')} - at model_aliases.{alias}"
    )
