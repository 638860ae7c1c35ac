"""Requests of Parley, to values."""

from typing import Final

from dragoman.core.errors import RequestError
from dragoman.core.messages import Message, Part, Request, Role, Sampling, Text, Tool, ToolCall, ToolChoice, ToolResult
from dragoman.text import json_cursor
from dragoman.text.json_cursor import Cursor, Fields

_BY: Final[dict[str, Role]] = {"host": "system", "user": "user", "model": "assistant", "tools": "tool"}


def read_request(body: bytes | str) -> Request:
    """The request.

    Raises: RequestError: what is wrong with it, and where.
    """
    fields = json_cursor.parse(body).fields()
    turns = fields.require("turns")
    if not turns.items():
        raise RequestError("expected at least one turn, got none", turns.path)
    model, tools = (
        fields.require("model").nonempty_string(),
        tuple(_tool(item.fields()) for item in fields.items("tools")),
    )
    limit, warmth = fields.pop("limit"), fields.pop("warmth")
    return Request(
        model,
        tuple(_turn(turn.fields()) for turn in turns.items()),
        tools,
        _choice(fields.pop("must"), tools),
        Sampling(temperature=None if warmth is None else warmth.number(0, 2)),
        max_tokens=None if limit is None else limit.integer(minimum=1),
        stop=tuple(item.nonempty_string() for item in fields.items("until")),
        stream=fields.flag("stream"),
        extra=fields.remaining(),
        dialect="parley",
    )


def _turn(fields: Fields) -> Message:
    role = _BY[fields.require("by").one_of(_BY, "speaker")]
    parts: list[Part] = [Text(text)] if (text := fields.string("say")) else []
    parts += [_call(item.fields()) for item in fields.items("do")]
    parts += [_result(item.fields()) for item in fields.items("told")]
    return Message(role, tuple(parts), fields.remaining())


def _call(fields: Fields) -> ToolCall:
    id, name = fields.require("id").nonempty_string(), fields.require("tool").nonempty_string()
    return ToolCall(id, name, fields.object("with") or "{}", fields.remaining())


def _result(fields: Fields) -> ToolResult:
    id, text = fields.require("id").nonempty_string(), fields.require("say").string()
    return ToolResult(id, (Text(text),), fields.flag("failed"), fields.remaining())


def _tool(fields: Fields) -> Tool:
    name, about = fields.require("tool").nonempty_string(), fields.string("about")
    return Tool(name, about, fields.object("with") or Tool(name).parameters, fields.remaining())


def _choice(choice: Cursor | None, tools: tuple[Tool, ...]) -> ToolChoice:
    """`say`: none may be called; `do`: one must; or a name."""
    if choice is None:
        return ToolChoice()
    if choice.string() == "say":
        return ToolChoice("none")
    if not tools:
        raise RequestError("expected tools to choose from, got none", choice.path)
    if choice.string() == "do":
        return ToolChoice("required")
    return ToolChoice("named", choice.one_of([tool.name for tool in tools], "tool"))
