"""A request to a server of Chat Completions behind.

What another API says in its own way becomes:

    results in a user's message    `tool` messages before it; their pictures and files go into the user's message behind
                                   all of them, as a `tool` message takes text only
    a failed result                "Error: " before its text
    thoughts                       `reasoning_content`, which open servers show the model again, or the field that this
                                   kind of server reads (catalog/servers.toml); signatures are left out
    a document of plain text       a text, its title on the first line
    words of refusal               `refusal`
    messages of the developer      of the system
    several of the system's        one, at the beginning; a later one a `<system-reminder>` in a user's message
    a message without content      nothing, also where this API has no place for all that it holds
    the beginning of the answer    the same message, and behind it one of the user's to go on from it, as only some
                                   servers do so by themselves
    messages of the model in a row one message
    a schema of the reply          `response_format` of type `json_schema`
    schemas                        as OpenAI takes them (schema/targets.py)
    effort                         `reasoning_effort`

Stop strings are looked for here, as this API does not tell which one ended a reply, and clients of others ask. The
limit goes as `max_tokens`, the one name that every open server knows. Text behind a call, or behind words of refusal,
moves before it, as a message has one content. Tools that a vendor runs are dropped with a warning, and refused where no
others are offered; unknown parts of the model's messages are dropped, all others become their JSON as text. Fields that
both of OpenAI's APIs have: wire/openai_fields.py. Refused by name: images by file id, documents by URL, audio by URL,
and files that another vendor keeps.

Source: https://platform.openai.com/docs/api-reference/chat/create (2026-11).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, assert_never

import msgspec

from dragoman.core.identifiers import ANY, NAME_FORM
from dragoman.core.messages import (
    Audio,
    Document,
    ExtraFields,
    Image,
    MediaSource,
    Message,
    Part,
    PreviousResponseRef,
    Reasoning,
    Refusal,
    Request,
    ResultPart,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from dragoman.dialects.openai_chat.request_reader import CUSTOM, FUNCTIONS, IN_FIELD, OUTER, is_custom
from dragoman.schema.targets import OPENAI, OPENAI_STRICT
from dragoman.text.json_member import string_member
from dragoman.wire.dialect import UpstreamRequest
from dragoman.wire.history import system_first
from dragoman.wire.openai_fields import in_chat
from dragoman.wire.translation import REDACTED, SIGNATURE, TranslationReport, told_as_error

NAME: Final = "openai_chat"
_ANY_OBJECT: Final = '{"type":"object"}'
_NOTHING: Final = {"content": ""}
"""What is left of a turn of which this API can say nothing."""


def write_request(request: Request, model: str) -> UpstreamRequest:
    """The body that asks this server for `model`, and warnings of what it cannot say.

    Raises: UnsupportedError: a part cannot be sent on; take another server, or leave it out.
    """
    ledger = TranslationReport(request, NAME)
    request = ledger.spelled(request, NAME_FORM, ANY)
    messages = _messages(request.messages, ledger)
    if not messages and not ledger.same:
        raise ledger.refused("a conversation in which nobody says anything", "$.messages")
    body: dict[str, object] = {
        "model": model,
        "messages": messages,
        **_tools(request, ledger),
    }
    body |= {name: value for name, value in msgspec.structs.asdict(request.sampling).items() if value is not None}
    if request.max_tokens is not None:
        asked = "max_completion_tokens" if ledger.same and "max_completion_tokens" in request.extra else "max_tokens"
        body[asked] = request.max_tokens
    watched = not ledger.native and ledger.watch(request.stop)
    if request.stop and not watched:
        body["stop"] = request.stop
    if request.response_schema:
        body["response_format"] = _response_format(request, ledger)
    if request.effort:
        body["reasoning_effort"] = request.effort
    if request.choices > 1:
        body["n"] = request.choices
    if request.stream or watched:
        body["stream"] = True
        body |= {"stream_options": {"include_usage": True}} if request.stream_usage or watched else {}
    own = (FUNCTIONS, "max_completion_tokens")
    shared, left = in_chat(request.extra) if request.dialect == "openai_responses" else ({}, request.extra)
    extra = {name: raw for name, raw in ledger.kept(left).items() if name not in own}
    return ledger.close({**body, **shared, **extra})


def _response_format(request: Request, ledger: TranslationReport) -> dict[str, object]:
    schema = request.response_schema
    if schema == _ANY_OBJECT:
        return {"type": "json_object"}
    named: dict[str, object] = {"name": request.response_name or "reply"}
    named |= {"description": request.response_description} if request.response_description else {}
    named |= {"strict": True} if ledger.strict_reply(request, OPENAI_STRICT) else {}
    return {"type": "json_schema", "json_schema": {**named, "schema": ledger.schema(schema, OPENAI, "the reply")}}


def _tools(request: Request, ledger: TranslationReport) -> dict[str, object]:
    tools = ledger.offered(request)
    choice = request.tool_choice
    kinds = {tool.name: CUSTOM if ledger.native and is_custom(tool) else tool.kind for tool in tools}
    if (choice.mode == "required" and not tools) or (choice.mode == "named" and choice.name not in kinds):
        raise ledger.refused("a choice of a tool that the vendor runs itself", "$.tool_choice")
    if not tools:
        return {}
    said: dict[str, object] = {"tools": [_tool(tool, ledger) for tool in tools]}
    if choice.mode == "named":
        kind = kinds[choice.name]
        said["tool_choice"] = {"type": kind, kind: {"name": choice.name}}
    elif choice.mode != "auto":
        said["tool_choice"] = choice.mode
    if not choice.parallel:
        said["parallel_tool_calls"] = False
    elif request.several and tools and ledger.same:
        # stated, as defaults differ: llama.cpp's was false, and depends on the template since 2026-04 (its pull 22217)
        said["parallel_tool_calls"] = True
    return said


def _tool(tool: Tool, ledger: TranslationReport) -> object:
    if tool.kind != "function":
        return tool.extra
    function: dict[str, object] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    inner, outer = _sides(tool.extra, ledger)
    if ledger.native and is_custom(tool):
        del inner["type"]
        return {"type": CUSTOM, CUSTOM: {**function, **inner}, **outer}
    parameters = ledger.schema(tool.parameters, OPENAI, tool.name)
    if ledger.strict(tool, OPENAI_STRICT):
        inner["strict"] = True
    return {"type": "function", "function": {**function, "parameters": parameters, **inner}, **outer}


def _messages(messages: Sequence[Message], ledger: TranslationReport) -> list[object]:
    said: list[object] = []
    shown: list[object] = []  # of results, until the last of those that belong together has been told
    for message in messages if ledger.same else _turns(ledger.going_on(system_first(messages))):
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        rest = [part for part in message.parts if not isinstance(part, ToolResult)]
        extra = ledger.kept(message.extra)
        if not (message.parts or ledger.same):
            continue
        for result in results:
            said.append({**_result(result, shown, ledger), **(extra if message.role == "tool" else {})})
        if message.role == "tool" or (results and not rest):
            continue
        if message.role == "user":
            said.append({"role": "user", "content": _content(rest, ledger, shown), **extra})
            shown = []
            continue
        said += [{"role": "user", "content": shown}] if shown else []
        shown = []
        if message.role == "assistant":
            words = _assistant(rest, ledger)
            said += [{"role": "assistant", **words, **extra}] if words != _NOTHING or ledger.same else []
        else:
            said.append({"role": message.role, "content": _content(rest, ledger), **extra})
    return [*said, {"role": "user", "content": shown}] if shown else said


def _turns(messages: Sequence[Message]) -> Iterator[Message]:
    """What the model said in a row as one message, as results must stand right behind the one with their calls."""
    for speaks, together in groupby(messages, lambda message: message.role == "assistant"):
        first, *rest = together
        if not speaks or not rest:
            yield from (first, *rest)
            continue
        parts = (part for message in (first, *rest) for part in message.parts)
        extra = {name: raw for message in (first, *rest) for name, raw in message.extra.items()}
        yield Message("assistant", tuple(parts), extra)


def _result(result: ToolResult, shown: list[object], ledger: TranslationReport) -> dict[str, object]:
    """The message; where it may not hold the result's pictures, they are added to `shown`."""
    ledger.kept(result.extra)
    told: Sequence[ResultPart] = result.parts
    if not ledger.same:
        told = [part for part in told if _is_text(part)]
        shown += [_block(part, ledger) for part in result.parts if not _is_text(part)]
        if len(told) < len(result.parts):
            ledger.changed("images", "images and files of results are in the user message after them")
            told = told or [Text("The result is in the user's next message.")]
    said = _content(told_as_error(told) if result.is_error else told, ledger)
    return {"role": "tool", "tool_call_id": result.call_id, "content": said}


def _is_text(part: Part) -> bool:
    return isinstance(part, Text) or (isinstance(part, Document) and bool(part.source.text))


def _assistant(parts: Iterable[Part], ledger: TranslationReport) -> dict[str, object]:
    thoughts, content, refusal, calls = "", list[Part](), "", list[object]()
    field = ledger.thoughts_as or "reasoning_content"
    for part in parts:
        match part:
            case Reasoning(text, signature, redacted, extra):
                thoughts += text
                if ledger.same and IN_FIELD in extra and not ledger.thoughts_as:
                    field = "reasoning"
                if signature or redacted:
                    ledger.lost(*SIGNATURE if signature else REDACTED)
                ledger.kept(extra)
            case Refusal(text, extra) if not extra or not ledger.same:
                refusal += text
            case ToolCall():
                calls.append(_call(part, ledger))
            case UnknownPart(path=path) if ".tool_calls[" in path:
                calls.append(ledger.raw(part))
            case _:
                if calls or refusal:
                    ledger.changed("content", f"text after {'a call' if calls else 'a refusal'} is before it")
                content.append(part)
    said: dict[str, object] = {"content": _content(content, ledger) if content or not (calls or refusal) else None}
    said |= {field: thoughts} if thoughts else {}
    said |= {"refusal": refusal} if refusal else {}
    return said | ({"tool_calls": calls} if calls else {})


def _call(call: ToolCall, ledger: TranslationReport) -> dict[str, object]:
    function = {"name": call.name, "arguments": call.arguments}
    inner, outer = _sides(call.extra, ledger)
    if inner.get("type") == msgspec.Raw(b'"custom"'):
        del inner["type"]
        custom = {"name": call.name, "input": string_member(call.arguments, "input"), **inner}
        return {"id": call.id, "type": "custom", "custom": custom, **outer}
    return {"id": call.id, "type": "function", "function": {**function, **inner}, **outer}


def _sides(extra: ExtraFields, ledger: TranslationReport) -> tuple[dict[str, object], dict[str, object]]:
    """The fields that stand in the object with a block's own, and those beside it."""
    inner: dict[str, object] = {}
    outer: dict[str, object] = {}
    for name, raw in ledger.kept(extra).items():
        (outer if name.startswith(OUTER) else inner)[name.removeprefix(OUTER)] = raw
    return inner, outer


def _content(parts: Sequence[Part], ledger: TranslationReport, more: Sequence[object] = ()) -> object:
    """A string where all is one text, else blocks: `more` first."""
    if not more and len(parts) <= 1 and all(isinstance(part, Text) for part in parts):
        only = [part for part in parts if isinstance(part, Text)]
        if not only or not ledger.kept(only[0].extra):
            return only[0].text if only else ""
    return [*more, *(_block(part, ledger) for part in parts)]


def _block(part: Part, ledger: TranslationReport) -> object:
    match part:
        case Text(text, extra):
            return {"type": "text", "text": text, **ledger.kept(extra)}
        case Image(source, extra):
            if source.file_id:
                raise ledger.refused("a picture by file id")
            inner, outer = _sides(extra, ledger)
            inner |= {} if ledger.same else ledger.detail(extra)
            return {"type": "image_url", "image_url": {"url": _url(source), **inner}, **outer}
        case Audio(source, extra):
            if not source.data and not ledger.same:
                raise ledger.refused("sound by URL")
            inner, outer = _sides(extra, ledger)
            said = {"data": source.data, "format": source.media_type.removeprefix("audio/")}
            return {"type": "input_audio", "input_audio": {**said, **inner}, **outer}
        case Document():
            return _document(part, ledger)
        case Refusal(text, extra):
            return {"type": "refusal", "refusal": text, **ledger.kept(extra)}
        case UnknownPart():
            return ledger.raw(part)
        case Reasoning() | ToolCall() | ToolResult() | PreviousResponseRef():
            raise ledger.refused_part(part)
        case _:
            assert_never(part)


def _document(part: Document, ledger: TranslationReport) -> dict[str, object]:
    source, (inner, outer) = part.source, _sides(part.extra, ledger)
    if source.text:
        return {"type": "text", "text": f"{part.title}\n{source.text}" if part.title else source.text}
    if source.url and not ledger.same:
        raise ledger.refused("a document by URL")
    title = part.title or ("" if ledger.same else "document")  # which the vendor wants with data
    said: dict[str, object] = {"filename": title} if title else {}
    if source.file_id:
        if not ledger.native:
            raise ledger.refused("a file that another vendor keeps")
        return {"type": "file", "file": {**said, "file_id": source.file_id, **inner}, **outer}
    data = _url(source) if source.media_type or source.url else source.data
    return {"type": "file", "file": {**said, "file_data": data, **inner}, **outer}


def _url(source: MediaSource) -> str:
    return source.url or f"data:{source.media_type};base64,{source.data}"
