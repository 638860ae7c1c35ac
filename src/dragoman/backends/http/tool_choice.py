"""A choice of tools as a kind of server heeds it, where it does not heed it as it is.

Of a named tool, which many servers refuse or take for `auto`, the model is shown no other; where no call may be made it
is shown none. What each kind heeds is a row of `catalog/servers.toml`, with its source.
"""

from collections.abc import Collection

from msgspec.structs import replace

from dragoman.core.events import Notice
from dragoman.core.messages import Request, ToolChoice


def heeded(request: Request, forms: Collection[str]) -> tuple[Request, tuple[Notice, ...]]:
    """The request with a choice of these forms, and what is given up; as it is where nothing is known of them."""
    choice = request.tool_choice
    if not forms or not request.tools or choice.mode in forms or choice.mode not in ("named", "none"):
        return request, ()
    if choice.mode == "none":
        return replace(request, tools=(), tool_choice=ToolChoice()), ()
    only = tuple(tool for tool in request.tools if tool.name == choice.name)
    if not only:
        return request, ()
    if "required" in forms:
        return replace(request, tools=only, tool_choice=replace(choice, mode="required", name="")), ()
    told = Notice(
        "unconstrained", "the server takes no tool_choice that names a tool: its model is shown that one alone"
    )
    return replace(request, tools=only, tool_choice=replace(choice, mode="auto", name="")), (told,)
