"""What a model is told of a call that is not right, and what a client is where none comes."""

from collections.abc import Iterable, Sequence
from typing import Final

from dragoman.core.messages import ToolChoice
from dragoman.guard.violations import VALUE_CHARS, Problem, shown

PROBLEMS: Final = 5
"""That are told; a small model mends no more at a time."""
NAMES: Final = 40
"""Of tools that are listed."""
NAMES_CHARS: Final = 2000
"""Of all of these names; that of one tool has 128 at most in any API."""


PASSED: Final = "This call is right, and is made. Do not make it again."
"""In place of its result, where another of the same answer is not right."""


def invalid(name: str, problems: Sequence[Problem]) -> str:
    """Of arguments that are not of the schema."""
    told = "; ".join(problem.message for problem in problems[:PROBLEMS])
    return f"{told}. The call was not run. Call {_named(name)} again, with arguments that are right."


def unread(name: str) -> str:
    """Of arguments that are no JSON."""
    return f"The arguments of {_named(name)} are no JSON object, so the call was not run. Write the call again."


def unknown(name: str, offered: Iterable[str]) -> str:
    """Of a tool that there is not."""
    listed: list[str] = []
    chars = 0
    for each in offered:
        chars += len(each)
        if len(listed) == NAMES or chars > NAMES_CHARS:
            listed.append("…")
            break
        listed.append(each)
    tools = ", ".join(listed)
    return f"There is no tool {_named(name)}. The tools are: {tools}. Answer in words, or call one of them."


def _named(name: str) -> str:
    """The name as it is, or the beginning of one that no tool has."""
    return name if len(name) <= VALUE_CHARS else shown(name)


def other(choice: ToolChoice) -> str:
    """Of a call that was not asked for, or that is missing."""
    if choice.mode == "none":
        return "No tool may be called now, and this call was not run. Answer in words."
    if choice.name:
        return f"Call the tool {choice.name} now, and write nothing else. No other call is run."
    return "You called no tool. Call one now, and write nothing else."


def looping(name: str, times: int, choice: ToolChoice) -> str:
    """Of a call that has been made again and again."""
    begun = f"{_named(name)} has been called {times} times with these arguments, and was not run again."
    match choice.mode:
        case "named":
            return f"{begun} Call it with other arguments."
        case "required":
            return f"{begun} Call another tool, or call it with other arguments."
        case _:
            return f"{begun} Call another tool, or answer from its result."


def instead(name: str, why: str) -> str:
    """For the client, in place of a call that is never right."""
    return f"[The model called {_named(name)}, but not as it can be run: {why}]"


def missed(choice: ToolChoice) -> str:
    """What an answer has not, for people."""
    return f"the tool {choice.name} was not called" if choice.name else "no tool was called where one must be"
