"""Backend for an upstream server that speaks one of the APIs: OpenAI-compatible, Anthropic's, or another gateway.

    Request ─dialect.write_request→ POST; bytes ─dialect.reader.feed→ events

    backend = HttpBackend("lmstudio", HttpConfig(url="http://127.0.0.1:1234/v1"), os.environ)

What the server's API cannot express of a request is reported in warnings right after Start. The server's errors become
Dragoman's, with their status; an error about a conversation that is too long becomes the one that each API has for it.
If a server rejects the signature of reasoning, as the vendors' own do for another model's, the request is sent again
without reasoning; if it rejects a parameter by name, without that (`rejections`). `request_planner` plans the
requests, and `connection` handles transport failures.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from time import perf_counter
from typing import Final

from dragoman.backends import conversion_time
from dragoman.backends.http.auto_mode import AutoMode
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.http.connection import UpstreamConnection
from dragoman.backends.http.continuing.request import continue_text
from dragoman.backends.http.model_list import ModelDetails, ModelList
from dragoman.backends.http.model_modes import ModelMode, ModelModes
from dragoman.backends.http.passthrough import HttpPassthrough
from dragoman.backends.http.planning.request_plan import RequestPlan
from dragoman.backends.http.planning.request_planner import RequestPlanner
from dragoman.backends.http.planning.token_counts import count_body, fetch_count
from dragoman.backends.http.response import OpenedResponse, ResponseOpener
from dragoman.backends.http.server_facts import (
    COMPACTION_MODES,
    allows_probe,
    compacts_itself,
    dialect_of,
    is_host_of,
    key_of,
    upstream_facts,
)
from dragoman.backends.http.upstream_response import ObservedResponse, ResponseBody, drain
from dragoman.backends.shared_state import SharedState
from dragoman.backends.text_mode import completions
from dragoman.backends.text_mode.verbatim_history import ReplyStore
from dragoman.core.backend import Backend, EventStream, ExchangeContext, ServedModel, UpstreamFacts
from dragoman.core.errors import (
    ConfigError,
    RemoteError,
    UnsupportedError,
    UpstreamError,
    one_of,
    quote,
)
from dragoman.core.events import AnyEvent, Finish, Notice, TextDelta
from dragoman.core.messages import Request
from dragoman.off_loop import off_loop
from dragoman.trace_context import forwarded
from dragoman.wire.dialect import TokenCounting

log = logging.getLogger("dragoman.backends.http")

_MAX_ATTEMPTS: Final = 8
"""How many times one request is sent, each time without something that the server has rejected."""


class HttpBackend(Backend):
    """One upstream server."""

    def __init__(
        self,
        name: str,
        config: HttpConfig,
        environ: Mapping[str, str],
        *,
        may_probe: bool = False,
        may_recall: bool = False,
        shared: SharedState | None = None,
        replies: ReplyStore | None = None,
    ) -> None:
        """
        Args:
            name: the server's name in the settings.
            config: the server's settings.
            environ: environment variables, for `api_key_env`.
            may_probe: whether models of mode `auto` are probed, unless the settings forbid it.
            may_recall: whether cached probe results are used, also where models are not probed.
            shared: what all processes of the gateway share; None: it has one process.
            replies: where recent replies are stored, for all servers of the process; None: a store of its own.

        Raises:
            ConfigError: the API is unknown, or the variable of the key is not set.
        """
        self.name = self._name = name
        self.config = config
        self._dialect = dialect_of(name, config)
        if config.compaction not in COMPACTION_MODES:
            hint = one_of(config.compaction, COMPACTION_MODES, "expected ")
            raise ConfigError(f"unknown {quote(config.compaction)}{hint} - at upstreams.{name}.compaction")
        self.planner = RequestPlanner(name, config, self._dialect, replies)
        self.reply_store = self.planner.verbatim_history.store
        provider = self.planner.provider
        self._passthrough = config.passthrough or (provider is not None and provider.passthrough)
        self.modes = ModelModes(name, config)
        """The tool mode of each model."""
        key, versioned = key_of(name, config, environ), self._dialect.base_url_has_version
        headers = self._dialect.auth_headers(key)
        self._connection = UpstreamConnection(name, config, headers, versioned=versioned, key=key, shared=shared)
        self._responses = ResponseOpener(
            name, config, self._dialect, self.planner.verbatim_history, self._connection.secret_values.clean_error
        )
        self._model_list = None if config.models else ModelList(name, self._connection)
        self._listed_ids: tuple[str, ...] | None = None
        """The ids from which `_models` was built."""
        self._models: tuple[ServedModel, ...] = ()
        may_probe = may_probe and allows_probe(config)
        self.auto_mode: AutoMode | None = None
        if may_probe or may_recall:
            found, connection = self.planner.set_provider, self._connection
            self.auto_mode = AutoMode(name, config, connection, self.modes, found, can_probe=may_probe, shared=shared)

    def models(self) -> Sequence[ServedModel]:
        """Returns the models of the settings, else those that the server listed; each also as `NAME/model`."""
        listed = self._model_list.ids if self._model_list else self.config.models
        if listed is not self._listed_ids:
            self._listed_ids = listed
            self._models = tuple(map(self._model, listed))
        return self._models

    def _model(self, id: str) -> ServedModel:
        name, created = self._model_list.details.get(id, ModelDetails()) if self._model_list else ModelDetails()
        aliases = (f"{self._name}/{id}",)
        return ServedModel(id, self.config.context_window or None, self._name, aliases, name, created)

    def health(self) -> Mapping[str, object]:
        """Returns the URL, whether models are known, and the state of the connection, for /health."""
        return {
            "backend": self._name,
            "url": self._connection.display_url,
            "ready": bool(self.models()),
            **self._connection.health(),
            "recovered_calls": self._responses.recovered_calls.total(),
        }

    def describe(self, model: str) -> Mapping[str, object]:
        """Returns how this model is requested; see `Backend`."""
        return {
            "kind": "http",
            "url": self._connection.display_url,
            **self.planner.describe(model, self._mode_of(model)),
        }

    def request_as_shown(self, request: Request) -> Request:
        """Returns the request with the models' own earlier text; see `Backend`."""
        return self.planner.verbatim_history.restore(request)

    def secret_values(self) -> Sequence[str]:
        """Returns the API key, if there is one."""
        return (self._connection.key,) if self._connection.key else ()

    async def start(self) -> None:
        """Opens the connection pool and lists the models."""
        await self._connection.start()
        if self._model_list:
            await self._model_list.start()

    async def close(self) -> None:
        """Stops background work and closes the connection pool."""
        if self._model_list:
            await self._model_list.close()
        if self.auto_mode is not None:
            await self.auto_mode.close()
        await self._connection.close()

    async def refresh_models(self) -> None:
        """Lists the server's models again, unless the settings name them."""
        if self._model_list:
            await self._model_list.refresh()

    async def count_tokens(self, request: Request) -> int | None:
        """Returns the server's token count, or None if its API has no token counting, the request fails, or it is an
        estimate.

        Raises:
            UnsupportedError: the server's API cannot express the request.
        """
        counting = self._dialect.token_counting
        if counting is None:
            return None
        # Always in a thread, as the size of the request is not known here.
        body = await off_loop(True, self._token_count_body, request, counting)
        return await fetch_count(self._name, self._connection, counting, body, self._request_headers(request))

    def _token_count_body(self, request: Request, counting: TokenCounting) -> bytes:
        body = self.planner.token_count_body(request, self._mode_of(request.model))
        return count_body(body, counting.forwarded_fields)

    def passthrough(self, request: Request, body: bytes, name: str, context: ExchangeContext) -> HttpPassthrough | None:
        """Returns the response as bytes for a client of the server's own API, if passthrough is on for the server.

        Responses with several choices are always passed through, as events have only one.

        Args:
            request: The parsed body.
            body: The client's body, byte for byte.
            name: The model's name as the client wrote it.
            context: The exchange that the response is part of.
        """
        passthrough = self._dialect.passthrough
        if (
            not (self._passthrough or request.choices > 1)
            or passthrough is None
            or request.dialect != self._dialect.name
        ):
            return None
        if not self.planner.is_passthrough(request, self._mode_of(request.model)):
            return None
        context.attempts.tool_mode = "native"
        post = partial(self._post, context, self._dialect.path, headers=self._request_headers(request))
        clean = self._connection.secret_values.clean_error
        return HttpPassthrough(self._dialect, passthrough, request, body, name, context, post, clean)

    def compacts(self, request: Request) -> bool:
        """Returns whether the server compacts conversations itself, as OpenAI's does; see `Backend`."""
        if self._dialect.name != "openai_responses" or request.dialect != self._dialect.name:
            return False
        return compacts_itself(self.config)

    def edits_context(self, request: Request) -> bool:
        """Returns whether the server gets the conversation in its own API, and edits it itself; see `Backend`."""
        return request.dialect == self._dialect.name and self._mode_of(request.model).tool_mode == "native"

    def runs_vendor_tools(self) -> bool | None:
        """Returns True for the vendor's own server, False for a type that is known not to; see `Backend`."""
        if is_host_of(self.config, self._dialect.vendor_hosts):
            return True
        provider = self.planner.provider
        return False if provider is not None and provider.no_vendor_tools else None

    def shows_images(self, model: str) -> bool:
        """Returns False in tool mode `prompt`, whose turns are text; see `Backend`."""
        return self._mode_of(model).tool_mode != "prompt"

    def upstream_facts(self, model: str) -> UpstreamFacts:
        """Returns what spans tell about the server; see `Backend`."""
        mode = self._mode_of(model).tool_mode
        return upstream_facts(self.config.url, self.planner.provider, self._dialect.name, mode)

    def forwards(self, path: str, model: str) -> bool:
        """Returns True: the server itself refuses what it does not have; see `Backend`."""
        return True

    def forward(
        self, path: str, body: bytes, headers: Mapping[str, str], began: Callable[[Mapping[str, str]], None]
    ) -> AsyncGenerator[bytes, None]:
        """Sends this exact body and yields the bytes of the response.

        Args:
            path: The path of the API, such as /v1/messages.
            body: The body, byte for byte.
            headers: Headers to send.
            began: Called with the response headers, before the first bytes are yielded.

        Raises:
            RemoteError: the server cannot be reached, or returns an error.
        """
        return self._connection.stream_post(path, body, headers, on_headers=began)

    async def generate(self, request: Request, context: ExchangeContext) -> EventStream:
        """Yields the events of the response; closing the generator closes the connection, which stops the server.

        Raises:
            UnsupportedError: the server's API cannot express the request.
            RemoteError: the server cannot be reached, or rejects the request.
        """
        spent = conversion_time.measure()
        opened = await self._open(request, context, spent)
        response, stages, piece = opened.pipeline, opened.pipeline.stages, opened.first
        broken: RemoteError | None = None
        try:
            while piece:
                began_s = perf_counter()
                events = response.feed(piece)
                spent.seconds += perf_counter() - began_s
                if stages.ended and not stages.finished:
                    await drain(opened.body)
                if events:
                    self._observe(request.model, events)
                    yield events
                piece = b"" if stages.finished or response.failure else await opened.body.read()
        except RemoteError as error:
            broken = error
        finally:
            await opened.body.close()
        if last := response.close(broken):
            self._observe(request.model, last)
            yield last
        if response.failure is not None:
            async with aclosing(response.rest(response.failure)) as batches:
                async for events in batches:
                    yield events
        if opened.plan.without_grammar:
            self.planner.remember_rejected_constraint(opened.plan)

    async def continue_text(self, request: Request, text: str, context: ExchangeContext) -> EventStream:
        """Yields the rest of a text, if prompts are rendered here; see `Backend`.

        Raises:
            DragomanError: The server renders the prompts itself, or failed.
        """
        mode = self._mode_of(request.model)
        if mode.endpoint != "completions":
            raise UnsupportedError(f"{self._name} renders the prompts of {quote(request.model)} itself", "model")
        await self.planner.prepare(request.model, mode, self._connection)
        post = partial(self._post, context, completions.PATH, headers=self._request_headers(request))
        plan = partial(self.planner.plan, request, mode)
        async with aclosing(continue_text(plan, post, text, context)) as batches:
            async for batch in batches:
                yield batch

    async def _open(
        self, request: Request, context: ExchangeContext, spent: conversion_time.ConversionTimer
    ) -> OpenedResponse:
        """Sends the request, again without what the server rejects.

        Raises:
            RemoteError: the server cannot be reached, or rejects the request.
        """
        mode = self._mode_of(request.model)
        if mode.chat_template or mode.endpoint == "completions":
            await self.planner.prepare(request.model, mode, self._connection)
        if self.reply_store.shared is not None and mode.writes_past_turns:
            await self.planner.verbatim_history.recall(request)
        # A chat template is rendered in another process, which has to be waited for.
        in_thread = context.is_large or mode.endpoint == "completions"
        with spent:
            plan_request = self.planner.plan
            plan = await asyncio.to_thread(plan_request, request, mode) if in_thread else plan_request(request, mode)
        context.attempts.tool_mode = mode.endpoint if mode.endpoint == "completions" else mode.tool_mode
        context.attempts.format = plan.format.name if plan.format is not None else ""
        for left in reversed(range(_MAX_ATTEMPTS)):
            try:
                return await self._send(plan, context)
            except UpstreamError as error:
                changed = await off_loop(in_thread, self.planner.plan_without, plan, error) if left else None
                if changed is None:
                    raise
                context.attempts.retry(error)
                plan = changed
        raise AssertionError("the last attempt returns or raises")

    async def _send(self, plan: RequestPlan, context: ExchangeContext) -> OpenedResponse:
        """Sends the request of this plan and waits for the first bytes of its response."""
        began_s = time.perf_counter()
        try:
            body = await self._post(context, plan.path, plan.upstream.body, self._request_headers(plan.request))
            try:
                pipeline = self._responses.open(plan, context, body.headers)
                return OpenedResponse(plan, pipeline, body, await body.read())
            except BaseException:
                await body.close()
                raise
        finally:
            context.attempts.wait(time.perf_counter() - began_s)

    async def _post(self, context: ExchangeContext, path: str, body: bytes, headers: Mapping[str, str]) -> ResponseBody:
        """Sends a request; observers see its response, and may replace it, so that nothing is sent."""
        if (spans := context.attempts.spans) is not None:
            headers = spans.upstream_headers(headers)
        attempts, connection = context.attempts, self._connection
        retry, model, insists = attempts.retry, attempts.model, attempts.insists
        if context.observer is None:
            queue = attempts.queue
            return await connection.open(
                path, body, headers, on_retry=retry, on_queued=queue, model=model, insists=insists
            )
        head: dict[str, str] = {}
        pieces = connection.stream_post(
            path, body, headers, on_headers=head.update, on_retry=retry, model=model, insists=insists
        )
        return ObservedResponse(context.wrap_model_output(path, body, pieces), head)

    def _mode_of(self, model: str) -> ModelMode:
        """Returns the tool mode for a request to this model that is about to be sent."""
        if self.auto_mode is not None:
            self.auto_mode.load_cached(model)
        return self.modes.get(model)

    def _observe(self, model: str, events: Sequence[AnyEvent]) -> None:
        if self.auto_mode is None or (len(events) == 1 and type(events[0]) is TextDelta):  # the most frequent case
            return
        for event in events:
            if type(event) is Finish or type(event) is Notice:
                self.auto_mode.observe(model, event)

    def _request_headers(self, request: Request) -> Mapping[str, str]:
        """Returns the client's headers if they are for this API; of other APIs only those of traces."""
        return request.headers if request.dialect == self._dialect.name else forwarded(request.headers)
