"""MCP servers that requests of Responses declare: their tools, calls and approvals.

    tools      {"type": "mcp", "server_label": "books", "server_url": "https://…", "require_approval": "never"}
    response   {"type": "mcp_list_tools", "server_label": "books", "tools": […]}
               {"type": "mcp_call", "server_label": "books", "name": "add", "arguments": "{…}", "output": "…"}
               {"type": "mcp_approval_request", …}   answered by {"type": "mcp_approval_response", "approve": true}

Source: https://developers.openai.com/api/docs/guides/tools-connectors-mcp, types of openai 3.57 (2026-11).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Raw

from dragoman.core.events import AnyEvent, VendorBlock, VendorBlockStart
from dragoman.core.messages import Message, ToolCall, UnknownPart
from dragoman.dialects.openai_responses.request_reader import NAME
from dragoman.text.json_cursor import Cursor, Fields
from dragoman.vendor_tools.codec import TurnBuilder, encode
from dragoman.vendor_tools.remote import ApprovedCall, RemoteServer, RemoteToolFilter, function_name
from dragoman.vendor_tools.tool import ToolRunResult, VendorToolCall

LIST: Final = "mcp_list_tools"
CALL: Final = "mcp_call"
ASK: Final = "mcp_approval_request"
ANSWER: Final = "mcp_approval_response"
ITEMS: Final = frozenset({LIST, CALL, ASK})
"""Items of the model's side."""
_NOT_ANSWERED: Final = "The user has not approved this call yet."
_REFUSED: Final = "The user refused this call. Do not repeat it."
_NO_RESULT: Final = "The call was approved, but its tool is not available any more."


def read_server(label: str, options: Fields, path: str) -> RemoteServer:
    """Returns a declared server.

    Args:
        label: Its name.
        options: The fields of the declaration.
        path: Its position in the client's JSON.

    Raises:
        RequestError: A field is wrong.
    """
    connector = next((f"{path}.{name}" for name in ("connector_id", "tunnel_id") if options.string(name)), "")
    headers = {}
    declared = options.pop("headers")
    if declared is not None and declared.kind == "object":
        fields = declared.fields()
        headers = {name: fields.string(name) for name in tuple(fields.remaining())}
    if token := options.string("authorization"):
        headers["Authorization"] = f"Bearer {token}"
    approval = options.pop("require_approval")
    always = never = None
    needs = approval is None or approval.kind == "null"
    if approval is not None and approval.kind == "string":
        needs = approval.one_of(("always", "never"), "approval") == "always"
    elif approval is not None and approval.kind == "object":
        inner = approval.fields()
        always, never = _filter(inner.pop("always")), _filter(inner.pop("never"))
        needs = always is None
    return RemoteServer(
        label,
        options.string("server_url"),
        f"{path}.server_url",
        headers,
        _filter(options.pop("allowed_tools")) or RemoteToolFilter(),
        needs_approval=needs,
        always=always,
        never=never,
        connector=connector,
    )


def _filter(value: Cursor | None) -> RemoteToolFilter | None:
    if value is None or value.kind == "null":
        return None
    if value.kind == "array":
        return RemoteToolFilter(tuple(item.string() for item in value.items()))
    fields = value.fields()
    names = fields.pop("tool_names")
    read_only = fields.pop("read_only")
    return RemoteToolFilter(
        tuple(item.string() for item in names.items()) if names is not None and names.kind == "array" else None,
        read_only.text == "true" if read_only is not None and read_only.kind != "null" else None,
    )


def begin(call: VendorToolCall) -> list[AnyEvent]:
    """Returns the events of a call, or of a list of tools, that begins."""
    if call.tool.remote is None:
        return [VendorBlockStart(NAME, LIST, encode(_list(call, None)), ("in_progress",))]
    item = {**_call(call, None), "arguments": ""}
    return [VendorBlockStart(NAME, CALL, encode(item), ("in_progress",), call.arguments)]


def finish(call: VendorToolCall, result: ToolRunResult) -> list[AnyEvent]:
    """Returns the events of its result."""
    kind = LIST if call.tool.remote is None else CALL
    item = _list(call, result) if call.tool.remote is None else _call(call, result)
    return [VendorBlock(NAME, kind, encode(item), ("completed",) if result.error is None else ("failed",))]


def ask_approval(call: VendorToolCall) -> list[AnyEvent]:
    """Returns the events that ask the client whether the call may be run."""
    item = {"type": ASK, "id": f"mcpr_{call.id}", **_called(call)}
    return [VendorBlock(NAME, ASK, encode(item))]


def _called(call: VendorToolCall) -> dict[str, object]:
    assert call.tool.server is not None
    assert call.tool.remote is not None
    return {"server_label": call.tool.server.label, "name": call.tool.remote.name, "arguments": call.arguments}


def _call(call: VendorToolCall, result: ToolRunResult | None) -> dict[str, object]:
    state: dict[str, object] = {"status": "in_progress", "output": None, "error": None}
    if result is not None and result.error is None:
        state |= {"status": "completed", "output": result.text}
    elif result is not None:
        content = [{"type": "text", "text": result.text}]
        state |= {"status": "failed", "error": {"type": "mcp_tool_execution_error", "content": content}}
    approval = call.approval_id or None
    return {"type": CALL, "id": f"mcp_{call.id}", **_called(call), **state, "approval_request_id": approval}


def _list(call: VendorToolCall, result: ToolRunResult | None) -> dict[str, object]:
    tools = [
        {
            "name": tool.name,
            "description": tool.description or None,
            "input_schema": Raw(tool.parameters.encode()),
            "annotations": Raw(tool.annotations.encode()) if tool.annotations else None,
        }
        for tool in (result.listed if result else ())
    ]
    problem = {"error": result.text} if result is not None and result.error is not None else {}
    return {"type": LIST, "id": f"mcpl_{call.id}", "server_label": call.tool.name, "tools": tools, **problem}


class Approvals(NamedTuple):
    """The approvals in a conversation, by the id of their request."""

    answers: Mapping[str, tuple[bool, str]]
    """Whether the call may be run, and why not."""
    run: frozenset[str]
    """Requests whose call was run."""


def _items(messages: Sequence[Message], *types: str) -> Iterator[Fields]:
    for message in messages:
        for part in message.parts:
            if isinstance(part, UnknownPart) and part.type in types:
                yield Cursor(part.raw, part.path).fields()


def read_approvals(messages: Sequence[Message]) -> Approvals:
    """Returns the approvals in a conversation."""
    answers = {}
    for fields in _items(messages, ANSWER):
        approved = fields.flag("approve", default=False)
        answers[fields.string("approval_request_id")] = (approved, fields.string("reason"))
    run = frozenset(filter(None, (fields.string("approval_request_id") for fields in _items(messages, CALL))))
    return Approvals(answers, run)


def approved(messages: Sequence[Message]) -> tuple[ApprovedCall, ...]:
    """Returns the calls that the client approves in its last turn: an older approval no longer counts."""
    last = max((n for n, message in enumerate(messages) if message.role == "assistant"), default=-1)
    answers, run = read_approvals(messages[last + 1 :]).answers, read_approvals(messages).run
    return tuple(
        ApprovedCall(id, function_name(fields.string("server_label"), fields.string("name")), _arguments(fields))
        for fields in _items(messages, ASK)
        if (id := fields.string("id")) not in run and answers.get(id, (False, ""))[0]
    )


def listed(messages: Sequence[Message]) -> tuple[str, ...]:
    """Returns the labels of the servers whose tools the client has got already."""
    return tuple(fields.string("server_label") for fields in _items(messages, LIST))


def add_item(turn: TurnBuilder, part: UnknownPart, approvals: Approvals, default_id: str) -> None:
    """Adds an item of a past response as a call with its result.

    Args:
        turn: Receives them.
        part: The item.
        approvals: All approvals in the conversation.
        default_id: The id of the call if the item has none.
    """
    fields = Cursor(part.raw, part.path).fields()
    id = fields.string("id") or default_id
    if part.type == LIST or (part.type == ASK and id in approvals.run):
        return
    name = function_name(fields.string("server_label"), fields.string("name"))
    turn.add(ToolCall(id, name, _arguments(fields)))
    if part.type == CALL:
        text = fields.string("output")
        error = fields.pop("error")
        is_error = error is not None and error.kind != "null"
        turn.add_result(id, _error_text(error) if error is not None and is_error else text, is_error=is_error)
        return
    answer = approvals.answers.get(id)
    refused = f"{_REFUSED} {answer[1]}".rstrip() if answer is not None and not answer[0] else ""
    turn.add_result(id, refused or (_NO_RESULT if answer else _NOT_ANSWERED), is_error=True)


def _error_text(error: Cursor) -> str:
    """Returns what the model reads of an error."""
    if error.kind != "object":
        return error.text
    fields = error.fields()
    content = fields.pop("content")
    if content is None or content.kind != "array":
        return fields.string("message") or "The call failed."
    return "\n".join(item.fields().string("text") for item in content.items() if item.kind == "object")


def _arguments(fields: Fields) -> str:
    """Returns the arguments of a call, which must be an object."""
    text = fields.string("arguments")
    try:
        return text if isinstance(json.loads(text), dict) else "{}"
    except ValueError:
        return "{}"
