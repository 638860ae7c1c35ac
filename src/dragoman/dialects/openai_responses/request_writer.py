"""A request to a server of Responses behind.

What came by this API goes as it came: custom tools, namespaces, items of tools, the vendor's own tools and items. The
first system message is `instructions`; of `allowed_tools` only those that are allowed are sent. What another API says
in its own way becomes:

    a turn of the model           its items in their order: a message for each text, reasoning, calls; servers with
                                  OpenAI's own types (vLLM) take blocks of the model's only as it gave them, with ids
    words of refusal              a text
    results in a user's message   `function_call_output` items before it, with their pictures and files
    a failed result               "Error: " before its text
    thoughts                      `reasoning` with their proof, where a reply of this API gave it; without one they are
                                  left out, as the vendor takes no others back
    the beginning of the answer   the same, and behind it a message of the user to go on from it
    a document of plain text      a text, its title on the first line
    a limit under 16              16, the least that the vendor takes
    a schema of the reply         `text.format`
    effort                        `reasoning.effort`
    schemas                       as OpenAI takes them (schema/targets.py)
    a tool's schema               `strict` where the client asked for that, which would make all parameters required
    tools of free text            the same, from Chat Completions

What did not come by this API is not kept there (`store` is false), as all of a conversation is sent each time, and
its thoughts are asked for in a form that can be sent back (`include`). `background` is never sent,
`previous_response_id` and items by their id only where nobody has put what they name in their place. Stop strings are
looked for here. Dropped with a warning: `top_k`, `seed`, the penalties, tools that another vendor runs, unknown parts
of the model's messages; all others become their JSON as text. Fields that both of OpenAI's APIs have:
wire/openai_fields.py. Refused by name: audio, and files that another vendor keeps.

The vendor checks the proof of thoughts against the id of their item. Ids in a reply are made here, so the vendor's goes
along in the proof, `rs_68af…:gAAA…` (`proof`), and is taken out of it again when the thoughts come back.

Source: https://platform.openai.com/docs/api-reference/responses/create and the types in the openai package 3.52,
2026-11. What its pages leave out: ids of thoughts, https://github.com/maximhq/bifrost/issues/5186 and
https://github.com/openclaw/openclaw/pull/71448; thoughts without a proof,
https://github.com/musistudio/claude-code-router/issues/1783; the least limit,
https://github.com/UKGovernmentBEIS/inspect_evals/issues/694.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Final, assert_never

import msgspec

from dragoman.core.identifiers import ANY_STRING, NAME_FORM
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
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    UnknownPart,
)
from dragoman.core.response_details import PHASE, phase_of
from dragoman.dialects.openai_responses.request_reader import (
    ABOUT_NAMESPACE,
    IN_ITEM,
    JOINT,
    NAME,
    NAMESPACE,
    REDACTED,
    is_custom,
    namespace_of,
)
from dragoman.schema.free_text import INPUT
from dragoman.schema.targets import OPENAI, OPENAI_STRICT
from dragoman.text import json_cursor
from dragoman.text.json_member import read_string_member
from dragoman.wire.dialect import UpstreamRequest
from dragoman.wire.openai_fields import merge_fields, to_responses_custom_tool, to_responses_fields
from dragoman.wire.translation import REDACTED as REDACTED_REASONING
from dragoman.wire.translation import UNSIGNED, TranslationReport, prefix_error

Json = dict[str, object]

MIN_TOKENS: Final = 16
"""The least `max_output_tokens` that the vendor takes."""
_ANY_OBJECT: Final = '{"type":"object"}'
_CUSTOM_CALL: Final = b'"custom_tool_call"'
_CUSTOM_RESULT: Final = b'"custom_tool_call_output"'
_PROOF: Final = re.compile(r"(rs_[0-9a-f]{16,}):(.+)", re.DOTALL)
_Words = Text | Image | Document | Audio | Refusal


def write_request(request: Request, model: str) -> UpstreamRequest:
    """The body that asks this server for `model`, and warnings of what it cannot say.

    Raises: UnsupportedError: a part cannot be sent on; take another server, or leave it out.
    """
    report = TranslationReport(request, NAME)
    request = report.rename(request, NAME_FORM, ANY_STRING)
    instructions, messages = _instructions(request, report)
    body: Json = {"model": model, **({"instructions": instructions} if instructions else {})}
    body["input"] = _input(report.end_with_user(messages), request.tools, report)
    if not body["input"] and not report.is_same_api:
        raise report.unsendable("a conversation in which nobody says anything", "$.messages")
    body |= _tools(request, report)
    body |= _limits(request, report)
    if request.response_schema and not report.is_same_api:
        body["text"] = {"format": _format(request, report)}
    if request.effort and not report.is_same_api:
        body["reasoning"] = {"effort": request.effort}
    if not report.is_same_api:
        body |= {"store": False, "include": ["reasoning.encrypted_content"]}
    elif not request.keep:
        body["store"] = False
    if request.previous is not None:
        body["previous_response_id"] = f"resp_{request.previous.reply_id}"
    watched = report.stop_locally(request.stop)
    body |= {"stream": True} if request.stream or watched else {}
    shared, left = to_responses_fields(request.extra) if request.dialect == "openai_chat" else ({}, request.extra)
    return report.close({**merge_fields(body, shared), **report.native_fields(left)})


def _instructions(request: Request, report: TranslationReport) -> tuple[str, Sequence[Message]]:
    """The system's text, where that is all that the first message of several is; and the other messages."""
    match request.messages:
        case [Message("system", [Text(text, extra)], more), *rest] if rest and not (extra or more):
            if request.instructions or not report.is_same_api:
                return text, rest
    return "", request.messages


def _limits(request: Request, report: TranslationReport) -> Json:
    said: Json = {}
    for name, value in msgspec.structs.asdict(request.sampling).items():
        if name in ("temperature", "top_p"):
            said |= {name: value} if value is not None else {}
        elif value is not None:
            report.dropped(name)
    limit = request.max_tokens
    if limit is not None and limit < MIN_TOKENS and not report.is_same_api:
        report.adapted("max_output_tokens", f"max_output_tokens {MIN_TOKENS}, the least there")
        limit = MIN_TOKENS
    return said | ({"max_output_tokens": limit} if limit is not None else {})


def _format(request: Request, report: TranslationReport) -> Json:
    if request.response_schema == _ANY_OBJECT:
        return {"type": "json_object"}
    named: Json = {"type": "json_schema", "name": request.response_name or "reply"}
    named |= {"description": request.response_description} if request.response_description else {}
    named |= {"strict": True} if report.is_strict_reply(request, OPENAI_STRICT) else {}
    return {**named, "schema": report.adapted_schema(request.response_schema, OPENAI, "the reply")}


# Tools


def _tools(request: Request, report: TranslationReport) -> Json:
    tools = report.sendable_tools(request)
    choice = request.tool_choice
    known = {tool.name if tool.kind == "function" else tool.kind: tool for tool in tools}
    chosen = known.get(choice.name)
    if (choice.mode == "required" and not tools) or (choice.mode == "named" and not (chosen or report.is_same_api)):
        raise report.unsendable("a choice of a tool that the vendor runs itself", "$.tool_choice")
    listed = _listed([tool for tool in tools if IN_ITEM not in tool.extra], report)
    said: Json = {"tools": listed} if listed else {}
    said |= {"tool_choice": _choice(choice, chosen)} if tools and choice.mode != "auto" else {}
    if not choice.parallel:
        said["parallel_tool_calls"] = False
    elif request.several and tools and report.is_same_api:
        # stated, as defaults differ: llama.cpp's was false, and depends on the template since 2026-04 (its pull 22217)
        said["parallel_tool_calls"] = True
    return said


def _choice(choice: ToolChoice, chosen: Tool | None) -> object:
    if choice.mode != "named" or chosen is None:
        return choice.mode
    if chosen.kind != "function":
        return {"type": chosen.kind}
    return {"type": "custom" if is_custom(chosen) else "function", **_apart(chosen.name, namespace_of(chosen))}


def _apart(name: str, space: str) -> Json:
    """The name of a tool and that of its namespace, where it is in one."""
    return {"name": name.removeprefix(f"{space}{JOINT}"), "namespace": space} if space else {"name": name}


def _listed(tools: Sequence[Tool], report: TranslationReport) -> list[object]:
    """The tools as they came, those of a namespace in it again."""
    listed: list[object] = []
    for about, group in _grouped(tools, ABOUT_NAMESPACE, report):
        written = [_tool(tool, report) for tool in group]
        listed += [{**json_cursor.parse(bytes(about)).fields().remaining(), "tools": written}] if about else written
    return listed


def _grouped(
    tools: Sequence[Tool], note: str, report: TranslationReport
) -> "Iterator[tuple[msgspec.Raw | None, list[Tool]]]":
    """Tools in a row that came with one note, and that note; a long note is not compared for each of many tools."""
    for _, group in groupby(tools, key=lambda tool: id(tool.extra.get(note)) if report.is_native else 0):
        together = list(group)
        yield (together[0].extra.get(note) if report.is_native else None), together


def _tool(tool: Tool, report: TranslationReport) -> Json:
    free = is_custom(tool) and report.is_openai
    custom, left = to_responses_custom_tool(tool.extra) if free else ({}, tool.extra)
    kept = report.native_fields(left)
    extra = {name: raw for name, raw in kept.items() if name not in (NAMESPACE, ABOUT_NAMESPACE, IN_ITEM)}
    if tool.kind != "function":
        return dict(extra)
    name = _apart(tool.name, namespace_of(tool) if report.is_native else "")["name"]
    said: Json = {"name": name, **({"description": tool.description} if tool.description else {})}
    if free or (is_custom(tool) and report.is_native):
        return {**said, **(custom or extra)}
    strict = {} if report.is_same_api else {"strict": report.is_strict(tool, OPENAI_STRICT)}
    return {
        "type": "function",
        **said,
        "parameters": report.adapted_schema(tool.parameters, OPENAI, tool.name),
        **strict,
        **extra,
    }


# The conversation


def _input(messages: Sequence[Message], tools: Sequence[Tool], report: TranslationReport) -> object:
    """A string where all that is said is one text of the user, else items."""
    added = _items_of_tools(tools, report)
    match messages:
        case [Message(role="user", parts=[Text(text=text, extra={**extra})], extra={**more})] if not (
            extra or more or added
        ):
            return text
    said: list[object] = []
    messages = _as_told(messages, tools) if report.is_native else _as_custom(messages) if report.is_openai else messages
    for at, message in enumerate(messages):
        said += added.pop(len(messages) - at, ())
        said += _items(message, report)
    return [*said, *chain.from_iterable(added.values())]


def _as_told(messages: Sequence[Message], tools: Sequence[Tool]) -> Sequence[Message]:
    """Calls of an answer that is gone on from, in the terms in which the client had them.

    They have nothing but a name: that they are of a custom tool their results say, and the tools of what namespace.
    """
    results = [part for message in messages for part in message.parts if isinstance(part, ToolResult)]
    customs = {result.call_id for result in results if bytes(result.extra.get("type", b"")) == _CUSTOM_RESULT}
    spaces = {tool.name: msgspec.Raw(msgspec.json.encode(space)) for tool in tools if (space := namespace_of(tool))}

    def told(part: Part) -> Part:
        if not isinstance(part, ToolCall) or part.extra:
            return part
        more = {"type": msgspec.Raw(_CUSTOM_CALL)} if part.id in customs else {}
        more |= {"namespace": spaces[part.name]} if part.name in spaces else {}
        return msgspec.structs.replace(part, extra=more) if more else part

    if not (customs or spaces):
        return messages
    return [msgspec.structs.replace(m, parts=tuple(map(told, m.parts))) for m in messages]


def _as_custom(messages: Sequence[Message]) -> Sequence[Message]:
    """Calls of tools that take free text, and their results, as those of Chat Completions say it."""
    calls = [p for m in messages for p in m.parts if isinstance(p, ToolCall) and bytes(p.extra.get("type", b""))]
    ids = frozenset(call.id for call in calls if bytes(call.extra["type"]) == b'"custom"')

    def told(part: Part) -> Part:
        if isinstance(part, ToolCall) and part.id in ids:
            return msgspec.structs.replace(part, extra={"type": msgspec.Raw(_CUSTOM_CALL)})
        if isinstance(part, ToolResult) and part.call_id in ids:
            return msgspec.structs.replace(part, extra={"type": msgspec.Raw(_CUSTOM_RESULT)})
        return part

    return [msgspec.structs.replace(m, parts=tuple(map(told, m.parts))) for m in messages] if ids else messages


def _items_of_tools(tools: Sequence[Tool], report: TranslationReport) -> dict[int, list[object]]:
    """The items that tools came in, by how many messages stand behind each."""
    items: dict[int, list[object]] = {}
    for note, group in _grouped(tools, IN_ITEM, report):
        if note:
            fields = json_cursor.parse(bytes(note)).fields()
            item = {**fields.require("item").fields().remaining(), "tools": _listed(group, report)}
            items.setdefault(fields.require("before").integer(), []).append(item)
    return items


def _items(message: Message, report: TranslationReport) -> Iterator[object]:
    """A turn as items: results first, then all else in its order, words that stand together in one message."""
    extra = report.native_fields(message.extra)
    yield from (_result(part, report) for part in message.parts if isinstance(part, ToolResult))
    rest = [part for part in message.parts if not isinstance(part, ToolResult)]
    if not any(map(_is_content, rest)) and (extra or (report.is_same_api and not message.parts)):
        yield _message(message.role, (), extra, report)
    for (content, phase), group in groupby(rest, key=lambda part: (_is_content(part), phase_of(part))):
        if content and message.role == "assistant" and not report.is_native:
            yield from (_message("assistant", [part], {}, report) for part in group)
        elif content:
            yield _message(message.role, list(group), {**extra, PHASE: phase} if phase else extra, report)
            extra = {}
        else:
            yield from (item for part in group for item in _item(part, report))


def _is_content(part: Part) -> bool:
    """It stands in a message; it is no item of its own."""
    if isinstance(part, UnknownPart):
        return part.path.rpartition(".")[2].startswith("content")
    return isinstance(part, _Words)


def _message(role: str, parts: Sequence[Part], extra: ExtraFields, report: TranslationReport) -> Json:
    return {"type": "message", "role": role, "content": _content(parts, report, role, plain=not extra), **extra}


def _item(part: Part, report: TranslationReport) -> list[object]:
    match part:
        case Reasoning():
            return _thoughts(part, report)
        case ToolCall():
            return [_call(part, report)]
        case UnknownPart():
            return [report.unknown_part(part)]
        case PreviousResponseRef(reply_id, number):
            return [{"type": "item_reference", "id": f"msg_{reply_id}_{number}"}]
        case _:
            raise report.unsendable_part(part)


def _kept(extra: ExtraFields, custom: bytes, report: TranslationReport) -> dict[str, msgspec.Raw]:
    """The fields of this API; of the other API of OpenAI's that the tool takes free text."""
    kept = dict(report.native_fields(extra))
    return {"type": extra["type"]} if not report.is_native and bytes(extra.get("type", b"")) == custom else kept


def _call(call: ToolCall, report: TranslationReport) -> Json:
    extra = _kept(call.extra, _CUSTOM_CALL, report)
    space, kind = extra.pop("namespace", None), extra.pop("type", msgspec.Raw(b'"function_call"'))
    name = _apart(call.name, json_cursor.Cursor(space, "$.namespace").string() if space is not None else "")
    said: Json = {"type": kind, "call_id": call.id, **name}
    if bytes(kind) == _CUSTOM_CALL:
        return {**said, "input": read_string_member(call.arguments, INPUT), **extra}
    return {**said, "arguments": call.arguments, **extra}


def proof(id: str, encrypted: str) -> str:
    """What proves the thoughts of an item of the vendor's; of another server's they prove themselves."""
    joint = f"{id}:{encrypted}"
    return joint if _PROOF.fullmatch(joint) else encrypted


def _thoughts(part: Reasoning, report: TranslationReport) -> list[object]:
    extra = dict(report.native_fields(part.extra))
    proven = part.signature or part.redacted
    summary: object = [{"type": "summary_text", "text": part.text}] if part.text else []
    found = _PROOF.fullmatch(proven)
    if found is None and not report.is_native:
        report.dropped(*REDACTED_REASONING if part.redacted else UNSIGNED)
        return []
    if found is not None:
        extra["id"], proven = msgspec.Raw(f'"{found[1]}"'.encode()), found[2]
    elif part.redacted:
        proven = REDACTED + part.redacted
    elif "content" in extra:
        summary = []  # its own comes in `extra`, if there is one
    said: Json = {"type": "reasoning", "summary": summary}
    return [{**said, **({"encrypted_content": proven} if proven else {}), **extra}]


def _result(result: ToolResult, report: TranslationReport) -> Json:
    extra = _kept(result.extra, _CUSTOM_RESULT, report)
    parts = prefix_error(result.parts) if result.is_error else result.parts
    kind = extra.pop("type", "function_call_output")
    return {"type": kind, "call_id": result.call_id, "output": _content(parts, report, "tool"), **extra}


def _content(parts: Sequence[Part], report: TranslationReport, role: str, *, plain: bool = True) -> object:
    """A string where all is one text, else blocks."""
    match parts:
        case [] if plain and role == "tool":
            return ""
        case [Text(text, extra)] if plain and not report.native_fields(extra):
            return text
        case [Refusal(text)] if not report.is_native:
            return text
    return [_block(part, report, "output_text" if role == "assistant" else "input_text") for part in parts]


def _block(part: Part, report: TranslationReport, text_type: str) -> object:
    match part:
        case Text(text, extra):
            kept = {name: raw for name, raw in report.native_fields(extra).items() if name != PHASE}
            return {"type": text_type, "text": text, **kept}
        case Refusal(text, extra):
            return {"type": "refusal", "refusal": text, **report.native_fields(extra)}
        case Image(source, extra):
            detail: Json = {} if report.is_same_api else {"detail": "auto", **report.image_detail(extra)}
            return {
                "type": "input_image",
                **_source(source, "image_url", report),
                **detail,
                **report.native_fields(extra),
            }
        case Document():
            return _document(part, report, text_type)
        case UnknownPart():
            return report.unknown_part(part)
        case Audio(source) if report.is_same_api:
            said = {"data": source.data, "format": source.media_type.removeprefix("audio/")}
            return {"type": "input_audio", "input_audio": said}
        case Audio():
            raise report.unsendable("audio")
        case Reasoning() | ToolCall() | ToolResult() | PreviousResponseRef():
            raise report.unsendable_part(part)
        case _:
            assert_never(part)


def _document(part: Document, report: TranslationReport, text_type: str) -> Json:
    source, extra = part.source, report.native_fields(part.extra)
    if source.text:
        return {"type": text_type, "text": f"{part.title}\n{source.text}" if part.title else source.text, **extra}
    # The vendor wants the name of a file whose bytes it gets.
    title = part.title or ("" if report.is_same_api or not source.data else "document")
    named: Json = {"filename": title} if title else {}
    return {"type": "input_file", **named, **_source(source, "file_url", report), **extra}


def _source(source: MediaSource, url: str, report: TranslationReport) -> Mapping[str, object]:
    """Where the bytes are, in the fields of a picture or a file."""
    if source.file_id:
        if not report.is_native:
            raise report.unsendable("a file that another vendor keeps")
        return {"file_id": source.file_id}
    if source.url:
        return {url: source.url}
    data = f"data:{source.media_type};base64,{source.data}" if source.media_type else source.data
    return {"image_url" if url == "image_url" else "file_data": data}
