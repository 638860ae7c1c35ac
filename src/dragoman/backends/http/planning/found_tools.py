"""Keeps found tools out of the beginning of a prompt, where a server would render them: its prompt cache stays valid.

A server renders `tools` before the conversation, and parses no calls of other tools. Some servers still render them
with `tool_choice` "none", and leave the model's calls in the text. So they get only the tools that were there from the
beginning, with that choice, and the calls are parsed here. The model has read the definitions of found tools in the
results of its searches.
"""

from collections.abc import Callable
from dataclasses import replace

import msgspec

from dragoman.backends.http.model_modes import ModelMode
from dragoman.catalog.servers import Provider
from dragoman.core.messages import Request
from dragoman.parsing.format import Format


def mode_for_found_tools(
    request: Request, mode: ModelMode, provider: Provider | None, format_of: Callable[[Request, ModelMode], Format]
) -> ModelMode:
    """Returns tool mode `parse` for a request with found tools if the server is one of these; else the mode.

    Args:
        request: The request.
        mode: How the model is asked for calls.
        provider: The server's type; None: not known.
        format_of: Returns the format in which the model writes calls; it takes long, so only if it matters.
    """
    if mode.tool_mode != "native" or not _leaves_calls(request, provider) or format_of(request, mode).name == "auto":
        return mode
    return replace(mode, tool_mode="parse")


def with_calls_in_text(request: Request, provider: Provider | None) -> Request:
    """Returns the request in tool mode `parse` so that such a server does not parse calls of found tools."""
    if not _leaves_calls(request, provider):
        return request
    return msgspec.structs.replace(request, tool_choice=msgspec.structs.replace(request.tool_choice, mode="none"))


def _leaves_calls(request: Request, provider: Provider | None) -> bool:
    if provider is None or not provider.none_leaves_calls or request.response_schema:
        return False
    return request.tool_choice.mode == "auto" and any(tool.loading == "found" for tool in request.tools)
