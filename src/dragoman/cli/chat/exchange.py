"""One message of the user up to the final response: the model's calls run after the user's approval, round by round.

request ─Gateway.generate→ events → view;  calls ─Approval→ Toolbox.run → results → next request
"""

import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import chain
from typing import Final, NamedTuple

from dragoman.cli.chat import conversation as messages
from dragoman.cli.chat.approval import Approval
from dragoman.cli.chat.background_loop import BackgroundLoop
from dragoman.cli.chat.conversation import ChatConversation
from dragoman.cli.chat.gateway_comments import GatewayComments
from dragoman.cli.chat.line_editor import without_echo
from dragoman.cli.chat.reply_view import ReplyView
from dragoman.cli.chat.toolbox import Toolbox, failed, result_text
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import Collector
from dragoman.core.errors import DragomanError
from dragoman.core.events import AnyEvent, Failure, ReasoningDelta, RefusalDelta, Start, TextDelta, ToolCallStart
from dragoman.core.identifiers import random_id
from dragoman.core.messages import FinishReason, Part, Request, Text, ToolCall, ToolResult, Usage, add_usage
from dragoman.gateway.gateway import Gateway
from dragoman.wire.response_headers import WARNINGS

MAX_ROUNDS: Final = 16
"""Maximum rounds of calls for one message of the user."""
_STOPPED: Final = "the user stopped before this call was run"
_OUTPUT: Final = (TextDelta, RefusalDelta, ReasoningDelta, ToolCallStart)


class RunCall(NamedTuple):
    """A call of the model."""

    call: ToolCall
    result: ToolResult
    was_run: bool


class ModelResponse(NamedTuple):
    """One response of the model."""

    parts: tuple[Part, ...]
    """Only text, if it was stopped."""
    finish_reason: FinishReason
    usage: Usage
    stopped: bool = False
    """The user stopped it."""


class Answer(NamedTuple):
    """Everything that followed a message of the user."""

    parts: tuple[Part, ...] = ()
    """The parts of the last response."""
    finish_reason: FinishReason = "stop"
    usage: Usage = Usage()
    """Of all responses together."""
    calls: tuple[RunCall, ...] = ()
    stopped: bool = False


class ChatExchange:
    """Answers messages with one model after another."""

    def __init__(self, loop: BackgroundLoop, view: ReplyView, approval: Approval, toolbox: Toolbox | None) -> None:
        """`toolbox` has the tools of the conversation; None: no tools are offered."""
        self._loop, self._view, self._approval, self._toolbox = loop, view, approval, toolbox

    def answer(self, conversation: ChatConversation, gateway: Gateway, model: str) -> Answer:
        """Generates the responses to the last message, and adds them to the conversation.

        Ctrl-C stops: what is complete stays in the conversation, and the user's message if the model has begun.

        Raises:
            DragomanError: There is no response, or it broke off; the same parts stay as after Ctrl-C.
        """
        usage, run_calls = Usage(), list[RunCall]()
        for number in range(MAX_ROUNDS + 1):
            request = conversation.request(model, may_call=number < MAX_ROUNDS)
            try:
                response = self._respond(request, gateway)
            except DragomanError:
                conversation.drop_unanswered()
                raise
            usage = add_usage(usage, response.usage) if number else response.usage
            if response.parts:
                conversation.add_reply(response.parts)
            else:
                conversation.drop_unanswered()
            calls = messages.calls(response.parts)
            if not calls or response.stopped:
                return Answer(response.parts, response.finish_reason, usage, tuple(run_calls), response.stopped)
            round_calls, stopped = self._run_calls(calls)
            run_calls += round_calls
            conversation.add_results([each.result for each in round_calls])
            if stopped:
                return Answer(response.parts, response.finish_reason, usage, tuple(run_calls), stopped=True)
            if number == MAX_ROUNDS - 1:
                self._view.warn(f"{MAX_ROUNDS} rounds of calls were run; the model is asked to answer without more")
        return Answer(response.parts, response.finish_reason, usage, tuple(run_calls))

    def _respond(self, request: Request, gateway: Gateway) -> ModelResponse:
        """Requests and shows one response. Raises: DragomanError: as `answer`."""
        view, collector = self._view, Collector()
        began_s = time.monotonic()
        comments = GatewayComments(view.on_progress, view.on_warnings)
        context = ExchangeContext(
            random_id(), int(time.time()), random_id, observer=comments, progress=view.on_progress
        )
        view.begin()
        try:
            stream = self._loop.iterate(gateway.generate(request, context), view.tick)
            with without_echo(), closing(stream) as batches:
                first_s = self._receive(batches, collector, began_s)
        except KeyboardInterrupt:
            return _stopped_response(collector)
        finally:
            view.close()
        if collector.error is not None:
            raise collector.error
        reply = collector.reply()
        has_calls = bool(messages.calls(reply.parts))  # short calls arrive at once, so their speed is not the model's
        view.end(reply.usage, 0.0 if has_calls else time.monotonic() - began_s, first_s)
        return ModelResponse(reply.parts, reply.finish_reason, reply.usage)

    def _receive(self, batches: Iterable[Sequence[AnyEvent]], collector: Collector, began_s: float) -> float | None:
        """Shows and collects the events; returns the seconds to the first output, None if there is no output."""
        first_s = None
        for event in chain.from_iterable(batches):
            collector.feed(event)
            if first_s is None and isinstance(event, _OUTPUT):
                first_s = time.monotonic() - began_s
            if isinstance(event, Start):
                self._view.warn_labels(event.headers.get(WARNINGS, ""))
            self._view.feed(event)
        return first_s

    def _run_calls(self, calls: list[ToolCall]) -> tuple[list[RunCall], bool]:
        """Runs the calls in order; returns them, and whether the user stopped."""
        run_calls: list[RunCall] = []
        stopped = False
        for call in calls:
            if stopped:
                run_calls.append(RunCall(call, failed(call, _STOPPED), was_run=False))
                continue
            try:
                run_calls.append(self._run_call(call))
            except (KeyboardInterrupt, EOFError):
                self._view.close()
                stopped = True
                run_calls.append(RunCall(call, failed(call, _STOPPED), was_run=False))
        return run_calls, stopped

    def _run_call(self, call: ToolCall) -> RunCall:
        toolbox, view = self._toolbox, self._view
        server = toolbox.server_of(call.name) if toolbox else ""
        view.call(call, server)
        if toolbox is None or not server:
            result = failed(call, f"there is no tool {call.name}")
        elif refusal := self._approval.refusal(call):
            result = failed(call, refusal)
        else:
            view.running(call.name)
            with without_echo():
                result = self._loop.run(toolbox.run(call), view.tick)
            view.result(result_text(result), is_error=result.is_error)
            return RunCall(call, result, was_run=True)
        view.result(result_text(result), is_error=True)
        return RunCall(call, result, was_run=False)


def _stopped_response(collector: Collector) -> ModelResponse:
    """Returns the text that has arrived so far; calls must not be run, and reasoning may be incomplete."""
    if collector.phase == "open":
        collector.feed(Failure(DragomanError("stopped")))  # closes the open block
    parts = tuple(part for part in collector.reply().parts if isinstance(part, Text) and part.text.strip())
    return ModelResponse(parts, "stop", collector.usage, stopped=True)
