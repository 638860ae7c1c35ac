"""Writes a request to an upstream server of Chat Completions.

Content of other APIs is converted as follows:

    results in a user message      `tool` messages before it; their images and files move to a user message after all
                                   of them, because a `tool` message accepts text only
    a failed result                "Error: " before its text
    reasoning                      `reasoning_content`, which open-weight servers show to the model, or the field that
                                   this server type reads (catalog/servers.toml); signatures are dropped
    a document of plain text       a text, its title on the first line
    refusal text                   `refusal`
    developer messages             system messages
    several system messages        one, at the beginning; a later one a `<system-reminder>` in a user message
    a message without content      nothing, also if this API cannot represent its content
    prefill (partial response)     the same message, then a user message to continue it, because only some servers
                                   continue it themselves
    consecutive assistant messages one message
    a response schema              `response_format` of type `json_schema`
    schemas                        as OpenAI accepts them (schema/targets.py)
    effort                         `reasoning_effort`

The gateway searches for stop strings, because this API does not report which one ended a reply, and clients of other
APIs need that. The limit is sent as `max_tokens`, the one name that every open server knows. Text after a call, or
after a refusal, moves before it, because a message has one content. Tools that a vendor runs are dropped with a
warning, and rejected if there are no others. Unknown parts of assistant messages are dropped; all others become their
JSON as text. Fields in both of OpenAI's APIs: wire/openai_fields.py. Rejected by name: images by file id, documents by
URL, audio by URL, and files stored by another vendor.

Source: https://platform.openai.com/docs/api-reference/chat/create (2026-11).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Final, assert_never

import msgspec

from dragoman.core.identifiers import ANY_STRING, NAME_FORM
from dragoman.core.messages import (
    ANY_OBJECT,
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
    Sampling,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from dragoman.dialects.openai_chat.request_reader import CUSTOM, FUNCTIONS, IN_FIELD, OUTER
from dragoman.schema.targets import OPENAI, OPENAI_STRICT
from dragoman.text.json_member import read_string_member
from dragoman.wire.dialect import UpstreamRequest
from dragoman.wire.history import hoist_system_messages
from dragoman.wire.openai_fields import is_custom, to_chat_fields
from dragoman.wire.translation import REDACTED, SIGNATURE, TranslationReport, prefix_error

NAME: Final = "openai_chat"
_NO_SAMPLING: Final = Sampling()
_NOTHING: Final = {"content": ""}
"""A placeholder for a turn that this API cannot represent."""


def write_request(request: Request, model: str) -> UpstreamRequest:
    """Returns the body of a request for `model`, with notices of what the API cannot represent.

    Raises:
        UnsupportedError: A part cannot be sent; use another server, or omit it.
    """
    report = TranslationReport(request, NAME)
    request = report.rename(request, NAME_FORM, ANY_STRING)
    messages = _messages(request.messages, report)
    if not messages and not report.is_same_api:
        raise report.unsendable("a conversation without messages", "$.messages")
    body: dict[str, object] = {
        "model": model,
        "messages": messages,
        **_tools(request, report),
    }
    if request.sampling != _NO_SAMPLING:
        body |= {name: value for name, value in msgspec.structs.asdict(request.sampling).items() if value is not None}
    if request.max_tokens is not None:
        outgoing = (
            "max_completion_tokens" if report.is_same_api and "max_completion_tokens" in request.extra else "max_tokens"
        )
        body[outgoing] = request.max_tokens
    stops_locally = not report.is_native and report.stop_locally(request.stop)
    if request.stop and not stops_locally:
        body["stop"] = request.stop
    if request.response_schema:
        body["response_format"] = _response_format(request, report)
    if request.reasoning_effort:
        body["reasoning_effort"] = request.reasoning_effort
    if request.choices > 1:
        body["n"] = request.choices
    if request.stream or stops_locally:
        body["stream"] = True
        body |= {"stream_options": {"include_usage": True}} if request.stream_usage or stops_locally else {}
    own = (FUNCTIONS, "max_completion_tokens")
    if request.extra:
        shared, left = to_chat_fields(request.extra) if request.dialect == "openai_responses" else ({}, request.extra)
        body |= shared
        body |= {name: raw for name, raw in report.native_fields(left).items() if name not in own}
    return report.close(body)


def _response_format(request: Request, report: TranslationReport) -> dict[str, object]:
    schema = request.response_schema
    if schema == ANY_OBJECT:
        return {"type": "json_object"}
    named: dict[str, object] = {"name": request.response_name or "reply"}
    named |= {"description": request.response_description} if request.response_description else {}
    named |= {"strict": True} if report.is_strict_reply(request, OPENAI_STRICT) else {}
    return {
        "type": "json_schema",
        "json_schema": {**named, "schema": report.adapted_schema(schema, OPENAI, "the reply")},
    }


def _tools(request: Request, report: TranslationReport) -> dict[str, object]:
    tools = report.sendable_tools(request) if request.tools else []
    choice = request.tool_choice
    if not tools and choice.mode in ("auto", "none"):
        return {}
    kinds = {tool.name: CUSTOM if report.is_native and is_custom(tool) else tool.kind for tool in tools}
    if (choice.mode == "required" and not tools) or (choice.mode == "named" and choice.name not in kinds):
        raise report.unsendable("a choice of a tool that the vendor runs itself", "$.tool_choice")
    if not tools:
        return {}
    fields: dict[str, object] = {"tools": [_tool(tool, report) for tool in tools]}
    if choice.mode == "named":
        kind = kinds[choice.name]
        fields["tool_choice"] = {"type": kind, kind: {"name": choice.name}}
    elif choice.mode != "auto":
        fields["tool_choice"] = choice.mode
    if not choice.parallel_tool_calls:
        fields["parallel_tool_calls"] = False
    elif request.accepts_parallel_calls and tools and report.is_same_api:
        # defaults differ: llama.cpp's was false, and depends on the template since 2026-04 (its pull 22217)
        fields["parallel_tool_calls"] = True
    return fields


def _tool(tool: Tool, report: TranslationReport) -> object:
    if tool.kind != "function":
        return tool.extra
    function: dict[str, object] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    inner, outer = _sides(tool.extra, report)
    if report.is_native and is_custom(tool):
        del inner["type"]
        return {"type": CUSTOM, CUSTOM: {**function, **inner}, **outer}
    parameters = report.adapted_schema(tool.parameters, OPENAI, tool.name)
    if report.is_strict(tool, OPENAI_STRICT):
        inner["strict"] = True
    return {"type": "function", "function": {**function, "parameters": parameters, **inner}, **outer}


def _messages(messages: Sequence[Message], report: TranslationReport) -> list[object]:
    written: list[object] = []
    images: list[object] = []  # images of results, until the last of consecutive results
    if not report.is_same_api:
        messages = _turns(report.end_with_user(hoist_system_messages(messages)))
    for message in messages:
        results: list[ToolResult] = []
        rest: list[Part] = []
        for part in message.parts:
            if type(part) is ToolResult:
                results.append(part)
            else:
                rest.append(part)
        extra = report.native_fields(message.extra) if message.extra else {}
        if not (message.parts or report.is_same_api):
            continue
        for result in results:
            written.append({**_result(result, images, report), **(extra if message.role == "tool" else {})})
        if message.role == "tool" or (results and not rest):
            continue
        if message.role == "user":
            written.append({"role": "user", "content": _content(rest, report, images), **extra})
            images = []
            continue
        written += [{"role": "user", "content": images}] if images else []
        images = []
        if message.role == "assistant":
            assistant = _assistant(rest, report)
            if assistant != _NOTHING or report.is_same_api:
                written.append({"role": "assistant", **assistant, **extra})
        else:
            written.append({"role": message.role, "content": _content(rest, report), **extra})
    return [*written, {"role": "user", "content": images}] if images else written


def _turns(messages: Sequence[Message]) -> Sequence[Message]:
    """Merges consecutive assistant messages, because results must directly follow the message with their calls."""
    roles = [message.role for message in messages]
    return tuple(_merged_turns(messages)) if ("assistant", "assistant") in pairwise(roles) else messages


def _merged_turns(messages: Sequence[Message]) -> Iterator[Message]:
    for is_assistant, turn_messages in groupby(messages, lambda message: message.role == "assistant"):
        first, *rest = turn_messages
        if not is_assistant or not rest:
            yield from (first, *rest)
            continue
        parts = (part for message in (first, *rest) for part in message.parts)
        extra = {name: raw for message in (first, *rest) for name, raw in message.extra.items()}
        yield Message("assistant", tuple(parts), extra)


def _result(result: ToolResult, images: list[object], report: TranslationReport) -> dict[str, object]:
    """Returns the message; images of the result that it cannot contain are added to `images`."""
    report.native_fields(result.extra)
    parts: Sequence[ResultPart] = result.parts
    if not report.is_same_api:
        parts = [part for part in parts if _is_text(part)]
        images += [_block(part, report) for part in result.parts if not _is_text(part)]
        if len(parts) < len(result.parts):
            report.adapted("images", "images and files of results are in the user message after them")
            parts = parts or [Text("The result is in the user's next message.")]
    content = _content(prefix_error(parts) if result.is_error else parts, report)
    return {"role": "tool", "tool_call_id": result.call_id, "content": content}


def _is_text(part: Part) -> bool:
    return isinstance(part, Text) or (isinstance(part, Document) and bool(part.source.text))


def _assistant(parts: Iterable[Part], report: TranslationReport) -> dict[str, object]:
    reasoning: list[Reasoning] = []
    content: list[Part] = []
    calls: list[object] = []
    refusal = ""
    for part in parts:
        match part:
            case Text() if not (calls or refusal):
                content.append(part)
            case Reasoning():
                reasoning.append(part)
                _report_proof(part, report)
            case Refusal(text, extra) if not extra or not report.is_same_api:
                refusal += text
            case ToolCall():
                calls.append(_call(part, report))
            case UnknownPart(path=path) if ".tool_calls[" in path:
                calls.append(report.unknown_part(part))
            case _:
                if calls or refusal:
                    report.adapted("content", f"text after {'a call' if calls else 'a refusal'} is before it")
                content.append(part)
    message: dict[str, object] = {"content": None}
    if content or not (calls or refusal):
        message["content"] = _content(content, report)
    if reasoning:
        message |= _reasoning_field(reasoning, report)
    if refusal:
        message["refusal"] = refusal
    if calls:
        message["tool_calls"] = calls
    return message


def _report_proof(part: Reasoning, report: TranslationReport) -> None:
    """Reports what this API cannot represent of reasoning."""
    if part.signature or part.redacted:
        report.dropped(*SIGNATURE if part.signature else REDACTED)
    report.native_fields(part.extra)


def _reasoning_field(parts: Sequence[Reasoning], report: TranslationReport) -> dict[str, object]:
    """Returns the field with the text of the reasoning, if there is any."""
    text = "".join(part.text for part in parts)
    if not text:
        return {}
    if report.reasoning_field:
        return {report.reasoning_field: text}
    is_renamed = report.is_same_api and any(IN_FIELD in part.extra for part in parts)
    return {"reasoning" if is_renamed else "reasoning_content": text}


def _call(call: ToolCall, report: TranslationReport) -> dict[str, object]:
    function = {"name": call.name, "arguments": call.arguments}
    inner, outer = _sides(call.extra, report)
    if inner.get("type") == msgspec.Raw(b'"custom"'):
        del inner["type"]
        custom = {"name": call.name, "input": read_string_member(call.arguments, "input"), **inner}
        return {"id": call.id, "type": "custom", "custom": custom, **outer}
    return {"id": call.id, "type": "function", "function": {**function, **inner}, **outer}


def _sides(extra: ExtraFields, report: TranslationReport) -> tuple[dict[str, object], dict[str, object]]:
    """Returns the fields inside the object of a block, and those next to it."""
    inner: dict[str, object] = {}
    outer: dict[str, object] = {}
    for name, raw in report.native_fields(extra).items():
        (outer if name.startswith(OUTER) else inner)[name.removeprefix(OUTER)] = raw
    return inner, outer


def _content(parts: Sequence[Part], report: TranslationReport, more: Sequence[object] = ()) -> object:
    """Returns a string if all content is one text, else blocks, beginning with `more`."""
    if not more and len(parts) <= 1:
        only = parts[0] if parts else Text("")
        if type(only) is Text and not (only.extra and report.native_fields(only.extra)):
            return only.text
    return [*more, *(_block(part, report) for part in parts)]


def _block(part: Part, report: TranslationReport) -> object:
    match part:
        case Text(text, extra):
            return {"type": "text", "text": text, **report.native_fields(extra)}
        case Image(source, extra):
            if source.file_id:
                raise report.unsendable("an image by file id")
            inner, outer = _sides(extra, report)
            inner |= {} if report.is_same_api else report.image_detail(extra)
            return {"type": "image_url", "image_url": {"url": _url(source), **inner}, **outer}
        case Audio(source, extra):
            if not source.data and not report.is_same_api:
                raise report.unsendable("sound by URL")
            inner, outer = _sides(extra, report)
            audio = {"data": source.data, "format": source.media_type.removeprefix("audio/")}
            return {"type": "input_audio", "input_audio": {**audio, **inner}, **outer}
        case Document():
            return _document(part, report)
        case Refusal(text, extra):
            return {"type": "refusal", "refusal": text, **report.native_fields(extra)}
        case UnknownPart():
            return report.unknown_part(part)
        case Reasoning() | ToolCall() | ToolResult() | PreviousResponseRef():
            raise report.unsendable_part(part)
        case _:
            assert_never(part)


def _document(part: Document, report: TranslationReport) -> dict[str, object]:
    source, (inner, outer) = part.source, _sides(part.extra, report)
    if source.text:
        return {"type": "text", "text": f"{part.title}\n{source.text}" if part.title else source.text}
    if source.url and not report.is_same_api:
        raise report.unsendable("a document by URL")
    title = part.title or ("" if report.is_same_api else "document")  # which the vendor requires with data
    file: dict[str, object] = {"filename": title} if title else {}
    if source.file_id:
        if not report.is_native:
            raise report.unsendable("a file that another vendor keeps")
        return {"type": "file", "file": {**file, "file_id": source.file_id, **inner}, **outer}
    data = _url(source) if source.media_type or source.url else source.data
    return {"type": "file", "file": {**file, "file_data": data, **inner}, **outer}


def _url(source: MediaSource) -> str:
    return source.url or f"data:{source.media_type};base64,{source.data}"
