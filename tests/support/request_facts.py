"""The API-independent content of a request, to compare it with the request after translation to another API.

An `essence` contains the conversation in order (text, calls, results), images, files, reasoning, tools, tool choice,
limits, sampling, stop strings, effort and the response schema. Differences that the dialects document are ignored:

- white-space-only text is ignored; a plain-text document counts as text, and so does a refusal
- all system text counts as one message, also user text in `<system-reminder>`
- adjacent texts of the model are joined
- tool results come first in a turn; a failed one starts with "Error: "
- tool names and call ids are written as every API accepts them
- tool and response schemas always have type object; duplicates in `required` are ignored
- with `tool_choice` none, `parallel_tool_calls` is ignored
- stop strings that Dragoman applies itself count as sent
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec

from dragoman.core import messages as v
from dragoman.core.identifiers import CALL_ID, NAME_FORM, rename_for_api
from dragoman.wire.dialect import UpstreamRequest

TOLD: Final = {
    "conversation": (
        "text behind",
        "of a result is its JSON",
        "pictures and files of results",
        "a word of the user to go on",
        "what a call was given, which is no object",
        "request_adapted",
    ),
    "pictures": ("what is called",),
    "files": ("what is called",),
    "tools": ("schema_adapted", "tool "),
    "tool_choice": ("tool ",),
    "max_tokens": ("max_tokens", "max_output_tokens"),
    "thoughts": ("thoughts", "reasoning", "thinking", "signature"),
    "response_schema": ("schema_adapted", "a reply of any JSON object"),
}
"""Names in warnings that differ from the names here."""
SAID_ELSEWHERE: Final = frozenset(
    (
        *(
            "functions",
            "in_item",
            "max_completion_tokens",
            "namespace",
            "output_config",
            "reasoning_effort",
            "thinking",
        ),
        *(
            "response_format",
            "search_result",
            "source",
            "type",
            "in_namespace",
            "about_namespace",
            "toolset",
            "toolset_name",
            "x-anthropic-billing-header",
        ),
        *("id", "index", "status", "logprobs", "store", "strict"),
    )
)
"""Fields that are also parsed into a value, or do not affect the model: they need no warning."""

APART: Final = ("pictures", "files", "thoughts")
REMINDER: Final = re.compile(r"<system-reminder>\n(.*)\n</system-reminder>", re.DOTALL)


class Said(NamedTuple):
    """One item of a conversation."""

    speaker: str
    kind: str
    value: Any


def lost(asked: v.Request, arrived: v.Request, written: Sequence[UpstreamRequest]) -> Iterator[tuple[str, Any, Any]]:
    """Yields lost values without a warning: name, old and new value."""
    told = " ".join(f"{warning.code}: {warning.message}" for outgoing in written for warning in outgoing.warnings)
    watched = [text for outgoing in written for text in outgoing.stop_locally]
    before, after = essence(asked), essence(arrived, watched)
    for name in before:
        if name == "max_tokens" and before[name] is None:
            continue  # an API with a required limit gets the largest one, so nothing is lost
        if before[name] != after[name] and not any(words in told for words in TOLD.get(name, (name,))):
            yield name, before[name], after[name]
    unnamed = {name for name in _extras(asked) - _extras(arrived) if name not in told}
    if unnamed:
        yield "fields of its own", unnamed, told


def essence(request: v.Request, watched: Sequence[str] = ()) -> dict[str, Any]:
    """The content of a request, by name."""
    request = rename_for_api(request, NAME_FORM, CALL_ID)
    said = list(_all_said(request.messages))
    tools = {t.name: (t.description, _schema(t.parameters)) for t in request.tools if t.kind == "function"}
    choice = request.tool_choice if tools else v.ToolChoice()
    return {
        "conversation": list(_joined(item for item in said if item.kind not in APART)),
        **{kind: [item.value for item in said if item.kind == kind] for kind in APART},
        "tools": tools,
        "tool_choice": (choice.mode, choice.name, choice.parallel_tool_calls or choice.mode == "none"),
        "max_tokens": request.max_tokens,
        "stop": {*request.stop, *watched},
        "response_schema": _schema(request.response_schema) if request.response_schema else None,
        "effort": request.reasoning_effort,
        **msgspec.structs.asdict(request.sampling),
    }


def _schema(schema: str) -> Any:
    said = {"type": "object", "properties": {}, **json.loads(schema)}
    if isinstance(said.get("required"), list):
        said["required"] = list(dict.fromkeys(said["required"]))
    return said


def _joined(said: Iterable[Said]) -> Iterator[Said]:
    for (speaker, is_text), group in groupby(said, lambda item: (item.speaker, item.kind == "text")):
        joint = {"system": "\n", "assistant": ""}.get(speaker)
        if is_text and joint is not None:
            words = joint.join(item.value for item in group)
            filled = [line for line in words.split("\n") if line.strip()] if speaker == "system" else [words]
            yield Said(speaker, "text", "\n".join(filled))
        else:
            yield from group


def _all_said(messages: Sequence[v.Message]) -> Iterator[Said]:
    for message in messages:
        speaker = "system" if message.role == "developer" else message.role
        for part in sorted(message.parts, key=lambda part: not isinstance(part, v.ToolResult)):
            yield from _said(speaker, part)


def _said(speaker: str, part: v.Part) -> Iterator[Said]:
    match part:
        case v.Text(text) | v.Refusal(text):
            if reminded := REMINDER.fullmatch(text):
                speaker, text = "system", reminded[1]
            if text.strip():
                yield Said(speaker, "text", text)
        case v.Document(source, title) if source.text:
            yield Said(speaker, "text", f"{title}\n{source.text}" if title else source.text)
        case v.Image(source):
            yield Said(speaker, "pictures", source)
        case v.Document(source) | v.Audio(source):
            yield Said(speaker, "files", source)
        case v.Reasoning(text, signature, redacted):
            yield Said(speaker, "thoughts", (text, signature, redacted))
        case v.ToolCall(id, name, arguments):
            yield Said("assistant", "call", (id, name, _arguments(arguments)))
        case v.ToolResult():
            yield from _result(part)
        case v.UnknownPart() | v.PreviousResponseRef():
            return  # dropped with a warning that names its type, or rejected


def _result(result: v.ToolResult) -> Iterator[Said]:
    inner = [item for part in result.parts for item in _said("tool", part)]
    words = [item.value for item in inner if item.kind == "text"]
    if result.is_error:
        first = words[:1] if result.parts and isinstance(result.parts[0], v.Text) else []
        words = [f"Error: {''.join(first)}", *words[len(first) :]]
    yield Said("tool", "result", (result.call_id, words))
    yield from (item for item in inner if item.kind != "text")


def _arguments(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _extras(request: v.Request) -> set[str]:
    """The names of all unparsed fields, at any depth."""
    parts = [part for message in request.messages for part in message.parts]
    inner = [part for result in parts if isinstance(result, v.ToolResult) for part in result.parts]
    holders = (request, *request.messages, *request.tools, *parts, *inner)
    # A vendor's hosted tool is unparsed, and is named by its kind.
    kept = [h.extra for h in holders if hasattr(h, "extra") and not (isinstance(h, v.Tool) and h.kind != "function")]
    named = {name.removeprefix("outer.") for extra in kept for name, raw in extra.items() if bytes(raw) != b"null"}
    return named - SAID_ELSEWHERE - {"reasoning", "text"}
