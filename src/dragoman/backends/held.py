"""Fields of a request by which a server holds its model to calls, or to JSON, in each way that there is.

    gbnf                {"grammar": "root ::= …"}                                           llama.cpp
    ebnf                {"ebnf": "root ::= …"}                                              SGLang
    structured_outputs  {"structured_outputs": {"grammar": "root ::= …"}}                   vLLM
    structural_tag      {"response_format": {"type": "structural_tag", "format": {…}}}      SGLang, vLLM
    json_schema         {"response_format": {"type": "json_schema", "json_schema": {…}}}    most others

Each has a row in `profiles/servers.toml`, with its source, and so has each kind of server that takes it. By a JSON
Schema alone no tags can be asked for: the call is then a bare object, which the lenient reading takes.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from dragoman.core.contracts import Constraint, Format, Outgoing
from dragoman.core.events import Warning
from dragoman.core.gbnf import gbnf
from dragoman.core.structural_tag import structural_tag
from dragoman.core.values import JsonText, Tool, ToolChoice

Fields: TypeAlias = Mapping[str, Any]


class Held(NamedTuple):
    """What goes into the request, and what is given up."""

    fields: Fields
    warnings: tuple[Warning, ...] = ()


def to_calls(ways: Iterable[str], format: Format, tools: Sequence[Tool], choice: ToolChoice) -> Held:
    """The fields that hold a model to calls of these tools, by the first of these ways that is known here.

    Nothing where the choice is free: until a call begins the model writes what it likes.
    """
    constraint = format.constrain(tools, choice) if choice.mode in ("required", "named") else None
    if choice.mode not in ("required", "named"):
        return Held({})
    way = next((way for way in ways if way in _CALLS), "")
    if constraint is None or not way:
        return Held({}, (unconstrained("a call is required, which the server has no way to hold its model to"),))
    offered = [t for t in tools if t.kind == "function" and (choice.mode != "named" or t.name == choice.name)]
    relaxed = sorted({word for call in constraint.calls for word in call.relaxed})
    told = Warning("relaxed_schema", f"what no grammar can say of the tools' schemas is not held: {', '.join(relaxed)}")
    return Held(_CALLS[way](constraint, offered), (told,) if relaxed else ())


def to_json(ways: Iterable[str], schema: JsonText) -> Held:
    """The fields that hold a completion to JSON of this schema, where the server is asked for nothing but text."""
    way = next((way for way in ways if way in _JSON), "")
    try:
        return Held(_JSON[way](json.loads(schema)))
    except (KeyError, ValueError, RecursionError):
        return Held({}, (unconstrained("the server has no way to hold its model to the schema of the reply"),))


def unconstrained(why: str) -> Warning:
    """That the model was asked without."""
    return Warning("unconstrained", why)


def added(outgoing: Outgoing, held: Held) -> Outgoing:
    """The request with these fields."""
    warnings = (*outgoing.warnings, *held.warnings)
    if not held.fields:
        return outgoing._replace(warnings=warnings)
    body = msgspec.json.decode(outgoing.body, type=dict[str, msgspec.Raw])
    return outgoing._replace(body=msgspec.json.encode({**body, **held.fields}), warnings=warnings)


def _bare_call(_: Constraint, tools: Sequence[Tool]) -> Fields:
    calls = [
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "enum": [tool.name]},
                "arguments": msgspec.Raw(tool.parameters.encode()),
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    return _response_format(calls[0] if len(calls) == 1 else {"anyOf": calls})


def _response_format(schema: Any) -> Fields:
    stated = {"name": "reply", "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": stated}}


_CALLS: Final[Mapping[str, Callable[[Constraint, Sequence[Tool]], Fields]]] = {
    "gbnf": lambda constraint, _: {"grammar": gbnf(constraint).grammar},
    "ebnf": lambda constraint, _: {"ebnf": gbnf(constraint).grammar},
    "structured_outputs": lambda constraint, _: {"structured_outputs": {"grammar": gbnf(constraint).grammar}},
    "structural_tag": lambda constraint, _: {"response_format": msgspec.Raw(structural_tag(constraint).encode())},
    "json_schema": _bare_call,
}
_JSON: Final[Mapping[str, Callable[[Any], Fields]]] = {
    "gbnf": lambda schema: {"json_schema": schema},
    "structured_outputs": lambda schema: {"structured_outputs": {"json": schema}},
    "json_schema": _response_format,
}
