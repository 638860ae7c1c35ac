"""The embedded model: llama.cpp with weights on this machine, no other server needed.

Prompts are rendered, constrained and read here; the engine only turns text into more text. Its own tool
handling is never used: it drops tools in silence where a template knows none, and ignores `required`.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import msgspec

from dragoman import formats
from dragoman.backends.embedded import gguf
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.engine import Done, Engine, Piece, Progress
from dragoman.backends.embedded.grammar import held
from dragoman.backends.embedded.process import EngineSettings
from dragoman.backends.embedded.small_models import RepeatStopper, made_again, re_asking, results_as_prose
from dragoman.backends.request_limits import apply_trim
from dragoman.backends.text_mode import sampling
from dragoman.backends.text_mode.chat_template import ChatTemplate, Prompt
from dragoman.backends.text_mode.content_fallback import fallback_warnings, with_text_fallbacks
from dragoman.backends.text_mode.verbatim_history import ReplyRecorder, VerbatimHistory
from dragoman.catalog import models as model_catalog
from dragoman.catalog.models import ModelProfile
from dragoman.core import events as ev
from dragoman.core import repeated_call
from dragoman.core.backend import ExchangeContext, PromptProgress, ServedModel
from dragoman.core.call_identity import answered_calls
from dragoman.core.errors import (
    BackendUnavailableError,
    ConfigError,
    DragomanError,
    RequestError,
    UpstreamError,
    loggable_message,
)
from dragoman.core.events import AnyEvent, Finish, Notice, Start, TextDelta, ToolCallEnd, ToolCallStart
from dragoman.core.messages import FinishReason, Request, ToolCall, Usage
from dragoman.parsing.reply_reader import READER_REPAIRS, ReplyReader
from dragoman.prompting import trim
from dragoman.prompting.prompt_budget import Budget, budget_for
from dragoman.text.stop_strings import StopStrings
from dragoman.wire.translation import notices_by_name

log = logging.getLogger("dragoman.embedded")

CONTEXT_TOKENS: Final = 8192
"""Context per request unless set: what the small model has; larger costs memory for each place."""


class EmbeddedBackend:
    """One model under one engine."""

    def __init__(
        self,
        path: Path,
        profile: ModelProfile | None,
        config: EmbeddedConfig,
        say: Callable[[str], None],
        metadata: gguf.Metadata | None = None,
    ) -> None:
        """`metadata`: of the file, where it need not be here."""
        facts = gguf.metadata(path) if metadata is None else metadata
        self._described = (profile, config, facts)
        self.after_result = profile.after_result if profile else "free"
        self.format = formats.get(profile.format if profile else "hermes")
        self._template = ChatTemplate(
            facts.chat_template, facts.bos, facts.eos, facts.control_tokens, facts.user_tokens
        )
        context_tokens = config.context_tokens or min(facts.context_tokens, CONTEXT_TOKENS)
        if context_tokens > facts.context_tokens:
            raise ConfigError(
                f"expected embedded.context_tokens of at most {facts.context_tokens}, for which {path.name} was "
                f"trained, got {context_tokens}; 0 takes what it has"
            )
        self._context_tokens = context_tokens
        self.own_words = VerbatimHistory()
        """What the model wrote recently, verbatim."""
        self._trim = trim.validate_tier(config.trim, "embedded.trim")
        self._budget = Budget(0, config.tools)
        self.tokens_per_s = 0.0
        """How fast the model reads prompts, as measured at the start; 0: not measured."""
        self._reply_tokens = profile.reply_tokens if profile else 0
        self._model = ServedModel(profile.name if profile else path.stem, context_tokens)
        self.engine = Engine(
            EngineSettings(
                path=path,
                context_tokens=context_tokens,
                parallel=config.parallel,
                queue=config.queue,
                threads=config.threads or max(1, (os.cpu_count() or 2) - 1),
                reading_threads=config.threads or os.cpu_count() or 1,
                memory_mb=config.memory_mb,
                load_timeout_s=config.load_timeout_s,
                silence_s=config.silence_s,
            ),
            say,
        )

    @classmethod
    def from_config(cls, config: EmbeddedConfig, path: Path, say: Callable[[str], None]) -> "EmbeddedBackend":
        """The configured model, its weights at `path`.

        Raises: ConfigError: the file is not a usable model.
        """
        name = config.model or model_catalog.default().name
        known = not (name.endswith(".gguf") or name.startswith("hf:"))
        return cls(path, model_catalog.get(name) if known else None, config, say)

    def models(self) -> Sequence[ServedModel]:
        """Returns the one embedded model."""
        return (self._model,)

    def facts(self, model: str) -> Mapping[str, object]:
        """The model and its settings; see `SupportsReplay`."""
        profile, config, metadata = self._described
        named = profile.name if profile else ""
        settings = msgspec.to_builtins(config) | {"model": named or self._model.id}
        return {"kind": "embedded", "profile": named, "settings": settings, "metadata": msgspec.to_builtins(metadata)}

    def shown(self, request: Request) -> Request:
        """See `SupportsReplay`."""
        return self.own_words.restore(request)

    def secrets(self) -> Sequence[str]:
        """It has none."""
        return ()

    async def refresh(self) -> None:
        """It has no others."""

    async def start(self) -> None:
        """Load the weights. Raises: BackendUnavailableError: the engine did not start."""
        await self.engine.start()
        wanted_s = self._described[1].first_answer_s
        if wanted_s:
            self.tokens_per_s = await self.engine.reading_speed()
            self._budget = budget_for(wanted_s, self.tokens_per_s, self._budget.tools)

    async def close(self) -> None:
        """End the engine."""
        await self.engine.close()

    def state(self) -> Mapping[str, object]:
        """Returns the state of the engine, for /health."""
        engine = self.engine
        return {
            "backend": "embedded",
            "model": self._model.id,
            "ready": engine.is_ready,
            "active": engine.active,
            "waiting": engine.waiting,
            "restarts": engine.restarts,
            **({"read_tokens_per_s": round(self.tokens_per_s, 1)} if self.tokens_per_s else {}),
        }

    async def ask(self, request: Request, turn: ExchangeContext) -> AsyncGenerator[AnyEvent, None]:
        """The model's answer.

        Raises: DragomanError: before Start; see `Backend`.
        """
        answer = _EmbeddedResponse(self, request, turn)
        try:
            async with aclosing(answer.events()) as events:
                async for event in events:
                    answer.listener.observe((event,))
                    yield event
        except DragomanError as error:
            if not answer.started:
                raise
            yield ev.Failure(error)

    async def count_tokens(self, request: Request) -> int | None:
        """Tokens of the prompt, as the engine counts them; None while it is down.

        Raises: RequestError: something in the request can be neither shown to the model nor left out.
        """
        _, prompt, _ = await asyncio.to_thread(self._as_shown, self.own_words.restore(request))
        try:
            return await self.engine.count(prompt.text)
        except (BackendUnavailableError, UpstreamError) as error:
            log.warning("going on without a count: %s", error)
            return None

    def _as_shown(self, request: Request) -> tuple[Request, Prompt, tuple[Notice, ...]]:
        """The request as far as it can be shown to the model, the prompt that shows it, and what was cut of it."""
        request, trimming = apply_trim(with_text_fallbacks(request), self._trim, self._budget)
        if self.after_result == "prose":
            request = results_as_prose(request)
        return request, self._template.render(request, self.format), trimming

    def prepared(self, request: Request) -> "_PreparedPrompt":
        """Prompt, grammar and what the caller should know of them: work of seconds for thousands of tools.

        Raises: RequestError: something in the request can be neither shown to the model nor left out.
        """
        lost = fallback_warnings(request)
        request, prompt, trimming = self._as_shown(request)
        # A number over the engine's 32 bits would come out as another one.
        limit = min(request.max_tokens or self._reply_tokens or self._context_tokens, self._context_tokens)
        body: dict[str, Any] = {"prompt": prompt.text, "cache_prompt": True, "n_predict": limit}
        body |= sampling.engine_settings(request)
        warnings = [*lost, *trimming]
        if names := sampling.ignored_settings(request):
            warnings += notices_by_name(
                "unsupported_parameter", "the embedded engine does not have {}", {n: n for n in names}
            )
        has_tools = any(t.kind == "function" for t in request.tools) and request.tool_choice.mode != "none"
        if has_tools:
            # Agents such as Claude Code name no temperature; the engine's own (0.8) makes small models call at random.
            body.setdefault("temperature", 0)
        elif request.tool_choice.mode in ("required", "named"):
            warnings.append(Notice("constraint_not_applied", "a call is required, but no tool can be offered here"))
        grammar, more = held(self.format, request, has_tools=has_tools)
        if grammar:
            body["grammar"] = grammar
        return _PreparedPrompt(body, prompt.suffix, [*warnings, *more], has_tools, len(request.tools))

    def reader(self, request: Request, turn: ExchangeContext, prepared: "_PreparedPrompt") -> ReplyReader:
        """For one reply."""
        past = (p.id for m in request.messages for p in m.parts if isinstance(p, ToolCall))
        return ReplyReader(
            self.format,
            request.tools if prepared.has_tools else (),
            new_id=turn.new_id,
            prompt_tail=prepared.tail,
            lenient=prepared.has_tools,
            used_ids=past,
            enabled_repairs=READER_REPAIRS.difference(turn.leave),
        )


class _PreparedPrompt(msgspec.Struct, frozen=True):
    body: dict[str, Any]
    tail: str
    warnings: list[Notice]
    has_tools: bool
    offered: int
    """Tools that the model is shown."""


class _EmbeddedResponse:
    """One reply on its way."""

    def __init__(self, backend: EmbeddedBackend, request: Request, turn: ExchangeContext) -> None:
        self.started = False
        self._backend = backend
        self._turn = turn
        self._stops = StopStrings(request.stop)
        self._usage = Usage()
        self.listener = ReplyRecorder(backend.own_words)
        self._request = backend.own_words.restore(request)
        guards = backend.after_result == "no_repeats" and not turn.reasked
        self._answered = answered_calls(request) if guards else []
        self._grammar_refused = False

    async def _set_up(self, request: Request, *, last: bool = False) -> None:
        self._request = request
        self._prepared = await asyncio.to_thread(self._backend.prepared, request)
        self._reader = self._backend.reader(request, self._turn, self._prepared)
        self._repeats = RepeatStopper(self._answered, self._backend.format.write_call, last=last)
        self.listener = ReplyRecorder(self._backend.own_words)
        self._came_to_its_end = False
        self._enough = False  # the calls that can be of use are out
        self._said = False  # something is out

    async def events(self) -> AsyncGenerator[AnyEvent, None]:
        """The whole answer, asked for again where the first try was refused or of no use."""
        await self._set_up(self._request)
        async with aclosing(self._completed()) as events:
            async for event in events:
                yield event
        if self._needs_retry():
            async with aclosing(self._re_asked()) as events:
                async for event in events:
                    yield event
        for event in self._finish():
            yield event

    async def _completed(self, *, again: bool = False) -> AsyncGenerator[AnyEvent, None]:
        """One completion, without the grammar where the engine refuses that."""
        free = {k: v for k, v in self._prepared.body.items() if k != "grammar"}
        body = free if self._grammar_refused else self._prepared.body
        try:
            async with aclosing(self._run(body, again=again)) as events:
                async for event in events:
                    yield event
        except RequestError as error:
            if self.started or "grammar" not in body:
                raise
            log.warning("going on without a grammar: %s", error)
            self._prepared.warnings.append(Notice("constraint_not_applied", "the engine refused the grammar"))
            self._grammar_refused = True
            async with aclosing(self._run(free, again=True)) as events:
                async for event in events:
                    yield event

    def _needs_retry(self) -> bool:
        """Only a call that has a result came, or nothing at all after a tool's result."""
        silent = self._answered and not (self._said or self._stops.found or self._reason == "length")
        return bool(silent) or self._repeats.call is not None

    async def _re_asked(self) -> AsyncGenerator[AnyEvent, None]:
        """What the model writes as it is shown its earlier result (`earlier`), or the call where that is nothing."""
        call, held_back, had_text, has_more = self._repeats.call, self._repeats.held_back, self._said, False
        for warning in re_asking(call):
            yield warning
        try:
            await self._set_up(repeated_call.reask_request(self._request, call), last=True)
            async with aclosing(self._completed(again=True)) as events:
                async for event in events:
                    if had_text and not has_more and isinstance(event, TextDelta):
                        yield TextDelta("\n\n")
                    has_more = has_more or isinstance(event, TextDelta | ToolCallStart)
                    yield event
        except DragomanError as error:
            if has_more or call is None:
                raise
            log.warning("the model could not be re-asked: %s", loggable_message(error))
        if call and not (has_more or self._stops.found):
            self.listener.discard()
            for event in (*held_back, made_again(call.name)):
                yield event

    async def _run(self, body: Mapping[str, Any], *, again: bool = False) -> AsyncGenerator[AnyEvent, None]:
        """One completion; `again` where it is not the answer's first."""
        self._reason: FinishReason = "stop"
        spent, cached, counted = self._usage.output_tokens, self._usage.cached_input_tokens, not self.started
        said = self._backend.engine.complete(body, again=again)
        async with aclosing(self._turn.heard("completion", body, said)) as outputs:
            async for output in outputs:
                match output:
                    case Progress(total, done):
                        self._report(total, done)
                        read, counted = self._usage.input_tokens + (0 if counted else total), True
                        self._usage = msgspec.structs.replace(self._usage, input_tokens=read)
                        for event in self._start(total):
                            yield event
                    case Piece(text):
                        self.listener.add_text(text)
                        self._usage = msgspec.structs.replace(self._usage, output_tokens=self._usage.output_tokens + 1)
                        for event in self._filter(self._reader.feed(text)):
                            yield event
                        if self._enough or self._reader.finished or self._stops.found:
                            break
                    case Done(finish, output_tokens, cached_tokens):
                        self._reason = "length" if finish == "length" else "stop"
                        self._came_to_its_end = True
                        self._usage = msgspec.structs.replace(
                            self._usage, output_tokens=spent + output_tokens, cached_input_tokens=cached + cached_tokens
                        )
        for event in self._flush():
            yield event

    def _report(self, total: int, done: int) -> None:
        if self._turn.progress is not None:
            sent = len(self._request.tools)
            cut = f"{self._prepared.offered} of {sent} tools offered" if self._prepared.offered < sent else ""
            self._turn.progress(PromptProgress(done, total, cut))

    def _filter(self, events: list[AnyEvent], *, cut_off: bool = False) -> list[AnyEvent]:
        """What may go out of these; notes when there have been calls enough."""
        out: list[AnyEvent] = []
        for event in events:
            if not self._enough:
                out += (passed := self._repeats.pass_on(event, cut_off=cut_off))
                self._said = self._said or any(isinstance(each, TextDelta | ToolCallStart) for each in passed)
                is_last = isinstance(event, ToolCallEnd) and not self._request.tool_choice.parallel
                self._enough = is_last or self._repeats.found
        return self._stops.feed_events(out)

    def _start(self, total: int) -> list[AnyEvent]:
        if self.started:
            return []
        self.started = True
        self._usage = Usage(input_tokens=total)
        start = Start(self._turn.id, self._request.model, self._turn.created, total)
        return [start, *self._prepared.warnings]

    def _flush(self) -> list[AnyEvent]:
        """What the end of the text decides."""
        if self._enough or self._stops.found:
            return []
        cut_off = self._reason == "length"
        rest = self._filter(self._reader.close("length" if cut_off else "stop"), cut_off=cut_off)
        if self._repeats.found:
            self._reason = "stop"
        return [*rest, *self._stops.close_events()]

    def _finish(self) -> list[AnyEvent]:
        if not self._came_to_its_end:
            self.listener.discard()
        reason = "stop_sequence" if self._stops.found else self._reason
        return [ev.UsageUpdate(self._usage), Finish(reason, self._stops.found)]
