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
from dragoman.core.identifiers import ANY, NAME_FORM
from dragoman.core.messages import Message, Part, Reasoning, Refusal, Request, Text, Tool, ToolCall, ToolResult
from dragoman.schema.targets import OPENAI
from dragoman.text.json_cursor import at
from dragoman.wire.dialect import UpstreamRequest
from dragoman.wire.translation import TranslationReport

NAME: Final = "parley"
_BY: Final = {"system": "host", "developer": "host", "user": "user", "assistant": "model", "tool": "tools"}
_MUST: Final = {"none": "say", "required": "do"}


def write_request(request: Request, model: str) -> UpstreamRequest:
    """The body that asks this server for `model`, and warnings of what it cannot say.

    Raises: UnsupportedError: a part cannot be sent on.
    """
    ledger = TranslationReport(request, NAME)
    request = ledger.spelled(request, NAME_FORM, ANY)
    turns = [turn for message in request.messages for turn in _turns(message, ledger)]
    body: dict[str, object] = {"model": model, "turns": turns}
    if tools := [_tool(tool, ledger) for tool in request.tools if tool.kind == "function"]:
        body["tools"] = tools
    for tool in request.tools:
        if tool.kind != "function":
            ledger.lost(f"tool {tool.kind}")
    choice = request.tool_choice
    if choice.mode != "auto":
        body["must"] = choice.name or _MUST[choice.mode]
    if not choice.parallel:
        ledger.lost("one call at most")
    if request.response_schema:
        ledger.lost("the reply's schema")
    for name, value in (("limit", request.max_tokens), ("warmth", request.sampling.temperature)):
        body |= {} if value is None else {name: value}
    if request.stop:
        body["until"] = request.stop
    if request.stream:
        body["stream"] = True
    return ledger.close({**body, **ledger.kept(request.extra)})


def _turns(message: Message, ledger: TranslationReport) -> list[object]:
    """One turn, and before it one with the results that the message holds."""
    told = [_result(part, ledger) for part in message.parts if isinstance(part, ToolResult)]
    rest = [part for part in message.parts if not isinstance(part, ToolResult)]
    extra = ledger.kept(message.extra)
    turns: list[object] = [{"by": "tools", "told": told}] if told else []
    if not rest and (told or not ledger.same):
        return turns
    words = "".join(_words(part, ledger) for part in rest)
    turn: dict[str, object] = {"by": _BY[message.role], **({"say": words} if words else {})}
    if calls := [_call(part, ledger) for part in rest if isinstance(part, ToolCall)]:
        turn["do"] = calls
    return [*turns, {**turn, **extra}]


def _words(part: Part, ledger: TranslationReport) -> str:
    match part:
        case Text(text, extra) | Refusal(text, extra):
            ledger.kept(extra)
            return text
        case Reasoning():
            ledger.lost("thoughts")
            return ""
        case ToolCall():
            return ""
        case _:
            raise ledger.refused(f"a {type(part).__name__}")


def _call(call: ToolCall, ledger: TranslationReport) -> dict[str, object]:
    try:
        given = at(call.arguments).object()
    except RequestError:  # it was cut off, back then
        given = "{}"
        ledger.changed("arguments that are no object are an empty one")
    raw = msgspec.Raw(given.encode())
    return {"id": call.id, "tool": call.name, "with": raw, **ledger.kept(call.extra)}


def _result(result: ToolResult, ledger: TranslationReport) -> dict[str, object]:
    said = "\n".join(_words(part, ledger) for part in result.parts)
    failed = {"failed": True} if result.is_error else {}
    return {"id": result.call_id, "say": said, **failed, **ledger.kept(result.extra)}


def _tool(tool: Tool, ledger: TranslationReport) -> dict[str, object]:
    about = {"about": tool.description} if tool.description else {}
    schema = ledger.schema(tool.parameters, OPENAI, tool.name)
    return {"tool": tool.name, **about, "with": schema, **ledger.kept(tool.extra)}
