"""Asking the model once more: what it answered, what was wrong with it, as a turn of the conversation that nobody sees.

    assistant   get_weather({"days": "three"})
    tool        days: expected an integer, got "three". The call was not run. Call get_weather again, …

So it is told in its own format, or by its API, as of any tool that failed. What cannot be a call there, as its
arguments are no JSON, and a call that is missing, are told in words.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from dragoman.core import repeated_call
from dragoman.core.call_identity import key
from dragoman.core.collect import collect
from dragoman.core.complete_calls import left_of, text_of
from dragoman.core.events import (
    AnyEvent,
    Finish,
    Notice,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
)
from dragoman.core.messages import Message, Part, Request, Text, ToolCall, ToolChoice, ToolResult, UnknownPart
from dragoman.guard import feedback

Fault: TypeAlias = Literal["invalid", "unread", "unknown", "other", "looping", "unoffered"]


TEXT: Final = ("unread", "unoffered")
"""Faults of calls that stand in the answer as text."""


class Failed(NamedTuple):
    """A call that may not go out as it is."""

    fault: Fault
    why: str
    """For the model."""
    call: ToolCall
    events: tuple[AnyEvent, ...]
    """Of it, as they came."""
    left: list[AnyEvent]
    """What of it was left as text, and is told of that."""

    def take(self, event: AnyEvent) -> AnyEvent | None:
        """Keep what stands right behind the call and is of it; what is not."""
        if self.fault not in TEXT:
            return event
        match event:
            case Notice():
                self.left.append(event)
                return None
            case TextDelta() if self.fault == "unoffered":
                self.left.append(event)
                return None
            case TextDelta(text) if left_of(self.raw, text):
                _, raw, behind = text.partition(self.raw.strip())
                self.left.append(TextDelta(text[: len(text) - len(behind)] if raw else text))
                return TextDelta(behind) if raw and behind else None
            case _:
                return event

    @property
    def raw(self) -> str:
        """What the model wrote of it."""
        raw = "".join(event.raw for event in self.events if isinstance(event, ToolCallIncomplete))
        return text_of(self.call.name, self.call.arguments, raw)


class Again(NamedTuple):
    """What the model is asked."""

    request: Request
    why: str
    """For people."""


class Made(NamedTuple):
    """A call of the second answer."""

    call: ToolCall
    events: tuple[AnyEvent, ...]
    """Of it, and what is told of it."""


def asked(
    request: Request,
    seen: Sequence[AnyEvent],
    failed: Sequence[Failed],
    passed: Sequence[ToolCall],
    most_tokens: int,
) -> Again:
    """The request with one turn more.

    `seen` is the answer as it came, `passed` its calls that are right: the model is told that they need not be made
    again.
    """
    readable = [each for each in failed if each.fault not in TEXT]
    unread = [each for each in failed if each.fault in TEXT]
    said = collect([Start("", "", 0), *seen, Finish("stop")]).parts
    parts: list[Part] = [part for part in said if not isinstance(part, ToolCall | UnknownPart)]
    parts += [Text(_raw(each)) for each in unread if each.fault == "unread" and not _stands_in(each, parts)]
    parts += [*passed, *(each.call for each in readable)]
    results = [ToolResult(call.id, (Text(feedback.PASSED),)) for call in passed]
    results += [_refused(request, each) for each in readable]
    told = unread[0].why if unread else "" if failed else feedback.other(request.tool_choice)
    turns = [
        *([Message("assistant", tuple(parts))] if parts else []),
        *([Message("tool", tuple(results))] if results else []),
        *([Message("user", (Text(told),))] if told else []),
    ]
    why = f"{failed[0].call.name}: {failed[0].why}" if failed else feedback.missed(request.tool_choice)
    limit = request.max_tokens or most_tokens
    if not _thinks(request):  # thoughts take what they take of it
        limit = min(limit, most_tokens)
    return Again(replace(request, messages=(*request.messages, *turns), max_tokens=limit), why)


def _refused(request: Request, failed: Failed) -> ToolResult:
    """The error of a call, with its earlier result where it is made again and again."""
    found = repeated_call.result_of(request, failed.call) if failed.fault == "looping" else None
    shown = (Text("Its last result was:"), *found.parts) if found and repeated_call.is_short(found) else ()
    return ToolResult(failed.call.id, (Text(failed.why), *shown), is_error=True)


def _thinks(request: Request) -> bool:
    return "thinking" in request.extra or request.effort not in ("", "none")


def _raw(failed: Failed) -> str:
    return f"{failed.call.name} {failed.call.arguments}"


def _stands_in(failed: Failed, parts: Sequence[Part]) -> bool:
    """Whether what the model wrote is among its words, as readers leave it there."""
    raw = failed.call.arguments
    return any(isinstance(part, Text) and raw and raw in part.text for part in parts)


def calls(events: Iterable[AnyEvent], passed: Sequence[ToolCall]) -> list[Made]:
    """The calls among these that are whole, as those of a second answer; without those that are `passed` already."""
    known = {key(call.name, call.arguments) for call in passed}
    found: list[Made] = []
    open: list[AnyEvent] = []
    for event in events:
        match event:
            case ToolCallStart():
                open = [event]
            case ToolCallDelta():
                open.append(event)
            case ToolCallEnd():
                found.append(_made([*open, replace(event, asked_again=True)]))
                open = []
            case Notice() if found and not open:
                found[-1] = found[-1]._replace(events=(*found[-1].events, event))
            case _:
                pass
    return [made for made in found if key(made.call.name, made.call.arguments) not in known]


def _made(events: Sequence[AnyEvent]) -> Made:
    start = next(event for event in events if isinstance(event, ToolCallStart))
    arguments = "".join(event.text for event in events if isinstance(event, ToolCallDelta))
    return Made(ToolCall(start.id, start.name, arguments), tuple(events))


def replaced(
    late: Sequence[AnyEvent | Failed], made: Sequence[Made], most: int | None
) -> tuple[list[AnyEvent | Failed], list[AnyEvent]]:
    """What waits, calls that are not right replaced by those that are, and what comes behind all of it.

    Each by one of its tool, else by the next. Of what is over, only more calls of such tools were meant (one for each
    of several values), and no more than `most` in all; the rest is named in warnings.
    """
    failed = [each for each in late if isinstance(each, Failed)]
    spare = list(made)
    by_place: dict[int, Made] = {}
    for same_tool in (True, False):
        for each in failed:
            fits = [one for one in spare if one.call.name == each.call.name or not same_tool]
            if id(each) not in by_place and fits:
                by_place[id(each)] = fits[0]
                spare.remove(fits[0])
    out: list[AnyEvent | Failed] = []
    for waiting in late:
        fixed = by_place.get(id(waiting)) if isinstance(waiting, Failed) else None
        out += fixed.events if fixed else [waiting]
    names = {each.call.name for each in failed}
    behind: list[AnyEvent] = []
    given = len(by_place)
    for one in spare:
        if (names and one.call.name not in names) or (most is not None and given >= most):
            told = "the second answer has a call that was not asked for; it was dropped"
            behind.append(Notice("extra_call", told, f"{one.call.name} {one.call.arguments}"))
        else:
            given += 1
            behind += one.events
    return out, behind


class Given(NamedTuple):
    """What the client got so far."""

    passed: bool
    """A call."""
    is_told: bool
    """A warning that the answer is not as it was asked for."""
    atomic: bool
    """Nothing but calls that are right, as it asked."""


def given_up(failed: Failed, choice: ToolChoice, given: Given) -> list[AnyEvent]:
    """A call that has not become right: words, or the call with a warning."""
    name, raw = failed.call.name, f"{failed.call.name} {failed.call.arguments}"
    if failed.fault == "other" and choice.mode == "none":
        return [Notice("extra_call", "a call was dropped, as none may be made now", raw)]
    if given.passed and not choice.parallel:
        return [Notice("extra_call", "a second call was dropped, as one at most was asked for", raw)]
    if failed.fault == "other" and not given.atomic:
        return [*failed.events, *([] if given.is_told else [Notice("not_as_asked", failed.why, raw)])]
    if failed.fault == "unoffered":
        return [*failed.events, *failed.left]
    if failed.fault == "unread":
        return as_text(name, failed.raw, failed.left)
    told = Notice("invalid_call", f"{name}: {failed.why}", raw)
    if failed.fault == "looping" or given.atomic:
        return [TextDelta(feedback.instead(name, failed.why)), told]
    return [*failed.events, told]


def as_text(name: str, raw: str, left: Iterable[AnyEvent]) -> list[AnyEvent]:
    """A call that was never whole, as the text that the model wrote; `left` is what its reader left of that."""
    told = Notice("incomplete_call", f"a call of {name} was never whole, and became text", raw)
    is_left = any(isinstance(event, TextDelta) for event in left)
    return [told, *([] if is_left or not raw.strip() else [TextDelta(raw)]), *left]
