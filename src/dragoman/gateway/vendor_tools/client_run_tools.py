"""Offers a vendor's tools that the client runs to models that do not know them.

{"type": "shell"}, {"type": "bash_20250124"}    for another server: a function
{"type": "computer"}                            for a model that would not see the screenshots: left out
"""

from typing import Final

from msgspec.structs import replace

from dragoman.core.errors import UnsupportedError, quote
from dragoman.core.events import Notice
from dragoman.core.messages import Request, Tool, ToolChoice
from dragoman.dialects.anthropic_messages import client_tools as messages_tools
from dragoman.dialects.openai_responses import client_tools as responses_tools
from dragoman.gateway.routing.router import ModelRoute
from dragoman.wire.translation import notices_by_name

_TYPES: Final = b'"computer'
"""Beginning of the types of these tools in all APIs."""
_NO_IMAGES: Final = "the model sees no images, so it cannot use {}"


def with_functions(request: Request, route: ModelRoute) -> tuple[Request, tuple[Notice, ...]]:
    """Returns the request with such tools as functions, unless its server may know them, and warnings.

    Args:
        request: The complete request.
        route: The backend that is asked.

    Raises:
        RequestError: An item of such a tool lacks a required field.
        UnsupportedError: The request needs a tool that the model cannot use.
    """
    request, warnings = _without_screen_tools(request, route)
    is_messages = request.dialect == messages_tools.NAME and bool(request.tools)
    if not is_messages and request.dialect != responses_tools.NAME:
        return request, warnings
    is_own_api = route.backend.edits_context(route.request)
    if is_own_api and route.backend.runs_vendor_tools() is not False:
        return request, warnings
    if is_messages:  # for other APIs the reader has made functions of them
        return messages_tools.as_functions(request) if is_own_api else request, warnings
    return responses_tools.as_functions(request), warnings


def _without_screen_tools(request: Request, route: ModelRoute) -> tuple[Request, tuple[Notice, ...]]:
    """Returns the request without tools whose results the model cannot see, and warnings that name them.

    Args:
        request: The complete request.
        route: The backend that is asked.

    Raises:
        UnsupportedError: Such a tool must be called, or only such tools are offered.
    """
    blind = [tool for tool in request.tools if _is_for_screen(tool)]
    if not blind or route.backend.shows_images(route.request.model):
        return request, ()
    tools = tuple(tool for tool in request.tools if not _is_for_screen(tool))
    types = {tool.name or tool.kind: quote(_type(tool)) for tool in blind}
    choice = request.tool_choice
    named = choice.mode == "named" and choice.name in types
    if named or not (tools or choice.mode == "none"):
        name = types[choice.name] if named else next(iter(types.values()))
        raise UnsupportedError(f"{_NO_IMAGES.format(name)}; use a model with vision", "$.tools")
    choice = choice if tools else ToolChoice()
    warnings = notices_by_name("content_dropped", _NO_IMAGES, {_type(tool): quote(_type(tool)) for tool in blind})
    return replace(request, tools=tools, tool_choice=choice), tuple(warnings)


def _is_for_screen(tool: Tool) -> bool:
    return bytes(tool.extra.get("type", b"")).startswith(_TYPES)


def _type(tool: Tool) -> str:
    return bytes(tool.extra["type"]).decode().strip('"')
