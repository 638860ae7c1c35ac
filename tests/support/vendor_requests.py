"""Requests generated from the vendors' own types, which their Python packages have: everything that an API defines.

What the types do not say (that a forced tool must be offered, that numbers have limits) is put right afterwards, in
`SENSE`, a line for each rule.
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
    """Values of a type, as JSON has them."""
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
    """A reply's own objects may be sent back, too; they have the shapes of the parameters."""
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
    """All that is required, and of the rest some: little of it further in."""
    made = {}
    for name, kind in _hints(hint).items():
        if get_origin(kind) in (Required, Required2) or hint.__total__ or (depth > 0 and draw(st.integers(0, 5)) == 0):
            made[name] = draw(value(kind, depth - 1))
    return made


def requests(dialect: str) -> st.SearchStrategy[Json]:
    """Requests that the vendor would take."""
    return st.tuples(value(params(dialect), 5), st.integers(0, 9)).map(lambda made: _sensible(dialect, *made))


def each(body: Any, *keys: str) -> Iterator[Json]:
    """All objects within that have these keys."""
    if isinstance(body, dict):
        if all(key in body for key in keys):
            yield body
        for inner in list(body.values()):
            yield from each(inner, *keys)
    elif isinstance(body, list):
        for inner in body:
            yield from each(inner, *keys)


def _sensible(dialect: str, body: Json, chance: int) -> Json:
    """The body, where the types alone let nonsense through."""
    for name in _REFUSED[dialect]:
        body.pop(name, None)
    for name, example in _NEEDED[dialect].items():
        body.setdefault(name, example)
    body.pop("stream_options", None)  # of a stream, which these do not ask for
    if "tools" not in body:
        body.pop("tool_choice", None)
    if "max_completion_tokens" in body:
        body.pop("max_tokens", None)
    for rule in (_of_today, _somebody_speaks, _ids, _one_source, _objects, _marked):
        rule(body)
    _offered(body, chance)
    return body


def _of_today(body: Json) -> None:
    """Messages of 2023 become calls and results; references to items are looked up here, and never sent on."""
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
            message["role"] = "user"  # the model gives no results
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
    """A file or a picture is in one place."""
    for block in each(body, "type"):
        if block["type"] in ("file", "input_file", "input_image") and "source" not in block:
            inner = block.get("file", block)
            for name in ("file_data", "file_url", "image_url", "file_id"):
                inner.pop(name, None)
            inner["file_id"] = "file_1"


def _objects(body: Json) -> None:
    """Schemas, of which some types say no more than that they are something."""
    for tool in each(body, "parameters"):
        if not isinstance(tool["parameters"], dict):
            tool["parameters"] = {"type": "object"}
    for tool in each(body, "input_schema"):
        if isinstance(tool["input_schema"], dict):
            tool["input_schema"] = _object_schema(tool["input_schema"])


def _object_schema(made: Json) -> Json:
    """Returns a schema that Anthropic's API takes, with as many members as this one."""
    names = [f"member.{n}" for n in range(len(made.get("properties") or made))]
    return {"type": "object", "properties": {name: {} for name in names}, "required": names[1:]}


def _marked(body: Json) -> None:
    """Anthropic takes four marks for its cache."""
    for block in list(each(body, "cache_control"))[4:]:
        del block["cache_control"]


def _offered(body: Json, chance: int) -> None:
    """Tools have names of their own, and a tool that is to be called is one of them."""
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
    """Kinds of tools that the vendor runs, by which OpenAI Responses has them chosen."""
    from openai.types.responses import tool_choice_types_param

    return (*get_args(get_type_hints(tool_choice_types_param.ToolChoiceTypesParam)["type"]), "mcp", "shell")


_REFUSED: Final = {
    "anthropic_messages": (),
    "openai_chat": ("n", "functions", "function_call"),
    "openai_responses": ("conversation", "prompt", "background", "background_options", "previous_response_id"),
}
"""By name: the docstring of the dialect says why."""
_NEEDED: Final[dict[str, Json]] = {
    "anthropic_messages": {},
    "openai_chat": {},
    "openai_responses": {"model": "m", "input": "hi"},
}
"""By the API, though not by the types."""
