"""Requests of Parley, to values."""

from typing import Final

from dragoman.core.errors import RequestError
from dragoman.core.messages import Message, Part, Request, Role, Sampling, Text, Tool, ToolCall, ToolChoice, ToolResult
from dragoman.text.json_cursor import Cursor, Fields, at

_BY: Final[dict[str, Role]] = {"host": "system", "user": "user", "model": "assistant", "tools": "tool"}


def read_request(body: bytes | str) -> Request:
    """The request.

    Raises: RequestError: what is wrong with it, and where.
    """
    fields = at(body).fields()
    turns = fields.need("turns")
    if not turns.items():
        raise RequestError("expected at least one turn, got none", turns.path)
    model, tools = fields.need("model").word(), tuple(_tool(item.fields()) for item in fields.items("tools"))
    limit, warmth = fields.take("limit"), fields.take("warmth")
    return Request(
        model,
        tuple(_turn(turn.fields()) for turn in turns.items()),
        tools,
        _choice(fields.take("must"), tools),
        Sampling(temperature=None if warmth is None else warmth.number(0, 2)),
        max_tokens=None if limit is None else limit.integer(least=1),
        stop=tuple(item.word() for item in fields.items("until")),
        stream=fields.flag("stream"),
        extra=fields.rest(),
        dialect="parley",
    )


def _turn(fields: Fields) -> Message:
    role = _BY[fields.need("by").choice(_BY, "speaker")]
    parts: list[Part] = [Text(text)] if (text := fields.string("say")) else []
    parts += [_call(item.fields()) for item in fields.items("do")]
    parts += [_result(item.fields()) for item in fields.items("told")]
    return Message(role, tuple(parts), fields.rest())


def _call(fields: Fields) -> ToolCall:
    id, name = fields.need("id").word(), fields.need("tool").word()
    return ToolCall(id, name, fields.object("with") or "{}", fields.rest())


def _result(fields: Fields) -> ToolResult:
    id, text = fields.need("id").word(), fields.need("say").string()
    return ToolResult(id, (Text(text),), fields.flag("failed"), fields.rest())


def _tool(fields: Fields) -> Tool:
    name, about = fields.need("tool").word(), fields.string("about")
    return Tool(name, about, fields.object("with") or Tool(name).parameters, fields.rest())


def _choice(found: Cursor | None, tools: tuple[Tool, ...]) -> ToolChoice:
    """`say`: none may be called; `do`: one must; or a name."""
    if found is None:
        return ToolChoice()
    if found.string() == "say":
        return ToolChoice("none")
    if not tools:
        raise RequestError("expected tools to choose from, got none", found.path)
    if found.string() == "do":
        return ToolChoice("required")
    return ToolChoice("named", found.choice([tool.name for tool in tools], "tool"))
