"""Applies steps to a request of a client in any API's shape, for programs without the gateway."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from dragoman import dialects
from dragoman.api.inputs import parse_request
from dragoman.core.errors import UsageError
from dragoman.core.events import Notice
from dragoman.dialects import Api
from dragoman.steps import apply
from dragoman.steps.read import FIELD, read_steps
from dragoman.text.json_cursor import Cursor

_CHANGED = ("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call")


class StepsNow(NamedTuple):
    """What the steps of a conversation allow now."""

    body: Mapping[str, Any]
    """The request, with the tools that may be called now and the tool choice."""
    tools: tuple[str, ...]
    """Names of the tools that may be called now."""
    left: tuple[str, ...]
    """Required steps that are not done."""
    warnings: tuple[Notice, ...]
    """What the next step is, or why the steps do not apply."""


def apply_steps(body: Mapping[str, Any], api: Api, steps: Mapping[str, Any] | str = "") -> StepsNow:
    """Restricts a request to what its steps allow now; call it before each request of a conversation.

        now = apply_steps({"model": …, "messages": …, "tools": …}, "openai_chat", {"terminal": "submit_report"})

    Args:
        body: The body of the request, with all tools; it is not changed.
        api: The API of the request.
        steps: The steps, as in the field `dragoman` of a request, or "derive"; empty: those of the field.

    Returns:
        The restricted request, and what is allowed.

    Raises:
        ConfigError: The API is unknown.
        RequestError: The request or the steps are invalid; the message says why and where.
        UsageError: The body or the steps are not JSON.
    """
    request = parse_request(body, api)
    if steps != "":
        try:
            raw = msgspec.Raw(msgspec.json.encode(steps))
        except (TypeError, UnicodeEncodeError) as error:
            raise UsageError(f"expected steps as JSON has them: {error} - at steps") from None
        request = replace(request, steps=read_steps(Cursor(raw, "steps")))
    applied = apply.apply_steps(request)
    changed = {name: value for name, value in body.items() if name != FIELD}
    if applied.request.prompt_tools or applied.request.tool_choice != request.tool_choice:
        written = msgspec.json.decode(dialects.get(api).write_request(applied.request, request.model).body)
        changed = {name: value for name, value in changed.items() if name not in _CHANGED}
        changed |= {name: written[name] for name in _CHANGED if name in written}
    if applied.allowed is None:
        tools = request.tools if request.tool_choice.mode != "none" else ()
        return StepsNow(changed, tuple(tool.name for tool in tools), (), applied.notices)
    return StepsNow(changed, applied.allowed.tools, applied.allowed.open, applied.notices)
