"""The library's front door: formats by name, tools in the shape that you have, ids made for you.

    reader = ToolCallReader("hermes", tools)                     reply = parse(text, "hermes", tools)
    for piece in pieces:                                         for part in reply.parts: ...
        for event in reader.feed(piece): ...
    for event in reader.close(): ...

All of it is importable from `dragoman` itself. What it is made of asks for ids and formats to be passed in.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import msgspec

from dragoman import dialects, formats
from dragoman.constraints import reply_schema as core_json_schema
from dragoman.constraints.constraint import Constraint
from dragoman.core.collect import Collector
from dragoman.core.errors import RequestError, UsageError, one_of
from dragoman.core.events import Finish, Start
from dragoman.core.identifiers import NewId, random_id
from dragoman.core.messages import JsonText, Reply, Request, Tool, ToolCall, ToolChoice
from dragoman.parsing.format import Format
from dragoman.parsing.reply_reader import Delivery, ReplyReader, refused
from dragoman.parsing.trace import Span, Tracer, with_names, with_other_readings
from dragoman.prompting.chat_renderer import as_chat
from dragoman.text.json_cursor import Cursor, at

if TYPE_CHECKING:
    from dragoman.guard.check_call import CheckedCall

AnyTool: TypeAlias = Tool | Mapping[str, Any]
"""A tool as a value, or as one of the APIs has it."""
_SHAPES: Final = '{"type": "function", "function": {"name": …, "parameters": …}} or {"name": …, "input_schema": …}'


class ToolCallReader(ReplyReader):
    """Reads one reply of a model, piece by piece, into events.

    `format` is the name of how the model writes calls, as `dragoman formats` lists it.
    `tools` are those offered: a call of any other name stays text, with a warning. None: any name is taken.
    `prompt_tail` is what the prompt has already opened of the reply, such as `<think>`.
    `lenient` also takes calls that lack the format's tags, where they name an offered tool.
    `delivery` "atomic" passes a call on only when it is whole, and one that never is not at all.
    `new_id` gives the ids of calls, `[A-Za-z0-9]{24}`; random ones if there is none.
    `control` are the texts of the model's control tokens, for an engine that tells `feed` what is `plain`.

    Raises: ConfigError: unknown format. RequestError: a tool is not as any API has it; the message says where.
    """

    def __init__(
        self,
        format: str | Format,
        tools: Iterable[AnyTool] | None = None,
        *,
        prompt_tail: str = "",
        lenient: bool = False,
        delivery: Delivery = "stream",
        new_id: NewId | None = None,
        control: Iterable[str] = (),
    ) -> None:
        found = as_format(format)
        offered = None if tools is None else as_tools(tools)
        super().__init__(
            found,
            offered,
            new_id=new_id or random_id,
            prompt_tail=prompt_tail,
            lenient=lenient,
            delivery=delivery,
            control=control,
        )


def parse(
    text: str,
    format: str | Format,
    tools: Iterable[AnyTool] | None = None,
    *,
    finish_reason: Literal["stop", "length"] = "stop",
    prompt_tail: str = "",
    lenient: bool = False,
    new_id: NewId | None = None,
) -> Reply:
    """The whole reply that a model's text is: texts, thoughts and calls in order; see `ToolCallReader`.

    `finish_reason` is "length" where a limit cut the text off, and so is the reply's own then. A call that is not whole
    is in the reply as text.
    """
    reader = ToolCallReader(format, tools, prompt_tail=prompt_tail, lenient=lenient, new_id=new_id)
    collector = Collector(late_ids=True)
    for event in [Start("", "", 0), *reader.feed(text), *reader.close(finish_reason), Finish(finish_reason)]:
        collector.send(event)
    return collector.reply()


def validate_call(call: ToolCall, tools: Iterable[AnyTool], *, leave: Collection[str] = ()) -> "CheckedCall":
    """The call as it may be run, checked against its tool's JSON Schema and mended where it is plain what was meant.

    `leave`: steps of mending that are not taken, by the names of docs/guard.md.

    Raises: ConfigError: the guard extra is not installed; the message has the line to type. RequestError: a tool is
    not as any API has it.
    """
    from dragoman.guard.check_call import check_call

    return check_call(call, as_tools(tools), leave)


def explain(
    text: str,
    format: str | Format,
    tools: Iterable[AnyTool] | None = None,
    *,
    finish_reason: Literal["stop", "length"] = "stop",
    prompt_tail: str = "",
    lenient: bool = False,
    new_id: NewId | None = None,
) -> tuple[Span, ...]:
    """What became of each piece of a model's text, and why: spans that lie end to end; arguments as `parse` has them.

    Where there is no call in it, but another format (or lenient reading) finds one, a remark says which and where.
    """
    if not isinstance(text, str):
        raise refused(text)
    offered = None if tools is None else as_tools(tools)
    read = partial(_trace, text, offered, finish_reason=finish_reason, prompt_tail=prompt_tail, new_id=new_id)
    spans = read(format, lenient=lenient)
    if any(span.index is not None for span in spans):
        return spans
    others = {f"format {name!r}": read(name, lenient=lenient) for name in formats.names()}
    if offered and not lenient:
        others = {"lenient reading": read(format, lenient=True)} | others
    spans = with_other_readings(spans, others)
    return spans if any(span.remarks for span in spans) else with_names(spans, [tool.name for tool in offered or ()])


def _trace(
    text: str,
    tools: tuple[Tool, ...] | None,
    format: str | Format,
    *,
    finish_reason: Literal["stop", "length"],
    prompt_tail: str,
    lenient: bool,
    new_id: NewId | None,
) -> tuple[Span, ...]:
    found = as_format(format)
    tracer = Tracer(text, found, prompt_tail, [tool.name for tool in tools or ()])
    reader = ToolCallReader(tracer.format, tools, prompt_tail=prompt_tail, lenient=lenient, new_id=new_id)
    return tracer.spans([*reader.feed(text), *reader.close(finish_reason)])


def render_messages(
    request: Request | Mapping[str, Any] | bytes, format: str | Format, *, api: str = "openai_chat"
) -> list[dict[str, str]]:
    """A request as plain messages, `{"role": "system" | "user" | "assistant", "content": …}`, for chat templates.

    For a model or server that knows nothing of tools: the tools and how to call them stand at the end of the system
    message, past calls and their results in the format's own shape, and markup in what the model did not write is made
    harmless. The same conversation, gone on with, begins with the same bytes, but for thoughts, which are shown while
    the model works on what the user said last.

    `request` is the body of a request to this `api` (`dragoman.dialects.names()`), or its value, of which messages,
    tools and tool choice are enough; or what a dialect has read of one.

    Raises: ConfigError: unknown format or API. RequestError: the request is not as the API has it; the message says
    where. UsageError: it is none.
    """
    turns = as_chat(as_request(request, api), as_format(format))
    return [{"role": turn.role, "content": turn.text} for turn in turns]


def as_request(request: Request | Mapping[str, Any] | bytes, api: str) -> Request:
    """A request of this API as a value, whichever form it has.

    Raises: ConfigError: unknown API. RequestError: the request is not as the API has it. UsageError: it is none.
    """
    if isinstance(request, Request):
        return request
    body = request if isinstance(request, bytes) else _body(request)
    try:
        return dialects.get(api).read_request(body)
    except RequestError as e:
        raise _hinted(e, f"; with api={api!r} tools are as that API has them") from None


def _body(request: object) -> bytes:
    if not isinstance(request, Mapping):
        raise UsageError(f"expected a request's body, got {type(request).__name__} - at request")
    try:
        return msgspec.json.encode({"model": "-", "max_tokens": 1, **request})
    except TypeError as e:
        raise UsageError(f"expected a request as an API's JSON has it: {e} - at request") from None


def build_constraint(format: str | Format, tools: Iterable[AnyTool], choice: ToolChoice) -> Constraint | None:
    """What to hold a model to, so that it calls these tools, as the format has it and with arguments that fit.

    None where nothing is to be held (no tools, choice "none"), or nothing can be: a free choice where calls begin
    as prose may, or a format that is for reading only. `to_structural_tag` and `to_gbnf` write it for an engine.

    Raises: ConfigError: unknown format. RequestError, UsageError: as `ToolCallReader` does, or the choice is none
    that these tools leave.
    """
    offered = as_tools(tools)
    return as_format(format).constrain(offered, _chosen(choice, offered))


def to_json_schema(tools: Iterable[AnyTool], choice: ToolChoice) -> JsonText | None:
    """One JSON Schema of a whole reply that calls these tools, for servers that take nothing else, such as LM Studio.

    The reply is `{"tool_calls": [{"name": …, "arguments": …}]}`; `parse(reply, "xlam", tools)` gives the calls.
    None where nothing is to be held: no tools, or choice "auto" or "none", as a schema cannot say that the reply may
    be text.

    Raises: RequestError, UsageError: as `build_constraint` does.
    """
    offered = as_tools(tools)
    return core_json_schema.json_schema(offered, _chosen(choice, offered))


def _chosen(choice: object, tools: Sequence[Tool]) -> ToolChoice:
    if not isinstance(choice, ToolChoice):
        raise UsageError(f"expected a ToolChoice such as ToolChoice('auto'), got {type(choice).__name__} - at choice")
    if choice.mode not in (modes := get_args(ToolChoice.__annotations__["mode"])):
        raise UsageError(f"unknown mode {choice.mode!r}{one_of(str(choice.mode), modes, 'expected ')} - at choice.mode")
    if choice.mode == "named" and choice.name not in (names := [tool.name for tool in tools]):
        raise UsageError(f"unknown tool {choice.name!r}{one_of(choice.name, names, 'offered: ')} - at choice.name")
    return choice


def as_format(format: str | Format) -> Format:
    """A format by its name, or as it is.

    Raises: ConfigError: unknown format. UsageError: this is none.
    """
    found: object = formats.get(format) if isinstance(format, str) else format
    if not isinstance(found, Format):
        hint = "; take its `format`" if isinstance(getattr(found, "format", None), Format) else ""
        raise UsageError(f"expected a format or its name, got {type(found).__name__}{hint} - at format")
    return found


def as_tools(tools: Iterable[AnyTool]) -> tuple[Tool, ...]:
    """Tools as values, whichever shape they have.

    Raises: RequestError: what is wrong with a tool, and where. UsageError: this is no list of tools.
    """
    if isinstance(tools, Mapping | str | bytes) or not isinstance(tools, Iterable):
        raise UsageError(f"expected a list of tools, got {type(tools).__name__} - at tools")
    given = list(tools)
    for i, tool in enumerate(given):
        for field in ("name", "description", "parameters"):
            if isinstance(tool, Tool) and not isinstance(value := getattr(tool, field), str):
                hint = "; write it with json.dumps" if field == "parameters" else ""
                raise UsageError(f"expected str, got {type(value).__name__}{hint} - at tools[{i}].{field}")
    try:
        body = msgspec.json.encode([tool for tool in given if not isinstance(tool, Tool)])
    except TypeError as e:
        raise UsageError(f"expected tools as an API's JSON has them: {e} - at tools") from None
    read = iter(read_tools(body))
    return tuple(tool if isinstance(tool, Tool) else next(read) for tool in given)


def read_tools(body: bytes) -> tuple[Tool, ...]:
    """The tools of a JSON text, in any API's shape: a list of them, an object with `tools`, or one.

    Raises: RequestError: what is wrong, and where.
    """
    listed, seen, meant = _listed(body)
    anthropic = any("input_schema" in tool.fields().rest() for tool in listed)
    flat = any(tool.fields().rest().keys() >= {"type", "name", "parameters"} for tool in listed)
    dialect = dialects.get("anthropic_messages" if anthropic else "openai_responses" if flat else "openai_chat")
    request = dialect.forms["tool"].request.replace("$", f"[{','.join(tool.text for tool in listed)}]", 1)
    try:
        return dialect.read_request(request.encode()).tools
    except RequestError as e:
        raise _hinted(e, f"; a tool is {_SHAPES}", seen, meant) from None


def _hinted(error: RequestError, hint: str, seen: str = "", meant: str = "") -> RequestError:
    """The error, with the hint where a whole tool is of another shape; its path as the caller sees it."""
    hint = hint if re.fullmatch(r"\$\.tools\[\d+\]", error.path) else ""
    return type(error)(str(error).removesuffix(f" - at {error.path}") + hint, error.path.replace(seen, meant, 1))


def _listed(body: bytes) -> tuple[list[Cursor], str, str]:
    """The tools, where a dialect sees them, and where they are in the text."""
    whole = at(body)
    if whole.kind != "object":
        return whole.items(), "$.tools", "$"
    if wrapped := whole.fields().take("tools"):
        return wrapped.items(), "$.tools", "$.tools"
    return [whole], "$.tools[0]", "$"
