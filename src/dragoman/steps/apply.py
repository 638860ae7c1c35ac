"""Restricts a request to what its steps allow now: the tools that may be called, and the tool choice."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from dragoman.core.errors import RequestError, quote
from dragoman.core.events import Notice
from dragoman.core.messages import Request, ToolChoice
from dragoman.steps.derive import derive_steps
from dragoman.steps.progress import request_progress
from dragoman.steps.rules import Allowed, allowed_now
from dragoman.steps.validate import missing_tool


class AppliedSteps(NamedTuple):
    """A request that is restricted by its steps."""

    request: Request
    notices: tuple[Notice, ...] = ()
    """What the steps allow now, or why they do not apply."""
    allowed: Allowed | None = None
    """None: the steps do not apply."""


def apply_steps(request: Request) -> AppliedSteps:
    """Returns the request with the tools and the tool choice that its steps allow now.

    All its tools stay in `prompt_tools`. A tool choice `none` of the client is respected, and so is a named tool that
    is allowed now. A request without steps is returned unchanged.

    Args:
        request: The complete request, with the whole conversation.

    Raises:
        RequestError: The steps name a tool that is not offered, or `tool_choice` one that they do not allow now.
    """
    steps = request.steps
    if steps is None or steps.is_off:
        return AppliedSteps(request if steps is None else replace(request, steps=None))
    choice, is_derived = request.tool_choice, steps.derive
    gives_way = is_derived or steps.is_default
    if steps.derive:
        steps = derive_steps(request, steps.path)
        if steps is None:
            return _not_applied(request, "no terminal tool and no dependency of a tool was found", "derive")
    if error := missing_tool(steps, request.tools):
        if not gives_way:
            raise error
        return _not_applied(request, error.message, steps.path) if request.tools else AppliedSteps(request)
    if choice.mode == "none":
        return _not_applied(request, "tool_choice forbids calls", "tool_choice")
    names = [tool.name for tool in request.tools if tool.kind == "function"]
    allowed = allowed_now(steps, names, request_progress(request))
    if is_derived and allowed.state == "limit":
        return _not_applied(request, f"derived ones end after {allowed.limit}", allowed.limit)
    if allowed.state == "open" and not steps.ordered and len(names) < len(request.tools):
        allowed = allowed._replace(mode="required")  # the vendor's tools may be called too
    notice = _notice(allowed, names)
    if choice.mode == "named" and not _is_end(allowed):
        if gives_way and choice.name not in allowed.tools:
            return _not_applied(request, f"tool_choice names {quote(choice.name)}", "tool_choice")
        _require_allowed(choice.name, allowed)
        allowed = allowed._replace(tools=(choice.name,), mode="named")
    return AppliedSteps(_restricted(request, allowed), (notice,), allowed)


def apply_next(request: Request) -> AppliedSteps:
    """Returns the request restricted to what is allowed after further calls and results; see `apply_steps`.

    Args:
        request: A request that was restricted before, with more messages and the tool choice that follows.
    """
    if request.steps is None or not request.prompt_tools:
        return AppliedSteps(request)
    choice = ToolChoice(parallel_tool_calls=request.tool_choice.parallel_tool_calls)
    return apply_steps(replace(request, tools=request.prompt_tools, prompt_tools=(), tool_choice=choice))


def _restricted(request: Request, allowed: Allowed) -> Request:
    choice, tools = request.tool_choice, request.tools
    match allowed.mode:
        case "none":
            return replace(request, prompt_tools=tools, tool_choice=replace(choice, mode="none", name=""))
        case "auto":
            choice = choice if choice.mode != "named" else replace(choice, mode="auto", name="")
        case "named":
            choice = ToolChoice("named", allowed.tools[0], parallel_tool_calls=False)
        case "required":
            choice = ToolChoice("required", parallel_tool_calls=False)
    left = frozenset(allowed.tools)
    now = tuple(tool for tool in tools if tool.name in left or (tool.kind != "function" and allowed.mode != "named"))
    accepts = request.accepts_parallel_calls and choice.parallel_tool_calls
    return replace(request, tools=now, prompt_tools=tools, tool_choice=choice, accepts_parallel_calls=accepts)


def _is_end(allowed: Allowed) -> bool:
    return allowed.state in ("finished", "limit")


def _require_allowed(name: str, allowed: Allowed) -> None:
    if name not in allowed.tools:
        raise RequestError(
            f"expected a tool choice that the steps allow now ({', '.join(map(quote, allowed.tools))}), "
            f"got {quote(name)}; send tool_choice 'auto', or leave the steps out",
            "$.tool_choice",
        )


def _not_applied(request: Request, why: str, detail: str) -> AppliedSteps:
    notice = Notice("steps_not_applied", f"the steps are not applied: {why}", detail=detail)
    return AppliedSteps(replace(request, steps=None), (notice,))


def _notice(allowed: Allowed, offered: Sequence[str]) -> Notice:
    may = " or ".join(allowed.tools)
    if allowed.limit:
        then = f"{may} must be called" if may else "the model answers in words"
        left = f" with {', '.join(allowed.open)} not done" if allowed.open else ""
        message = f"the steps end after {allowed.limit}{left}: {then}"
        return Notice("steps_limit_reached", message, detail=allowed.limit)
    later = [name for name in offered if name not in allowed.tools]
    if allowed.mode == "auto" and later:
        return Notice("steps_applied", f"the model decides, but may not call {', '.join(later)} now", detail="free")
    if allowed.mode in ("none", "auto"):
        return Notice("steps_applied", "all steps are done", detail="done")
    left = f"; steps left: {', '.join(allowed.open)}" if allowed.open else ""
    return Notice("steps_applied", f"the next call must be one of {may}{left}", detail=may)
