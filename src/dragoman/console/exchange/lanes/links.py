"""Finds the counterpart of a call or a text of the model in the response."""

from collections.abc import Sequence
from typing import Final

from dragoman.console.exchange.lanes.reply_lane import ClientReply
from dragoman.console.exchange.lanes.traced_events import TracedCall, TracedEvents

_COMPARED_CHARS: Final = 200
"""Characters of a text by which its counterpart is found."""


class Links:
    """The calls and texts of one response."""

    def __init__(self, reply: ClientReply, events: TracedEvents) -> None:
        """
        Args:
            reply: The response that the client got.
            events: The events for the client; without any, as of a response that was passed through, the calls of the
                response count.
        """
        known = events.calls
        self._ids = [call.id for call in known] if known else [item.id for item in reply.calls]
        self._names = [call.name for call in known] if known else [item.name for item in reply.calls]
        self._reasked = [call.is_reasked for call in known]
        self._calls = known
        self._texts = {kind: reply.texts(kind) or events.texts(kind) for kind in ("text", "reasoning")}
        self._at = {"text": 0, "reasoning": 0}

    def client_call(self, call: TracedCall) -> TracedCall | None:
        """Returns the same call as the client got it, if it did."""
        return next((each for each in self._calls if each.id and each.id == call.id), None)

    def call(self, number: int, call: TracedCall) -> str:
        """Returns the link of a call: a call that was rejected belongs to the one that replaced it.

        Args:
            number: The backend call, from 1.
            call: The call.
        """
        for index, id in enumerate(self._ids):
            if id and call.id and (id == call.id or id.endswith(call.id)):
                return f"call:{index}"
        replaced = [index for index, is_reasked in enumerate(self._reasked) if is_reasked]
        same = [index for index in replaced if self._names[index] == call.name]
        if not replaced and not self._calls:
            same = [index for index, name in enumerate(self._names) if name == call.name and index == call.index]
        chosen = same or replaced
        return f"call:{chosen[0]}" if chosen else f"call:{number}.{call.index}"

    def text(self, kind: str, text: str) -> str:
        """Returns the link of a piece of text or reasoning; asked for in their order; empty: it has none.

        Args:
            kind: `text` or `reasoning`.
            text: The piece.
        """
        expected = text.strip()[:_COMPARED_CHARS]
        runs: Sequence[str] = self._texts.get(kind, ())
        if not expected:
            return ""
        for index in range(self._at.get(kind, 0), len(runs)):
            if expected in runs[index] or runs[index].strip()[:_COMPARED_CHARS] in text:
                self._at[kind] = index
                return f"{kind}:{index}"
        return ""
