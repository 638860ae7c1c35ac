"""Request fields that both of OpenAI's APIs have, under the same name or another.

    Chat Completions                     Responses
    the names in `SHARED`                the same
    `verbosity`                          `text.verbosity`
    `logprobs`, `top_logprobs`           `include` of `message.output_text.logprobs`, `top_logprobs`
    `image_url.detail`                   `detail` of the part
    `format.grammar` of a custom tool    `format`

Source: the parameter types of the openai package 3.52; 2026-11.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from dragoman.core.messages import ExtraFields, Tool

APIS: Final = frozenset({"openai_chat", "openai_responses"})
SHARED: Final = frozenset(
    (
        *("metadata", "moderation", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        *("safety_identifier", "service_tier", "top_logprobs", "user"),
    )
)
DETAILS: Final = (b'"auto"', b'"low"', b'"high"')
"""Values of an image's `detail` in both APIs."""
REASONING_FIELDS: Final = ("reasoning_content", "reasoning", "thinking")
"""Fields of a Chat Completions message in which servers send reasoning."""
CHOICE_MODES: Final[tuple[Literal["none", "auto", "required"], ...]] = ("none", "auto", "required")
"""Values of `tool_choice` that do not name a tool."""
_LOGPROBS: Final = "message.output_text.logprobs"

Json = dict[str, object]


def to_chat_fields(extra: ExtraFields) -> tuple[Json, ExtraFields]:
    """Converts fields of a Responses request to Chat Completions; also returns the fields without an equivalent."""
    fields: Json = {name: raw for name, raw in extra.items() if name in SHARED}
    left = {name: raw for name, raw in extra.items() if name not in SHARED}
    if (text := _members(left, "text")) and "verbosity" in text:
        fields["verbosity"] = text.pop("verbosity")
        left["text"] = msgspec.Raw(msgspec.json.encode(text))
    include = _list(left, "include")
    if _LOGPROBS in include:
        include.remove(_LOGPROBS)
        fields["logprobs"] = True
        left["include"] = msgspec.Raw(msgspec.json.encode(include))
        if not include:
            del left["include"]
    if "top_logprobs" in fields:
        fields["logprobs"] = True
    return fields, left


def to_responses_fields(extra: ExtraFields) -> tuple[Json, ExtraFields]:
    """Converts fields of a Chat Completions request to Responses; also returns the fields without an equivalent.

    `text` and `include` must be merged with those of the request.
    """
    fields: Json = {name: raw for name, raw in extra.items() if name in SHARED}
    left = {name: raw for name, raw in extra.items() if name not in SHARED}
    if "verbosity" in left:
        fields["text"] = {"verbosity": left.pop("verbosity")}
    if bytes(left.get("logprobs", b"")) in (b"true", b"false"):
        fields |= {"include": [_LOGPROBS]} if bytes(left.pop("logprobs")) == b"true" else {}
    if bytes(left.get("store", b"")) in (b"true", b"false"):
        fields["store"] = left.pop("store")
    return fields, left


def to_responses_custom_tool(extra: ExtraFields) -> tuple[Json, ExtraFields]:
    """Converts fields of a Chat Completions custom tool to Responses; also returns those without an equivalent."""
    form, left = _members(extra, "format"), {name: raw for name, raw in extra.items() if name != "format"}
    if grammar := _members(form, "grammar"):
        more = {f"format.{name}": raw for name, raw in form.items() if name not in ("type", "grammar")}
        grammar.pop("type", None)
        return {"type": "custom", "format": {"type": "grammar", **grammar}}, {**left, **more}
    if bytes(form.get("type", b"")) == b'"text"':
        return {"type": "custom", "format": form}, left
    return {"type": "custom"}, extra


def is_custom(tool: Tool) -> bool:
    """Returns whether it is a custom tool, which takes free text and is offered as a function."""
    return tool.kind == "function" and bytes(tool.extra.get("type", b"")) == b'"custom"'


def merge_fields(body: Json, shared: Json) -> Json:
    """Returns the body with these fields; objects and lists of the same name are merged."""
    for name, more in shared.items():
        match body.get(name), more:
            case dict(existing), dict():
                body[name] = {**existing, **more}
            case list(listed), list():
                body[name] = [*listed, *more]
            case _:
                body[name] = more
    return body


def _members(extra: ExtraFields, name: str) -> dict[str, msgspec.Raw]:
    raw = extra.get(name, msgspec.Raw(b"{}"))
    members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw]) if bytes(raw).startswith(b"{") else {}
    return {name: member for name, member in members.items() if bytes(member) != b"null"}


def _list(extra: Mapping[str, msgspec.Raw], name: str) -> list[object]:
    items = msgspec.json.decode(extra.get(name, msgspec.Raw(b"[]")))
    return items if isinstance(items, list) else []
