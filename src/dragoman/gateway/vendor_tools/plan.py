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
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from msgspec.structs import replace

from dragoman import dialects
from dragoman.core.errors import RequestError, UnsupportedError, quote
from dragoman.core.events import Notice
from dragoman.core.messages import Reasoning, Request, Tool, ToolChoice, UnknownPart, part_text
from dragoman.core.stage import LaterRounds
from dragoman.gateway.routing.router import ModelRoute
from dragoman.gateway.vendor_tools.deferral import declared_search, internal_search, with_search
from dragoman.gateway.vendor_tools.listings import SERVER as _SERVER
from dragoman.gateway.vendor_tools.listings import Listings, new_listings, remote_tools, require_tools
from dragoman.redaction.opaque_text import is_opaque
from dragoman.vendor_tools import own_history
from dragoman.vendor_tools.codec import VendorToolCodec
from dragoman.vendor_tools.executor import ToolExecutor, ToolServers
from dragoman.vendor_tools.remote import ApprovedCall
from dragoman.vendor_tools.tool import TOOL_SEARCH, VendorTool, unavailable_message
from dragoman.wire.translation import notices_by_name

_MAX_QUERY_CHARS = 256
_NOT_RUN = "the server does not run: {}"


class VendorToolPlan(NamedTuple):
    """What the gateway does about the vendor's tools of one request."""

    codec: VendorToolCodec
    request: Request
    """The request for the backend: tools with an executor are functions, as are past calls."""
    tools: Mapping[str, VendorTool]
    """The tools whose calls the gateway answers, by name; those without an executor with an error."""
    rounds: LaterRounds
    """Messages of the rounds so far, with the results: untrusted text, in which the guard searches for copied calls."""
    run: frozenset[str] = frozenset()
    """Names of the tools that the gateway runs: functions in `request`."""
    refused: VendorTool | None = None
    """The response is that this tool is not available; the model is not asked."""
    warnings: tuple[Notice, ...] = ()
    """What the backend is not sent, unless it reports that itself."""
    listings: Listings = ()
    """Declared MCP servers and their tools, which the client gets first."""
    approved: tuple[tuple[ApprovedCall, VendorTool], ...] = ()
    """Calls that the user approved, which are run before the model is asked."""

    def hide_tools(self, request: Request) -> Request:
        """Returns the backend's request without these functions: what the guard may expect of calls for the client.

        A tool search stays: if the model is re-asked, it needs it.
        """
        hidden = self._hidden()
        if not hidden and request.tool_choice.name not in self.run and not request.prompt_tools:
            return request
        tools = tuple(tool for tool in request.prompt_tools or request.tools if tool.name not in hidden)
        return replace(request, tools=tools, tool_choice=self.choice_of_client(request) if tools else ToolChoice())

    def hide_tools_of_reask(self, request: Request) -> Request:
        """Returns a request that re-asks the model without these functions, unless its steps allow only them now."""
        hidden = self._hidden()
        tools = tuple(tool for tool in request.tools if tool.name not in hidden)
        if request.prompt_tools and not tools:
            return request
        return replace(request, tools=tools, tool_choice=self.choice_of_client(request) if tools else ToolChoice())

    def choice_of_client(self, request: Request) -> ToolChoice:
        """Returns the tool choice of a round for calls of the client's tools.

        Without steps, a call of any tool may be one of these functions; steps require one until the last is done.
        """
        choice, hidden = request.tool_choice, self._hidden()
        others = [tool.name for tool in request.tools if tool.kind == "function" and tool.name not in hidden]
        is_required = choice.mode == "required" and (not hidden or (request.prompt_tools and others))
        if choice.mode == "none" or is_required or (choice.name in others and choice.name not in self.run):
            return choice
        return replace(choice, mode="auto", name="")

    def _hidden(self) -> set[str]:
        return {name for name in self.run if self.tools[name].kind != TOOL_SEARCH}


def declared_servers(request: Request, route: ModelRoute, executors: Mapping[str, ToolExecutor]) -> list[VendorTool]:
    """Returns the MCP servers that the gateway has to ask for their tools. Arguments as `plan_vendor_tools`.

    Raises:
        RequestError: The options of a server are invalid.
    """
    executor = executors.get(_SERVER)
    codec = dialects.get(request.dialect).vendor_tools if request.dialect and executor is not None else None
    if codec is None or not isinstance(executor, ToolServers):
        return []
    offered = executor.offered(request.model, route.request.model)
    servers = [tool for tool in codec.declared(request) if tool.kind == _SERVER] if _concerns(request, codec) else []
    if not servers or (route.backend.edits_context(route.request) and route.backend.runs_vendor_tools()):
        return offered
    for tool in servers:
        if tool.server is not None and tool.server.connector:
            message = "connectors are run by the API's vendor only: use server_url"
            raise RequestError(message, tool.server.connector)
    labels = {tool.name for tool in servers}
    return [*servers, *(tool for tool in offered if tool.name not in labels)]


def plan_vendor_tools(
    request: Request,
    route: ModelRoute,
    executors_for: Callable[[str, str], Mapping[str, ToolExecutor]],
    search_above: int = 0,
    listings: Listings = (),
) -> VendorToolPlan | None:
    """Returns the plan; None: the request is sent as it is, as most are.

    Args:
        request: The complete request.
        route: The backend that is asked.
        executors_for: Returns what a model of these names may have run, by kind of tool.
        search_above: Number of tools above which the model has to find them; 0: never.
        listings: The servers of `declared_servers`, with their tools.

    Raises:
        BackendUnavailableError: The only tools are those of an MCP server that does not respond.
        RequestError: The options of a tool are invalid.
        UnsupportedError: A tool that is not available must be called, or only such tools are offered, and the client's
            API has no block that says so.
    """
    codec = dialects.get(request.dialect).vendor_tools if request.dialect else None
    offered = {tool.name: tool for tool in remote_tools(listings) if not tool.declared}
    internal = internal_search(request, search_above) if search_above else None
    has_reason = codec is not None and (offered or internal or _concerns(request, codec))
    if codec is None or not has_reason:
        return None
    executors = executors_for(request.model, route.request.model)
    is_own_api = route.backend.edits_context(route.request)
    support = route.backend.runs_vendor_tools() if is_own_api else False
    if support:
        return _offer_plan(codec, request, offered, executors)
    declared = [tool for tool in codec.declared(request) if _is_offered(tool, executors)]
    clients = {tool.name for tool in request.tools if tool.kind == "function"}
    runnable = [tool for tool in declared if tool.kind in executors and tool.name not in clients]
    run = _with_searches(request, {tool.name: tool for tool in runnable if tool.kind != _SERVER}, internal)
    replaced = [tool for tool in runnable if tool.kind == _SERVER or tool.name in run]
    remote = {tool.name: tool for tool in remote_tools(listings)}
    run |= {name: tool for name, tool in remote.items() if name not in clients}
    if support is None and not (run or replaced):
        return _offer_plan(codec, request, {}, executors)
    unknown = declared if support is not None else ()  # else the server may run them
    others = [tool for tool in unknown if tool.kind not in executors and tool.name not in clients]
    messages = codec.as_functions(replace(request, messages=own_history.without_citations(request.messages)))
    if not (run or replaced or others) and all(map(_same, messages, request.messages)):
        return None
    refused = _refused(request, codec, others, is_alone=not (run or replaced) and not clients)
    written = _with_functions(replace(request, messages=messages), replaced, run, executors)
    written = _without_server_options(written, replaced, codec)
    require_tools(request, written, listings)
    if search := next((tool for tool in run.values() if tool.kind == TOOL_SEARCH), None):
        written = with_search(written, search, codec.found_tools(request))
    warnings = _name_clashes(remote, clients)
    if is_own_api and others:
        written = _without_tools(written, others, codec)
        warnings += notices_by_name("content_dropped", _NOT_RUN, {t.declared: quote(t.declared) for t in others})
    approved = tuple((call, run[call.function]) for call in codec.approved(request.messages) if call.function in run)
    tools, new = {tool.name: tool for tool in others} | run, new_listings(request, codec, listings)
    return VendorToolPlan(codec, written, tools, LaterRounds(), frozenset(run), refused, tuple(warnings), new, approved)


def _offer_plan(
    codec: VendorToolCodec, request: Request, offered: Mapping[str, VendorTool], executors: Mapping[str, ToolExecutor]
) -> VendorToolPlan | None:
    """Returns the plan for a server that runs the declared tools itself; None: the request is sent as it is.

    The gateway's own tools are added, and what it wrote in the conversation becomes text.
    """
    messages = own_history.as_text(request, codec.as_functions)
    clients = {tool.name for tool in request.tools}
    run = {name: tool for name, tool in offered.items() if name not in clients}
    if not run and all(map(_same, messages, request.messages)):
        return None
    written = _with_functions(replace(request, messages=messages), (), run, executors)
    return VendorToolPlan(codec, written, run, LaterRounds(), frozenset(run))


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


def _refused(
    request: Request, codec: VendorToolCodec, missing: Sequence[VendorTool], *, is_alone: bool
) -> VendorTool | None:
    """Returns the tool without which the request cannot be answered.

    Raises:
        UnsupportedError: The client's API has no block that says so.
    """
    choice = request.tool_choice
    if not missing or choice.mode == "none":
        return None
    refused = missing[0] if is_alone else None
    if choice.mode == "named":
        refused = next((tool for tool in missing if choice.name in (tool.name, tool.declared)), None)
    if refused is not None and refused.kind not in codec.reported_kinds:
        raise UnsupportedError(f"{unavailable_message(refused)} The request needs it: {quote(refused.declared)}", "$")
    return refused


def _with_functions(
    request: Request,
    declared: Sequence[VendorTool],
    run: Mapping[str, VendorTool],
    executors: Mapping[str, ToolExecutor],
) -> Request:
    """Returns the request with functions in place of declared tools.

    Args:
        request: The request.
        declared: Declared tools, which are left out.
        run: The tools that the model gets instead, by name.
        executors: What runs them.
    """
    if not declared and not run:
        return request
    names = {tool.declared: tool.name for tool in declared}
    functions = {tool.name: _function(tool, executors) for tool in run.values()}
    tools = [tool for tool in request.tools if tool.kind not in names]
    extra = {name: raw for name, raw in request.extra.items() if name not in names}
    choice = request.tool_choice
    if choice.mode == "named" and choice.name in names:
        of_server = [tool.name for tool in run.values() if tool.declared == choice.name and tool.kind == _SERVER]
        name, mode = ("", "required") if of_server else (names[choice.name], choice.mode)
        choice = replace(choice, mode=mode, name=name)
        extra.pop("tool_choice", None)
    return replace(request, tools=(*tools, *functions.values()), tool_choice=choice, extra=extra)


def _function(tool: VendorTool, executors: Mapping[str, ToolExecutor]) -> Tool:
    function = executors[tool.kind].function(tool)
    return replace(function, loading="search") if tool.kind == TOOL_SEARCH else function


def _without_kinds(request: Request, kinds: AbstractSet[str]) -> Request:
    tools = tuple(tool for tool in request.tools if tool.kind not in kinds)
    return replace(request, tools=tools, tool_choice=request.tool_choice if tools else ToolChoice())


def _without_server_options(request: Request, absent: Sequence[VendorTool], codec: VendorToolCodec) -> Request:
    """Returns the request without options of MCP servers, if one of the absent tools is such a server."""
    return _without_kinds(request, codec.server_options) if any(tool.kind == _SERVER for tool in absent) else request


def _without_tools(request: Request, missing: Sequence[VendorTool], codec: VendorToolCodec) -> Request:
    """Returns the request without tools that the server would take for the client's functions, or ignore."""
    names = {tool.declared for tool in missing}
    extra = {name: raw for name, raw in request.extra.items() if name not in names}
    return _without_server_options(_without_kinds(replace(request, extra=extra), names), missing, codec)


def _name_clashes(remote: Mapping[str, VendorTool], clients: AbstractSet[str]) -> list[Notice]:
    """Returns warnings about tools of MCP servers that are not offered, as the client has functions of their names."""
    names = {name: quote(name) for name in remote if name in clients}
    text = "the client has a function of the same name as this tool of an MCP server: {}"
    return [*notices_by_name("content_dropped", text, names)]


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
