"""Messages to the model about a rejected call, and to the client if no valid call follows."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from dragoman.core.errors import cut
from dragoman.core.messages import JsonText, ToolChoice
from dragoman.guard.validation.violations import MAX_VALUE_CHARS, Violation, quote_value

MAX_REPORTED_VIOLATIONS: Final = 5
"""Violations that are reported at once; a small model does not fix more at a time."""
MAX_NAMES: Final = 40
"""Tool names that are listed."""
MAX_NAMES_CHARS: Final = 2000
"""Characters of all listed names; no API allows a tool name of more than 128."""

MAX_SCHEMA_CHARS: Final = 4000
MAX_REASON_CHARS: Final = 500
"""Characters of a hook's reason that the model reads."""
_AFTER_VETO: Final = " Do not repeat it: call another tool, or answer in words."

VALID_CALL: Final = "This call is right, and is made. Do not make it again."
"""The result of a valid call while another call of the same response is rejected."""

ASK_ME: Final = "Make no further call. Answer my question in plain words, or ask me for what is missing."
"""The user's words instead of a call with an address that the model made up."""


def invalid_arguments(name: str, violations: Sequence[Violation]) -> str:
    """Returns the message about arguments that do not match the schema."""
    problems = "; ".join(violation.message for violation in violations[:MAX_REPORTED_VIOLATIONS])
    return f"{problems}. The call was not run. Call {_shorten_name(name)} again, with arguments that are right."


def schema_of(parameters: JsonText) -> str:
    """Returns the message about the schema of a tool that the model may not have seen; "" if it is too long."""
    return f"JSON Schema of its arguments: {parameters}" if len(parameters) <= MAX_SCHEMA_CHARS else ""


def unreadable_call(name: str) -> str:
    """Returns the message about arguments that are not a JSON object."""
    message = "are not a JSON object, so the call was not run. Write the call again."
    return f"The arguments of {_shorten_name(name)} {message}"


def wrong_name(name: str, offered: Collection[str], choice: ToolChoice) -> str:
    """Returns the message about a call of a tool that is not offered, or that the choice does not allow."""
    return wrong_choice(choice) if name in offered else unknown_tool(name, offered)


def unknown_tool(name: str, offered: Iterable[str]) -> str:
    """Returns the message about a tool that was not offered."""
    listed: list[str] = []
    chars = 0
    for each in offered:
        chars += len(each)
        if len(listed) == MAX_NAMES or chars > MAX_NAMES_CHARS:
            listed.append("…")
            break
        listed.append(each)
    tools = ", ".join(listed)
    return f"There is no tool {_shorten_name(name)}. The tools are: {tools}. Answer in words, or call one of them."


def _shorten_name(name: str) -> str:
    """The name, truncated if it is longer than the name of any tool."""
    return name if len(name) <= MAX_VALUE_CHARS else quote_value(name)


def wrong_choice(choice: ToolChoice) -> str:
    """Returns the message about a call that the tool choice does not allow, or about a missing call."""
    if choice.mode == "none":
        return "No tool may be called now, and this call was not run. Answer in words."
    if choice.name:
        return f"Call the tool {choice.name} now, and write nothing else. No other call is run."
    return "You called no tool. Call one now, and write nothing else."


def repeated_call(name: str, times: int, choice: ToolChoice) -> str:
    """Returns the message about a call that was made `times` times with the same arguments.

    Args:
        name: The tool.
        times: How often it was called so.
        choice: What the model may call now.
    """
    opening = f"{_shorten_name(name)} has been called {times} times with these arguments, and was not run again."
    match choice.mode:
        case "named":
            return f"{opening} Call it with other arguments."
        case "required":
            return f"{opening} Call another tool, or call it with other arguments."
        case _:
            return f"{opening} Call another tool, or answer from its result."


def replacement_text(name: str, why: str) -> str:
    """Returns the text that the client gets in place of a call that stayed invalid."""
    return f"[The model called {_shorten_name(name)}, but not as it can be run: {why}]"


def vetoed_call(name: str, reason: str) -> str:
    """Returns the message about a call that a hook has refused."""
    refused = f"The call of {_shorten_name(name)} was refused and not run: {cut(reason, MAX_REASON_CHARS)}"
    return f"{refused.rstrip('.')}.{_AFTER_VETO}"


def vetoed_text(why: str) -> str:
    """Returns the text that the client gets in place of a call that a hook has refused."""
    return f"[{why.removesuffix(_AFTER_VETO)}]"


def missing_call(choice: ToolChoice) -> str:
    """Returns what the response lacks, for warnings and logs."""
    return f"the tool {choice.name} was not called" if choice.name else "no tool was called where one must be"
