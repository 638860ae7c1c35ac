"""Turns the lines of a response into events for the client: applies stop strings, and re-asks if needed."""

from collections.abc import Callable, Sequence
from contextlib import aclosing

from msgspec.structs import replace

from dragoman import dialects
from dragoman.backends.claude_cli import single_prompt
from dragoman.backends.claude_cli.attempt import Attempt
from dragoman.backends.claude_cli.conversation import STRUCTURED, Conversation
from dragoman.backends.claude_cli.models import MESSAGES
from dragoman.backends.claude_cli.session import ClaudeSession
from dragoman.core.backend import EventStream, ExchangeContext
from dragoman.core.errors import BackendUnavailableError
from dragoman.core.events import AnyEvent, Finish, Notice, Start, UsageUpdate
from dragoman.core.messages import Request, Tool, ToolChoice, Usage, add_usage
from dragoman.text.stop_strings import StopStrings
from dragoman.wire import sse


class ClaudeResponse:
    """One response of the Claude Code CLI."""

    def __init__(self, request: Request, context: ExchangeContext, conversation: Conversation) -> None:
        self._request, self._context, self._conversation = request, context, conversation
        self._stops = StopStrings(request.stop)
        self._usage = Usage()
        """Usage of all attempts so far."""

    async def events(self, session: ClaudeSession) -> EventStream:
        """Yields all events.

        Raises: RemoteError: see `ClaudeSession.answer`.
        """
        async with aclosing(self._attempt_events(session)) as batches:
            async for batch in batches:
                if isinstance(batch[0], Start):
                    batch = [batch[0], *self._conversation.warnings, *session.warnings, *batch[1:]]
                if events := self._stops.feed(batch):
                    yield events
                if self._stops.found:
                    yield [Finish("stop_sequence", self._stops.found)]
                    return

    async def _attempt_events(self, session: ClaudeSession) -> EventStream:
        """Yields the response, or a second one if the first lacks what is required."""
        requirement, names = self._conversation.requirement, self._conversation.names
        attempt, is_last_attempt = Attempt(requirement, names), False
        async with aclosing(self._validated_events(session, attempt)) as batches:
            async for batch in batches:
                yield batch
        if attempt.needs_reask and not self._context.reasked:
            yield [Notice("reasked", f"{requirement.missing_part}; the model was re-asked")]
            await self._reask(session, attempt)
            first, attempt = attempt, Attempt(requirement, names)
            try:
                async with aclosing(self._validated_events(session, attempt, is_second=True)) as batches:
                    async for batch in batches:
                        yield batch
            except BackendUnavailableError:  # how it ends if the model does not match the schema
                if not requirement.reply or attempt.has_call or attempt.replied:
                    raise
                attempt, is_last_attempt = first, True
        if events := attempt.close():
            yield events
        if attempt.finish is None:
            return
        if attempt.replied and session.objection:
            yield [Notice("constraint_not_applied", "the reply does not match its schema", session.objection)]
        elif attempt.is_final and not (
            is_last_attempt or self._request.stream
        ):  # the end of a stream would be delayed by that
            cost_usd = await session.cost_usd(has_call=attempt.has_call)
            yield [UsageUpdate(replace(self._usage, cost_usd=cost_usd))]
        yield [attempt.finish]

    async def _reask(self, session: ClaudeSession, attempt: Attempt) -> None:
        """Has the model respond again; if only the structured reply is missing, the CLI itself re-asks."""
        requirement = self._conversation.requirement
        has_call = attempt.has_call and not self._conversation.is_single_prompt
        if has_call or not requirement.reply:
            await session.reask(requirement.reask_message, has_call=has_call)

    async def _validated_events(
        self, session: ClaudeSession, attempt: Attempt, *, is_second: bool = False
    ) -> EventStream:
        """Yields the events of an attempt that can be sent; usage is that of all attempts, and there is one Start."""
        before = self._usage
        async with aclosing(self._read(session)) as batches:
            async for batch in batches:
                own = [
                    self._with_usage(event, before) for event in batch if not (is_second and isinstance(event, Start))
                ]
                if events := attempt.feed(own):
                    yield events

    def _with_usage(self, event: AnyEvent, before: Usage) -> AnyEvent:
        if not isinstance(event, UsageUpdate):
            return event
        self._usage = add_usage(before, event.usage)
        return UsageUpdate(self._usage)

    async def _read(self, session: ClaudeSession) -> EventStream:
        """Yields the events of one message; in text mode, with the calls in its text."""
        reader = dialects.get(MESSAGES).reader(self._with_cli_tools(), self._context)
        # a call of a tool that is not the named one is parsed too, so that the attempt can drop it
        named = self._conversation.requirement.name
        request = replace(self._request, tool_choice=ToolChoice()) if named else self._request
        text = single_prompt.parse_text_reply(request, self._context) if self._conversation.is_single_prompt else None
        to_events: Callable[[Sequence[AnyEvent]], Sequence[AnyEvent]] = list if text is None else text.feed
        async with aclosing(self._context.wrap_model_output("claude", self._conversation, session.answer())) as answer:
            async for event in answer:
                if events := to_events(reader.feed(sse.encode(event))):
                    yield events
                if text is not None and text.finished:  # the rest is discarded
                    break
        finished = text is not None and text.finished
        if events := to_events([Finish("stop")] if finished else reader.close()):
            yield events

    def _with_cli_tools(self) -> Request:
        """Returns the request with the tool names that the model sees, as one of the Messages API."""
        tools = [Tool(name) for name in self._conversation.names]
        if self._conversation.schema:
            tools.append(Tool(STRUCTURED))
        return replace(self._request, dialect=MESSAGES, tools=tuple(tools))
