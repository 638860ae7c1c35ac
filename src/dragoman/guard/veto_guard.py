"""A guard whose valid calls are sent only if they were allowed: hooks decide about each before its end is fed.

    for call in guard.calls_ended_by(end):     the calls as they would be sent, repaired
        guard.decide(call, reason)             "": allowed
    guard.feed([end])                          a refused call waits, and the model is re-asked with the reason

A call that nothing was decided about is refused.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from dragoman.core.events import AnyEvent, ToolCallEnd, ToolCallIncomplete
from dragoman.core.messages import JsonText, Request, ToolCall
from dragoman.core.stage import LaterRounds
from dragoman.guard import feedback, reask
from dragoman.guard.guard import ToolCallGuard
from dragoman.guard.policy import GuardPolicy
from dragoman.guard.reask import RejectionKind
from dragoman.guard.verdict import PendingCall, Verdict

_UNDECIDED = "nothing has allowed it"


class VetoGuard(ToolCallGuard):
    """Validates and repairs the calls of one response, and withholds those that are refused."""

    def __init__(self, request: Request, policy: GuardPolicy, later: LaterRounds | None = None) -> None:
        """
        Args:
            request: The request.
            policy: The settings; each call must be buffered until it is complete (`buffering="all"`).
            later: Messages of later rounds, in which the gateway ran tools.
        """
        super().__init__(request, policy, later)
        self._decisions: dict[tuple[str, JsonText], str] = {}
        """The reason against each call, by its name and arguments; "": it is allowed."""
        self._refused: PendingCall | None = None

    def calls_ended_by(self, end: ToolCallEnd) -> list[ToolCall]:
        """Returns the calls that would be sent if this event was fed next; none if the call is invalid."""
        call = self._pending
        if call is None or self._limit_reached() or self._rejection_kind(call.start.name):
            return []
        verdict = super()._judge(call, call.arguments)
        start = end.named(call.start)
        return [] if verdict.valid is False else [ToolCall(start.id, start.name, each) for each in _arguments(verdict)]

    def calls_in(self, events: Sequence[AnyEvent]) -> list[ToolCall]:
        """Returns the calls that would be sent of a second response to a re-ask."""
        sent = super().second_guard().feed(events)
        return [each.call for each in reask.collect_calls(sent, ())]

    def decide(self, call: ToolCall, reason: str) -> None:
        """Sets whether a call is sent; `reason`: why not, "" if it is."""
        self._decisions[call.name, call.arguments] = reason

    def second_guard(self) -> ToolCallGuard:
        """Returns the guard of a second response, whose calls must be allowed too."""
        second = VetoGuard(self._request, replace(self._policy, buffering="all", reask=False), self._later)
        second._decisions = self._decisions
        return second

    def _judge(self, call: PendingCall, arguments: str) -> Verdict:
        verdict = super()._judge(call, arguments)
        if verdict.valid is False:
            return verdict
        name = call.start.name
        decided = (self._decisions.get((name, each), _UNDECIDED) for each in _arguments(verdict))
        if reason := next(filter(None, decided), ""):
            self._refused = call
            return Verdict(arguments, valid=False, reason=feedback.vetoed_call(name, reason))
        return verdict

    def _reject(
        self, fault: RejectionKind, why: str, call: PendingCall, event: ToolCallEnd | ToolCallIncomplete
    ) -> list[AnyEvent]:
        return super()._reject("vetoed" if call is self._refused else fault, why, call, event)


def _arguments(verdict: Verdict) -> list[JsonText]:
    return [verdict.arguments, *(each.arguments for each in verdict.extra_calls)]
