"""Ends a reply that only repeats itself: small models write the same call again and again."""

from collections.abc import Callable, Iterable

from dragoman.core.events import AnyEvent, ToolCallDelta, ToolCallEnd, ToolCallIncomplete, ToolCallStart, Warning
from dragoman.core.same_call import key
from dragoman.core.values import ToolCall


class RepeatGuard:
    """Passes events on, but drops a call that is the same as one before it in the reply or one of `answered`.

    Once there is a call to compare with, calls are held until they are whole. One that was cut off is dropped where
    it is the beginning of another of the reply, as `write_call` shows that: the other is whole, and can be run.
    """

    def __init__(
        self, answered: Iterable[ToolCall] = (), write_call: Callable[[ToolCall], str] = lambda call: call.arguments
    ) -> None:
        self._write_call = write_call
        self._seen = {key(call.name, call.arguments) for call in answered}
        self._held: list[AnyEvent] = []
        self._name = ""
        self._arguments: list[str] = []
        self._whole: list[ToolCall] = []
        self.found = False
        """A call came that is there already: what follows is of no use."""

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
        if self._seen:
            self._held.append(event)
            return []
        return [event]

    def _judged(self, event: AnyEvent) -> list[AnyEvent]:
        held, self._held = self._held, []
        arguments = "".join(self._arguments)
        made = key(self._name, arguments)
        if made in self._seen:
            return self._repeated()
        self._seen.add(made)
        self._whole.append(ToolCall("", self._name, arguments))
        return [*held, event]

    def _is_argued_again(self) -> bool:
        begun = "".join(self._arguments)
        return any(call.name == self._name and _begins(call.arguments, begun) for call in self._whole)

    def _is_begun_again(self, raw: str) -> bool:
        return any(_begins(self._write_call(call), raw) for call in self._whole)

    def _repeated(self) -> list[AnyEvent]:
        self.found = True
        return [Warning("repeated_call", f"dropped a call of {self._name} that has been made already")]


def _begins(whole: str, begun: str) -> bool:
    """Whether the one text is the beginning of the other, but for white space."""
    return "".join(whole.split()).startswith("".join(begun.split()))
