"""The client's tools as an MCP server, which the CLI queries over its own standard output.

The server lists the tools. After a response with calls the CLI sends them to this server; they are not answered, since
the client runs the tools and sends the results with its next request. Only a call that the client will never see is
answered, with an error, and then the CLI asks the model again.

Source: Model Context Protocol 2025-11-25 (initialize, tools/list, tools/call); `mcp_message` of the control protocol as
claude-agent-sdk 0.2.186 has it, November 2026.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from dragoman.backends.claude_cli.command import SERVER
from dragoman.backends.claude_cli.conversation import ClientTool


class _Message(msgspec.Struct):
    method: str = ""
    id: int | str | None = None
    params: dict[str, Any] = {}


class _ControlRequest(msgspec.Struct):
    subtype: str = ""
    message: _Message = msgspec.field(default_factory=_Message)


class ClientToolsServer:
    """Answers the control requests of the CLI."""

    def __init__(self, tools: Sequence[ClientTool]) -> None:
        self._tools = tools
        self._pending: list[tuple[str, _Message]] = []
        self._refusal = ""
        self.listed = False
        """The CLI has listed the tools."""

    def answer(self, id: str, body: msgspec.Raw) -> object | None:
        """Returns the line that answers a control request, or None if it is not answered."""
        try:
            request = msgspec.json.decode(body, type=_ControlRequest)
        except msgspec.DecodeError:
            return _refusal(id, "not understood")
        if request.subtype != "mcp_message":
            return _refusal(id, f"{request.subtype} is not for this client")
        message = request.message
        match message.method:
            case "initialize":
                result: object = {
                    "protocolVersion": message.params.get("protocolVersion", "2025-11-25"),
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": SERVER, "version": "1"},
                }
            case "tools/list":
                self.listed = True
                result = {"tools": self._tools}
            case "tools/call" if not self._refusal:
                self._pending.append((id, message))
                return None
            case "tools/call":
                result = self._refusal_result()
            case _:
                result = {}
        return _answer(id, message, result)

    def refuse(self, why: str) -> list[object]:
        """Returns the lines that refuse all calls of a response, and refuses those of it that still arrive."""
        self._refusal = why
        pending, self._pending = self._pending, []
        return [_answer(id, message, self._refusal_result()) for id, message in pending]

    def accept(self) -> None:
        """The next response begins: calls are no longer refused."""
        self._refusal = ""

    def _refusal_result(self) -> object:
        return {"content": [{"type": "text", "text": self._refusal}], "isError": True}


def _answer(id: str, message: _Message, result: object) -> object:
    answer = {"jsonrpc": "2.0", "id": message.id, "result": result}
    return _response({"subtype": "success", "request_id": id, "response": {"mcp_response": answer}})


def _refusal(id: str, why: str) -> object:
    return _response({"subtype": "error", "request_id": id, "error": why})


def _response(response: object) -> object:
    return {"type": "control_response", "response": response}
