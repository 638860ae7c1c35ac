"""Writes a request to an upstream server of Messages.

Content of other APIs is converted as follows:

    system messages       leading ones `system`; a later one a `<system-reminder>` in a user message
    `tool` messages       `tool_result` blocks; consecutive user messages are merged, because results must be together
    reasoning             unchanged with a signature; without one, which the vendor rejects, dropped
    refusal text          a text
    prefill               the same, then a user message to continue it, because the vendor's newest models reject a
                          partial response
    no limit              `max_tokens` of `MAX_TOKENS`, because the API requires a limit
    temperature over 1    1
    reasoning_effort      `thinking` of type `adaptive` with `output_config.effort`, `minimal` as `low`; `none` disables
                          it; omitted with a forced tool call, which the API does not allow with thinking. With
                          thinking the temperature and `top_k` are dropped
    a tool's schema       as the vendor takes it (schema/targets.py), also from its own clients
    a reply of any object left out, as the vendor wants all objects closed
    a response schema     `output_config.format`

The vendor rejects more than `BREAKPOINTS` cache breakpoints (`cache_control`), also from its own clients. Excess ones
are removed: of the messages all but the last, from the front, then of tools and system. The vendor also rejects text
that is empty or white space, which is omitted, and stop strings of white space, which the gateway searches for itself.
Dropped with a warning: `seed` and the penalties, tools that a vendor runs, unknown parts of assistant messages;
all others become their JSON as text. Tools stay `strict` up to the number that the vendor compiles. The type of an
image is read from its first bytes, as the vendor does. Rejected by name: audio, and files stored by another vendor.

Source: https://docs.anthropic.com/en/api/messages, https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking,
https://docs.anthropic.com/en/docs/build-with-claude/effort, https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching
(2026-11).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, assert_never

import msgspec

from dragoman.core.identifiers import CALL_ID, LONG_NAME_FORM
from dragoman.core.messages import (
    ANY_OBJECT,
    SYSTEM_ROLES,
    Audio,
    Document,
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
    ToolResult,
    UnknownPart,
)
from dragoman.dialects.anthropic_messages.computer_toolset import declaration_of
from dragoman.dialects.anthropic_messages.request_reader import BILLING, SEARCH_RESULT
from dragoman.dialects.anthropic_messages.response_writer import input_of
from dragoman.schema.adapt import adapt
from dragoman.schema.strictness import complexity
from dragoman.schema.targets import ANTHROPIC, ANTHROPIC_STRICT
from dragoman.text.json_cursor import NULL, Cursor
from dragoman.wire.dialect import UpstreamRequest
from dragoman.wire.history import system_reminder
from dragoman.wire.request_bodies import image_type
from dragoman.wire.translation import UNSIGNED, TranslationReport

NAME: Final = "anthropic_messages"
MAX_TOKENS: Final = 32_000
"""Default limit if the caller sets none: what every model since Claude 4 can generate."""
STRICT_TOOLS: Final = 20
STRICT_OPTIONAL: Final = 24
STRICT_UNIONS: Final = 16
"""Maximum tools with `strict: true` per request, and maximum optional properties and union types in all of them."""
BREAKPOINTS: Final = 4
"""Maximum `cache_control` breakpoints per request, including one on the request itself."""
CACHE_CONTROL: Final = "cache_control"
"""The field that marks the end of a prefix to be cached."""
_MODES: Final = {"auto": "auto", "required": "any", "none": "none", "named": "tool"}


def auth_headers(key: str) -> dict[str, str]:
    """Headers that every request needs."""
    return {"anthropic-version": "2023-06-01", **({"x-api-key": key} if key else {})}


def write_request(request: Request, model: str) -> UpstreamRequest:
    """Returns the body of a request for `model`, with notices of what the API cannot represent.

    Raises:
        UnsupportedError: A part cannot be sent; use another server, or omit it.
    """
    report = TranslationReport(request, NAME)
    request = report.rename(request, LONG_NAME_FORM, CALL_ID)
    first = request.instruction_count if report.is_same_api else _first(request.messages, report)
    system = _system(request.messages[:first], request.extra.get(BILLING) if report.is_same_api else None, report)
    body: dict[str, object] = {"model": model, "max_tokens": request.max_tokens or MAX_TOKENS}
    if system:
        body["system"] = system
    body["messages"] = _messages(request.messages[first:], report)
    body |= _tools(request, report)
    body |= _thinking(request, report)
    body |= _sampling(request, report, has_reasoning="thinking" in body and request.reasoning_effort != "none")
    stop = [text for text in request.stop if text.strip() or report.is_same_api]
    stops_locally = report.stop_locally([text for text in request.stop if not (text.strip() or report.is_same_api)])
    body |= {"stop_sequences": stop} if stop else {}
    body |= {"stream": True} if request.stream or stops_locally else {}
    extra = {name: raw for name, raw in report.native_fields(request.extra).items() if name != BILLING}
    if report.is_native:
        _bound_marks(body, BREAKPOINTS - (CACHE_CONTROL in extra), report)
    return report.close({**body, **extra})


def _bound_marks(body: Mapping[str, object], most: int, report: TranslationReport) -> None:
    """Removes `cache_control` breakpoints beyond the maximum."""
    first, later = [*_marked(body.get("tools")), *_marked(body.get("system"))], [*_marked(body["messages"])]
    spare = [*later[:-1], *first, *later[-1:]]
    for block in spare[: max(0, len(spare) - most)]:
        del block[CACHE_CONTROL]
        report.dropped(CACHE_CONTROL, f"more than {BREAKPOINTS} {CACHE_CONTROL}")


def _marked(value: object) -> Iterator[dict[str, object]]:
    if isinstance(value, list):
        for one in value:
            yield from _marked(one)
    elif isinstance(value, dict):
        yield from _marked(value.get("content"))
        if value.get(CACHE_CONTROL, NULL) != NULL:
            yield value


def _first(messages: Sequence[Message], report: TranslationReport) -> int:
    """Returns the number of leading system messages."""
    kinds = ("system",) if report.is_same_api else SYSTEM_ROLES
    for n, message in enumerate(messages):
        if message.role not in kinds or report.native_fields(message.extra):
            return n
    return len(messages)


def _system(messages: Sequence[Message], billing: msgspec.Raw | None, report: TranslationReport) -> object:
    parts = [part for message in messages for part in message.parts]
    return _content(parts, report) if billing is None else [billing, *_blocks(parts, report)]


def _thinking(request: Request, report: TranslationReport) -> dict[str, object]:
    """Returns `thinking` and `output_config`; the caller's own fields for this API are in `extra`."""
    config: dict[str, object] = {}
    if request.response_schema == ANY_OBJECT and not report.is_same_api:
        report.dropped("response_format", "a reply of any JSON object")
    elif request.response_schema:
        schema = report.adapted_schema(_described(request), ANTHROPIC_STRICT, "the reply")
        config["format"] = {"type": "json_schema", "schema": schema}
    thinking = ""
    if report.is_same_api:
        return {"output_config": config} if config else {}
    if request.reasoning_effort == "none":
        thinking = "disabled"
    elif request.reasoning_effort and request.tool_choice.mode in ("required", "named"):
        report.dropped("effort", "effort, with a forced tool call")
    elif request.reasoning_effort:
        thinking = "adaptive"
        config["effort"] = "low" if request.reasoning_effort == "minimal" else request.reasoning_effort
        if request.reasoning_effort == "minimal":
            report.adapted("effort", "effort low, its lowest")
    fields: dict[str, object] = {"thinking": {"type": thinking}} if thinking else {}
    return fields | ({"output_config": config} if config else {})


def _sampling(request: Request, report: TranslationReport, has_reasoning: bool) -> dict[str, object]:
    fields: dict[str, object] = {}
    for name, value in msgspec.structs.asdict(request.sampling).items():
        if value is None:
            continue
        if name not in ("temperature", "top_p", "top_k") or (has_reasoning and name != "top_p"):
            report.dropped(name)
        elif value < 0:  # means "no limit" to local servers
            report.dropped(name, f"{name} {value}")
        elif name == "temperature" and value > 1:
            report.adapted("temperature", "temperature 1, the highest there")
            fields[name] = 1.0
        else:
            fields[name] = value
    return fields


def _tools(request: Request, report: TranslationReport) -> dict[str, object]:
    tools = report.sendable_tools(request)
    choice = request.tool_choice
    if (choice.mode == "required" and not tools) or (
        choice.mode == "named" and choice.name not in [tool.name for tool in tools]
    ):
        raise report.unsendable("a choice of a tool that the vendor runs itself", "$.tool_choice")
    if not tools:
        return {}
    binding = _binding(tools, report)
    fields: dict[str, object] = {"tools": _declarations(tools, report, binding)}
    tool_choice: dict[str, object] = {"type": _MODES[choice.mode]}
    tool_choice |= {"name": choice.name} if choice.mode == "named" else {}
    one = not choice.parallel_tool_calls
    if choice.mode != "none" and (one or (request.accepts_parallel_calls and report.is_same_api)):
        tool_choice["disable_parallel_tool_use"] = one
    return fields if tool_choice == {"type": "auto"} else {**fields, "tool_choice": tool_choice}


def _declarations(tools: Sequence[Tool], report: TranslationReport, binding: frozenset[str]) -> list[object]:
    written: list[object] = []
    toolsets: set[bytes] = set()
    for tool in tools:
        toolset = declaration_of(tool) if report.is_native else None
        if toolset is None:
            written.append(_tool(tool, report, tool.name in binding))
        elif bytes(toolset) not in toolsets:
            toolsets.add(bytes(toolset))
            written.append(dict(Cursor(toolset, "$.tools").fields().remaining()))
    return written


def _binding(tools: Sequence[Tool], report: TranslationReport) -> frozenset[str]:
    """Returns the names of tools to send as `strict`: as many as this API compiles, of those marked strict."""
    strict = [tool for tool in tools if report.is_strict(tool, ANTHROPIC_STRICT)]
    binding: list[str] = []
    optional = unions = 0
    for tool in strict[:STRICT_TOOLS]:
        left, several = complexity(adapt(tool.parameters, ANTHROPIC_STRICT).json)
        if optional + left > STRICT_OPTIONAL or unions + several > STRICT_UNIONS:
            break
        binding, optional, unions = [*binding, tool.name], optional + left, unions + several
    if len(binding) < len(strict):
        report.dropped("strict")
    return frozenset(binding)


def _tool(tool: Tool, report: TranslationReport, strict: bool) -> object:
    if tool.kind != "function":
        return dict(tool.extra)
    fields: dict[str, object] = {"name": tool.name}
    if report.is_native and "type" in tool.extra:
        return {**fields, **tool.extra}
    if strict:
        fields["strict"] = True
    if tool.description:
        fields["description"] = tool.description
    return {
        **fields,
        "input_schema": report.adapted_schema(
            tool.parameters, ANTHROPIC_STRICT if strict else ANTHROPIC, tool.name, always=True
        ),
        **report.native_fields(tool.extra),
    }


def _described(request: Request) -> str:
    """Returns the response schema; the description of the response is added if the schema has none."""
    schema, description = request.response_schema, request.response_description
    if not description or '"description"' in schema.partition('"properties"')[0]:
        return schema
    return msgspec.json.encode({**msgspec.json.decode(schema), "description": description}).decode()


def _messages(messages: Sequence[Message], report: TranslationReport) -> list[object]:
    if report.is_same_api:
        return [_unchanged_message(message, report) for message in messages]
    turns: list[tuple[str, list[object]]] = []
    for message in report.end_with_user(messages):
        role = "assistant" if message.role == "assistant" else "user"
        report.native_fields(message.extra)
        is_late = message.role in SYSTEM_ROLES and message.parts
        blocks = _blocks((system_reminder(message) if is_late else message).parts, report)
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        elif blocks:
            turns.append((role, blocks))
    if not turns:
        raise report.unsendable("a conversation without messages", "$.messages")
    return [{"role": role, "content": blocks} for role, blocks in turns]


_ROLES: Final[Mapping[str, str]] = {"developer": "system", "tool": "user"}
"""Replacements of roles that this API does not have; such messages may have been added by the gateway."""


def _unchanged_message(message: Message, report: TranslationReport) -> dict[str, object]:
    role = _ROLES.get(message.role, message.role)
    return {"role": role, "content": _content(message.parts, report), **message.extra}


def _content(parts: Sequence[Part], report: TranslationReport) -> object:
    """Returns a string if all content is one text, else blocks."""
    match [part for part in parts if not (isinstance(part, Text) and not part.text)]:
        case [Text(text, extra)] if not report.native_fields(extra) and (report.is_same_api or text.strip()):
            return text
    return _blocks(parts, report)


def _blocks(parts: Sequence[Part], report: TranslationReport) -> list[object]:
    return [block for part in parts for block in _block(part, report)]


def _block(part: Part, report: TranslationReport) -> list[object]:
    match part:
        case Text(text, extra) | Refusal(text, extra):
            has_text = text if report.is_same_api else text.strip()
            return [{"type": "text", "text": text, **report.native_fields(extra)}] if has_text else []
        case Image(source, extra):
            return [{"type": "image", "source": _source(source, report), **report.native_fields(extra)}]
        case Document(extra=extra) if report.is_native and SEARCH_RESULT in extra:
            own = msgspec.json.decode(extra[SEARCH_RESULT], type=dict[str, msgspec.Raw])
            rest = {name: raw for name, raw in extra.items() if name != SEARCH_RESULT}
            return [{"type": SEARCH_RESULT, **own, **rest}]
        case Document(source, title, extra):
            fields = {"title": title} if title else {}
            return [{"type": "document", "source": _source(source, report), **fields, **report.native_fields(extra)}]
        case Reasoning():
            return _reasoning(part, report)
        case ToolCall(id, name, arguments, extra):
            input = input_of(arguments)
            if isinstance(input, dict):
                report.adapted("arguments", f"arguments of a call, which are not an object, are in {', '.join(input)}")
            return [{"type": "tool_use", "id": id, "name": name, "input": input, **report.native_fields(extra)}]
        case ToolResult():
            return [_result(part, report)]
        case UnknownPart():
            return [report.unknown_part(part)]
        case Audio():
            raise report.unsendable("audio")
        case PreviousResponseRef():
            raise report.unsendable("a part of an earlier answer by its id", part.path)
        case _:
            assert_never(part)


def _reasoning(part: Reasoning, report: TranslationReport) -> list[object]:
    extra = report.native_fields(part.extra)
    if part.redacted:
        return [{"type": "redacted_thinking", "data": part.redacted, **extra}]
    if not part.signature and not report.is_same_api:
        report.dropped(*UNSIGNED)
        return []
    return [{"type": "thinking", "thinking": part.text, "signature": part.signature, **extra}]


def _result(result: ToolResult, report: TranslationReport) -> dict[str, object]:
    block: dict[str, object] = {"type": "tool_result", "tool_use_id": result.call_id}
    block |= {"content": _content(result.parts, report)} if result.parts else {}
    return {**block, **({"is_error": True} if result.is_error else {}), **report.native_fields(result.extra)}


def _source(source: MediaSource, report: TranslationReport) -> Mapping[str, object]:
    if source.url:
        return {"type": "url", "url": source.url}
    if source.file_id:
        if not report.is_native:
            raise report.unsendable("a file that another vendor keeps")
        return {"type": "file", "file_id": source.file_id}
    if source.text or (report.is_same_api and not source.data):  # a text may be empty, other data may not
        return {"type": "text", "media_type": source.media_type or "text/plain", "data": source.text}
    if not source.data:
        raise report.unsendable("data that is empty")
    media_type = source.media_type if report.is_same_api else image_type(source.data) or source.media_type
    if not media_type and not report.is_same_api:
        raise report.unsendable("data without a media type")
    if media_type != source.media_type:
        report.adapted("media_type", f"media type {media_type} for {source.media_type or 'none'}")
    return {"type": "base64", "media_type": media_type, "data": source.data}
