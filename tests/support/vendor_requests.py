"""Random requests generated from the types of the vendors' Python packages: everything that an API defines.

Rules that the types do not express (a forced tool must be offered, numbers have limits) are applied afterwards, in
`SENSE`, one line for each rule.
"""

import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final, Literal, NotRequired, Required, TypeAlias, get_args, get_origin, get_type_hints
from typing import NotRequired as NotRequired2
from typing import Required as Required2

from hypothesis import strategies as st
from pydantic import BaseModel
from typing_extensions import is_typeddict

Json: TypeAlias = dict[str, Any]

TEXTS: Final = st.text(st.sampled_from('ab é🐻"\\\n</{}') | st.characters(codec="utf-8"), min_size=1, max_size=12)
WRAPPERS: Final = (Required, NotRequired, Required2, NotRequired2)


def params(api: str) -> Any:
    """Returns the vendor's type of a request's body."""
    match api:
        case "anthropic_messages":
            from anthropic.types import message_create_params

            return message_create_params.MessageCreateParamsNonStreaming
        case "openai_chat":
            from openai.types.chat import completion_create_params

            return completion_create_params.CompletionCreateParamsNonStreaming
        case _:
            from openai.types.responses import response_create_params

            return response_create_params.ResponseCreateParamsNonStreaming


def value(hint: Any, depth: int) -> st.SearchStrategy[Any]:
    """JSON values of a type."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in WRAPPERS or origin is typing.Annotated:
        return value(args[0], depth)
    if origin in (typing.Union, types.UnionType):
        kinds = [a for a in args if _is_sent(a)]
        return st.sampled_from(kinds).flatmap(lambda kind: value(kind, depth))
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (list, Iterable, Sequence) or hint in (list, Iterable):
        inner = args[0] if args else object
        return st.lists(value(inner, depth - 1), min_size=1, max_size=2 if depth > 0 else 1)
    if origin is dict or hint is dict:
        inner = args[1] if args else object
        return st.dictionaries(TEXTS, value(inner, depth - 1), max_size=2)
    if is_typeddict(hint):
        return _object(hint, depth)
    return _PLAIN.get(hint, TEXTS)


def _is_sent(hint: Any) -> bool:
    """Whether a type is used in requests; response objects that can be sent back have parameter types too."""
    if get_origin(hint) is typing.Annotated:
        return _is_sent(get_args(hint)[0])
    if get_origin(hint) in (typing.Union, types.UnionType):
        return any(map(_is_sent, get_args(hint)))
    return hint is not type(None) and not (isinstance(hint, type) and issubclass(hint, BaseModel))


_PLAIN: Final[dict[Any, st.SearchStrategy[Any]]] = {
    str: TEXTS,
    int: st.integers(1, 500),
    float: st.sampled_from((0.0, 0.25, 1.0)),
    bool: st.booleans(),
    object: st.sampled_from(("x", 1, True)),
    type(None): st.none(),
}


@cache
def _hints(hint: Any) -> dict[str, Any]:
    return get_type_hints(hint, include_extras=True)


@st.composite
def _object(draw: st.DrawFn, hint: Any, depth: int) -> Json:
    """All required members, and some of the others, fewer at greater depth."""
    made = {}
    for name, kind in _hints(hint).items():
        if get_origin(kind) in (Required, Required2) or hint.__total__ or (depth > 0 and draw(st.integers(0, 5)) == 0):
            made[name] = draw(value(kind, depth - 1))
    return made


def requests(dialect: str) -> st.SearchStrategy[Json]:
    """Requests that the vendor would accept."""
    return st.tuples(value(params(dialect), 5), st.integers(0, 9)).map(lambda made: _sensible(dialect, *made))


def each(body: Any, *keys: str) -> Iterator[Json]:
    """Yields all nested objects with these keys."""
    if isinstance(body, dict):
        if all(key in body for key in keys):
            yield body
        for inner in list(body.values()):
            yield from each(inner, *keys)
    elif isinstance(body, list):
        for inner in body:
            yield from each(inner, *keys)


def _sensible(dialect: str, body: Json, chance: int) -> Json:
    """Corrects the body where the types alone allow invalid requests."""
    for name in _REFUSED[dialect]:
        body.pop(name, None)
    for name, example in _NEEDED[dialect].items():
        body.setdefault(name, example)
    body.pop("stream_options", None)  # only for streaming, which these requests do not use
    if "tools" not in body:
        body.pop("tool_choice", None)
    if "max_completion_tokens" in body:
        body.pop("max_tokens", None)
    for rule in (_of_today, _somebody_speaks, _ids, _one_source, _objects, _marked):
        rule(body)
    _offered(body, chance)
    return body


def _of_today(body: Json) -> None:
    """Converts legacy function messages to calls and results; item references are resolved, never forwarded."""
    if "messages" in body:
        body["messages"] = [m for m in body["messages"] if m["role"] != "function"]
        for message in body["messages"]:
            message.pop("function_call", None)
    if isinstance(body.get("input"), list):
        body["input"] = [item for item in body["input"] if item.get("type") != "item_reference"]
        for item in body["input"]:
            if not {"type", "role"} & item.keys():
                item["role"] = "user"
            if item.get("type") == "message":
                item.setdefault("role", "user")


def _somebody_speaks(body: Json) -> None:
    for message in body.get("messages", ()):
        if any(block.get("type") == "tool_result" for block in message.get("content") or () if isinstance(block, dict)):
            message["role"] = "user"  # the assistant sends no tool results
    for name in ("messages", "input"):
        if isinstance(body.get(name), list):
            body[name].append({"role": "user", "content": "x"})


def _ids(body: Json) -> None:
    for n, made in enumerate(each(body, "type")):
        for name in ("id", "tool_use_id", "call_id", "tool_call_id"):
            if isinstance(made.get(name), str):
                made[name] = f"id_{n}"
        if str(made["type"]).endswith("_call_output"):
            made.setdefault("call_id", f"id_{n}")


def _one_source(body: Json) -> None:
    """A file or an image has exactly one source."""
    for block in each(body, "type"):
        if block["type"] in ("file", "input_file", "input_image") and "source" not in block:
            inner = block.get("file", block)
            for name in ("file_data", "file_url", "image_url", "file_id"):
                inner.pop(name, None)
            inner["file_id"] = "file_1"


def _objects(body: Json) -> None:
    """Replaces schemas whose type allows any value by valid ones."""
    for tool in each(body, "parameters"):
        if not isinstance(tool["parameters"], dict):
            tool["parameters"] = {"type": "object"}
    for tool in each(body, "input_schema"):
        if isinstance(tool["input_schema"], dict):
            tool["input_schema"] = _object_schema(tool["input_schema"])


def _object_schema(made: Json) -> Json:
    """Returns a schema that Anthropic's API accepts, with as many members as this one."""
    names = [f"member.{n}" for n in range(len(made.get("properties") or made))]
    return {"type": "object", "properties": {name: {} for name in names}, "required": names[1:]}


def _marked(body: Json) -> None:
    """Anthropic accepts at most four cache marks."""
    for block in list(each(body, "cache_control"))[4:]:
        del block["cache_control"]


def _offered(body: Json, chance: int) -> None:
    """Tool names are unique, and a tool that must be called is offered."""
    names = []
    for n, tool in enumerate(body.get("tools", [])):
        for named in (tool, tool.get("function"), tool.get("custom")):
            if isinstance(named, dict) and "name" in named:
                named["name"] = f"tool_{n}"
                names.append((tool.get("type"), f"tool_{n}") if tool.get("type") != "namespace" else ("", ""))
    choice = body.get("tool_choice")
    if not isinstance(choice, dict):
        return
    wanted = [name for kind, name in names if choice.get("type") in (kind, "tool")]
    if wanted and "name" in choice:
        choice["name"] = wanted[chance % len(wanted)]
    elif wanted and isinstance(choice.get(choice.get("type", "")), dict):
        choice[choice["type"]]["name"] = wanted[chance % len(wanted)]
    elif choice.get("type") not in ("auto", "any", "none", *_hosted()):
        del body["tool_choice"]


@cache
def _hosted() -> Sequence[str]:
    """Kinds of hosted tools that `tool_choice` of OpenAI Responses can name."""
    from openai.types.responses import tool_choice_types_param

    return (*get_args(get_type_hints(tool_choice_types_param.ToolChoiceTypesParam)["type"]), "mcp", "shell")


_REFUSED: Final = {
    "anthropic_messages": (),
    "openai_chat": ("n", "functions", "function_call"),
    "openai_responses": ("conversation", "prompt", "background", "background_options", "previous_response_id"),
}
"""By name; the reasons are in the docstring of the dialect."""
_NEEDED: Final[dict[str, Json]] = {
    "anthropic_messages": {},
    "openai_chat": {},
    "openai_responses": {"model": "m", "input": "hi"},
}
"""Required by the API, though not by the types."""
