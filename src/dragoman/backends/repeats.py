"""Ends a reply that only repeats itself: small models write the same call again and again."""

import json
from collections.abc import Iterable

from dragoman.core.events import AnyEvent, ToolCallDelta, ToolCallEnd, ToolCallIncomplete, ToolCallStart, Warning
from dragoman.core.values import Request, Text, ToolCall


class RepeatGuard:
    """Passes events on, but drops a call that is the same as one before it in the reply or one of `answered`.

    Once there is a call to compare with, calls are held until they are whole.
    """

    def __init__(self, answered: Iterable[ToolCall] = ()) -> None:
        self._seen = {_key(call.name, call.arguments) for call in answered}
        self._held: list[AnyEvent] = []
        self._name = ""
        self._arguments = ""
        self.found = False
        """A call came that is there already: what follows is of no use."""
        self.passed = 0
        """Calls that have gone out whole."""

    def pass_on(self, event: AnyEvent) -> list[AnyEvent]:
        """The events that may go out now."""
        match event:
            case ToolCallStart(_, _, name):
                self._name, self._arguments = name, ""
            case ToolCallDelta(_, text):
                self._arguments += text
            case ToolCallEnd():
                return self._judged(event)
            case ToolCallIncomplete():
                held, self._held = self._held, []
                return [*held, event]
            case _:
                return [event]
        if self._seen:
            self._held.append(event)
            return []
        return [event]

    def _judged(self, event: AnyEvent) -> list[AnyEvent]:
        held, self._held = self._held, []
        key = _key(self._name, self._arguments)
        if key in self._seen:
            self.found = True
            return [Warning("repeated_call", f"dropped a call of {self._name} that has been made already")]
        self._seen.add(key)
        self.passed += 1
        return [*held, event]


def answered_calls(request: Request) -> list[ToolCall]:
    """The calls since the user's last words."""
    calls: list[ToolCall] = []
    for message in reversed(request.messages):
        if message.role == "user" and any(isinstance(p, Text) for p in message.parts):
            break
        calls += [p for p in message.parts if isinstance(p, ToolCall)]
    return calls


def _key(name: str, arguments: str) -> tuple[str, str]:
    """The call, whatever the white space and order of its arguments; as it is where Python cannot read it."""
    try:
        return name, json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return name, arguments
