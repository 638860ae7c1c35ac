"""Validates steps: names, cycles and sizes."""

from collections.abc import Collection, Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Final

from dragoman.core.errors import RequestError, one_of, quote
from dragoman.core.messages import ANY_TOOL, Steps, Tool

MAX_STEPS: Final = 64
"""Maximum tools that steps name, each place counted."""


def named_tools(steps: Steps) -> Iterator[tuple[str, str]]:
    """Yields each tool that steps name, with the path of its place."""
    yield from ((name, f"{steps.path}.required[{n}]") for n, name in enumerate(steps.required))
    yield from ((name, f"{steps.path}.terminal[{n}]") for n, name in enumerate(steps.terminal))
    for name, before in steps.prerequisites.items():
        yield name, f"{steps.path}.prerequisites"
        yield from ((each, f"{steps.path}.prerequisites.{name}[{n}]") for n, each in enumerate(before))
    yield from ((name, f"{steps.path}.max_calls_per_tool") for name in steps.max_calls_per_tool)


def validate_steps(steps: Steps) -> None:
    """Checks what can be checked without the tools of a request.

    Raises:
        RequestError: There are too many steps, or they can never be done.
    """
    count = sum(1 for _ in named_tools(steps))
    if count > MAX_STEPS:
        raise RequestError(f"expected at most {MAX_STEPS} names of tools, got {count}", steps.path)
    if not (steps.required or steps.terminal or steps.prerequisites or steps.max_calls_per_tool):
        expected = "required, prerequisites, terminal or max_calls_per_tool"
        raise RequestError(f"expected {expected}, got none of them", steps.path)
    if ANY_TOOL in (*steps.terminal, *steps.prerequisites):
        field = "terminal" if ANY_TOOL in steps.terminal else "prerequisites"
        raise RequestError(f"expected names of tools, got '{ANY_TOOL}'", f"{steps.path}.{field}")
    for field, names in (("required", steps.required), *_lists_of_prerequisites(steps)):
        if ends := next((name for name in names if name in steps.terminal), None):
            message = f"expected tools that can be called before the end, got the terminal tool {quote(ends)}"
            raise RequestError(message, f"{steps.path}.{field}")
    try:
        TopologicalSorter(steps.prerequisites).prepare()
    except CycleError as error:
        cycle = " > ".join(map(quote, reversed(error.args[1])))
        message = f"expected prerequisites without a cycle, got {cycle}"
        raise RequestError(message, f"{steps.path}.prerequisites") from None
    _require_reachable(steps)


def _lists_of_prerequisites(steps: Steps) -> Iterable[tuple[str, Collection[str]]]:
    return ((f"prerequisites.{name}", before) for name, before in steps.prerequisites.items())


def _require_reachable(steps: Steps) -> None:
    limits = steps.max_calls_per_tool
    for name, _ in named_tools(steps):
        if name == ANY_TOOL:
            continue
        limit, times = limits.get(name, limits.get(ANY_TOOL)), max(1, steps.required.count(name))
        if limit is not None and limit < times:
            message = f"expected at least {times}, which the steps need of {quote(name)}, got {limit}"
            raise RequestError(message, f"{steps.path}.max_calls_per_tool")
    if steps.max_calls < len(steps.required):
        message = f"expected at least {len(steps.required)}, the number of required steps, got {steps.max_calls}"
        raise RequestError(message, f"{steps.path}.max_calls")


def missing_tool(steps: Steps, tools: Iterable[Tool]) -> RequestError | None:
    """Returns the error for the first tool that steps name and the request does not offer; None: it offers all."""
    offered = {tool.name: tool for tool in tools if tool.kind == "function"}
    for name, path in named_tools(steps):
        if name == ANY_TOOL:
            continue
        if name not in offered:
            hint = one_of(name, sorted(offered), "the request offers ") if offered else "; the request offers no tools"
            return RequestError(f"steps name the tool {quote(name)}, which is not offered{hint}", path)
        if offered[name].loading in ("deferred", "found"):
            return RequestError(f"expected a tool that is offered from the start, got the deferred {quote(name)}", path)
    return None
