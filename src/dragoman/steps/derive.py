"""Derives steps from what the tools themselves say: which one ends the task, and which needs the result of another.

    submit_report "Submits the report and ends the task."          a terminal tool
    book(hotel_id), search_hotels "… returns their ids"            book needs search_hotels
    analyze(rows "as fetch_rows returned them")                    analyze needs fetch_rows

A terminal tool is allowed once any other tool has succeeded, because nothing can be reported before.
Only clear cases count, since a wrong step hides a tool that the model needs. A prerequisite is dropped if the user's
words contain something like an id, if its tool has succeeded earlier in the conversation, or if it has failed
`MAX_FAILURES` times in this turn: derived steps never block a task.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dragoman.core.errors import RequestError
from dragoman.core.messages import ANY_TOOL, Message, Request, Steps, Text, Tool, ToolCall, ToolResult
from dragoman.steps.progress import progress_of, succeeded
from dragoman.steps.validate import MAX_STEPS, validate_steps
from dragoman.text.json_cursor import load_json

MAX_FAILURES: Final = 3
MAX_DERIVED_CALLS: Final = 24
"""Calls of a turn after which derived steps are given up."""
_MAX_TEXT_CHARS: Final = 4000
"""Characters of a description that are read."""
_TERMINAL_NAME: Final = re.compile(
    r"submit|submit_(?:final_)?(?:report|answer|result|results|findings|solution|summary|review)|finish(?:_task)?|"
    r"final_?(?:answer|report|result)|report(?:_results?|_findings?)?|task_complete|complete_task|attempt_completion"
)
_TERMINAL_TEXT: Final = re.compile(
    r"\b(?:ends? the (?:task|run|session|workflow)|call (?:this|it) last|"
    r"call (?:this|it) (?:once|when) (?:you are |all is )?(?:done|finished)|as the (?:last|final) step)\b",
    re.IGNORECASE,
)
_PRODUCER_VERB: Final = re.compile(r"(?:search|find|list|lookup|look|query|get|fetch)_")
_IDS: Final = re.compile(r"\b(?:ids?|identifiers?)\b", re.IGNORECASE)
_NAMES_RESULT: Final = re.compile(
    r"(?:\b(?:from|after(?: calling)?|(?:returned|found|listed|produced) by|(?:results?|output|ids?) of|call|as)\s+"
    r"(?:the )?(?:tool )?)[`'\"]?\Z",
    re.IGNORECASE,
)
"""Matches text that ends before the name of a tool whose result is needed."""
_NEEDS_VERB: Final = re.compile(r"[`'\"]?(?:\(\))?\s+(?:returned|returns|found|listed|lists|first)\b", re.IGNORECASE)
"""Matches text after a name that `call` or `as` comes before."""
_BEFORE_CHARS: Final = 40
_WORD: Final = re.compile(r"[A-Za-z_][\w-]*")
_USER_WORD: Final = re.compile(r"[\w-]{3,64}")


def derive_steps(request: Request, path: str = "") -> Steps | None:
    """Returns the steps that the tools of a request prescribe; None if there are none.

    Args:
        request: The request, with the whole conversation.
        path: Position of what asks for them, for errors.
    """
    tools = [tool for tool in request.tools if tool.kind == "function" and tool.loading == "listed"]
    if not 1 < len(tools) <= MAX_STEPS:
        return None
    ends = [tool.name for tool in tools if _is_terminal(tool)]
    terminal = tuple(ends) if len(ends) == 1 else ()
    prerequisites = _prerequisites(tools, request.messages, terminal)
    if not prerequisites and not terminal:
        return None
    is_new = terminal and not _succeeded_names(request.messages)
    required = (ANY_TOOL,) if is_new else ()
    steps = Steps(required, prerequisites=prerequisites, terminal=terminal, max_calls=MAX_DERIVED_CALLS, path=path)
    try:
        validate_steps(steps)
    except RequestError:  # a cycle, or too many
        return None
    return steps


def _is_terminal(tool: Tool) -> bool:
    name = _snake_case(tool.name)
    return bool(_TERMINAL_NAME.fullmatch(name) or _TERMINAL_TEXT.search(tool.description[:_MAX_TEXT_CHARS]))


def _prerequisites(
    tools: Sequence[Tool], messages: Sequence[Message], terminal: tuple[str, ...]
) -> Mapping[str, tuple[str, ...]]:
    """Returns what each tool needs and the conversation does not contain yet."""
    names = {tool.name for tool in tools}.difference(terminal)
    progress = progress_of(messages)
    failed = {name for name, count in progress.calls.items() if count >= MAX_FAILURES and not progress.done.get(name)}
    known = failed | (_succeeded_names(messages) - progress.done.keys())
    ids_are_known = _user_names_ids(messages)
    found: dict[str, tuple[str, ...]] = {}
    for tool in tools:
        properties = _required_properties(tool)
        needed = dict.fromkeys(_named_tools(tool, properties, names))
        if not ids_are_known:
            needed |= dict.fromkeys(_producers(tool, properties, tools))
        if before := tuple(name for name in needed if name != tool.name and name in names and name not in known):
            found[tool.name] = before
    return found


def _named_tools(tool: Tool, properties: Mapping[str, str], names: set[str]) -> Iterator[str]:
    """Yields the tools whose results the descriptions of a tool and its parameters ask for."""
    for text in (tool.description[:_MAX_TEXT_CHARS], *properties.values()):
        for word in _WORD.finditer(text):
            if word[0] not in names:
                continue
            before = _NAMES_RESULT.search(text[max(0, word.start() - _BEFORE_CHARS) : word.start()])
            if before and (not before[0].lower().startswith(("call", "as")) or _NEEDS_VERB.match(text, word.end())):
                yield word[0]


def _producers(tool: Tool, properties: Mapping[str, str], tools: Sequence[Tool]) -> Iterator[str]:
    """Yields the tool that finds the value of an id parameter, where there is exactly one."""
    for parameter in map(_snake_case, properties):
        kind = parameter.removesuffix("_id")
        if kind == parameter or len(kind) < 3:
            continue
        found = [each.name for each in tools if each is not tool and _finds_ids(each, kind, parameter)]
        if len(found) == 1:
            yield found[0]


def _finds_ids(tool: Tool, kind: str, parameter: str) -> bool:
    name, description = _snake_case(tool.name), tool.description[:_MAX_TEXT_CHARS]
    if not _PRODUCER_VERB.match(name) or kind.rsplit("_", 1)[-1] not in name or not _IDS.search(description):
        return False
    return parameter not in map(_snake_case, _required_properties(tool))


def _required_properties(tool: Tool) -> Mapping[str, str]:
    """Returns the required parameters of a tool with their descriptions; none if its schema is unusual."""
    try:
        schema: Any = load_json(tool.parameters)
    except (ValueError, RecursionError):
        return {}
    properties = schema.get("properties") if isinstance(schema, dict) else None
    required = schema.get("required") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not isinstance(required, list):
        return {}
    names = [name for name in required[:MAX_STEPS] if isinstance(name, str) and isinstance(properties.get(name), dict)]
    return {name: str(properties[name].get("description", ""))[:_MAX_TEXT_CHARS] for name in names}


def _succeeded_names(messages: Sequence[Message]) -> set[str]:
    """Returns the tools that have succeeded in the whole conversation."""
    parts = [part for message in messages for part in message.parts]
    done = {part.call_id for part in parts if isinstance(part, ToolResult) and succeeded(part)}
    return {part.name for part in parts if isinstance(part, ToolCall) and part.id in done}


def _user_names_ids(messages: Sequence[Message]) -> bool:
    """Returns whether a word of the user may be an id: it has digits, and is not a short number."""
    parts = [part for message in messages if message.role == "user" for part in message.parts]
    found = (match[0] for part in parts if isinstance(part, Text) for match in _USER_WORD.finditer(part.text))
    return any(any(map(str.isdigit, each)) for each in found)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[-.\s]+", "_", name).lower()
