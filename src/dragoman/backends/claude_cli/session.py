"""One conversation with one process: sends the messages, and yields the lines of the response.

A `stream_event` is an unchanged event of the Messages API. The response is complete with `message_stop`: what the CLI
does after that, such as calling the tools, is ignored.
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
_RESULT_WAIT_S: Final = 1.0
"""Time for the result line at the end of a turn; it needs 10 % of that."""


class _Delta(msgspec.Struct):
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str = ""
    delta: _Delta = msgspec.field(default_factory=_Delta)


_STOP: Final = b'{"type":"message_stop"}'
_REFUSAL: Final = "model_refusal_no_fallback"
"""Reported when the model refuses; the CLI removes the reason from the message."""
_REFUSAL_EVENT: Final = b'{"type":"message_delta","delta":{"stop_reason":"refusal","stop_sequence":null}}'
_FINAL_STOP_REASONS: Final = ("end_turn", "stop_sequence", "tool_use")
"""After a message with any other stop reason the CLI sends a further request by itself, at the user's cost: the process
is killed before that.
"""


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


class ClaudeSession:
    """A process and its conversation."""

    def __init__(self, process: Process, conversation: Conversation, stall_timeout_s: float) -> None:
        self._process, self._conversation, self._stall_timeout_s = process, conversation, stall_timeout_s
        self._tools_server = ClientToolsServer(conversation.tools)
        self._limits = errors.RateLimits()
        self._is_large = sum(len(memoryview(turn.content)) for turn in conversation.turns) >= _LARGE_BYTES
        self._model = conversation.spec.model
        """The model's full name, once it is known."""
        self.warnings: list[Notice] = []
        self._is_safe = False
        """The process has reported its tools, and they are only the client's."""
        self.objection = ""
        """How the reply violates the schema, as the CLI reports it."""
        self._replaced_results = 0
        """Number of complete responses whose `result` line has not arrived yet."""

    async def begin(self) -> None:
        """Sends the settings, the tools and the messages.

        Raises: RemoteError: the process failed.
        """
        conversation = self._conversation
        request: dict[str, object] = {"subtype": "initialize"}
        if conversation.is_single_prompt:
            request["systemPrompt"] = conversation.system
        else:
            request |= {"systemPrompt": [conversation.system], "sdkMcpServers": [isolation_check.SERVER]}
        if conversation.schema:
            request["jsonSchema"] = msgspec.Raw(conversation.schema.encode())
        controls = () if conversation.needs_start_settings else command.control_requests(conversation.spec)
        settings = {str(n): each for n, each in enumerate(controls)}
        begin_request: dict[str, object] = {**settings, _BEGIN: request}
        lines = ({"type": "control_request", "request_id": id, "request": each} for id, each in begin_request.items())
        await self._send(*lines)
        while _BEGIN in begin_request or not (conversation.is_single_prompt or self._tools_server.listed):
            line = await self._receive()
            if line.type == "control_response":
                begin_request.pop(self._accept_response(line), None)
        *past, last = conversation.turns
        for turn in past:
            await self._send_past_turn(turn)
        await self._send(_user(last))

    def _accept_response(self, line: OutputLine) -> str:
        """Returns the id of the answered control request, and records the model's full name."""
        try:
            response = msgspec.json.decode(line.response, type=_Response)
        except msgspec.DecodeError:
            return ""
        if response.error and response.request_id == _BEGIN:
            raise BackendUnavailableError(f"claude does not begin: {response.error}")
        if response.error:
            self.warnings.append(Notice("content_dropped", f"claude does not accept a setting: {response.error}"))
        for model in response.response.models if response.response else ():
            if model.value == self._model and model.resolved:
                self._model = model.resolved
        return response.request_id

    async def _send_past_turn(self, turn: ConversationTurn) -> None:
        """Sends a past turn; for a user's turn, waits for the line that confirms it.

        The model keeps reasoning only of the model that is asked now, so its name is put on all past turns of the
        model.
        """
        if turn.role == "assistant":
            message = {"role": turn.role, "model": self._model, "content": turn.content}
            await self._send({"type": "assistant", "message": message})
            return
        await self._send({**_user(turn), "shouldQuery": False})
        while (line := await self._receive()).type != "result":
            pass
        if line.is_error:
            raise errors.error_from_result(line, self._limits)

    async def reask(self, text: str, *, has_call: bool) -> None:
        """Has the model respond again.

        Args:
            text: what the model is told.
            has_call: whether the model made calls; then this text is their result, else a user's message.
        """
        if has_call:
            await self._send(*self._tools_server.refuse(text))
            return
        self._replaced_results += 1
        content: list[object] = [{"type": "text", "text": text}]
        blocks = msgspec.json.encode(
            content if self._conversation.needs_start_settings else append_command_guard(content)
        )
        await self._send(_user(ConversationTurn("user", msgspec.Raw(blocks))))

    async def cost_usd(self, *, has_call: bool) -> float | None:
        """Returns the cost of all responses in US dollars, or None if it is not reported within 1 s.

        The CLI reports the cost at the end of its turn, which is interrupted here if it waits for results of calls. The
        conversation is over then.
        """
        interrupt = {"type": "control_request", "request_id": "over", "request": {"subtype": "interrupt"}}
        with contextlib.suppress(DragomanError, TimeoutError, msgspec.DecodeError):
            async with asyncio.timeout(_RESULT_WAIT_S):
                await self._send(*([interrupt] if has_call else []))
                while (line := await self._receive()).type != "result":
                    pass
                return msgspec.json.decode(line.total_cost_usd, type=float)
        return None

    async def answer(self) -> AsyncGenerator[bytes, None]:
        """Yields the events of the response, to `message_stop`.

        Raises:
            RemoteError: there is no response, or it broke off.
            ContextOverflowError: the conversation is too long.
        """
        message = _Message()
        while True:
            line = await self._receive()
            match line.type:
                case "stream_event" if not self._is_safe:
                    raise BackendUnavailableError(isolation_check.TOOLS_UNKNOWN)
                case "system" if line.subtype == _REFUSAL:
                    message.is_refusal = True
                case "stream_event" if line.parent_tool_use_id is None:
                    self._tools_server.accept()
                    events = message.add(bytes(line.event))
                    if message.continues and self._conversation.spec.may_reask:  # no budget stops the next request
                        self._process.stop(at_once=True)
                    for event in events:
                        yield event
                    if message.is_complete:
                        return
                case _:
                    if (error := self._error_from(line)) is not None:
                        raise error

    def _error_from(self, line: OutputLine) -> DragomanError | None:
        """Returns the error that this line reports, or None."""
        match line.type:
            case "system" if line.subtype == "api_retry":
                return errors.long_retry_error(line)
            case "rate_limit_event":
                self._limits.update(line.rate_limit_info)
                return None
            case "assistant":
                return errors.error_from_line(line, self._limits)
            case "user" if self._conversation.schema:
                self._note_violation(line)
                return None
            case "result" if self._replaced_results and not line.is_error:
                self._replaced_results -= 1
                return None
            case "result":
                return errors.error_from_result(line, self._limits)
            case _:
                return None

    def check(self, line: OutputLine) -> None:
        """Checks the tools that the process reports.

        Raises: BackendUnavailableError: the model could act on this machine.
        """
        missing = isolation_check.check_isolation(line, self._conversation)
        if missing and not self._is_safe:  # reported again with each past turn
            names = ", ".join(sorted(self._conversation.names.get(name, name) for name in missing))
            message = (
                f"claude does not take these tools, for what is in their schemas (a property's name, say): {names}"
            )
            self.warnings.append(Notice("content_dropped", message, detail="tools"))
        self._is_safe = True

    async def _send(self, *lines: object) -> None:
        await self._process.send(*lines, stall_timeout_s=self._stall_timeout_s, large=self._is_large)

    def _note_violation(self, line: OutputLine) -> None:
        """Records a violation of the schema, which the CLI sends to the model as the result of its call."""
        with contextlib.suppress(msgspec.DecodeError):
            results = msgspec.json.decode(line.message, type=_UserMessage).content
            self.objection = next((str(each.content) for each in results if each.is_error), self.objection)

    async def _receive(self) -> OutputLine:
        """Returns the next line; a control request is answered here.

        Raises: BackendUnavailableError: the model could act on this machine.
        """
        line = await self._process.receive(self._stall_timeout_s)
        if line.type == "control_request":
            answer = self._tools_server.answer(line.request_id, line.request)
            if answer is not None:
                await self._send(answer)
        if line.type == "system" and line.subtype == "init":
            self.check(line)
        return line


class _Message:
    """The events of one message. A message may break off and begin again; the CLI closes the broken one too."""

    def __init__(self) -> None:
        self._buffered: list[bytes] = []
        """The first event, held until the next: a message that breaks off here is discarded."""
        self._released = False
        self._stopped = False
        """The model has ended the message."""
        self.is_refusal = False
        """The model refuses."""
        self.is_complete = False
        self.continues = False
        """The CLI would send a further request by itself."""

    def add(self, data: bytes) -> list[bytes]:
        """Returns the events that can be passed on with this one.

        Raises: UpstreamError: the message broke off after a part of it was sent.
        """
        try:
            event = _decode(data)
        except msgspec.DecodeError:  # the reader reports it
            event = _Event()
        match event.type:
            case "message_start" if not self._released:
                self._buffered = [data]
                return []
            case "message_stop" if not self._released and not self._stopped:
                self._buffered = []
                return []
            case "message_start" | "message_stop" if not self._stopped:
                raise UpstreamError("claude lost the connection to its service in the middle of the answer")
            case "message_stop":
                self.is_complete = True
            case "message_delta" if self.is_refusal and event.delta.stop_reason is None:
                self._stopped = self.is_complete = self.continues = True
                return self._out(data, _REFUSAL_EVENT, _STOP)
            case "message_delta":
                self._stopped = event.delta.stop_reason is not None
                self.is_complete = self.continues = self._stopped and event.delta.stop_reason not in _FINAL_STOP_REASONS
            case _:
                pass
        return self._out(data, *([_STOP] if self.continues else []))

    def _out(self, *events: bytes) -> list[bytes]:
        out = [*self._buffered, *events]
        self._buffered, self._released = [], True
        return out


def _user(turn: ConversationTurn) -> dict[str, object]:
    return {"type": "user", "message": turn}
