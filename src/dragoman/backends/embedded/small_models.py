"""Help for small models: tool results as prose, for models that markup confuses, and an end to repeated calls."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from dragoman.core.events import AnyEvent, Notice, ToolCallDelta, ToolCallEnd, ToolCallIncomplete, ToolCallStart
from dragoman.core.messages import Message, Part, Request, Text, ToolCall, ToolChoice, ToolResult, part_text
from dragoman.core.repeated_call import CallKey, call_key
from dragoman.core.stage import EventStage
from dragoman.prompting import hints


def results_as_prose(request: Request) -> Request:
    """Returns the request with the results of this turn as facts next to the question, and without tools.

    The request is unchanged if there are no results, after a failed call or a tool search, and if a call is required.

    `Facts from get_weather: sunny` and `Answer in one sentence with these facts: What is the weather?`
    """
    messages = hints.remove_hints(request.messages)
    question_at = max((i for i, m in enumerate(messages) if _is_question(m)), default=-1)
    names = {p.id: p.name for m in messages for p in m.parts if isinstance(p, ToolCall)}
    results = [p for m in messages[question_at + 1 :] for p in m.parts if isinstance(p, ToolResult)]
    results += [p for p in messages[question_at].parts if isinstance(p, ToolResult)] if question_at >= 0 else []
    searches = {tool.name for tool in request.tools if tool.loading == "search"}
    if results and names.get(results[-1].call_id) in searches:
        return request  # the model calls what it has found
    results = [result for result in results if names.get(result.call_id) not in searches]
    if question_at < 0 or not results or has_failed_call(request) or request.tool_choice.mode in ("required", "named"):
        return request
    facts = [f"Facts from {names.get(r.call_id, 'a tool')}: {_text_of(r.parts)}" for r in results]
    question = f"Answer in one sentence with these facts: {_text_of(messages[question_at].parts)}"
    message = Message("user", (Text("\n".join([*facts, "", question])),))
    return msgspec.structs.replace(
        request, messages=(*messages[:question_at], message), tools=(), tool_choice=ToolChoice("none")
    )


def has_failed_call(request: Request) -> bool:
    """Whether the conversation ends with a failed call, which the model may repeat."""
    last = request.messages[-1].parts if request.messages else ()
    return any(isinstance(part, ToolResult) and part.is_error for part in last)


def _is_question(message: Message) -> bool:
    return message.role == "user" and any(isinstance(p, Text) for p in message.parts)


def _text_of(parts: Iterable[Part]) -> str:
    return "\n".join(text for p in parts if (text := part_text(p)))


def reaskable_calls(request: Request, answered: Sequence[ToolCall]) -> list[ToolCall]:
    """Returns the calls after which the model is re-asked if it repeats them.

    A call that the turn contains twice was repeated after a re-ask. At temperature 0 a model that must call a tool
    would write it again; one that may answer in words is re-asked.

    Args:
        request: the request.
        answered: calls of this turn that have results.
    """
    if request.tool_choice.mode not in ("required", "named") or request.sampling.temperature:
        return list(answered)
    counts = Counter(call_key(call.name, call.arguments) for call in answered)
    return [call for call in answered if counts[call_key(call.name, call.arguments)] == 1]


class RepeatStopper(EventStage):
    """Drops a tool call that repeats an earlier call of the same reply.

    A call that repeats one of `answered` is held back if it is the first of the reply (`call`), so that the model can
    be re-asked. As soon as there is a call to compare with, calls are buffered until they are complete. A call that was
    cut off is dropped if it is the beginning of a complete call of the reply.
    """

    def __init__(
        self,
        answered: Iterable[ToolCall] = (),
        write_call: Callable[[ToolCall], str] = lambda call: call.arguments,
        *,
        last: bool = False,
    ) -> None:
        """
        Args:
            answered: calls of this turn that have results.
            write_call: writes a call as the model does, to compare a call that was cut off.
            last: whether the model has been re-asked; a repeated call is then passed on.
        """
        self._write_call = write_call
        self._answered = {call_key(call.name, call.arguments) for call in answered}
        self._last = last
        self._seen: set[CallKey] = set()
        self._buffered: list[AnyEvent] = []
        self._name = ""
        self._arguments: list[str] = []
        self._complete_calls: list[ToolCall] = []
        self.cut_off = False
        """Whether a limit has ended the reply; set before its last events are fed."""
        self.call: ToolCall | None = None
        """The call that was held back."""
        self.buffered: list[AnyEvent] = []
        """Its events."""

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events that may be emitted now; none of what follows a repeated call."""
        out: list[AnyEvent] = []
        for event in events:
            if self.finished:
                break
            out += self._feed(event)
        return out

    def _feed(self, event: AnyEvent) -> list[AnyEvent]:
        match event:
            case ToolCallStart(_, _, name):
                self._name, self._arguments = name, []
            case ToolCallDelta(_, text):
                self._arguments.append(text)
            case ToolCallEnd():
                return self._end_call(event)
            case ToolCallIncomplete():
                events, self._buffered = self._buffered, []
                return self._repeated() if self.cut_off and self._restarts_arguments() else [*events, event]
            case Notice("truncated_call", _, raw) if self.cut_off and self._restarts_call(raw):
                return self._repeated()
            case _:
                return [event]
        if self._seen or (self._answered and not self._last):
            self._buffered.append(event)
            return []
        return [event]

    def _end_call(self, event: AnyEvent) -> list[AnyEvent]:
        events, self._buffered = self._buffered, []
        arguments = "".join(self._arguments)
        key = call_key(self._name, arguments)
        is_answered = key in self._answered
        if key in self._seen or (is_answered and self._complete_calls):
            return self._repeated()
        if is_answered and not self._last:
            self.finished = True
            self.call, self.buffered = ToolCall("", self._name, arguments), [*events, event]
            return []
        self._seen.add(key)
        self._complete_calls.append(ToolCall("", self._name, arguments))
        return [*events, event, *([repeated_call_notice(self._name)] if is_answered else [])]

    def _restarts_arguments(self) -> bool:
        arguments = "".join(self._arguments)
        return any(call.name == self._name and _is_prefix(call.arguments, arguments) for call in self._complete_calls)

    def _restarts_call(self, raw: str) -> bool:
        return any(_is_prefix(self._write_call(call), raw) for call in self._complete_calls)

    def _repeated(self) -> list[AnyEvent]:
        self.finished = True
        return [Notice("duplicate_call_dropped", f"dropped a repeated call of {self._name}")]


def reask_notices(call: ToolCall | None) -> list[Notice]:
    """Returns the warnings for a re-ask.

    Args:
        call: the repeated call; None if the model wrote nothing.
    """
    if call is None:
        return [Notice("reasked", "the model wrote nothing after a tool's result, and was re-asked")]
    return [
        Notice(
            "duplicate_call_dropped",
            f"held back a repeated call of {call.name}, which has a result already",
            call.arguments,
        ),
        Notice("reasked", f"{call.name}: the call has a result already; the model was re-asked"),
    ]


def repeated_call_notice(name: str) -> Notice:
    """Returns the warning for a call that is passed on although it has a result."""
    return Notice("reask_failed", f"the model repeated a call of {name} that has a result already; it is passed on")


def _is_prefix(text: str, prefix: str) -> bool:
    """Whether `prefix` is the beginning of `text`, ignoring white space."""
    return "".join(text.split()).startswith("".join(prefix.split()))
