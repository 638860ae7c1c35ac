"""A request to a server of Parley behind.

What another API says in its own way becomes:

    messages of the developer     of the host
    thoughts                      nothing, with a warning
    a failed result               `"failed": true`
    pictures, sound, files        refused by name
"""

from typing import Final

import msgspec

from dragoman.core.errors import RequestError
from dragoman.core.identifiers import ANY_STRING, NAME_FORM
from dragoman.core.messages import Message, Part, Reasoning, Refusal, Request, Text, Tool, ToolCall, ToolResult
from dragoman.schema.targets import OPENAI
from dragoman.text import json_cursor
from dragoman.wire.dialect import UpstreamRequest
from dragoman.wire.translation import TranslationReport

NAME: Final = "parley"
_BY: Final = {"system": "host", "developer": "host", "user": "user", "assistant": "model", "tool": "tools"}
_MUST: Final = {"none": "say", "required": "do"}


def write_request(request: Request, model: str) -> UpstreamRequest:
    """The body that asks this server for `model`, and warnings of what it cannot say.

    Raises: UnsupportedError: a part cannot be sent on.
    """
    report = TranslationReport(request, NAME)
    request = report.rename(request, NAME_FORM, ANY_STRING)
    turns = [turn for message in request.messages for turn in _turns(message, report)]
    body: dict[str, object] = {"model": model, "turns": turns}
    if tools := [_tool(tool, report) for tool in request.tools if tool.kind == "function"]:
        body["tools"] = tools
    for tool in request.tools:
        if tool.kind != "function":
            report.dropped(f"tool {tool.kind}")
    choice = request.tool_choice
    if choice.mode != "auto":
        body["must"] = choice.name or _MUST[choice.mode]
    if not choice.parallel_tool_calls:
        report.dropped("one call at most")
    if request.response_schema:
        report.dropped("the reply's schema")
    for name, value in (("limit", request.max_tokens), ("warmth", request.sampling.temperature)):
        body |= {} if value is None else {name: value}
    if request.stop:
        body["until"] = request.stop
    if request.stream:
        body["stream"] = True
    return report.close({**body, **report.native_fields(request.extra)})


def _turns(message: Message, report: TranslationReport) -> list[object]:
    """One turn, and before it one with the results that the message holds."""
    told = [_result(part, report) for part in message.parts if isinstance(part, ToolResult)]
    rest = [part for part in message.parts if not isinstance(part, ToolResult)]
    extra = report.native_fields(message.extra)
    turns: list[object] = [{"by": "tools", "told": told}] if told else []
    if not rest and (told or not report.is_same_api):
        return turns
    words = "".join(_words(part, report) for part in rest)
    turn: dict[str, object] = {"by": _BY[message.role], **({"say": words} if words else {})}
    if calls := [_call(part, report) for part in rest if isinstance(part, ToolCall)]:
        turn["do"] = calls
    return [*turns, {**turn, **extra}]


def _words(part: Part, report: TranslationReport) -> str:
    match part:
        case Text(text, extra) | Refusal(text, extra):
            report.native_fields(extra)
            return text
        case Reasoning():
            report.dropped("thoughts")
            return ""
        case ToolCall():
            return ""
        case _:
            raise report.unsendable(f"a {type(part).__name__}")


def _call(call: ToolCall, report: TranslationReport) -> dict[str, object]:
    try:
        arguments = json_cursor.parse(call.arguments).object()
    except RequestError:  # it was cut off, back then
        arguments = "{}"
        report.adapted("arguments", "arguments that are no object are an empty one")
    raw = msgspec.Raw(arguments.encode())
    return {"id": call.id, "tool": call.name, "with": raw, **report.native_fields(call.extra)}


def _result(result: ToolResult, report: TranslationReport) -> dict[str, object]:
    said = "\n".join(_words(part, report) for part in result.parts)
    failed = {"failed": True} if result.is_error else {}
    return {"id": result.call_id, "say": said, **failed, **report.native_fields(result.extra)}


def _tool(tool: Tool, report: TranslationReport) -> dict[str, object]:
    about = {"about": tool.description} if tool.description else {}
    schema = report.adapted_schema(tool.parameters, OPENAI, tool.name)
    return {"tool": tool.name, **about, "with": schema, **report.native_fields(tool.extra)}
