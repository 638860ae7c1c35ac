"""Rewrites a tool choice of a named tool, or of none, that a provider does not support.

A named tool, which many servers reject or treat as `auto`, becomes a request that shows the model this tool alone; if
no call is allowed, the model is shown no tools. What each provider supports is a row of `catalog/servers.toml`, with
its source. `required` is not changed here: if the provider ignores it, `RequestPlanner` constrains the model
(`constrained_decoding`).
"""

from collections.abc import Collection

from msgspec.structs import replace

from dragoman.core.events import Notice
from dragoman.core.messages import Request, ToolChoice


def downgrade_tool_choice(request: Request, forms: Collection[str]) -> tuple[Request, tuple[Notice, ...]]:
    """Returns the request with a tool choice that the provider supports, and warnings about what is lost.

    Args:
        request: the client's request.
        forms: modes of `tool_choice` that the provider supports; empty: not known, so nothing is changed.
    """
    choice = request.tool_choice
    if not forms or not request.tools or choice.mode in forms or choice.mode not in ("named", "none"):
        return request, ()
    if choice.mode == "none":
        return replace(request, tools=(), tool_choice=ToolChoice()), ()
    named_tool = tuple(tool for tool in request.tools if tool.name == choice.name)
    if not named_tool:
        return request, ()
    if "required" in forms:
        return replace(request, tools=named_tool, tool_choice=replace(choice, mode="required", name="")), ()
    warning = Notice(
        "constraint_not_applied",
        "the server accepts no tool_choice that names a tool: the model is shown only that tool",
    )
    return replace(request, tools=named_tool, tool_choice=replace(choice, mode="auto", name="")), (warning,)
