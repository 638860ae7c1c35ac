"""Which tools the model may call now, by the steps of a request and the calls of the present turn."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from dragoman.core.messages import ANY_TOOL, Request, Steps
from dragoman.steps.progress import TurnProgress, request_progress

State: TypeAlias = Literal["open", "terminal", "free", "finished", "limit"]
"""`open`: required steps are left. `terminal`: only the terminal tool is. `free`: the model decides. `finished`: a
terminal tool has succeeded, or words must follow. `limit`: a limit was reached before."""

TERMINAL_TRIES = 3
"""Calls of a terminal tool after `max_calls`, since a failed one may be corrected."""


class Allowed(NamedTuple):
    """What the model may do now."""

    state: State
    tools: tuple[str, ...]
    """Names of the tools that may be called, in the order in which they are offered."""
    mode: Literal["auto", "none", "required", "named"]
    """The tool choice; "named": the only tool is required."""
    open: tuple[str, ...] = ()
    """Required steps that are left, the terminal tools not included."""
    limit: str = ""
    """The limit that was reached."""


class CallsLeft(NamedTuple):
    """How many calls of a response the limits allow."""

    total: int | None = None
    """None: any number."""
    by_tool: Mapping[str, int] = {}
    """Of a tool; "*": of each other tool."""

    def allows(self, name: str, counts: Mapping[str, int]) -> bool:
        """Returns whether a further call of a tool is allowed after these of the same response."""
        if self.total is not None and sum(counts.values()) >= self.total:
            return False
        limit = self.by_tool.get(name, self.by_tool.get(ANY_TOOL))
        return limit is None or counts.get(name, 0) < limit


UNLIMITED: Final = CallsLeft()


def calls_left(request: Request) -> CallsLeft:
    """Returns how many calls the limits of the steps leave for the next response."""
    steps = request.steps
    if steps is None or steps.derive:
        return UNLIMITED
    progress = request_progress(request)
    total = steps.max_calls - progress.total
    limits = dict(steps.max_calls_per_tool)
    if ANY_TOOL in limits:
        limits = {tool.name: limits[ANY_TOOL] for tool in request.tools} | limits
    left = {name: limit - progress.calls.get(name, 0) for name, limit in limits.items()}
    return CallsLeft(total if total > 0 else None, left)  # after the limit one terminal call is required


def needed_steps(steps: Steps) -> tuple[str, ...]:
    """Returns `required` with the prerequisites of each tool, which come before it; a repeated name stays repeated."""
    needed: list[str] = []
    for name in steps.required:
        before = _with_prerequisites(name, steps.prerequisites)[:-1]
        needed += [each for each in before if each not in needed]
        needed.append(name)
    if steps.ordered:
        return tuple(needed)
    return tuple(name for name in dict.fromkeys(needed) for _ in range(max(1, steps.required.count(name))))


def allowed_now(steps: Steps, offered: Sequence[str], progress: TurnProgress) -> Allowed:
    """Returns what the model may do now.

    Args:
        steps: Valid steps (`validate_steps`).
        offered: Names of the tools that the request offers.
        progress: The calls of the turn.
    """
    if any(progress.done.get(name) for name in steps.terminal):
        return Allowed("finished", (), "none")
    left = tuple(_open(needed_steps(steps), progress))
    if progress.total >= steps.max_calls:
        return _at_limit(steps, offered, progress, left, f"{steps.max_calls} calls")
    if progress.failures >= steps.max_failures:
        return _at_limit(steps, offered, progress, left, f"{progress.failures} failed calls in a row")
    ready = [name for name in offered if _is_ready(name, steps, progress)]
    if left:
        others = [name for name in ready if name not in steps.terminal]
        is_named = steps.ordered and left[0] != ANY_TOOL
        tools = [name for name in others if name == left[0]] if is_named else others
        is_stuck = not tools or any(_is_spent(name, steps, progress) for name in left)
        return _spent(steps, offered, progress, left, left) if is_stuck else _called("open", tools, left)
    if not steps.terminal and steps.after == "text":
        return Allowed("finished", (), "none")
    if not steps.terminal:
        return Allowed("free", tuple(ready), "auto" if ready else "none")
    return _towards_end(steps, offered, ready, progress)


def _towards_end(steps: Steps, offered: Sequence[str], ready: Sequence[str], progress: TurnProgress) -> Allowed:
    """Returns what is allowed once `required` is done: the terminal tools, and what they still need."""
    before = [each for name in steps.terminal for each in _with_prerequisites(name, steps.prerequisites)[:-1]]
    left = tuple(_open(tuple(dict.fromkeys(before)), progress))
    ends = [name for name in ready if name in steps.terminal]
    is_only_end_prescribed = not before and not steps.required
    is_stuck = not ends and (not left or any(_is_spent(name, steps, progress) for name in left))
    if is_stuck or not ready:
        return _spent(steps, offered, progress, left, left or steps.terminal)
    if left or is_only_end_prescribed:
        return _called("open" if left or len(ends) < len(ready) else "terminal", ready, left)
    return _called("terminal", ends)


def _called(state: State, tools: Sequence[str], left: tuple[str, ...] = (), limit: str = "") -> Allowed:
    return Allowed(state, tuple(tools), "named" if len(tools) == 1 else "required", left, limit)


def _spent(
    steps: Steps, offered: Sequence[str], progress: TurnProgress, left: tuple[str, ...], names: Sequence[str]
) -> Allowed:
    name = next((each for each in names if _is_spent(each, steps, progress)), names[0])
    return _at_limit(steps, offered, progress, left, f"{progress.calls.get(name, 0)} calls of {name}")


def _at_limit(
    steps: Steps, offered: Sequence[str], progress: TurnProgress, left: tuple[str, ...], limit: str
) -> Allowed:
    tries = sum(progress.calls.get(name, 0) for name in steps.terminal)
    ends = [name for name in offered if name in steps.terminal and not _is_spent(name, steps, progress)]
    if steps.at_limit == "text" or not ends or tries >= TERMINAL_TRIES:
        return Allowed("limit", (), "none", left, limit)
    return _called("limit", ends, left, limit)


def _open(needed: Sequence[str], progress: TurnProgress) -> Iterator[str]:
    """Yields the steps that are left, in their order."""
    seen: Counter[str] = Counter()
    for name in needed:
        seen[name] += 1
        if _times_done(name, progress) < seen[name]:
            yield name


def _times_done(name: str, progress: TurnProgress) -> int:
    return sum(progress.done.values()) if name == ANY_TOOL else progress.done.get(name, 0)


def _is_ready(name: str, steps: Steps, progress: TurnProgress) -> bool:
    before = _with_prerequisites(name, steps.prerequisites)[:-1]
    return all(_times_done(each, progress) for each in before) and not _is_spent(name, steps, progress)


def _is_spent(name: str, steps: Steps, progress: TurnProgress) -> bool:
    limits = steps.max_calls_per_tool
    limit = limits.get(name, limits.get(ANY_TOOL))
    return name != ANY_TOOL and limit is not None and progress.calls.get(name, 0) >= limit


def _with_prerequisites(name: str, prerequisites: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the tool after all tools that must succeed before it, without recursion; cycles end the search."""
    found: dict[str, None] = {}
    seen: set[str] = set()
    stack = [(name, False)]
    while stack:
        each, is_expanded = stack.pop()
        if is_expanded:
            found[each] = None
        elif each not in seen:
            seen.add(each)
            stack.append((each, True))
            stack += [(before, False) for before in reversed(prerequisites.get(each, ()))]
    return list(found)
