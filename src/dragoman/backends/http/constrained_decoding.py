"""Fields of a request by which a server holds its model to calls, or to JSON, in each way that there is.

    gbnf                {"grammar": "root ::= …"}                                           llama.cpp
    ebnf                {"ebnf": "root ::= …"}                                              SGLang
    structured_outputs  {"structured_outputs": {"grammar": "root ::= …"}}                   vLLM
    structural_tag      {"response_format": {"type": "structural_tag", "format": {…}}}      SGLang, vLLM
    json_schema         {"response_format": {"type": "json_schema", "json_schema": {…}}}    most others

Each has a row in `catalog/servers.toml`, with its source, and so has each kind of server that takes it. With a free
choice only two of them can hold: a structural tag, and, for completions, GBNF; both let the model write what it likes
until a call begins. llama.cpp's server takes the words for that in a chat too, and holds the model from the start all
the same (b11549 of xllamacpp, run 2026-11). By a JSON Schema no tags can be asked for: the calls are then a list in an
object, `{"tool_calls": […]}`, which is read as the format `xlam` has it.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from dragoman.constraints.constraint import UNREADABLE, Constraint, HeldCall
from dragoman.constraints.gbnf import grammar_of, to_gbnf
from dragoman.constraints.grammar import Json
from dragoman.constraints.reply_schema import json_schema
from dragoman.constraints.structural_tag import to_structural_tag
from dragoman.core.events import Notice
from dragoman.core.messages import JsonText, Tool, ToolChoice
from dragoman.parsing.format import Format
from dragoman.schema.adapt import adapt, summary
from dragoman.schema.targets import Target
from dragoman.wire.dialect import UpstreamRequest

Fields: TypeAlias = Mapping[str, Any]
SCHEMA_WAY: Final = "json_schema"
WRITTEN_AS: Final = "xlam"
"""What reads a reply that is held to such a schema."""


class Held(NamedTuple):
    """What goes into the request, and what is given up."""

    fields: Fields
    warnings: tuple[Notice, ...] = ()
    written_as: str = ""
    """As `UpstreamRequest` has it."""


def to_calls(
    ways: Iterable[str],
    format: Format,
    tools: Sequence[Tool],
    choice: ToolChoice,
    target: Target | None = None,
    *,
    prompted: bool = False,
) -> Held:
    """The fields that hold a model to calls of these tools, by the first of these ways that can.

    `target`: which JSON Schemas the server takes. `prompted`: it is asked for a completion, not in a chat. Nothing is
    said of a free choice that cannot be held: until a call begins the model writes what it likes.
    """
    if choice.mode not in ("required", "named"):
        return _lazily(ways, format, tools, choice, prompted)
    way = next((way for way in ways if way in _CALLS or way == SCHEMA_WAY), "")
    if way == SCHEMA_WAY:
        return _to_schema(tools, choice, target)
    constraint = format.constrain(tools, choice)
    if constraint is None or not way:
        return Held({}, (unconstrained("a call is required, which the server has no way to hold its model to"),))
    return Held(_CALLS[way](constraint), _relaxed(constraint, _named(tools, choice)))


def _lazily(ways: Iterable[str], format: Format, tools: Sequence[Tool], choice: ToolChoice, prompted: bool) -> Held:
    """What holds a model from where a call begins."""
    way = next((way for way in ways if way == "structural_tag" or (way == "gbnf" and prompted)), "")
    # What may begin a call only at the start of a reply would be held in the middle of it too: a trigger is anywhere.
    anywhere = not (format.markup and format.markup.bare)
    constraint = format.constrain(tools, choice) if way and anywhere else None
    if constraint is None:
        return Held({})
    return Held(_CALLS[way](constraint), _relaxed(constraint, _named(tools, choice)))


def _to_schema(tools: Sequence[Tool], choice: ToolChoice, target: Target | None) -> Held:
    """One JSON Schema of the whole reply, as the server takes it."""
    whole = json_schema(tools, choice)
    if whole is None:
        return Held({}, (unconstrained("a call is required, and none of the tools can be called"),))
    made = adapt(whole, target) if target else None
    lost = summary({"the calls": made.changes}) if made and made.changes else ""
    told = (Notice("relaxed_schema", f"what the server does not take of the tools' schemas is not held: {lost}"),)
    return Held(
        _response_format(msgspec.Raw((made.json if made else whole).encode())), told if lost else (), WRITTEN_AS
    )


def _named(tools: Sequence[Tool], choice: ToolChoice) -> list[str]:
    """The tools that a constraint has calls of, in its order."""
    return [t.name for t in tools if t.kind == "function" and (choice.mode != "named" or t.name == choice.name)]


def _relaxed(constraint: Constraint, names: Sequence[str]) -> tuple[Notice, ...]:
    """What no grammar can say of each tool's schema."""
    unsaid = [(name, _unsaid(call)) for name, call in zip(names, constraint.calls, strict=True)]
    words = "; ".join(f"{name}: {', '.join(found)}" for name, found in unsaid if found)
    return (
        (Notice("relaxed_schema", f"what no grammar can say of the tools' schemas is not held: {words}"),)
        if words
        else ()
    )


def _unsaid(call: HeldCall) -> tuple[str, ...]:
    return call.relaxed or (_unsaid_of(call.body) if isinstance(call.body, Json) else ())


@lru_cache(256)
def _unsaid_of(body: Json) -> tuple[str, ...]:
    """The words of a schema that GBNF does not say; an agent sends the same ones every turn."""
    try:
        body.read()
    except (ValueError, RecursionError):
        return (UNREADABLE,)
    return to_gbnf(Constraint("", ("", ""), (HeldCall("", body, ""),), "", many=False)).relaxed


def to_json(ways: Iterable[str], schema: JsonText) -> Held:
    """The fields that hold a completion to JSON of this schema, where the server is asked for nothing but text."""
    way = next((way for way in ways if way in _JSON), "")
    try:
        json.loads(schema)
        return Held(_JSON[way](schema), _unsaid_warning(schema) if way == "gbnf" else ())
    except (KeyError, ValueError, RecursionError):
        return Held({}, (unconstrained("the server has no way to hold its model to the schema of the reply"),))


def _unsaid_warning(schema: JsonText) -> tuple[Notice, ...]:
    words = _unsaid_of(Json(schema))
    told = Notice("relaxed_schema", f"what no grammar can say of the reply's schema is not held: {', '.join(words)}")
    return (told,) if words else ()


def unconstrained(why: str) -> Notice:
    """That the model was asked without."""
    return Notice("unconstrained", why)


def added(outgoing: UpstreamRequest, held: Held) -> UpstreamRequest:
    """The request with these fields."""
    warnings = (*outgoing.warnings, *held.warnings)
    if not held.fields:
        return outgoing._replace(warnings=warnings)
    body = msgspec.json.decode(outgoing.body, type=dict[str, msgspec.Raw])
    merged = msgspec.json.encode({**body, **held.fields})
    return outgoing._replace(body=merged, warnings=warnings, written_as=held.written_as)


def _response_format(schema: Any) -> Fields:
    stated = {"name": "reply", "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": stated}}


_CALLS: Final[Mapping[str, Callable[[Constraint], Fields]]] = {
    "gbnf": lambda constraint: to_gbnf(constraint).body(),
    "ebnf": lambda constraint: {"ebnf": to_gbnf(constraint).grammar},
    "structured_outputs": lambda constraint: {"structured_outputs": {"grammar": to_gbnf(constraint).grammar}},
    "structural_tag": lambda constraint: {"response_format": msgspec.Raw(to_structural_tag(constraint).encode())},
}
_JSON: Final[Mapping[str, Callable[[JsonText], Fields]]] = {
    "gbnf": lambda schema: {"grammar": grammar_of(Json(schema))},
    "structured_outputs": lambda schema: {"structured_outputs": {"json": json.loads(schema)}},
    SCHEMA_WAY: lambda schema: _response_format(json.loads(schema)),
}
