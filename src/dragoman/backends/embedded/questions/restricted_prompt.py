"""The prompt of a request whose steps restrict what the model may call now: it describes all tools of the request.

So its beginning stays the same, and cached, from step to step. If the steps allow no further call, the model is told to
answer: it would otherwise write one more call, as it sees those before.
"""

from typing import Final

from msgspec.structs import replace

from dragoman.backends.embedded.questions.call_decision import has_distinct_calls
from dragoman.core.messages import Message, Request, Text, ToolChoice, ToolResult
from dragoman.parsing.format import Format

END_NOTE: Final = "All calls are done. Now answer my question in plain words."
"""Follows the last result if no further call is allowed."""


def must_end_in_words(request: Request, format: Format) -> bool:
    """Returns whether the model is told to answer in words, and constrained to them.

    Args:
        request: the restricted request.
        format: the format of the model.
    """
    is_over = bool(request.prompt_tools) and request.tool_choice.mode == "none" and not request.response_schema
    return is_over and has_distinct_calls(format)


def with_prompt_tools(request: Request, *, ends_in_words: bool) -> Request:
    """Returns the request as the model is shown it.

    Args:
        request: a request with `prompt_tools`.
        ends_in_words: whether no further call is allowed and the model is told so.
    """
    choice, messages = request.tool_choice, request.messages
    if choice.mode == "named":
        choice = ToolChoice("required", parallel_tool_calls=False)
    elif ends_in_words:
        choice = ToolChoice()
        if messages[-1].role != "user" or any(isinstance(part, ToolResult) for part in messages[-1].parts):
            messages = (*messages, Message("user", (Text(END_NOTE),)))
    return replace(request, messages=messages, tools=request.prompt_tools, tool_choice=choice)
