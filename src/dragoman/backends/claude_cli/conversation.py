"""A request as a conversation with the CLI, in native mode: one line for each message.

    {"type": "user", "message": {…}, "shouldQuery": false}        a past turn
    {"type": "assistant", "message": {…}}                         the model's turn with its calls and reasoning
    {"type": "user", "message": {…}}                              the last message, which starts the response

The messages are those of the Messages API, as its dialect writes them for an upstream server. The client's tools are
those of an MCP server, whose name is their prefix; past calls have the same prefix.

Source: the CLI itself, 2.1.329 (tests/e2e/claude_cli/test_mapping.py); its `initialize` and `control_request` as
claude-agent-sdk 0.2.186 has them; November 2026.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from dragoman import dialects
from dragoman.backends.claude_cli.command import SERVER, ModelSpec
from dragoman.backends.claude_cli.models import MESSAGES
from dragoman.backends.claude_cli.prompt_escape import append_command_guard
from dragoman.backends.claude_cli.tool_choice_prompt import ReplyRequirement, reply_requirement, tool_choice_instruction
from dragoman.backends.claude_cli.unsupported_params import unsupported_warnings
from dragoman.core.events import Notice
from dragoman.core.identifiers import NAME_FORM, ToolNameMap
from dragoman.core.messages import Message, Part, Request, ToolCall, ToolResult, UnknownPart
from dragoman.dialects.anthropic_messages.request_writer import CACHE_CONTROL
from dragoman.wire.translation import client_run_tools

STRUCTURED: Final = "StructuredOutput"
"""The CLI's own tool by which the model writes a structured reply."""
CommandGuard: TypeAlias = Callable[[Sequence[object]], list[object]]
_PREFIX: Final = f"mcp__{SERVER}__"


class ConversationTurn(msgspec.Struct, frozen=True):
    """One message of the conversation."""

    role: Literal["user", "assistant"]
    content: msgspec.Raw


class ClientTool(msgspec.Struct, frozen=True, rename="camel"):
    """A client's tool, as MCP lists it."""

    name: str
    input_schema: msgspec.Raw
    description: str = ""


class Conversation(NamedTuple):
    """Everything that a process is sent."""

    spec: ModelSpec
    system: str
    turns: Sequence[ConversationTurn]
    """The messages; the last is the user's."""
    tools: Sequence[ClientTool] = ()
    schema: str = ""
    """JSON Schema of the reply, or ""."""
    names: Mapping[str, str] = {}
    """The client's tool names, by the names that the model sees."""
    requirement: ReplyRequirement = ReplyRequirement()
    """What the response must contain."""
    warnings: Sequence[Notice] = ()
    is_single_prompt: bool = False
    """Tools are described, and called, in the text; there is no MCP server."""
    needs_start_settings: bool = False
    """The process must get all settings of the model at its start."""


class _Tool(msgspec.Struct):
    name: str
    input_schema: msgspec.Raw
    description: str = ""


class _Body(msgspec.Struct):
    messages: list[ConversationTurn]
    system: str | list[dict[str, Any]] = ""
    tools: list[_Tool] = []


_body: Final = msgspec.json.Decoder(_Body).decode


def to_conversation(request: Request, spec: ModelSpec, guard: CommandGuard = append_command_guard) -> Conversation:
    """Returns the request as a conversation in native mode; the CLI executes nothing that the messages contain.

    Raises: UnsupportedError: a part of the request cannot be sent to the model.
    """
    client_run_tools(request, "claude")
    return map_conversation(request, spec, guard)


def map_conversation(request: Request, spec: ModelSpec, guard: CommandGuard = append_command_guard) -> Conversation:
    """Returns the conversation for a request whose tools have been checked, or are described in its text.

    Raises: UnsupportedError: a part of the request cannot be sent to the model.
    """
    hosted = [tool.kind for tool in request.tools if tool.kind != "function"]
    request, names = _with_sent_tool_names(request)
    out = dialects.get(MESSAGES).write_request(_without_cli_fields(request), spec.model)
    body = _body(out.body)
    mounted = request.tool_choice.mode != "none" or _has_calls(request)
    tools = [
        ClientTool(tool.name.removeprefix(_PREFIX), tool.input_schema, _full_description(tool)) for tool in body.tools
    ]
    instruction = tool_choice_instruction(request.tool_choice) if tools and mounted else ""
    requirement = reply_requirement(
        request.tool_choice, tools=bool(tools) and mounted, schema=bool(request.response_schema)
    )
    return Conversation(
        spec._replace(may_reask=requirement != ReplyRequirement()),
        "\n\n".join(filter(None, (_system_text(body.system), instruction))),
        [
            *(_guarded_turn(each, guard) for each in body.messages[:-1]),
            _guarded_turn(body.messages[-1], guard, keep=True),
        ],
        tools if mounted else (),
        request.response_schema if requirement.reply else "",
        names,
        requirement,
        (*out.warnings, *unsupported_warnings(request, hosted)),
    )


def _with_sent_tool_names(request: Request) -> tuple[Request, Mapping[str, str]]:
    """Returns the request with the tool names that the model sees, and the client's names by those."""
    tools = tuple(tool for tool in request.tools if tool.kind == "function")
    table = ToolNameMap((tool.name for tool in tools), NAME_FORM)

    def part(part: Part) -> Part:
        return replace(part, name=_PREFIX + table.sent(part.name)) if isinstance(part, ToolCall) else part

    choice = request.tool_choice
    return replace(
        request,
        tools=tuple(replace(tool, name=_PREFIX + table.sent(tool.name)) for tool in tools),
        tool_choice=replace(choice, name=_PREFIX + table.sent(choice.name)) if choice.name else choice,
        messages=tuple(replace(m, parts=tuple(map(part, m.parts))) for m in request.messages),
    ), {_PREFIX + table.sent(tool.name): tool.name for tool in tools}


def _without_cli_fields(request: Request) -> Request:
    """Returns the request without fields that the CLI sets itself, or that it gets by other means."""
    return replace(
        request,
        dialect="" if request.dialect == MESSAGES else request.dialect,
        messages=tuple(map(_without_cache_marks, request.messages)),
        tools=tuple(replace(tool, extra=_without_cache_mark(tool.extra)) for tool in request.tools),
        stop=(),
        response_schema="",
        reasoning_effort="",
        max_tokens=request.max_tokens or 1,
        sampling=type(request.sampling)(),
        extra={},
    )


def _without_cache_marks(message: Message) -> Message:
    """Returns the message without cache marks: the CLI sets its own, and at most four are allowed."""
    return replace(
        message, parts=tuple(map(_part_without_cache_marks, message.parts)), extra=_without_cache_mark(message.extra)
    )


def _part_without_cache_marks(part: Part) -> Part:
    if isinstance(part, ToolResult):
        part = replace(part, parts=tuple(map(_part_without_cache_marks, part.parts)))
    if isinstance(part, UnknownPart) and CACHE_CONTROL.encode() in bytes(part.raw):
        fields = msgspec.json.decode(part.raw, type=dict[str, msgspec.Raw])
        return replace(part, raw=msgspec.Raw(msgspec.json.encode(_without_cache_mark(fields))))
    extra = getattr(part, "extra", {})
    return replace(part, extra=_without_cache_mark(extra)) if CACHE_CONTROL in extra else part


def _without_cache_mark(extra: Mapping[str, msgspec.Raw]) -> Mapping[str, msgspec.Raw]:
    return {name: raw for name, raw in extra.items() if name != CACHE_CONTROL} if CACHE_CONTROL in extra else extra


def _full_description(tool: _Tool) -> str:
    """Returns the complete description; with an API key, the CLI passes only the first paragraph of some on."""
    return "\n\n" + tool.description if "\n\n" in tool.description else tool.description


def _has_calls(request: Request) -> bool:
    return any(isinstance(part, ToolCall) for message in request.messages for part in message.parts)


def _system_text(system: str | list[dict[str, Any]]) -> str:
    return system if isinstance(system, str) else "\n\n".join(str(block.get("text", "")) for block in system)


def _guarded_turn(turn: ConversationTurn, guard: CommandGuard, *, keep: bool = False) -> ConversationTurn:
    """Returns the message in a form in which the CLI runs no command and reads no file.

    With `keep`, everything up to here is cached for the next request: the CLI's own mark follows a date that it
    inserts, which the next request does not repeat. The CLI sets three marks, of four that are allowed.
    """
    if turn.role == "assistant":
        return turn
    content = msgspec.json.decode(turn.content, type=str | list[msgspec.Raw])
    blocks: list[object] = [{"type": "text", "text": content}] if isinstance(content, str) else [*content]
    if keep and blocks:
        last = msgspec.json.decode(msgspec.json.encode(blocks[-1]), type=dict[str, msgspec.Raw])
        blocks[-1] = {**last, CACHE_CONTROL: {"type": "ephemeral"}}
    return ConversationTurn("user", msgspec.Raw(msgspec.json.encode(guard(blocks))))
