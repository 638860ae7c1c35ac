"""Validates and repairs the tool calls of one response.

    guard = ToolCallGuard(request, policy)
    guard.feed(events)          # the events that can be sent now; Finish waits for `close`
    guard.reask()               # the request that re-asks the model for a rejected call; None: not needed
    guard.close()               # all events that waited

A call is buffered until it is complete, then checked and repaired. Text is passed through. After a rejected call every
event waits for the end of the response, which shows whether the model can be re-asked (not after a token limit).
"""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from dragoman.core import tool_name_match
from dragoman.core.complete_calls import call_as_text
from dragoman.core.events import (
    AnyEvent,
    Failure,
    Finish,
    Notice,
    ReasoningDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
    UsageUpdate,
    VendorBlock,
)
from dragoman.core.identifiers import valid_call_id
from dragoman.core.messages import COMPLETE_FINISHES, Request, Tool, ToolCall, Usage, add_usage
from dragoman.core.repeated_call import CallKey
from dragoman.core.stage import EventStage, LaterRounds, ReaskRequest
from dragoman.guard import feedback, reask, unoffered_tool
from dragoman.guard.call_warnings import EarlierCalls, call_warnings
from dragoman.guard.injection.copied_call import CopiedCallDetector
from dragoman.guard.invented_values.detector import InventedValueDetector, without_invented
from dragoman.guard.policy import GuardPolicy
from dragoman.guard.reask import RejectedCall, RejectionKind
from dragoman.guard.split_calls import SPLIT_INTO_CALLS
from dragoman.guard.trailing_calls import TrailingCallCheck
from dragoman.guard.verdict import PendingCall, Verdict, judge_call

WARN_AT_CALLS: Final = 32
"""From this count on a warning is emitted, whatever the policy is."""
MAX_KEPT_EVENTS: Final = 20_000
"""Events of a response that are kept; the model of a longer response is not re-asked."""
_REASK_CODES: Final = ("reasked", "reask_failed")
"""Warnings of a backend that re-asks the model itself."""


class ToolCallGuard(EventStage):
    """Validates and repairs the calls of one response."""

    def __init__(self, request: Request, policy: GuardPolicy, later: LaterRounds | None = None) -> None:
        self._request, self._policy, self._choice = request, policy, request.tool_choice
        self._tools: dict[str, Tool] = {tool.name: tool for tool in request.tools if tool.kind == "function"}
        self._enabled_repairs = policy.enabled_repairs
        names = [step for step in tool_name_match.STEPS if step in self._enabled_repairs]
        self._names = tool_name_match.ToolNames(self._tools, names)
        self._all_tools_known = len(self._tools) == len(request.tools)
        """Whether no tool is run by the vendor; calls of such tools have names of their own."""
        self._later = LaterRounds() if later is None else later
        self._round = self._round_start = 0  # start: index in `received`
        self._copies = CopiedCallDetector(request, self._later)
        self._trailing = TrailingCallCheck(request, self._copies)
        self._invented = InventedValueDetector(request, policy.invented_values, self._later)
        self._earlier_calls = EarlierCalls(request)
        self._pending: PendingCall | None = None
        self._waiting: list[AnyEvent | RejectedCall] = []
        """Events that wait: a rejected call, and everything after it."""
        self._sent_calls = self._complete_calls = 0
        """Calls that were sent, and calls that arrived complete."""
        self._valid: list[ToolCall] = []
        self._reasked = False
        """Whether the backend itself has re-asked the model."""
        self._reported = self._reask_failed = self._merged = False
        """Whether `reask_failed` was reported; a second response was no better; one was merged."""
        self._replaced_text: list[AnyEvent] = []
        """Text of the first response that the second response replaces."""
        self.called_unoffered = False
        """Whether the text calls a tool that was not offered."""
        self.received: list[AnyEvent] = []
        """The events of the response as they arrived, without warnings."""
        self.rejected: list[RejectedCall] = []
        self.finish: Finish | None = None
        self.usage: Usage | None = None
        self.finished = False
        """Whether the call limit was reached; the rest of the response is not needed."""

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events that can be sent now."""
        if self._later.number != self._round:
            self._round, self._round_start, self._choice = self._later.number, len(self.received), self._later.choice
        if len(events) == 1 and type(event := events[0]) is TextDelta and not self.rejected:  # the most frequent case
            self._keep(event)
            return events
        out: list[AnyEvent] = []
        for event in events:
            if self.finished:
                break
            if type(event) is TextDelta and not self.rejected:
                self._keep(event)
                out.append(event)
            elif type(event) is UsageUpdate:
                self.usage = event.usage
                out.append(event)
            elif type(event) is Finish:
                self.finish = event
            elif type(event) is Start:
                out.append(event)
            else:
                out += self._feed(event)
        return out

    def _keep(self, event: TextDelta) -> None:
        if len(self.received) < MAX_KEPT_EVENTS:
            self.received.append(event)

    def _feed(self, event: AnyEvent) -> list[AnyEvent]:
        match event:
            case TextDelta() | ReasoningDelta():
                self.received.append(event)
                return [*self._send_or_wait([event]), *self._release_text()] if self.rejected else [event]
            case ToolCallDelta(_, text) if self._pending:
                self.received.append(event)
                out = self._on_delta(self._pending, event, text)
                return self._send_or_wait(out) if out else out
            case Notice(code):
                self._reasked = self._reasked or code in _REASK_CODES
                self._reported = self._reported or code == "reask_failed"
                if code == "reasked" and self.rejected:
                    return [*self._drop_unoffered(), *self._send_or_wait([event])]
                self.called_unoffered = self.called_unoffered or code == unoffered_tool.CODE
                self._trailing.observe(event)
                if code == unoffered_tool.CODE and self._buffers_text():
                    return self._hold(unoffered_tool.rejected_call(event, self._tools))
                return self._send_or_wait([event])
            case Failure():
                return [*self._release(), event]
            case _:
                self.received.append(event)
                return self._send_or_wait(self._on_call_event(event))

    def _send_or_wait(self, events: list[AnyEvent]) -> list[AnyEvent]:
        """Returns the events to send; after a rejected call they wait."""
        if not self.rejected:
            return [self._renumber(event) for event in events]
        for event in events:
            last = self._waiting[-1]
            rest = last.absorb(event) if isinstance(last, RejectedCall) else event
            if rest is not None:
                self._waiting.append(rest)
        return []

    def _drop_unoffered(self) -> list[AnyEvent]:
        """Called when the backend re-asks: drops text that was buffered as a call of a tool that was not offered."""
        self._waiting = unoffered_tool.as_text(self._waiting)
        self.rejected = [each for each in self._waiting if isinstance(each, RejectedCall)]
        return [] if self.rejected else self._release()

    def _buffers_text(self) -> bool:
        """Whether text that calls a tool that was not offered is buffered, because the model can be re-asked."""
        return (
            self._policy.reask
            and self._policy.buffering != "off"
            and not (self._valid or self._reasked or self._request.response_schema)
        )

    def _release_text(self) -> list[AnyEvent]:
        """Releases buffered text that turned out not to be a call."""
        unoffered_tool.release(self.rejected, self._waiting, self._copies, ended=False)
        return [] if self.rejected else self._release()

    def _renumber(self, event: AnyEvent) -> AnyEvent:
        """Returns the event with the index of its call among those that are sent."""
        if isinstance(event, ToolCallStart):
            self._sent_calls += 1
        if isinstance(event, ToolCallStart | ToolCallDelta | ToolCallEnd | ToolCallIncomplete):
            return event if event.index == self._sent_calls - 1 else replace(event, index=self._sent_calls - 1)
        return event

    def _on_call_event(self, event: AnyEvent) -> list[AnyEvent]:
        match event:
            case ToolCallStart():
                return self._on_start(event)
            case ToolCallEnd() if self._pending:
                return self._on_end(self._pending, event)
            case ToolCallIncomplete() if self._pending:
                return self._on_incomplete(self._pending, event)
            case _:
                return [event]

    def _on_start(self, event: ToolCallStart) -> list[AnyEvent]:
        is_single = not self._choice.parallel_tool_calls and self._choice.mode in ("required", "named")
        if is_single and self._valid and not self.rejected:
            self.finished = True  # a model that must call a tool can go on calling forever
            return [Notice("extra_call_dropped", "a second call was dropped: the request allows only one", event.name)]
        match = self._names.resolve(event.name)
        start = replace(event, name=match.name) if match and match.step else event
        is_buffered = self._policy.buffering != "off" or bool(self._policy.max_identical_calls) or self._limit_reached()
        self._pending = PendingCall(start, match.step if match else "", is_buffered)
        return [] if is_buffered else [start]

    def _on_delta(self, call: PendingCall, event: ToolCallDelta, text: str) -> list[AnyEvent]:
        call.chunks.append(text)
        call.chars += len(text)
        if not call.buffered:
            return [event]
        waits = call.chars <= self._policy.buffer_limit_chars or self._policy.buffering == "all"
        if waits or self._rejection_kind(call.start.name) or self._limit_reached():
            return []
        call.buffered = False
        return [call.start, ToolCallDelta(event.index, call.arguments)]

    def _on_end(self, call: PendingCall, event: ToolCallEnd) -> list[AnyEvent]:
        self._pending = None
        name, arguments = call.finish(event).name, call.arguments
        if self._trailing.drops_calls:
            return []
        if self._limit_reached():
            self.finished = True
            message = f"more than {self._policy.max_calls} calls in one response; it was ended there"
            return [Notice("call_limit_reached", message, f"{name} {arguments}")]
        self._complete_calls += 1
        if fault := self._rejection_kind(name):
            why = feedback.wrong_name(name, self._tools, self._choice)
            return self._reject(fault, why, call, event)
        verdict = self._judge(call, arguments)
        if call.buffered and (text := self._trailing.reject(name, arguments, verdict.valid, verdict.reason)):
            return text
        if verdict.valid is False:
            return self._reject("invalid", verdict.reason, call, event)
        times = self._earlier_calls.count(name, verdict.arguments)
        if self._policy.max_identical_calls and times >= self._policy.max_identical_calls:
            return self._reject("looping", feedback.repeated_call(name, times, self._choice), call, event)
        return self._accept(call, event, verdict, times)

    def _accept(self, call: PendingCall, event: ToolCallEnd, verdict: Verdict, times: int) -> list[AnyEvent]:
        """Returns the events of a valid call; they wait if the model is to be re-asked for a value that it invented."""
        name, valid_call = call.start.name, ToolCall(call.start.id, call.start.name, verdict.arguments)
        invented = None if verdict.extra_calls else self._invented.find(self._tools.get(name), verdict.arguments)
        steps = (*call.repairs(event), *verdict.repairs)
        last = replace(event, repairs=steps, schema_valid=verdict.valid)
        before: list[AnyEvent] = [call.start, *reask.delta_of(event.index, verdict.arguments)] if call.buffered else []
        renamed = [step for step in steps if step in tool_name_match.STEPS]
        warnings = [*call_warnings(call, verdict, (*renamed, *verdict.repairs), times, self._copies)]
        if self._complete_calls == WARN_AT_CALLS != self._policy.max_calls:
            warnings.append(Notice("high_call_count", f"{WARN_AT_CALLS} or more calls in one response"))
        if invented and call.buffered and (waits := invented.waiting_for(self._valid)):
            self.finished = True  # the model calls again once it has the result
            return [Notice("extra_call_dropped", waits, f"{name} {verdict.arguments}")]
        if invented:
            warnings.append(invented.notice(verdict.arguments))
            if invented.reason and call.buffered and self._policy.reask and not self._reasked:
                return self._hold(invented.rejected(valid_call, (*before, last, *warnings)))
        self._valid.append(valid_call)
        return [*before, last, *self._extra_calls(call, verdict), *warnings]

    def _limit_reached(self) -> bool:
        return 0 < self._policy.max_calls <= self._complete_calls

    def _extra_calls(self, call: PendingCall, verdict: Verdict) -> Iterator[AnyEvent]:
        """Events of the further calls that one call was written for."""
        for number, each in enumerate(verdict.extra_calls, 2):
            if self._limit_reached():
                message = f"more than {self._policy.max_calls} calls in one response"
                yield Notice("call_limit_reached", message, f"{call.start.name} {each.arguments}")
                continue
            self._complete_calls += 1
            id = valid_call_id(f"{call.start.id}_{number}")
            self._valid.append(ToolCall(id, call.start.name, each.arguments))
            yield replace(call.start, id=id)
            yield ToolCallDelta(0, each.arguments)
            yield ToolCallEnd(0, each.repairs, schema_valid=True)

    def _rejection_kind(self, name: str) -> RejectionKind | None:
        """Why calls of this tool are rejected, whatever the arguments; None: they are not."""
        if name not in self._tools:
            return "unknown" if self._all_tools_known else None
        if self._choice.mode == "none" or (self._choice.mode == "named" and name != self._choice.name):
            return "other"
        return None

    def _judge(self, call: PendingCall, arguments: str) -> Verdict:
        tool = self._tools.get(call.start.name)
        if tool is None:
            return Verdict(arguments, valid=None, reason="it is of no tool whose schema is known")
        steps = self._enabled_repairs if call.buffered else frozenset()
        return judge_call(tool, arguments, steps if self._choice.parallel_tool_calls else steps - {SPLIT_INTO_CALLS})

    def _reject(
        self, fault: RejectionKind, why: str, call: PendingCall, event: ToolCallEnd | ToolCallIncomplete
    ) -> list[AnyEvent]:
        """Makes a call wait that is not valid; if its start was sent already, ends it with a warning."""
        last = event
        if isinstance(event, ToolCallEnd):
            last = replace(event, repairs=call.repairs(event), schema_valid=False)
        if not call.buffered:
            return [last, Notice("invalid_call", f"{call.start.name}: {why}", call.arguments)]
        call_events = (call.start, *reask.delta_of(event.index, call.arguments), last)
        written = ToolCall(call.start.id, call.start.name, call.arguments)
        return self._hold(RejectedCall(fault, why, written, call_events, []))

    def _hold(self, rejected: RejectedCall) -> list[AnyEvent]:
        self.rejected.append(rejected)
        self._waiting.append(rejected)
        return []

    def _on_incomplete(self, call: PendingCall, event: ToolCallIncomplete) -> list[AnyEvent]:
        self._pending = None
        why = feedback.unreadable_call(call.start.name)
        return self._reject("unread", why, call, event) if call.buffered else [event]

    def reask(self) -> ReaskRequest | None:
        """Returns the request that re-asks the model; None if the response is valid or re-asking cannot help."""
        unoffered_tool.release(self.rejected, self._waiting, self._copies, ended=True)
        complete = self.finish is not None and self.finish.reason in COMPLETE_FINISHES
        may = self._policy.reask and not self._reasked and complete and len(self.received) < MAX_KEPT_EVENTS
        if not may or not (self.rejected or self._call_missing()) or self._is_acceptable():
            return None
        most, events = self._policy.reask_max_tokens, self.received[self._round_start :]
        request = replace(self._request, messages=(*self._request.messages, *self._later), tool_choice=self._choice)
        return reask.build_reask(request, events, self.rejected, self._valid, most)._replace(vote=self._vote)

    def _call_missing(self) -> bool:
        required = {"required": True, "named": self._choice.name in self._tools}.get(self._choice.mode, False)
        events = self.received[self._round_start :]
        return required and not self._sent_calls and not any(isinstance(event, VendorBlock) for event in events)

    def _is_acceptable(self) -> bool:
        """Whether the response is good enough without the rejected calls."""
        if self._choice.mode == "none":
            return any(isinstance(event, TextDelta) and event.text.strip() for event in self.received)
        return not self._choice.parallel_tool_calls and bool(self._valid)

    def merge_reask(self, events: Sequence[AnyEvent], *, failed: bool) -> bool:
        """Replaces rejected calls by the model's second response, whose calls are validated too; see `EventStage`."""
        second, self._merged = self.second_guard(), True
        sent = second.feed(events)
        self.usage = add_usage(self.usage, second.usage) if self.usage and second.usage else self.usage or second.usage
        calls = without_invented(reask.collect_calls(() if failed else sent, self._valid), self.rejected)
        texts = [event for event in second.received if isinstance(event, TextDelta)]
        if calls:
            most = self._policy.max_calls - len(self._valid) if self._policy.max_calls else None
            self._waiting, left = reask.merge_calls(self._waiting, calls, most)
            self.rejected = [each for each in self._waiting if isinstance(each, RejectedCall)]
            self._waiting += left
        elif second.is_text_only:
            self._waiting = [each for each in self._waiting if not isinstance(each, RejectedCall)]
            self._replaced_text = [event for each in self.rejected for event in each.leftover]
            self.rejected.clear()
            self._waiting += reask.append_text(self.received, self._replaced_text, texts, self._request)
            self.finish = second.finish or self.finish
        self._reask_failed = not (calls or second.is_text_only)
        return not self._reask_failed

    def second_guard(self) -> "ToolCallGuard":
        """Returns the guard of a second response."""
        return ToolCallGuard(self._request, replace(self._policy, buffering="all", reask=False), self._later)

    def _vote(self, events: Sequence[AnyEvent]) -> tuple[CallKey, ...] | None:
        """Returns the calls of a second response, to compare it with others; None: it does not help."""
        other = self.second_guard()
        return reask.vote_of(other.feed(events), self._valid, self.rejected, other.rejected, is_text=other.is_text_only)

    @property
    def is_text_only(self) -> bool:
        """Whether the response is text, and may be."""
        is_allowed = not (self.rejected or self.called_unoffered) and self._choice.mode in ("auto", "none")
        return is_allowed and any(isinstance(each, TextDelta) and each.text.strip() for each in self.received)

    def close(self) -> list[AnyEvent]:
        """Returns all events that waited, and Finish if it has arrived."""
        if self._reask_failed or (self._reasked and not (self._reported or self.rejected) and self._call_missing()):
            self._reasked = self._reported = True
            message = feedback.missing_call(self._choice) if not self.rejected else "the second answer was no better"
            self._waiting.append(Notice("reask_failed", f"{message}; the reply is passed on as it is"))
        out = [UsageUpdate(self.usage)] if self._merged and self.usage else list[AnyEvent]()
        out += self._release()
        self.finish = self.finish or (Finish("stop") if self.finished else None)
        return [*out, self.finish] if self.finish else out

    def _release(self) -> list[AnyEvent]:
        """Returns the events that waited; rejected calls are sent as the policy wants it."""
        open, self._pending = self._pending, None
        waiting, self._waiting, self.rejected = self._waiting, [], []
        sent = reask.SentState(bool(self._valid), self._reported, self._policy.buffering == "all")
        out: list[AnyEvent] = []
        for each in waiting:
            out += reask.rejected_call_events(each, self._choice, sent) if isinstance(each, RejectedCall) else [each]
        if open and open.buffered:  # the response ended within this call
            out += reask.incomplete_call_as_text(open.start.name, call_as_text(open.start.name, open.arguments, ""), ())
        return [self._renumber(event) for event in out]
