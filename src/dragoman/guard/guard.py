"""The calls of one answer, made right where they can be: held until they are whole, judged, mended.

    guard = Guard(request, policy)
    guard.pass_on(event)        # the events that may go out; Finish waits for `end`
    guard.again()               # what to ask the model, where a call is not right; None: nothing
    guard.end()                 # all that waited

Text goes by. Behind a call that is not right everything waits until the answer's end, since only there it is known
whether the model can be asked once more (an answer that a limit has cut would be cut again).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from dragoman.core import tool_name_match
from dragoman.core.call_identity import CallKey, answered_calls, key
from dragoman.core.complete_calls import text_of
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
from dragoman.core.identifiers import legal_id
from dragoman.core.messages import Request, Tool, ToolCall, Usage, add_usage
from dragoman.guard import feedback, reask, unoffered_tool
from dragoman.guard.injection.copied_call import Taint
from dragoman.guard.policy import Policy
from dragoman.guard.reask import Again, Failed, Fault
from dragoman.guard.repair_spread import STEP
from dragoman.guard.trailing_calls import Fenced
from dragoman.guard.verdict import OpenCall, Verdict, judge

WARNED_REPEATS: Final = 3
WARNED_CALLS: Final = 32
"""From so many on somebody is told, whatever the policy."""
SEEN: Final = 20_000
"""Events of an answer that are kept; the model of a longer one is not asked again."""
_WHOLE: Final = ("stop", "tool_calls")
"""Ends of answers that another may follow; what a limit or a refusal has ended would end so again."""
CALL: Final = (ToolCallStart, ToolCallDelta, ToolCallEnd, ToolCallIncomplete)
_ASKED: Final = ("asked_again", "not_as_asked")
"""Warnings of a backend that asks once more by itself."""


class Guard:
    """Of one answer."""

    def __init__(self, request: Request, policy: Policy) -> None:
        self._request, self._policy, self._choice = request, policy, request.tool_choice
        self._tools: dict[str, Tool] = {tool.name: tool for tool in request.tools if tool.kind == "function"}
        self._steps = policy.steps
        names = [step for step in tool_name_match.STEPS if step in self._steps]
        self._names = tool_name_match.ToolNames(self._tools, names)
        self._knows_all = len(self._tools) == len(request.tools)
        """There are no tools that the vendor runs, whose calls have names of their own."""
        self._taint = Taint(request)
        self._fenced = Fenced(request, self._taint)
        self._made: Counter[CallKey] | None = None
        self._open: OpenCall | None = None
        self._late: list[AnyEvent | Failed] = []
        """What waits: a call that is not right, and all behind it."""
        self._given = self._came = 0
        """Calls that went out, and that came whole."""
        self._passed: list[ToolCall] = []
        """Calls that were right: name and arguments."""
        self._told_so = False
        """The model has been re-asked, by a backend that does so by itself."""
        self._is_told = False
        """That the answer is not as it was asked for has been reported."""
        self._gave_up = False
        self._replaced: list[AnyEvent] = []
        """Text for which other text was taken."""
        self.unoffered = False
        """A tool was called that is not offered, in text."""
        self.seen: list[AnyEvent] = []
        """The answer as it came, but for what is told of it."""
        self.failed: list[Failed] = []
        self.finish: Finish | None = None
        self.usage: Usage | None = None
        """As far as the backend tells."""
        self.over = False
        """There are calls enough: what still comes is not wanted."""

    def pass_on(self, event: AnyEvent) -> list[AnyEvent]:
        """The events that may go out now that this has happened."""
        match event:
            case TextDelta() | ReasoningDelta():
                self.seen.append(event)
                return [*self._out([event]), *self._offered()] if self.failed else [event]
            case ToolCallDelta(_, text) if self._open:
                self.seen.append(event)
                out = self._more(self._open, event, text)
                return self._out(out) if out else out
            case Start():
                return [event]
            case UsageUpdate(usage):
                self.usage = usage
                return [event]
            case Notice(code):
                self._told_so = self._told_so or code in _ASKED
                self._is_told = self._is_told or code == "not_as_asked"
                if code == "asked_again" and self.failed:
                    return [*self._superseded(), *self._out([event])]
                self.unoffered = self.unoffered or code == unoffered_tool.CODE
                self._fenced.saw(event)
                if code == unoffered_tool.CODE and self._holds_text():
                    self.failed.append(unoffered_tool.held(event, self._tools))
                    self._late.append(self.failed[-1])
                    return []
                return self._out([event])
            case Finish():
                self.finish = event
                return []
            case Failure():
                return [*self._released(), event]
            case _:
                self.seen.append(event)
                return self._out(self._call(event))

    def _out(self, events: list[AnyEvent]) -> list[AnyEvent]:
        """What goes out of these now."""
        if not self.failed:
            return [self._numbered(event) for event in events]
        for event in events:
            last = self._late[-1]
            rest = last.take(event) if isinstance(last, Failed) else event
            if rest is not None:
                self._late.append(rest)
        return []

    def _superseded(self) -> list[AnyEvent]:
        """What may go out as the backend re-asks: without text that is held as a call of a tool that is not offered."""
        late, self._late = self._late, []
        for each in late:
            if isinstance(each, Failed) and each.fault == "unoffered":
                self._late += each.events
            else:
                self._late.append(each)
        self.failed = [each for each in self._late if isinstance(each, Failed)]
        return [] if self.failed else self._released()

    def _holds_text(self) -> bool:
        """Whether text with a call of a tool that is not offered waits, as the model may be asked again."""
        return (
            self._policy.ask_again
            and not (self._passed or self._told_so)
            and self._policy.delivery != "stream"
            and not self._request.response_schema
        )

    def _offered(self) -> list[AnyEvent]:
        """What may go out now that text which was held is no call after all."""
        unoffered_tool.release(self.failed, self._late, self._taint, ended=False)
        if self.failed:
            return []
        return self._released()

    def _numbered(self, event: AnyEvent) -> AnyEvent:
        """The event with its call's number among those that go out."""
        if isinstance(event, ToolCallStart):
            self._given += 1
        if isinstance(event, CALL):
            return event if event.index == self._given - 1 else replace(event, index=self._given - 1)
        return event

    def _call(self, event: AnyEvent) -> list[AnyEvent]:
        match event:
            case ToolCallStart():
                return self._begin(event)
            case ToolCallEnd() if self._open:
                return self._end(self._open, event)
            case ToolCallIncomplete() if self._open:
                return self._cut(self._open, event)
            case _:
                return [event]

    def _begin(self, event: ToolCallStart) -> list[AnyEvent]:
        if (
            self._passed
            and not self.failed
            and not self._choice.parallel
            and self._choice.mode in ("required", "named")
        ):
            self.over = True  # a model that must call a tool may go on calling without end
            return [Notice("extra_call", "a second call was dropped, as one was asked for", event.name)]
        found = self._names.resolve(event.name)
        start = replace(event, name=found.name) if found and found.step else event
        held = self._policy.delivery != "stream" or bool(self._policy.repeats) or self._is_one_too_many()
        self._open = OpenCall(start, found.step if found else "", held)
        return [] if held else [start]

    def _more(self, call: OpenCall, event: ToolCallDelta, text: str) -> list[AnyEvent]:
        call.pieces.append(text)
        call.chars += len(text)
        if not call.held:
            return [event]
        waits = self._policy.delivery == "atomic" or self._fault(call.start.name) or self._is_one_too_many()
        if waits or call.chars <= self._policy.hold_chars:
            return []
        call.held = False
        return [call.start, ToolCallDelta(event.index, call.arguments)]

    def _end(self, call: OpenCall, event: ToolCallEnd) -> list[AnyEvent]:
        """A whole call: as it came, mended, or none for now."""
        self._open = None
        name, arguments = call.ended(event).name, call.arguments
        if self._fenced.drops:
            return []
        if self._is_one_too_many():
            self.over = True
            told = f"more than {self._policy.calls} calls in one answer; it was ended there"
            return [Notice("call_limit_reached", told, f"{name} {arguments}")]
        self._came += 1
        if fault := self._fault(name):
            return self._failed(fault, self._why(fault, name), call, event)
        verdict = self._judged(call, arguments)
        if call.held and (text := self._fenced.refused(name, arguments, verdict.valid, verdict.why)):
            return text
        if verdict.valid is False:
            return self._failed("invalid", verdict.why, call, event)
        times = self._times(name, verdict.arguments)
        if self._policy.repeats and times >= self._policy.repeats:
            return self._failed("looping", feedback.looping(name, times, self._choice), call, event)
        self._passed.append(ToolCall(call.start.id, name, verdict.arguments))
        steps = (*event.mended, *([call.step] if call.step else ()), *verdict.steps)
        last = replace(event, mended=steps, valid=verdict.valid)
        before: list[AnyEvent] = [call.start, *_delta(event.index, verdict.arguments)] if call.held else []
        renamed = [step for step in steps if step in tool_name_match.STEPS]
        warnings = self._told(call, verdict, (*renamed, *verdict.steps), times)
        return [*before, last, *self._more_calls(call, verdict), *warnings]

    def _is_one_too_many(self) -> bool:
        return 0 < self._policy.calls <= self._came

    def _more_calls(self, call: OpenCall, verdict: Verdict) -> Iterator[AnyEvent]:
        """Those that one was written for, too."""
        for number, each in enumerate(verdict.more, 2):
            if self._is_one_too_many():
                told = f"more than {self._policy.calls} calls in one answer"
                yield Notice("call_limit_reached", told, f"{call.start.name} {each.arguments}")
                continue
            self._came += 1
            id = legal_id(f"{call.start.id}_{number}")
            self._passed.append(ToolCall(id, call.start.name, each.arguments))
            yield replace(call.start, id=id)
            yield ToolCallDelta(0, each.arguments)
            yield ToolCallEnd(0, each.steps, valid=True)

    def _fault(self, name: str) -> Fault | None:
        """What is wrong with a call of this tool, whatever its arguments."""
        if name not in self._tools:
            return "unknown" if self._knows_all else None
        if self._choice.mode == "none" or (self._choice.mode == "named" and name != self._choice.name):
            return "other"
        return None

    def _why(self, fault: Fault, name: str) -> str:
        return feedback.unknown(name, self._tools) if fault == "unknown" else feedback.other(self._choice)

    def _judged(self, call: OpenCall, arguments: str) -> Verdict:
        tool = self._tools.get(call.start.name)
        if tool is None:
            return Verdict(arguments, valid=None, why="it is of no tool whose schema is known")
        steps = self._steps if call.held else frozenset()
        return judge(tool, arguments, steps if self._choice.parallel else steps - {STEP})

    def _times(self, name: str, arguments: str) -> int:
        """How often this call has been made since the user's last words."""
        if self._made is None:
            self._made = Counter(key(made.name, made.arguments) for made in answered_calls(self._request))
        return self._made[key(name, arguments)] if self._made else 0

    def _told(self, call: OpenCall, verdict: Verdict, steps: Sequence[str], times: int) -> Iterator[AnyEvent]:
        name = call.start.name
        if steps:
            yield Notice("mended_call", f"{name}: {', '.join(steps)}", call.arguments)
        if where := self._taint.copied(name, verdict.arguments):
            yield Notice("copied_call", f"{name} and its arguments stand in {where}", verdict.arguments)
        if verdict.valid is None and verdict.why:
            yield Notice("unchecked_call", f"{name}: {verdict.why}")
        if times >= WARNED_REPEATS:
            yield Notice("looping_call", f"{name} has been called {times} times with these arguments", call.arguments)
        if self._came == WARNED_CALLS != self._policy.calls:
            yield Notice("many_calls", f"{WARNED_CALLS} calls and more in one answer")

    def _failed(
        self, fault: Fault, why: str, call: OpenCall, event: ToolCallEnd | ToolCallIncomplete
    ) -> list[AnyEvent]:
        """A call that is not right waits, as far as it is not out already."""
        steps = (*event.mended, *([call.step] if call.step else ())) if isinstance(event, ToolCallEnd) else ()
        last = replace(event, mended=steps, valid=False) if isinstance(event, ToolCallEnd) else event
        if not call.held:
            return [last, Notice("invalid_call", f"{call.start.name}: {why}", call.arguments)]
        whole = (call.start, *_delta(event.index, call.arguments), last)
        self.failed.append(Failed(fault, why, ToolCall(call.start.id, call.start.name, call.arguments), whole, []))
        self._late.append(self.failed[-1])
        return []

    def _cut(self, call: OpenCall, event: ToolCallIncomplete) -> list[AnyEvent]:
        self._open = None
        if not call.held:
            return [event]
        return self._failed("unread", feedback.unread(call.start.name), call, event)

    def again(self) -> Again | None:
        """What the model is to be asked, where the answer is not right and another may be."""
        unoffered_tool.release(self.failed, self._late, self._taint, ended=True)
        whole = self.finish is not None and self.finish.reason in _WHOLE
        may = self._policy.ask_again and not self._told_so and whole and len(self.seen) < SEEN
        if not may or not (self.failed or self._has_missed()) or self._is_enough():
            return None
        return reask.asked(self._request, self.seen, self.failed, self._passed, self._policy.again_tokens)

    def _has_missed(self) -> bool:
        """Whether there is no call where one must be."""
        must = self._choice.mode == "required" or (self._choice.mode == "named" and self._choice.name in self._tools)
        return must and not self._given and not any(isinstance(event, VendorBlock) for event in self.seen)

    def _is_enough(self) -> bool:
        """Whether the answer does without the calls that are not right."""
        if self._choice.mode == "none":
            return any(isinstance(event, TextDelta) and event.text.strip() for event in self.seen)
        return not self._choice.parallel and bool(self._passed)

    def take(self, second: "Guard", events: Iterable[AnyEvent]) -> None:
        """What the model answered to that, and what of it `second` let through."""
        self.usage = add_usage(self.usage, second.usage) if self.usage and second.usage else self.usage or second.usage
        calls = reask.calls(events, self._passed)
        said = [event for event in second.seen if isinstance(event, TextDelta)]
        in_words = (
            not (second.failed or second.unoffered)
            and self._choice.mode in ("auto", "none")
            and any(e.text.strip() for e in said)
        )
        if calls:
            most = self._policy.calls - len(self._passed) if self._policy.calls else None
            self._late, left = reask.replaced(self._late, calls, most)
            self.failed = [each for each in self._late if isinstance(each, Failed)]
            self._late += left
        elif in_words:
            self._late = [each for each in self._late if not isinstance(each, Failed)]
            self._replaced = [event for each in self.failed for event in each.left]
            self.failed.clear()
            self._late += self._apart(said)
            self.finish = second.finish or self.finish
        else:
            self._gave_up = True

    def _apart(self, said: Sequence[TextDelta]) -> list[AnyEvent]:
        """Words of the second answer, behind those of the first; of a schema there can be but one."""
        texts = [event for event in self.seen if isinstance(event, TextDelta) and event.text.strip()]
        has_words = any(not any(event is left for left in self._replaced) for event in texts)
        if has_words and self._request.response_schema:
            return []
        return [*([TextDelta("\n\n")] if has_words else []), *said]

    def end(self) -> list[AnyEvent]:
        """All that waited, and the end, if it has come."""
        if self._gave_up or (self._told_so and not self._is_told and not self.failed and self._has_missed()):
            self._told_so = self._is_told = True
            told = feedback.missed(self._choice) if not self.failed else "the second answer was no better"
            self._late.append(Notice("not_as_asked", f"{told}; what was answered is given"))
        out = self._released()
        if self.over and self.finish is None:
            self.finish = Finish("stop")
        return [*out, self.finish] if self.finish else out

    def _released(self) -> list[AnyEvent]:
        """What waited, calls that are not right among it as the policy has it."""
        open, self._open = self._open, None
        late, self._late = self._late, []
        self.failed = []
        given = reask.Given(bool(self._passed), self._is_told, self._policy.delivery == "atomic")
        out: list[AnyEvent] = []
        for each in late:
            out += reask.given_up(each, self._choice, given) if isinstance(each, Failed) else [each]
        if open and open.held:  # which the answer's own end has cut
            out += reask.as_text(open.start.name, text_of(open.start.name, open.arguments, ""), ())
        return [self._numbered(event) for event in out]


def _delta(index: int, arguments: str) -> list[ToolCallDelta]:
    return [ToolCallDelta(index, arguments)] if arguments else []
