"""Help for small models: results as prose where markup confuses them, and an end to replies that repeat themselves."""

from collections.abc import Callable, Iterable

import msgspec

from dragoman.core.call_identity import CallKey, call_key
from dragoman.core.events import AnyEvent, Notice, ToolCallDelta, ToolCallEnd, ToolCallIncomplete, ToolCallStart
from dragoman.core.messages import Message, Part, Request, Text, ToolCall, ToolChoice, ToolResult
from dragoman.core.part_text import part_text
from dragoman.prompting import hints


def results_as_prose(request: Request) -> Request:
    """The request with the results of this turn as facts next to the question, and without tools.

    It stays as it is without results, after a call that failed, and where a call is required.

    `Facts from get_weather: sunny` and `Answer in one sentence with these facts: What is the weather?`
    """
    messages = hints.remove_hints(request.messages)
    asked = max((i for i, m in enumerate(messages) if _is_question(m)), default=-1)
    names = {p.id: p.name for m in messages for p in m.parts if isinstance(p, ToolCall)}
    results = [p for m in messages[asked + 1 :] for p in m.parts if isinstance(p, ToolResult)]
    results += [p for p in messages[asked].parts if isinstance(p, ToolResult)] if asked >= 0 else []
    if asked < 0 or not results or has_failed(request) or request.tool_choice.mode in ("required", "named"):
        return request
    facts = [f"Facts from {names.get(r.call_id, 'a tool')}: {_words(r.parts)}" for r in results]
    question = f"Answer in one sentence with these facts: {_words(messages[asked].parts)}"
    turn = Message("user", (Text("\n".join([*facts, "", question])),))
    return msgspec.structs.replace(
        request, messages=(*messages[:asked], turn), tools=(), tool_choice=ToolChoice("none")
    )


def has_failed(request: Request) -> bool:
    """Whether the conversation ends with a call that failed, which the model may make again."""
    last = request.messages[-1].parts if request.messages else ()
    return any(isinstance(part, ToolResult) and part.is_error for part in last)


def _is_question(message: Message) -> bool:
    return message.role == "user" and any(isinstance(p, Text) for p in message.parts)


def _words(parts: Iterable[Part]) -> str:
    return "\n".join(text for p in parts if (text := part_text(p)))


class RepeatStopper:
    """Passes events on, but drops a call that is the same as one before it in the reply.

    The same as one of `answered`, which have results already, is held back where it is the reply's first call (`call`),
    for the model to be re-asked; with `last` it is passed on, as the model was. Once there is a call to compare with,
    calls are held until they are whole. One that was cut off is dropped where it is the beginning of another of the
    reply, as `write_call` shows that: the other is whole, and can be run.
    """

    def __init__(
        self,
        answered: Iterable[ToolCall] = (),
        write_call: Callable[[ToolCall], str] = lambda call: call.arguments,
        *,
        last: bool = False,
    ) -> None:
        self._write_call = write_call
        self._answered = {call_key(call.name, call.arguments) for call in answered}
        self._last = last
        self._seen: set[CallKey] = set()
        self._held: list[AnyEvent] = []
        self._name = ""
        self._arguments: list[str] = []
        self._whole: list[ToolCall] = []
        self.found = False
        """A call came that is there already: what follows is of no use."""
        self.call: ToolCall | None = None
        """The one that was held back."""
        self.held_back: list[AnyEvent] = []
        """Its events."""

    @property
    def passed(self) -> int:
        """Calls that have gone out whole."""
        return len(self._whole)

    def pass_on(self, event: AnyEvent, *, cut_off: bool = False) -> list[AnyEvent]:
        """The events that may go out now; with `cut_off` they are what a limit left of the reply."""
        match event:
            case ToolCallStart(_, _, name):
                self._name, self._arguments = name, []
            case ToolCallDelta(_, text):
                self._arguments.append(text)
            case ToolCallEnd():
                return self._judged(event)
            case ToolCallIncomplete():
                held, self._held = self._held, []
                return self._repeated() if cut_off and self._is_argued_again() else [*held, event]
            case Notice("truncated_call", _, raw) if cut_off and self._is_begun_again(raw):
                return self._repeated()
            case _:
                return [event]
        if self._seen or (self._answered and not self._last):
            self._held.append(event)
            return []
        return [event]

    def _judged(self, event: AnyEvent) -> list[AnyEvent]:
        held, self._held = self._held, []
        arguments = "".join(self._arguments)
        made = call_key(self._name, arguments)
        is_answered = made in self._answered
        if made in self._seen or (is_answered and self._whole):
            return self._repeated()
        if is_answered and not self._last:
            self.found = True
            self.call, self.held_back = ToolCall("", self._name, arguments), [*held, event]
            return []
        self._seen.add(made)
        self._whole.append(ToolCall("", self._name, arguments))
        return [*held, event, *([made_again(self._name)] if is_answered else [])]

    def _is_argued_again(self) -> bool:
        begun = "".join(self._arguments)
        return any(call.name == self._name and _begins(call.arguments, begun) for call in self._whole)

    def _is_begun_again(self, raw: str) -> bool:
        return any(_begins(self._write_call(call), raw) for call in self._whole)

    def _repeated(self) -> list[AnyEvent]:
        self.found = True
        return [Notice("duplicate_call_dropped", f"dropped a call of {self._name} that has been made already")]


def re_asking(call: ToolCall | None) -> list[Notice]:
    """Report that the model is re-asked, as it made this call again; None: as it wrote nothing."""
    if call is None:
        return [Notice("reasked", "the model wrote nothing after a tool's result, and was re-asked")]
    return [
        Notice("duplicate_call_dropped", f"held back a call of {call.name} that has a result already", call.arguments),
        Notice("reasked", f"{call.name}: the call has a result already; the model was re-asked"),
    ]


def made_again(name: str) -> Notice:
    """Returns the warning for a call that is passed on although it has a result."""
    return Notice("reask_failed", f"the model made a call of {name} again that has a result already; it is passed on")


def _begins(whole: str, begun: str) -> bool:
    """Whether the one text is the beginning of the other, but for white space."""
    return "".join(whole.split()).startswith("".join(begun.split()))
