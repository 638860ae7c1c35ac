"""Decides whether the upstream server or the gateway runs the vendor's tools of a request, or whether both cannot.

the server is the vendor's own             the request is sent as it is; results that the gateway wrote are text
a server of the client's API, which        tools with an executor become functions, others are sent as they are
  may run vendor tools
any other backend                          tools with an executor become functions, others are left out
  … and more tools are offered than set    a tool search that the client does not see is added (`deferral.py`)
  … and one that is left out is required   the model is not asked, because it would invent results
  or the only one
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from dragoman import dialects
from dragoman.core.errors import UnsupportedError, quote
from dragoman.core.events import Notice
from dragoman.core.messages import Message, Reasoning, Request, Tool, ToolChoice, UnknownPart, part_text
from dragoman.gateway.router import ModelRoute
from dragoman.gateway.vendor_tools.deferral import declared_search, internal_search, with_search
from dragoman.vendor_tools import own_history
from dragoman.vendor_tools.codec import VendorToolCodec, is_opaque
from dragoman.vendor_tools.tool import TOOL_SEARCH, ToolExecutor, VendorTool, unavailable_message
from dragoman.wire.translation import notices_by_name

_MAX_QUERY_CHARS = 256


class VendorToolPlan(NamedTuple):
    """What the gateway does about the vendor's tools of one request."""

    codec: VendorToolCodec
    request: Request
    """The request for the backend: tools with an executor are functions, as are past calls."""
    tools: Mapping[str, VendorTool]
    """The tools whose calls the gateway answers, by name; those without an executor with an error."""
    rounds: list[Message]
    """Messages of the rounds so far, with the results: untrusted text, in which the guard searches for copied calls."""
    run: frozenset[str] = frozenset()
    """Names of the tools that the gateway runs: functions in `request`."""
    refused: VendorTool | None = None
    """The response is that this tool is not available; the model is not asked."""
    warnings: tuple[Notice, ...] = ()
    """What the backend is not sent, unless it reports that itself."""

    def hide_tools(self, request: Request) -> Request:
        """Returns the backend's request without these functions: what the guard may expect of calls for the client.

        A tool search stays: if the model is re-asked, it needs it.
        """
        hidden = {name for name in self.run if self.tools[name].kind != TOOL_SEARCH}
        if not hidden and request.tool_choice.name not in self.run:
            return request
        tools = tuple(tool for tool in request.tools if tool.name not in hidden)
        choice = replace(request.tool_choice, mode="auto", name="") if tools else ToolChoice()
        return replace(request, tools=tools, tool_choice=choice)


def plan_vendor_tools(
    request: Request,
    find_route: Callable[[Request], ModelRoute | None],
    executors_for: Callable[[str, str], Mapping[str, ToolExecutor]],
    search_above: int = 0,
) -> VendorToolPlan | None:
    """Returns the plan; None: the request is sent as it is, as most are.

    Args:
        request: The complete request.
        find_route: Returns the preferred backend; None: there is none now.
        executors_for: Returns what a model of these names may have run, by kind of tool.
        search_above: Number of tools above which the model has to find them; 0: never.

    Raises:
        RequestError: The options of a tool are invalid.
        UnsupportedError: A tool that is not available must be called, or only such tools are offered, and the client's
            API has no block that says so.
    """
    codec = dialects.get(request.dialect).vendor_tools if request.dialect else None
    internal = internal_search(request, search_above) if search_above else None
    if codec is None or not (internal or _concerns(request, codec)) or (route := find_route(request)) is None:
        return None
    executors = executors_for(request.model, route.request.model)
    is_own_api = route.backend.edits_context(route.request)
    support = route.backend.runs_vendor_tools() if is_own_api else False
    if support or (support is None and not executors):
        return _with_text_history(request, codec)
    declared = [tool for tool in codec.declared(request) if _is_offered(tool, executors)]
    clients = {tool.name for tool in request.tools if tool.kind == "function"}
    run = {tool.name: tool for tool in declared if tool.kind in executors and tool.name not in clients}
    run = _with_searches(request, run, internal)
    others = [tool for tool in declared if tool.kind not in executors and tool.name not in clients]
    if support is None:
        others = []  # the server may run them
        if not run:
            return _with_text_history(request, codec)
    messages = codec.as_functions(replace(request, messages=own_history.without_citations(request.messages)))
    if not (run or others) and all(map(_same, messages, request.messages)):
        return None
    missing = {tool.name: tool for tool in others}
    refused = _refused(request, others, is_alone=not run and not clients)
    if refused is not None and refused.kind not in codec.reported_kinds:
        raise UnsupportedError(f"{unavailable_message(refused)} The request needs it: {quote(refused.declared)}", "$")
    written = _with_functions(replace(request, messages=messages), run, executors)
    if search := next((tool for tool in run.values() if tool.kind == TOOL_SEARCH), None):
        written = with_search(written, search, codec.found_tools(request))
    warnings: tuple[Notice, ...] = ()
    if is_own_api and others:
        written = _without_tools(written, others)
        dropped = {tool.declared: quote(tool.declared) for tool in others}
        warnings = tuple(notices_by_name("content_dropped", "the server does not run: {}", dropped))
    return VendorToolPlan(codec, written, {**missing, **run}, [], frozenset(run), refused, warnings)


def _with_text_history(request: Request, codec: VendorToolCodec) -> VendorToolPlan | None:
    """Returns the plan for a server that runs the tools itself; None: the gateway wrote nothing in the conversation."""
    messages = own_history.as_text(request, codec.as_functions)
    if all(map(_same, messages, request.messages)):
        return None
    return VendorToolPlan(codec, replace(request, messages=messages), {}, [])


def _with_searches(
    request: Request, run: Mapping[str, VendorTool], internal: VendorTool | None
) -> dict[str, VendorTool]:
    """Returns the tools to run, where a tool search knows what it finds; one that can find nothing is left out."""
    declared = {name: declared_search(tool, request) for name, tool in run.items() if tool.kind == TOOL_SEARCH}
    is_alone = len(request.tools) == len(declared)
    useful = {name: tool for name, tool in declared.items() if tool.deferred or is_alone}
    if internal is not None and not useful:
        useful = {internal.name: internal}
    return {**{name: tool for name, tool in run.items() if name not in declared}, **useful}


def _concerns(request: Request, codec: VendorToolCodec) -> bool:
    """Returns whether the request has vendor's tools, or past calls; quick, as most requests have neither."""
    for tool in request.tools:
        if tool.kind != "function":
            return True
    for message in request.messages:
        if message.role != "assistant":
            continue
        for part in message.parts:
            if isinstance(part, UnknownPart) or (isinstance(part, Reasoning) and is_opaque(part.signature)):
                return True
    return not codec.options.isdisjoint(request.extra)


def _is_offered(tool: VendorTool, executors: Mapping[str, ToolExecutor]) -> bool:
    """Returns whether the client declared the tool, or the gateway can run it next to one that the client declared."""
    return not tool.next_to or {tool.kind, tool.next_to} <= executors.keys()


def _same(one: object, other: object) -> bool:
    return one is other


def _refused(request: Request, missing: Sequence[VendorTool], *, is_alone: bool) -> VendorTool | None:
    """Returns the tool without which the request cannot be answered."""
    choice = request.tool_choice
    if not missing or choice.mode == "none":
        return None
    if choice.mode == "named":
        return next((tool for tool in missing if choice.name in (tool.name, tool.declared)), None)
    return missing[0] if is_alone else None


def _with_functions(request: Request, run: Mapping[str, VendorTool], executors: Mapping[str, ToolExecutor]) -> Request:
    if not run:
        return request
    names = {tool.declared: tool.name for tool in run.values()}
    functions = {tool.name: _function(tool, executors) for tool in run.values()}
    tools = [tool for tool in request.tools if tool.kind not in names]
    extra = {name: raw for name, raw in request.extra.items() if name not in names}
    choice = request.tool_choice
    if choice.mode == "named" and choice.name in names:
        choice = replace(choice, name=names[choice.name])
        extra.pop("tool_choice", None)
    return replace(request, tools=(*tools, *functions.values()), tool_choice=choice, extra=extra)


def _function(tool: VendorTool, executors: Mapping[str, ToolExecutor]) -> Tool:
    function = executors[tool.kind].function(tool)
    return replace(function, loading="search") if tool.kind == TOOL_SEARCH else function


def _without_tools(request: Request, missing: Sequence[VendorTool]) -> Request:
    """Returns the request without tools that the server would take for the client's functions, or ignore."""
    names = {tool.declared for tool in missing}
    tools = tuple(tool for tool in request.tools if tool.kind not in names)
    extra = {name: raw for name, raw in request.extra.items() if name not in names}
    return replace(request, tools=tools, tool_choice=request.tool_choice if tools else ToolChoice(), extra=extra)


def last_user_text(request: Request) -> str:
    """Returns the beginning of the last text of the user, for the arguments of a call that the model did not make."""
    texts = (
        "\n".join(filter(None, map(part_text, message.parts)))
        for message in reversed(request.messages)
        if message.role == "user"
    )
    return next(filter(None, texts), "")[:_MAX_QUERY_CHARS]


def without_choice(tool_choice: ToolChoice, tools: Sequence[Tool]) -> ToolChoice:
    """Returns the tool choice after a required call was made: free, so that the model can answer."""
    return replace(tool_choice, mode="auto", name="") if tools else tool_choice
