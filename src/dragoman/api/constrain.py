"""Builds constraints for engines with constrained decoding, and the JSON Schema of replies that contain only calls."""

from collections.abc import Iterable

from dragoman.api.inputs import AnyTool, parse_tools, resolve_format, validate_choice
from dragoman.constraints import reply_schema
from dragoman.constraints.constraint import Constraint
from dragoman.core.messages import JsonText, ToolChoice
from dragoman.parsing.format import Format


def build_constraint(format: str | Format, tools: Iterable[AnyTool], choice: ToolChoice) -> Constraint | None:
    """Builds the constraint under which a model calls these tools in its own format, with arguments that fit.

    `to_structural_tag` and `to_gbnf` write the constraint for an engine.

        constraint = build_constraint("hermes", tools, ToolChoice("required"))

    Args:
        format: The model's format: a name that `dragoman formats` lists, or a `Format`.
        tools: The offered tools, as `Tool` values or in any API's shape.
        choice: Which calls are allowed, or required.

    Returns:
        The constraint, or None where nothing must be constrained (no tools, choice "none") or nothing can be: choice
        "auto" in a format whose calls can begin like prose, or a format that can only be read.

    Raises:
        ConfigError: The format is unknown.
        RequestError: A tool is invalid; the message says which, why and where.
        UsageError: The choice is not possible with these tools.
    """
    offered = parse_tools(tools)
    return resolve_format(format).constrain(offered, validate_choice(choice, offered))


def to_json_schema(tools: Iterable[AnyTool], choice: ToolChoice) -> JsonText | None:
    """Returns the JSON Schema of a whole reply that calls these tools, for servers that accept only JSON Schema.

    LM Studio is such a server. The reply is `{"tool_calls": [{"name": …, "arguments": …}]}`, which
    `parse_calls(reply, "xlam", tools)` reads.

        schema = to_json_schema(tools, ToolChoice("required"))

    Args:
        tools: The offered tools, as `Tool` values or in any API's shape.
        choice: Which calls are required.

    Returns:
        The schema as JSON text, or None with choice "auto" or "none" or without tools: a schema cannot also allow text.

    Raises:
        RequestError: A tool is invalid; the message says which, why and where.
        UsageError: The choice is not possible with these tools.
    """
    offered = parse_tools(tools)
    return reply_schema.json_schema(offered, validate_choice(choice, offered))
