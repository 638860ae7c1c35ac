"""One conversation with one process: it is told what was said so far, and its answer's lines are handed on.

A `stream_event` is an event of the Messages API as the model's service sent it. The answer is over with `message_stop`:
what the CLI does behind that, such as running the tools, is none of ours.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from dragoman.backends.claude_cli import command, errors, isolation_check
from dragoman.backends.claude_cli.conversation import Conversation, ConversationTurn
from dragoman.backends.claude_cli.mcp_server import ClientToolsServer
from dragoman.backends.claude_cli.process import OutputLine, Process
from dragoman.backends.claude_cli.prompt_escape import append_command_guard
from dragoman.core.errors import BackendUnavailableError, DragomanError, UpstreamError
from dragoman.core.events import Notice

_BEGIN: Final = "begin"
_LARGE_BYTES: Final = 256 * 1024
_AT_ONCE_S: Final = 1.0
"""Time for what it tells at the end of a turn; it needs a tenth of that."""


class _Delta(msgspec.Struct):
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str = ""
    delta: _Delta = msgspec.field(default_factory=_Delta)


_STOP: Final = b'{"type":"message_stop"}'
_REFUSAL: Final = "model_refusal_no_fallback"
"""What it says where the model declines; it takes the reason out of the message then."""
_REFUSAL_EVENT: Final = b'{"type":"message_delta","delta":{"stop_reason":"refusal","stop_sequence":null}}'
_FINAL_STOP_REASONS: Final = ("end_turn", "stop_sequence", "tool_use")
"""Behind a message that ended for any other reason, the CLI asks for more of its own accord, which is somebody's money:
its process is ended before."""


class _Result(msgspec.Struct):
    content: object = None
    is_error: bool = False


class _UserMessage(msgspec.Struct):
    content: list[_Result] = []


class _Model(msgspec.Struct):
    value: str = ""
    resolved: str = msgspec.field(default="", name="resolvedModel")


class _InitializeResult(msgspec.Struct):
    models: list[_Model] = []


class _Response(msgspec.Struct):
    request_id: str = ""
    error: str = ""
    response: _InitializeResult | None = None


_decode: Final = msgspec.json.Decoder(_Event).decode


class Session:
    """A process and what it is told."""

    def __init__(self, process: Process, conversation: Conversation, silence_s: float) -> None:
        self._process, self._conversation, self._silence_s = process, conversation, silence_s
        self._mounted = ClientToolsServer(conversation.tools)
        self._limits = errors.RateLimits()
        self._is_large = sum(len(memoryview(said.content)) for said in conversation.said) >= _LARGE_BYTES
        self._model = conversation.spec.model
        """Its full name, once it is known."""
        self.warnings: list[Notice] = []
        self._is_safe = False
        """It has said which tools it has, and they are the client's."""
        self.objection = ""
        """What of the schema its reply does not hold to."""
        self._over = 0
        """Answers that are over, but whose `result` is still to come."""

    async def begin(self) -> None:
        """Tell it who it is, what tools there are, and what was said before.

        Raises: RemoteError: it cannot be had.
        """
        conversation = self._conversation
        request: dict[str, object] = {"subtype": "initialize"}
        if conversation.in_words:
            request["systemPrompt"] = conversation.system
        else:
            request |= {"systemPrompt": [conversation.system], "sdkMcpServers": [isolation_check.SERVER]}
        if conversation.schema:
            request["jsonSchema"] = msgspec.Raw(conversation.schema.encode())
        controls = () if conversation.told_at_start else command.control_requests(conversation.spec)
        settings = {str(n): each for n, each in enumerate(controls)}
        asked: dict[str, object] = {**settings, _BEGIN: request}
        lines = ({"type": "control_request", "request_id": id, "request": each} for id, each in asked.items())
        await self._say(*lines)
        while _BEGIN in asked or not (conversation.in_words or self._mounted.listed):
            line = await self._hear()
            if line.type == "control_response":
                asked.pop(self._answered(line), None)
        *past, last = conversation.said
        for said in past:
            await self._tell(said)
        await self._say(_user(last))

    def _answered(self, line: OutputLine) -> str:
        """The id of the request that this answers; what it says of the model is noted."""
        try:
            response = msgspec.json.decode(line.response, type=_Response)
        except msgspec.DecodeError:
            return ""
        if response.error and response.request_id == _BEGIN:
            raise BackendUnavailableError(f"claude does not begin: {response.error}")
        if response.error:
            self.warnings.append(Notice("content_dropped", f"claude does not take a setting: {response.error}"))
        for model in response.response.models if response.response else ():
            if model.value == self._model and model.resolved:
                self._model = model.resolved
        return response.request_id

    async def _tell(self, said: ConversationTurn) -> None:
        """A turn of the past; it has taken one of the user's when it says what came of it.

        Thoughts are kept of the very model alone that is asked now, so all of the model's turns are said to be its.
        """
        if said.role == "assistant":
            message = {"role": said.role, "model": self._model, "content": said.content}
            await self._say({"type": "assistant", "message": message})
            return
        await self._say({**_user(said), "shouldQuery": False})
        while (line := await self._hear()).type != "result":
            pass
        if line.is_error:
            raise errors.error_from_result(line, self._limits)

    async def again(self, words: str, *, called: bool) -> None:
        """Have it answer once more, told so by the user, or by what came of the calls that it made."""
        if called:
            await self._say(*self._mounted.refuse(words))
            return
        self._over += 1
        said: list[object] = [{"type": "text", "text": words}]
        blocks = msgspec.json.encode(said if self._conversation.told_at_start else append_command_guard(said))
        await self._say(_user(ConversationTurn("user", msgspec.Raw(blocks))))

    async def cost_usd(self, *, called: bool) -> float | None:
        """What all its answers cost; None where it does not say so at once. Nothing more can be had from it.

        It tells that when its turn is over, which it is not while it waits for what came of calls.
        """
        asked = {"type": "control_request", "request_id": "over", "request": {"subtype": "interrupt"}}
        with contextlib.suppress(DragomanError, TimeoutError, msgspec.DecodeError):
            async with asyncio.timeout(_AT_ONCE_S):
                await self._say(*([asked] if called else []))
                while (line := await self._hear()).type != "result":
                    pass
                return msgspec.json.decode(line.total_cost_usd, type=float)
        return None

    async def answer(self) -> AsyncGenerator[bytes, None]:
        """The events of the answer, to `message_stop`.

        Raises: RemoteError: there is none, or no more of it. ContextOverflowError: the conversation is too long.
        """
        message = _Message()
        while True:
            line = await self._hear()
            match line.type:
                case "stream_event" if not self._is_safe:
                    raise BackendUnavailableError(isolation_check.TOOLS_UNKNOWN)
                case "system" if line.subtype == _REFUSAL:
                    message.refused = True
                case "stream_event" if line.parent_tool_use_id is None:
                    self._mounted.accept()
                    events = message.add(bytes(line.event))
                    if message.goes_on and self._conversation.spec.again:  # no budget keeps it from that
                        self._process.end(at_once=True)
                    for event in events:
                        yield event
                    if message.is_whole:
                        return
                case _:
                    if (error := self._trouble(line)) is not None:
                        raise error

    def _trouble(self, line: OutputLine) -> DragomanError | None:
        """The error that this line tells of."""
        match line.type:
            case "system" if line.subtype == "api_retry":
                return errors.long_retry_error(line)
            case "rate_limit_event":
                self._limits.hear(line.rate_limit_info)
                return None
            case "assistant":
                return errors.error_from_line(line, self._limits)
            case "user" if self._conversation.schema:
                self._object(line)
                return None
            case "result" if self._over and not line.is_error:
                self._over -= 1
                return None
            case "result":
                return errors.error_from_result(line, self._limits)
            case _:
                return None

    def check(self, line: OutputLine) -> None:
        """Look at what it says that it has.

        Raises: BackendUnavailableError: it could do something on this machine.
        """
        missing = isolation_check.check_isolation(line, self._conversation)
        if missing and not self._is_safe:  # it says so with each turn of the past as well
            names = ", ".join(sorted(self._conversation.names.get(name, name) for name in missing))
            told = f"claude does not take these tools, for what is in their schemas (a property's name, say): {names}"
            self.warnings.append(Notice("content_dropped", told, detail="tools"))
        self._is_safe = True

    async def _say(self, *lines: object) -> None:
        await self._process.say(*lines, silence_s=self._silence_s, large=self._is_large)

    def _object(self, line: OutputLine) -> None:
        """Note where a reply is not of the schema, which the CLI tells the model as what came of its call."""
        with contextlib.suppress(msgspec.DecodeError):
            results = msgspec.json.decode(line.message, type=_UserMessage).content
            self.objection = next((str(each.content) for each in results if each.is_error), self.objection)

    async def _hear(self) -> OutputLine:
        """Its next line; where it asks something, that is answered.

        Raises: BackendUnavailableError: it could do something on this machine.
        """
        line = await self._process.hear(self._silence_s)
        if line.type == "control_request":
            answer = self._mounted.answer(line.request_id, line.request)
            if answer is not None:
                await self._say(answer)
        if line.type == "system" and line.subtype == "init":
            self.check(line)
        return line


class _Message:
    """The events of one message, which may break off and be begun anew: the CLI closes it all the same."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        """Its beginning, until there is more of it: one that breaks off there is as good as none."""
        self._given = False
        self._stopped = False
        """The model has come to its end."""
        self.refused = False
        """It declines."""
        self.is_whole = False
        self.goes_on = False
        """The CLI will ask for more of its own accord."""

    def add(self, data: bytes) -> list[bytes]:
        """The events that can be passed on with this one.

        Raises: UpstreamError: the message broke off when some of it was out already.
        """
        try:
            event = _decode(data)
        except msgspec.DecodeError:  # for the reader to tell of
            event = _Event()
        match event.type:
            case "message_start" if not self._given:
                self._held = [data]
                return []
            case "message_stop" if not self._given and not self._stopped:
                self._held = []
                return []
            case "message_start" | "message_stop" if not self._stopped:
                raise UpstreamError("claude lost the connection to its service in the middle of the answer")
            case "message_stop":
                self.is_whole = True
            case "message_delta" if self.refused and event.delta.stop_reason is None:
                self._stopped = self.is_whole = self.goes_on = True
                return self._out(data, _REFUSAL_EVENT, _STOP)
            case "message_delta":
                self._stopped = event.delta.stop_reason is not None
                self.is_whole = self.goes_on = self._stopped and event.delta.stop_reason not in _FINAL_STOP_REASONS
            case _:
                pass
        return self._out(data, *([_STOP] if self.goes_on else []))

    def _out(self, *events: bytes) -> list[bytes]:
        out = [*self._held, *events]
        self._held, self._given = [], True
        return out


def _user(said: ConversationTurn) -> dict[str, object]:
    return {"type": "user", "message": said}
