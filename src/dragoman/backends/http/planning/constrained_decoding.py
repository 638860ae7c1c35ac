"""Request fields that constrain a server's model to tool calls or to JSON, in every method that servers have.

    gbnf                {"grammar": "root ::= …"}                                           llama.cpp
    ebnf                {"ebnf": "root ::= …"}                                              SGLang
    structured_outputs  {"structured_outputs": {"grammar": "root ::= …"}}                   vLLM
    structural_tag      {"response_format": {"type": "structural_tag", "format": {…}}}      SGLang, vLLM
    json_schema         {"response_format": {"type": "json_schema", "json_schema": {…}}}    most others

Each method and each provider that accepts it has a row in `catalog/servers.toml`, with its source. If the choice of
tools is free, only two methods work: a structural tag, and GBNF for completions; both let the model write text until a
tool call begins. llama.cpp's server accepts the fields for that in a chat too, but constrains the model from the first
token all the same (b11549 of xllamacpp, run 2026-11). A JSON Schema cannot require tags: the tool calls are then a list
in an object, `{"tool_calls": […]}`, which the format `xlam` reads.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from dragoman.constraints.constraint import UNREADABLE, ConstrainedCall, Constraint
from dragoman.constraints.gbnf import expression_grammar, to_gbnf
from dragoman.constraints.grammar import JsonValue
from dragoman.constraints.reply_schema import json_schema
from dragoman.constraints.structural_tag import to_structural_tag
from dragoman.core.events import Notice
from dragoman.core.messages import JsonText, Tool, ToolChoice
from dragoman.parsing.format import Format
from dragoman.schema.adapt import adapt, summarize_changes
from dragoman.schema.targets import Target
from dragoman.wire.dialect import UpstreamRequest

Fields: TypeAlias = Mapping[str, Any]
SCHEMA_METHOD: Final = "json_schema"
SCHEMA_REPLY_FORMAT: Final = "xlam"
"""The format that reads a reply constrained by such a schema."""


class ConstraintFields(NamedTuple):
    """The fields to add to a request, with warnings about what they cannot constrain."""

    fields: Fields
    warnings: tuple[Notice, ...] = ()
    reply_format: str = ""
    """Name of the format of the reply; empty: the model's own."""


def constrain_to_calls(
    methods: Iterable[str],
    format: Format,
    tools: Sequence[Tool],
    choice: ToolChoice,
    target: Target | None = None,
    *,
    prompted: bool = False,
) -> ConstraintFields:
    """Returns the fields that constrain a model to calls of these tools.

    A free choice that cannot be constrained is not reported: until a call begins the model may write any text.

    Args:
        methods: those that the server supports; the first that fits is used.
        format: the format in which the model writes calls.
        tools: the callable tools.
        choice: the request's tool choice.
        target: the JSON Schema profile of the server; None: any schema.
        prompted: whether the request is for a completion, not for a chat.
    """
    if choice.mode not in ("required", "named"):
        return _triggered(methods, format, tools, choice, prompted)
    method = next((method for method in methods if method in _CALL_FIELDS or method == SCHEMA_METHOD), "")
    if method == SCHEMA_METHOD:
        return _calls_by_schema(tools, choice, target)
    constraint = format.constrain(tools, choice)
    if constraint is None or not method:
        return ConstraintFields(
            {}, (unconstrained_warning("a call is required, which the server has no way to hold its model to"),)
        )
    return ConstraintFields(
        _CALL_FIELDS[method](constraint), _relaxed_warnings(constraint, _callable_names(tools, choice))
    )


def _triggered(
    methods: Iterable[str], format: Format, tools: Sequence[Tool], choice: ToolChoice, prompted: bool
) -> ConstraintFields:
    """Returns the fields that constrain a model from the beginning of a tool call."""
    method = next((method for method in methods if method == "structural_tag" or (method == "gbnf" and prompted)), "")
    # A trigger applies anywhere in the text. Calls without tags begin at the start of a reply only, so no trigger fits
    # them.
    anywhere = not (format.markup and format.markup.untagged_calls)
    constraint = format.constrain(tools, choice) if method and anywhere else None
    if constraint is None:
        return ConstraintFields({})
    return ConstraintFields(
        _CALL_FIELDS[method](constraint), _relaxed_warnings(constraint, _callable_names(tools, choice))
    )


def _calls_by_schema(tools: Sequence[Tool], choice: ToolChoice, target: Target | None) -> ConstraintFields:
    """Returns the fields for one JSON Schema of the whole reply, adapted to the server."""
    schema = json_schema(tools, choice)
    if schema is None:
        return ConstraintFields({}, (unconstrained_warning("a call is required, and none of the tools can be called"),))
    adapted = adapt(schema, target) if target else None
    changes = summarize_changes({"the calls": adapted.changes}) if adapted and adapted.changes else ""
    warning = (
        Notice(
            "schema_relaxed",
            f"decoding ignores parts of the tools' schemas that the server does not support: {changes}",
        ),
    )
    return ConstraintFields(
        _response_format(msgspec.Raw((adapted.json if adapted else schema).encode())),
        warning if changes else (),
        SCHEMA_REPLY_FORMAT,
    )


def _callable_names(tools: Sequence[Tool], choice: ToolChoice) -> list[str]:
    """Returns the names of the tools for which a constraint has calls, in its order."""
    return [t.name for t in tools if t.kind == "function" and (choice.mode != "named" or t.name == choice.name)]


def _relaxed_warnings(constraint: Constraint, names: Sequence[str]) -> tuple[Notice, ...]:
    """Returns a warning about the parts of the tools' schemas that no grammar can express."""
    unenforced = [(name, _unsupported_keywords(call)) for name, call in zip(names, constraint.calls, strict=True)]
    text = "; ".join(f"{name}: {', '.join(keywords)}" for name, keywords in unenforced if keywords)
    return (
        (Notice("schema_relaxed", f"decoding ignores parts of the tools' schemas that no grammar can express: {text}"),)
        if text
        else ()
    )


def _unsupported_keywords(call: ConstrainedCall) -> tuple[str, ...]:
    return call.relaxed or (_unsupported_by_gbnf(call.body) if isinstance(call.body, JsonValue) else ())


@lru_cache(256)
def _unsupported_by_gbnf(body: JsonValue) -> tuple[str, ...]:
    """Returns the keywords of a schema that GBNF cannot express; cached, as agents repeat their schemas every turn."""
    try:
        body.read()
    except (ValueError, RecursionError):
        return (UNREADABLE,)
    return to_gbnf(Constraint("", ("", ""), (ConstrainedCall("", body, ""),), "", parallel=False)).relaxed


def constrain_to_json(methods: Iterable[str], schema: JsonText) -> ConstraintFields:
    """Returns the fields that constrain a completion to JSON of this schema, for a request without tools."""
    method = next((method for method in methods if method in _JSON_FIELDS), "")
    try:
        json.loads(schema)
        return ConstraintFields(
            _JSON_FIELDS[method](schema), _reply_schema_warnings(schema) if method == "gbnf" else ()
        )
    except (KeyError, ValueError, RecursionError):
        return ConstraintFields(
            {}, (unconstrained_warning("the server has no way to hold its model to the schema of the reply"),)
        )


def _reply_schema_warnings(schema: JsonText) -> tuple[Notice, ...]:
    keywords = _unsupported_by_gbnf(JsonValue(schema))
    warning = Notice(
        "schema_relaxed",
        f"decoding ignores parts of the reply's schema that no grammar can express: {', '.join(keywords)}",
    )
    return (warning,) if keywords else ()


def unconstrained_warning(why: str) -> Notice:
    """Returns the warning that the request was sent without a constraint."""
    return Notice("constraint_not_applied", why)


def with_constraint(outgoing: UpstreamRequest, constraint: ConstraintFields) -> UpstreamRequest:
    """Returns the request with these fields and warnings."""
    warnings = (*outgoing.warnings, *constraint.warnings)
    if not constraint.fields:
        return outgoing._replace(warnings=warnings)
    body = msgspec.json.decode(outgoing.body, type=dict[str, msgspec.Raw])
    merged = msgspec.json.encode({**body, **constraint.fields})
    return outgoing._replace(body=merged, warnings=warnings, reply_format=constraint.reply_format)


def _response_format(schema: Any) -> Fields:
    stated = {"name": "reply", "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": stated}}


_CALL_FIELDS: Final[Mapping[str, Callable[[Constraint], Fields]]] = {
    "gbnf": lambda constraint: to_gbnf(constraint).body(),
    "ebnf": lambda constraint: {"ebnf": to_gbnf(constraint).grammar},
    "structured_outputs": lambda constraint: {"structured_outputs": {"grammar": to_gbnf(constraint).grammar}},
    "structural_tag": lambda constraint: {"response_format": msgspec.Raw(to_structural_tag(constraint).encode())},
}
_JSON_FIELDS: Final[Mapping[str, Callable[[JsonText], Fields]]] = {
    "gbnf": lambda schema: {"grammar": expression_grammar(JsonValue(schema))},
    "structured_outputs": lambda schema: {"structured_outputs": {"json": json.loads(schema)}},
    SCHEMA_METHOD: lambda schema: _response_format(json.loads(schema)),
}
