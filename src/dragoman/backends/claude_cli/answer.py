"""The lines of an answer, as events for the client: its own names of tools, a reply of a schema as text, stop strings
heeded, and once more asked for where it is not what the client must have.
"""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Final

from msgspec.structs import replace

from dragoman import dialects
from dragoman.backends.claude_cli import as_prompt
from dragoman.backends.claude_cli.conversation import STRUCTURED, Conversation
from dragoman.backends.claude_cli.models import MESSAGES
from dragoman.backends.claude_cli.session import Session
from dragoman.backends.stops import StopStrings
from dragoman.core import sse
from dragoman.core.contracts import Turn
from dragoman.core.events import (
    AnyEvent,
    Finish,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
)
from dragoman.core.values import Request, Tool

_ONCE_MORE: Final = {
    "required": "You called no tool. Call one now, and write nothing else.",
    "named": "Call the tool {name} now, and write nothing else.",
}


class Answer:
    """One, on its way."""

    def __init__(self, request: Request, turn: Turn, conversation: Conversation) -> None:
        self._request, self._turn, self._conversation = request, turn, conversation
        self._stops = StopStrings(request.stop)
        self._text = as_prompt.reread(request, turn) if conversation.in_words else None
        """Reads the calls that are written in it."""
        self._structured = False
        """The call that is open is a reply of a schema."""
        self._replied = False
        """There was one."""
        self.ended = False
        """Its last event has gone out."""

    async def events(self, session: Session) -> AsyncGenerator[AnyEvent, None]:
        """All of them.

        Raises: RemoteError: see `Session.answer`.
        """
        async with aclosing(self._read(session)) as events:
            async for event in events:
                for each in self._stops.pass_on([event]) if not isinstance(event, Finish) else self._finish(event):
                    yield each
                if isinstance(event, Start):
                    for warning in (*self._conversation.warnings, *session.warnings):
                        yield warning
                if self._enough and not self.ended:
                    for each in self._finish(Finish("stop")):
                        yield each
                if self.ended:
                    return

    @property
    def _enough(self) -> bool:
        """What still comes is not wanted."""
        return bool(self._stops.found) or (self._text is not None and self._text.over)

    def _finish(self, event: Finish) -> list[AnyEvent]:
        rest = self._stops.end()
        self.ended = True
        if self._stops.found:
            return [*rest, Finish("stop_sequence", self._stops.found)]
        return [*rest, replace(event, reason="stop") if self._replied and event.reason == "tool_calls" else event]

    async def _read(self, session: Session) -> AsyncGenerator[AnyEvent, None]:
        reader = dialects.get(MESSAGES).reader(self._as_theirs(), self._turn)
        async with aclosing(session.answer()) as answer:
            async for event in answer:
                for each in self._for_client(reader.feed(sse.encode(event))):
                    yield each
        for each in self._for_client(reader.close()):
            yield each

    def _as_theirs(self) -> Request:
        """The request as the model's service knows it, by the names that it knows."""
        tools = [Tool(name) for name in self._conversation.names]
        if self._conversation.schema:
            tools.append(Tool(STRUCTURED))
        return replace(self._request, dialect=MESSAGES, tools=tuple(tools))

    def _for_client(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        made = [made for event in events if (made := self._made(event)) is not None]
        return made if self._text is None else self._text.pass_on(made)

    def _made(self, event: AnyEvent) -> AnyEvent | None:
        match event:
            case Start():
                return replace(event, id=self._turn.id, created=self._turn.created)
            case ToolCallStart(name=name) if name == STRUCTURED and self._conversation.schema:
                self._structured = self._replied = True
                return None
            case ToolCallStart(name=name):
                return replace(event, name=self._conversation.names.get(name, name))
            case ToolCallDelta(text=text) if self._structured:
                return TextDelta(text)
            case ToolCallEnd() | ToolCallIncomplete() if self._structured:
                self._structured = False
                return None
            case _:
                return event
