"""Steps around the rounds of a response: the answer without a model, approval of calls, and their results."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from dragoman.core.backend import ExchangeContext
from dragoman.core.events import AnyEvent, Finish, Notice, Start, TextDelta, UsageUpdate
from dragoman.core.messages import Request, Text, ToolResult, Usage
from dragoman.gateway.vendor_tools.plan import VendorToolPlan, last_user_text
from dragoman.vendor_tools.codec import encode
from dragoman.vendor_tools.tool import ToolRunResult, VendorTool, VendorToolCall, error_result, unavailable_message


def needs_approval(call: VendorToolCall) -> bool:
    """Returns whether the user must approve the call first."""
    server, remote = call.tool.server, call.tool.remote
    if call.approval_id:
        return False
    return server is not None and remote is not None and server.asks_before(remote)


def refusal(plan: VendorToolPlan, tool: VendorTool, request: Request, context: ExchangeContext) -> Sequence[AnyEvent]:
    """Returns the response that the tool is not available, without asking a model.

    Args:
        plan: What the gateway does about the tools.
        tool: The tool.
        request: The request.
        context: The exchange.
    """
    arguments = {"query": last_user_text(request)} if tool.kind in ("web_search", "file_search") else {}
    call = VendorToolCall(context.new_id(), tool, encode(arguments))
    error = error_result("unavailable")
    return [
        Start(context.id, request.model, context.created),
        *plan.codec.begin(call),
        *plan.codec.finish(call, error),
        TextDelta(unavailable_message(tool)),
        UsageUpdate(plan.codec.count_uses(Usage(), {})),
        Notice("vendor_tool_unavailable", unavailable_message(tool), detail=tool.declared),
        Finish("stop"),
    ]


def with_results(request: Request, results: Mapping[str, ToolRunResult]) -> Request:
    """Returns the request with the results of calls, by their ids, in place of others."""
    messages = []
    for message in request.messages:
        parts = [
            tool_result(part.call_id, results[part.call_id])
            if isinstance(part, ToolResult) and part.call_id in results
            else part
            for part in message.parts
        ]
        messages.append(replace(message, parts=tuple(parts)))
    return replace(request, messages=tuple(messages))


def tool_result(call_id: str, result: ToolRunResult) -> ToolResult:
    """Returns the result of a call as the model reads it."""
    return ToolResult(call_id, (Text(result.text), *result.images), result.error is not None)
