"""Reads one upstream response: bytes in, batches of events out, until the response can be stopped.

bytes ─dialect's reader→ events ─RequestNotes→ TextModeReader → StopStrings → ReplyRecorder→ events

Only the stages that the request needs are there; `ResponseOpener.open` lists them.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from dragoman.backends.http.config import HttpConfig
from dragoman.backends.http.continuing.pipeline import ContinuableResponse, ResponsePipeline
from dragoman.backends.http.model_modes import AUTO
from dragoman.backends.http.planning.request_plan import RequestPlan
from dragoman.backends.http.upstream_response import ResponseBody
from dragoman.backends.text_mode import completions
from dragoman.backends.text_mode import request as text_mode_request
from dragoman.backends.text_mode.response import TextModeReader
from dragoman.backends.text_mode.verbatim_history import ReplyRecorder, VerbatimHistory
from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import DragomanError
from dragoman.core.events import AnyEvent, Failure, Notice, Start
from dragoman.core.stage import EventStage
from dragoman.text.stop_strings import StopStrings
from dragoman.wire.dialect import Dialect
from dragoman.wire.response_headers import client_headers

log = logging.getLogger("dragoman.backends.http")


class RequestNotes(EventStage):
    """Adds the warnings about the request, and the server's headers for the client; hides secrets in errors."""

    __slots__ = ("_clean", "_headers", "_warnings")

    handles = frozenset((Start, Failure))

    def __init__(
        self,
        warnings: Sequence[Notice],
        headers: Mapping[str, str],
        clean: Callable[[DragomanError], DragomanError],
    ) -> None:
        """
        Args:
            warnings: Warnings about the request, sent after Start.
            headers: Headers of the response; filled by the time the first event arrives.
            clean: Removes secrets from errors.
        """
        self._warnings, self._headers, self._clean = warnings, headers, clean

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events; only the first and the last one of a response are changed."""
        first, last = events[0], events[-1]
        if type(first) is Start:
            events = [
                msgspec.structs.replace(first, headers=client_headers(self._headers)),
                *self._warnings,
                *events[1:],
            ]
        if type(last) is Failure:
            events = [*events[:-1], Failure(self._clean(last.error))]
        return events


class OpenedResponse(msgspec.Struct, frozen=True):
    """A response that the server has begun."""

    plan: RequestPlan
    """The plan of the request that the server accepted."""
    pipeline: ResponsePipeline
    body: ResponseBody
    first: bytes
    """The first piece of its body; empty: the body is empty."""


class ResponseOpener:
    """Makes the pipelines that read the responses of one server."""

    def __init__(
        self,
        name: str,
        config: HttpConfig,
        dialect: Dialect,
        history: VerbatimHistory,
        clean: Callable[[DragomanError], DragomanError],
    ) -> None:
        """
        Args:
            name: The server's name in the settings.
            config: The server's settings.
            dialect: The server's API.
            history: Receives the text of models that is parsed here.
            clean: Removes secrets from errors.
        """
        self._name, self._dialect, self._history, self._clean = name, dialect, history, clean
        self._recovers_leaks = config.recover_leaked_calls
        self.recovered_calls: Counter[str] = Counter()
        """By model: the tool calls that were recovered from its text."""

    def open(self, plan: RequestPlan, context: ExchangeContext, headers: Mapping[str, str]) -> ResponsePipeline:
        """Returns the pipeline that reads the response to the request of this plan.

        Args:
            plan: The plan.
            context: The exchange that the response is part of.
            headers: Headers of the response, filled by the time it is read.
        """
        new_reader = completions.CompletionReader if plan.path == completions.PATH else self._dialect.reader
        stages: list[EventStage] = [RequestNotes(plan.upstream.warnings, headers, self._clean)]
        recorder = None
        if plan.mode.tool_mode != "native" or self._recovers_leaks or plan.upstream.reply_format:
            is_shared = plan.mode.writes_past_turns
            recorder = ReplyRecorder(self._history, is_shared=is_shared) if plan.tools else None
            stages.append(self._text_reader(plan, context, recorder))
        stops = StopStrings(plan.upstream.stop_locally) if plan.upstream.stop_locally else None
        if stops is not None:
            stages.append(stops)
        if recorder is not None:
            stages.append(recorder)
        reader = new_reader(plan.request, context)
        if plan.path == completions.PATH and context.attempts.replicas:
            return ContinuableResponse(reader, stages, stops, plan.request, context)
        return ResponsePipeline(reader, stages, stops)

    def _text_reader(
        self, plan: RequestPlan, context: ExchangeContext, recorder: ReplyRecorder | None
    ) -> TextModeReader:
        """Returns the stage that parses the response's text."""
        request, mode, known = plan.request, plan.mode, plan.format
        new = partial(text_mode_request.text_reader, request=request, tools=plan.tools, context=context)
        leaks = (
            text_mode_request.leak_detector(request, new)
            if self._recovers_leaks and (known is None or known.name != AUTO)
            else None
        )
        return TextModeReader(
            (lambda begins: new(known, prompt_suffix=plan.prompt_suffix if begins else "")) if known else None,
            leaks,
            context.new_id,
            plan.client_names,
            partial(self._count_recovered, request.model),
            recorder.add_text if recorder is not None else None,
            parallel=request.tool_choice.parallel_tool_calls,
            repeats=mode.tool_mode != "prompt",  # models without native tools write the same call again and again
        )

    def _count_recovered(self, model: str) -> None:
        """Counts a tool call recovered from this model's text; the first one is logged."""
        self.recovered_calls[model] += 1
        if self.recovered_calls[model] == 1:
            log.warning('%s leaves calls of %s in the text; tool_mode = "parse" reads them for sure', self._name, model)
