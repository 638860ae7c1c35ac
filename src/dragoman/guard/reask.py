"""Re-asks the model: the request with its response and the errors appended, as a turn that the client does not see.

    assistant   get_weather({"days": "three"})
    tool        days: expected an integer, got "three". The call was not run. Call get_weather again, …

The model gets the error in its own format or API, as for any tool that failed. Calls whose arguments are not JSON
cannot be sent as calls, so they are described in text, and so are missing calls.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from dragoman.core import repeated_call
from dragoman.core.collect import collect
from dragoman.core.complete_calls import call_as_text, is_text_of_call
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
from dragoman.core.repeated_call import CallKey, call_key
from dragoman.core.stage import ReaskRequest
from dragoman.guard import feedback

RejectionKind: TypeAlias = Literal[
    "invalid", "unread", "unknown", "other", "looping", "unoffered", "vetoed", "invented", "guessed"
]
"""`invented`: with an identifier that a tool could find. `guessed`: with an address that only the user knows."""


TEXT_KINDS: Final = ("unread", "unoffered")
"""Kinds of rejected calls that are in the response as text."""


class RejectedCall(NamedTuple):
    """A call that cannot be sent as it is."""

    kind: RejectionKind
    reason: str
    """For the model."""
    call: ToolCall
    events: tuple[AnyEvent, ...]
    """The events of the call, as they arrived."""
    leftover: list[AnyEvent]
    """Text and warnings after the call that belong to it."""
    instead: tuple[str, ...] = ()
    """Tools one of which is to be called instead, without the call in the context."""

    def absorb(self, event: AnyEvent) -> AnyEvent | None:
        """Adds an event to `leftover` if it belongs to the call. Returns the event, or its part, that does not."""
        if self.kind not in TEXT_KINDS:
            return event
        match event:
            case Notice():
                self.leftover.append(event)
                return None
            case TextDelta() if self.kind == "unoffered":
                self.leftover.append(event)
                return None
            case TextDelta(text) if is_text_of_call(self.raw, text):
                _, raw, after = text.partition(self.raw.strip())
                self.leftover.append(TextDelta(text[: len(text) - len(after)] if raw else text))
                return TextDelta(after) if raw and after else None
            case _:
                return event

    @property
    def raw(self) -> str:
        """The text of the call as the model wrote it."""
        raw = "".join(event.raw for event in self.events if isinstance(event, ToolCallIncomplete))
        return call_as_text(self.call.name, self.call.arguments, raw)


class ReaskedCall(NamedTuple):
    """A complete call of the second response."""

    call: ToolCall
    events: tuple[AnyEvent, ...]
    """The events of the call, and the warnings about it."""


def build_reask(
    request: Request,
    events: Sequence[AnyEvent],
    failed: Sequence[RejectedCall],
    passed: Sequence[ToolCall],
    most_tokens: int,
) -> ReaskRequest:
    """Returns the request with the response and its errors appended.

    Args:
        request: The request that was answered.
        events: The events of the response, as they arrived.
        failed: The rejected calls.
        passed: The valid calls of the response; the model is told not to repeat them.
        most_tokens: Limit of the second response, in tokens; it does not apply to a model that reasons and to a request
            that sets its own limit.
    """
    readable = [each for each in failed if each.kind not in TEXT_KINDS]
    unreadable = [each for each in failed if each.kind in TEXT_KINDS]
    response_parts = collect([Start("", "", 0), *events, Finish("stop")]).parts
    parts: list[Part] = [part for part in response_parts if not isinstance(part, ToolCall | UnknownPart)]
    parts += [Text(_call_text(each)) for each in unreadable if each.kind == "unread" and not _is_in_text(each, parts)]
    parts += [*passed, *(each.call for each in readable)]
    results = [ToolResult(call.id, (Text(feedback.VALID_CALL),)) for call in passed]
    results += [_error_result(request, each) for each in readable]
    is_guessed = not passed and bool(failed) and all(each.kind == "guessed" for each in failed)
    reason = unreadable[0].reason if unreadable else "" if failed else feedback.wrong_choice(request.tool_choice)
    turns = [
        *([Message("assistant", tuple(parts))] if parts else []),
        *([Message("tool", tuple(results))] if results else []),
        *([Message("user", (Text(reason),))] if reason else []),
    ]
    why = f"{failed[0].call.name}: {failed[0].reason}" if failed else feedback.missing_call(request.tool_choice)
    limit = request.max_tokens or most_tokens
    if not _has_reasoning(request):  # reasoning needs tokens of its own
        limit = min(limit, most_tokens)
    notice = Notice("reasked", f"{why}; the model was re-asked")
    instead = tuple(dict.fromkeys(name for each in failed for name in each.instead))
    if not passed and instead and all(each.instead for each in failed):
        return ReaskRequest(replace(_restricted_to(request, instead), max_tokens=limit), notice)
    if is_guessed:  # words, and without the call in the context: a small model would copy it
        request = replace(request, tool_choice=ToolChoice("none"), prompt_tools=request.prompt_tools or request.tools)
        turns = [Message("user", (Text(feedback.ASK_ME),))]
    return ReaskRequest(replace(request, messages=(*request.messages, *turns), max_tokens=limit), notice)


def _restricted_to(request: Request, names: Sequence[str]) -> Request:
    """Returns the request with one call of these tools required; a small model would copy a call that is refused."""
    choice = ToolChoice("named", names[0]) if len(names) == 1 else ToolChoice("required")
    tools = tuple(tool for tool in request.tools if tool.name in names)
    choice = replace(choice, parallel_tool_calls=False)
    return replace(request, tools=tools, prompt_tools=request.prompt_tools or request.tools, tool_choice=choice)


def _error_result(request: Request, failed: RejectedCall) -> ToolResult:
    """The error as the call's result, with the earlier result if the call was repeated."""
    result = repeated_call.earlier_result(request, failed.call) if failed.kind == "looping" else None
    last_result = (Text("Its last result was:"), *result.parts) if result and repeated_call.is_short(result) else ()
    return ToolResult(failed.call.id, (Text(failed.reason), *last_result), is_error=True)


def _has_reasoning(request: Request) -> bool:
    return "thinking" in request.extra or request.reasoning_effort not in ("", "none")


def _call_text(failed: RejectedCall) -> str:
    return f"{failed.call.name} {failed.call.arguments}"


def _is_in_text(failed: RejectedCall, parts: Sequence[Part]) -> bool:
    """Whether the text of the call is in the text of the response, where readers leave it."""
    raw = failed.call.arguments
    return any(isinstance(part, Text) and raw and raw in part.text for part in parts)


def delta_of(index: int, arguments: str) -> list[ToolCallDelta]:
    """Returns the event with the arguments of a call; none if they are empty."""
    return [ToolCallDelta(index, arguments)] if arguments else []


def collect_calls(events: Iterable[AnyEvent], passed: Sequence[ToolCall]) -> list[ReaskedCall]:
    """Returns the complete calls in the events of a second response, without those that are in `passed`."""
    known = {call_key(call.name, call.arguments) for call in passed}
    calls: list[ReaskedCall] = []
    open: list[AnyEvent] = []
    for event in events:
        match event:
            case ToolCallStart():
                open = [event]
            case ToolCallDelta():
                open.append(event)
            case ToolCallEnd():
                calls.append(_reasked_call([*open, replace(event, reasked=True)]))
                open = []
            case Notice() if calls and not open:
                calls[-1] = calls[-1]._replace(events=(*calls[-1].events, event))
            case _:
                pass
    return [each for each in calls if call_key(each.call.name, each.call.arguments) not in known]


def vote_of(
    sent: Iterable[AnyEvent],
    passed: Sequence[ToolCall],
    first: Sequence[RejectedCall],
    second: Sequence[RejectedCall],
    *,
    is_text: bool,
) -> tuple[CallKey, ...] | None:
    """Returns what a second response is compared with others by: its calls; None: it does not help.

    Args:
        sent: Its events that passed the guard.
        passed: The valid calls of the first response.
        first: The rejected calls of the first response.
        second: Its own rejected calls.
        is_text: Whether it is text, and may be.
    """
    calls = collect_calls(sent, passed)
    if second or not (calls or is_text):
        return None
    if any(each.kind == "invented" for each in first) and any(map(_has_invented_value, calls)):
        return None
    return tuple(call_key(each.call.name, each.call.arguments) for each in calls)


def _has_invented_value(call: ReaskedCall) -> bool:
    return any(isinstance(event, Notice) and event.code == "invented_value" for event in call.events)


def _reasked_call(events: Sequence[AnyEvent]) -> ReaskedCall:
    start = next(event for event in events if isinstance(event, ToolCallStart))
    arguments = "".join(event.text for event in events if isinstance(event, ToolCallDelta))
    return ReaskedCall(ToolCall(start.id, start.name, arguments), tuple(events))


def merge_calls(
    waiting_events: Sequence[AnyEvent | RejectedCall], second_calls: Sequence[ReaskedCall], most: int | None
) -> tuple[list[AnyEvent | RejectedCall], list[AnyEvent]]:
    """Replaces rejected calls by calls of the second response.

    A rejected call is replaced by a call of the same tool, else by the next call. Further calls are accepted only for
    the same tools (one for each of several values); the others are dropped with a warning.

    Args:
        waiting_events: The events that wait, and the rejected calls.
        second_calls: The calls of the second response.
        most: Limit of the number of calls; None: no limit.

    Returns:
        The events that wait with replaced calls, and the events that go after all of them.
    """
    failed = [each for each in waiting_events if isinstance(each, RejectedCall)]
    spare = list(second_calls)
    replacements: dict[int, ReaskedCall] = {}
    for same_tool in (True, False):
        for each in failed:
            candidates = [one for one in spare if one.call.name == each.call.name or not same_tool]
            if id(each) not in replacements and candidates:
                replacements[id(each)] = candidates[0]
                spare.remove(candidates[0])
    out: list[AnyEvent | RejectedCall] = []
    for waiting in waiting_events:
        fixed = replacements.get(id(waiting)) if isinstance(waiting, RejectedCall) else None
        out += fixed.events if fixed else [waiting]
    names = {each.call.name for each in failed}
    extra_events: list[AnyEvent] = []
    count = len(replacements)
    for one in spare:
        if (names and one.call.name not in names) or (most is not None and count >= most):
            message = "the re-asked model made a call that was not requested; the call was dropped"
            extra_events.append(Notice("extra_call_dropped", message, f"{one.call.name} {one.call.arguments}"))
        else:
            count += 1
            extra_events += one.events
    return out, extra_events


class SentState(NamedTuple):
    """What the client has received so far."""

    has_call: bool
    """Whether a call was sent."""
    mismatch_reported: bool
    """Whether the warning `reask_failed` was sent."""
    valid_calls_only: bool
    """Whether the client accepts valid calls only (`buffering = "all"`)."""


def rejected_call_events(failed: RejectedCall, choice: ToolChoice, sent: SentState) -> list[AnyEvent]:
    """Returns the events for a call that stayed invalid: text, or the call with a warning.

    Args:
        failed: The call.
        choice: The request's tool choice.
        sent: What the client has received so far.
    """
    name, raw = failed.call.name, f"{failed.call.name} {failed.call.arguments}"
    if failed.kind == "other" and choice.mode == "none":
        return [
            Notice(
                "extra_call_dropped",
                "the model called a tool although tool_choice forbids it; the call was dropped",
                raw,
            )
        ]
    if sent.has_call and not choice.parallel_tool_calls:
        return [Notice("extra_call_dropped", "a second call was dropped: the request allows only one", raw)]
    if failed.kind in ("invented", "guessed"):  # it matches its schema
        return list(failed.events)
    if failed.kind == "other" and not sent.valid_calls_only:
        return [*failed.events, *([] if sent.mismatch_reported else [Notice("reask_failed", failed.reason, raw)])]
    if failed.kind == "unoffered":
        return [*failed.events, *failed.leftover]
    if failed.kind == "unread":
        return incomplete_call_as_text(name, failed.raw, failed.leftover)
    if failed.kind == "vetoed":
        return [TextDelta(feedback.vetoed_text(failed.reason)), Notice("call_vetoed", f"{name} was refused", raw)]
    notice = Notice("invalid_call", f"{name}: {failed.reason}", raw)
    if failed.kind == "looping" or sent.valid_calls_only:
        return [TextDelta(feedback.replacement_text(name, failed.reason)), notice]
    return [*failed.events, notice]


def incomplete_call_as_text(name: str, raw: str, left: Iterable[AnyEvent]) -> list[AnyEvent]:
    """Returns an incomplete call as the text that the model wrote.

    Args:
        name: The tool.
        raw: The call as the model wrote it.
        left: The text that the reader emitted for it; if there is any, `raw` is not repeated.
    """
    notice = Notice("incomplete_call", f"a call of {name} is incomplete; it is passed on as text", raw)
    has_text = any(isinstance(event, TextDelta) for event in left)
    return [notice, *([] if has_text or not raw.strip() else [TextDelta(raw)]), *left]


def append_text(
    received: Sequence[AnyEvent], replaced: Sequence[AnyEvent], second: Sequence[TextDelta], request: Request
) -> list[AnyEvent]:
    """Returns the text of the second response, to go after that of the first; empty if a schema allows only one.

    Args:
        received: The events of the first response.
        replaced: Its text that the second response replaces.
        second: The text of the second response.
        request: The request.
    """
    texts = [event for event in received if isinstance(event, TextDelta) and event.text.strip()]
    has_text = any(not any(event is left for left in replaced) for event in texts)
    if has_text and request.response_schema:
        return []
    return [*([TextDelta("\n\n")] if has_text else []), *second]
