"""Ends a reply that only repeats itself: small models write the same call again and again."""

from collections.abc import Callable, Iterable

from dragoman.core.call_identity import Key, key
from dragoman.core.events import AnyEvent, ToolCallDelta, ToolCallEnd, ToolCallIncomplete, ToolCallStart, Warning
from dragoman.core.messages import ToolCall


class RepeatGuard:
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
        self._answered = {key(call.name, call.arguments) for call in answered}
        self._last = last
        self._seen: set[Key] = set()
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
            case Warning("cut_off_call", _, raw) if cut_off and self._is_begun_again(raw):
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
        made = key(self._name, arguments)
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
        return [Warning("repeated_call", f"dropped a call of {self._name} that has been made already")]


def re_asking(call: ToolCall | None) -> list[Warning]:
    """Report that the model is re-asked, as it made this call again; None: as it wrote nothing."""
    if call is None:
        return [Warning("asked_again", "the model wrote nothing after a tool's result, and was re-asked")]
    return [
        Warning("repeated_call", f"held back a call of {call.name} that has a result already", call.arguments),
        Warning("asked_again", f"{call.name}: the call has a result already; the model was re-asked"),
    ]


def made_again(name: str) -> Warning:
    """Tells of a call that is passed on although it has a result."""
    return Warning("not_as_asked", f"the model made a call of {name} again that has a result already; it is passed on")


def _begins(whole: str, begun: str) -> bool:
    """Whether the one text is the beginning of the other, but for white space."""
    return "".join(whole.split()).startswith("".join(begun.split()))
