"""One response of the embedded model: a completion, and a second one if the first is of no use."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol

import msgspec

from dragoman.backends.continuation import continued_notice, may_constrain
from dragoman.backends.embedded.admitted_request import HeldSlot
from dragoman.backends.embedded.continued import GRAMMAR_FIELDS, CompletesPrompts, continued
from dragoman.backends.embedded.continued_output import continued_output
from dragoman.backends.embedded.engine_output import Done, Output, Progress, TokenText
from dragoman.backends.embedded.llama_process import LlamaProcess
from dragoman.backends.embedded.questions.ask import WeighedAnswers
from dragoman.backends.embedded.questions.call_decision import ask_if_possible, may_decide
from dragoman.backends.embedded.questions.call_plan import may_plan, planned_calls
from dragoman.backends.embedded.questions.holding_engine import HoldingEngine
from dragoman.backends.embedded.questions.reporting_engine import ReportingEngine
from dragoman.backends.embedded.small_models import (
    RepeatStopper,
    reask_notices,
    reaskable_calls,
    repeated_call_notice,
)
from dragoman.backends.text_mode.verbatim_history import ReplyRecorder, VerbatimHistory
from dragoman.core import events as ev
from dragoman.core import repeated_call
from dragoman.core.backend import EventStream, ExchangeContext, PromptProgress
from dragoman.core.errors import DragomanError, RequestError, loggable_message
from dragoman.core.events import AnyEvent, Finish, Notice, Start, TextDelta, ToolCallEnd, ToolCallStart
from dragoman.core.messages import FinishReason, Request, Tool, Usage
from dragoman.core.repeated_call import answered_calls
from dragoman.parsing.format import Format
from dragoman.parsing.reply_reader import ReplyReader
from dragoman.text.stop_strings import StopStrings

log = logging.getLogger("dragoman.embedded")


class PreparedPrompt(msgspec.Struct, frozen=True):
    """What the engine is sent for a request, and what the response needs of it."""

    body: dict[str, Any]
    """The request to the engine, see `LlamaProcess.complete`."""
    suffix: str
    """The end of the prompt that the reply continues, such as `<think>`."""
    warnings: list[Notice]
    has_tools: bool
    offered: int
    """Number of tools in the prompt."""
    tools: Sequence[Tool] = ()
    """The tools that the model may call: those in the prompt that the request's steps allow."""
    is_restricted: bool = False
    """Whether the grammar allows less than the request does, so that only a whole response fits it."""


class RunsModel(Protocol):
    """What a response needs of the backend."""

    engine: LlamaProcess
    format: Format
    after_result: str
    verbatim_history: VerbatimHistory
    several_calls_from: float
    """Probability of several calls from which they are planned; 0: never."""
    words_below: float
    """Probability of a call below which the model answers in words; 0: it is not asked."""

    async def show_documents(self, request: Request) -> Request:
        """Returns the request with text and images in place of files."""

    def prepare(self, request: Request) -> PreparedPrompt:
        """Returns the prompt, the grammar and the warnings."""

    def prepare_plan(self, prepared: PreparedPrompt, calls: int) -> PreparedPrompt:
        """Returns the same prompt with a grammar that allows this number of calls only."""

    def prepare_words(self, request: Request, prepared: PreparedPrompt, probability: float) -> PreparedPrompt:
        """Returns the prompt with a note that no call is needed, and a grammar that allows none."""

    def new_reader(self, request: Request, context: ExchangeContext, prepared: PreparedPrompt) -> ReplyReader:
        """Returns a reader for one reply."""


class EmbeddedResponse:
    """One response, made of up to two completions."""

    def __init__(self, backend: RunsModel, request: Request, context: ExchangeContext) -> None:
        self.started = False
        self._backend = backend
        self._context = context
        context.attempts.tool_mode, context.attempts.format = "embedded", backend.format.name
        self._stops = StopStrings(request.stop)
        self._usage = Usage()
        self.listener = ReplyRecorder(backend.verbatim_history)
        self._request = backend.verbatim_history.restore(request)
        guards = backend.after_result == "no_repeats" and not context.reasked
        self._answered = answered_calls(request) if guards else []
        self._grammar_refused = False
        self._question: WeighedAnswers | None = None
        self._prompt_tokens = 0
        self._engine: CompletesPrompts = backend.engine

    async def _set_up(self, request: Request, *, last: bool = False) -> None:
        self._request = request = await self._backend.show_documents(request)
        self._prepared = await asyncio.to_thread(self._backend.prepare, request)
        self._reader = self._backend.new_reader(request, self._context, self._prepared)
        self._repeats = RepeatStopper(
            reaskable_calls(request, self._answered), self._backend.format.write_call, last=last
        )
        self.listener = ReplyRecorder(self._backend.verbatim_history)
        self._ended = False
        self._calls_done = False  # the useful calls have been emitted
        self._has_output = False  # text or a call has been emitted

    async def events(self) -> EventStream:
        """Yields the whole response; re-asks the model if the first completion is of no use."""
        await self._set_up(self._request)
        if not self._may_ask():
            async with aclosing(self._completions()) as batches:
                async for batch in batches:
                    yield batch
            return
        async with HeldSlot() as slot:
            self._engine = HoldingEngine(self._backend.engine, slot)
            await self._count_calls()
            async with aclosing(self._completions()) as batches:
                async for batch in batches:
                    yield batch

    async def _completions(self) -> EventStream:
        """Yields the response, of one or two completions."""
        async with aclosing(self._complete(admitted=self._question is not None)) as batches:
            async for batch in batches:
                yield batch
        if self._needs_retry():
            async with aclosing(self._reask()) as batches:
                async for batch in batches:
                    yield batch
        yield self._finish()

    def _may_ask(self) -> bool:
        """Returns whether the model is asked how many calls it needs."""
        prepared, context = self._prepared, self._context
        if context.reasked or context.opening or prepared.suffix or not prepared.has_tools:
            return False
        return self._decides() or self._plans()

    def _decides(self) -> bool:
        return bool(self._backend.words_below) and may_decide(self._request)

    def _plans(self) -> bool:
        return bool(self._backend.several_calls_from) and may_plan(self._request)

    async def _count_calls(self) -> None:
        """Asks the model how many calls it needs; constrains the response to words for none, and to several calls."""
        prepared, backend, request, decides = self._prepared, self._backend, self._request, self._decides()
        engine = ReportingEngine(self._engine, self._report, self._context)
        found, self._question = await ask_if_possible(engine, prepared.body, backend.format if decides else None)
        if found is None:
            return
        log.debug("probability of a tool call: %.3f, words below %g", found.value, backend.words_below)
        if decides and found.value < backend.words_below:
            self._prepared = await asyncio.to_thread(backend.prepare_words, request, prepared, found.value)
        elif self._plans():
            required = request.tool_choice.mode == "required"
            calls = planned_calls(found.answers.probabilities, backend.several_calls_from, required=required)
            if calls:
                self._prepared = await asyncio.to_thread(backend.prepare_plan, prepared, calls)

    async def _complete(self, *, admitted: bool = False) -> EventStream:
        """Yields one completion; retries without the grammar if the engine refuses it."""
        unconstrained = {k: v for k, v in self._prepared.body.items() if k not in GRAMMAR_FIELDS}
        body = unconstrained if self._grammar_refused else self._prepared.body
        try:
            async with aclosing(self._run(body, admitted=admitted)) as batches:
                async for batch in batches:
                    yield batch
        except RequestError as error:
            if self.started or "grammar" not in body:
                raise
            log.warning("retrying without a grammar: %s", error)
            self._prepared.warnings.append(Notice("constraint_not_applied", "the engine refused the grammar"))
            self._grammar_refused = True
            async with aclosing(self._run(unconstrained, admitted=True)) as batches:
                async for batch in batches:
                    yield batch

    def _needs_retry(self) -> bool:
        """Whether the model only repeated a call that has a result, or wrote nothing after a tool's result."""
        silent = self._answered and not (self._has_output or self._stops.found or self._reason == "length")
        return bool(silent) or self._repeats.call is not None

    async def _reask(self) -> EventStream:
        """Yields a second completion, with the result shown again; if it is empty, the call that was held back."""
        call, buffered, had_text, has_more = self._repeats.call, self._repeats.buffered, self._has_output, False
        yield reask_notices(call)
        try:
            await self._set_up(repeated_call.reask_request(self._request, call), last=True)
            async with aclosing(self._complete(admitted=True)) as batches:
                async for batch in batches:
                    first = next((event for event in batch if isinstance(event, TextDelta | ToolCallStart)), None)
                    if had_text and not has_more and isinstance(first, TextDelta):
                        yield [TextDelta("\n\n")]
                    has_more = has_more or first is not None
                    yield batch
        except DragomanError as error:
            if has_more or call is None:
                raise
            log.warning("the model could not be re-asked: %s", loggable_message(error))
        if call and not (has_more or self._stops.found):
            self.listener.discard()
            yield [*buffered, repeated_call_notice(call.name)]

    async def _run(self, body: Mapping[str, Any], *, admitted: bool = False) -> EventStream:
        """Yields the events of one completion; `admitted` if it is not the first of the response."""
        self._reason: FinishReason = "stop"
        spent, cached, counted = self._usage.output_tokens, self._usage.cached_input_tokens, not self.started
        spent += self._opening_tokens(admitted)
        attempts, began_s = self._context.attempts, time.perf_counter()
        is_queued, reading_s = True, 0.0
        failures: list[DragomanError] = []
        outputs = continued_output(
            self._run_engine, body, partial(self._body_after, body), failures.append, admitted=admitted
        )
        async with aclosing(self._context.wrap_model_output("completion", body, outputs)) as observed:
            async for output in observed:
                while failures:
                    yield [self._continued(failures.pop())]
                match output:
                    case Progress(total, done):
                        if is_queued:  # the first report precedes the work
                            is_queued, reading_s = False, time.perf_counter()
                            attempts.queue(reading_s - began_s)
                            # A response that ends with its call has no `Done`.
                            self._usage = msgspec.structs.replace(self._usage, cached_input_tokens=cached + done)
                        self._report(total, done)
                        read, counted = self._usage.input_tokens + (0 if counted else total), True
                        self._usage = msgspec.structs.replace(self._usage, input_tokens=read)
                        if events := self._start(total):
                            yield events
                    case TokenText(text):
                        if reading_s:
                            attempts.prompt_s = (attempts.prompt_s or 0.0) + time.perf_counter() - reading_s
                            reading_s = 0.0
                        self.listener.add_text(text)
                        self._usage = msgspec.structs.replace(self._usage, output_tokens=self._usage.output_tokens + 1)
                        if events := self._filter(self._reader.feed(text)):
                            yield events
                        if self._calls_done or self._reader.finished or self._stops.found:
                            break
                    case Done(finish, output_tokens, cached_tokens):
                        self._reason = "length" if finish == "length" else "stop"
                        self._ended = True
                        self._usage = msgspec.structs.replace(
                            self._usage, output_tokens=spent + output_tokens, cached_input_tokens=cached + cached_tokens
                        )
        if events := self._flush():
            yield events

    def _opening_tokens(self, admitted: bool) -> int:
        """Returns the number of tokens that another process wrote of this completion."""
        return 0 if admitted or self._context.opening is None else self._context.opening.tokens

    def _run_engine(self, body: Mapping[str, Any], admitted: bool) -> AsyncGenerator[Output, None]:
        return continued(self._engine, body, None if admitted else self._context.opening, admitted=admitted)

    def _continued(self, error: DragomanError) -> Notice:
        """Returns the warning that the engine failed, and continues the text after its restart."""
        attempts = self._context.attempts
        attempts.fail(error)
        attempts.begin(attempts.upstream, attempts.model)
        return continued_notice("embedded", "embedded", error)

    def _body_after(self, body: Mapping[str, Any], text: str) -> Mapping[str, Any]:
        """Returns the request without a grammar, which describes a whole text, unless any text can follow this one."""
        is_partial = bool(text) and self._prepared.is_restricted
        if not is_partial and may_constrain(self._request, self._backend.format, text):
            return body
        return {name: value for name, value in body.items() if name not in GRAMMAR_FIELDS}

    def _report(self, total: int, done: int) -> None:
        if self._context.progress is not None:
            tool_count = len(self._request.tools)
            cut = (
                f"{self._prepared.offered} of {tool_count} tools offered" if self._prepared.offered < tool_count else ""
            )
            self._context.progress(PromptProgress(done, total, cut))

    def _filter(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events that may be emitted, and records whether more calls can be of use."""
        out: list[AnyEvent] = []
        for event in events:
            if not self._calls_done:
                out += (passed := self._repeats.feed([event]))
                self._has_output = self._has_output or any(
                    isinstance(each, TextDelta | ToolCallStart) for each in passed
                )
                is_last = isinstance(event, ToolCallEnd) and not self._request.tool_choice.parallel_tool_calls
                self._calls_done = is_last or self._repeats.finished
        return self._stops.feed(out)

    def _start(self, total: int) -> Sequence[AnyEvent]:
        if self.started:
            return []
        self.started, self._prompt_tokens = True, total
        self._usage = msgspec.structs.replace(self._usage, input_tokens=total)
        start = Start(self._context.id, self._request.model, self._context.created, total)
        return [start, *self._prepared.warnings]

    def _flush(self) -> Sequence[AnyEvent]:
        """Returns the events that depend on the end of the text."""
        if self._calls_done or self._stops.found:
            return []
        self._repeats.cut_off = self._reason == "length"
        rest = self._filter(self._reader.close("length" if self._repeats.cut_off else "stop"))
        if self._repeats.finished:
            self._reason = "stop"
        return [*rest, *self._stops.close()]

    def _finish(self) -> list[AnyEvent]:
        if not self._ended:
            self.listener.discard()
        reason = "stop_sequence" if self._stops.found else self._reason
        # A capture of a request whose prompt is being read has no output, not even its size.
        start = self._start(self._usage.input_tokens)
        usage = self._question.add_cost(self._usage, self._prompt_tokens) if self._question else self._usage
        return [*start, ev.UsageUpdate(usage), Finish(reason, self._stops.found)]
