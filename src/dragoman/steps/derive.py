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
from itertools import islice
from typing import Any, Final, NamedTuple

from dragoman.core.errors import RequestError
from dragoman.core.messages import ANY_TOOL, Message, Request, Steps, Text, Tool
from dragoman.steps.progress import request_progress, succeeded_names, tool_searches
from dragoman.steps.validate import MAX_STEPS, validate_steps
from dragoman.text.json_cursor import load_json

MAX_FAILURES: Final = 3
MAX_DERIVED_CALLS: Final = 24
"""Calls of a turn after which derived steps no longer apply."""
_MAX_TEXT_CHARS: Final = 4000
"""Characters of a description that are read."""
_TERMINAL_NAME: Final = re.compile(
    r"submit_(?:final_)?(?:report|answer|result|results|findings|solution|summary|review)|finish(?:_task)?|"
    r"final_?(?:answer|report|result)|report_(?:results?|findings?)|task_complete|complete_task|attempt_completion"
)
_TERMINAL_TEXT: Final = re.compile(
    r"\b(?:ends? the (?:task|run|workflow)|call (?:this|it) last|"
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
_NEGATED: Final = re.compile(r"(?:\b(?:not|never|without|no)\b|n['\u2019]t\b)[^.!?;\n]*\Z", re.IGNORECASE)
"""Matches text that ends in a sentence with a negation."""
_NEGATION_CHARS: Final = 80
"""Characters before a phrase in which a negation is looked for."""
_PLURALS: Final = (("s", ""), ("es", ""), ("ies", "y"))
_WORD: Final = re.compile(r"[A-Za-z_][\w-]*")
_USER_WORD: Final = re.compile(r"[\w-]{3,64}")


class _ToolFacts(NamedTuple):
    """What is read of a tool, once."""

    name: str
    name_parts: frozenset[str]
    """Words of its name."""
    description: str
    properties: Mapping[str, str]
    """Required parameters with their descriptions."""
    parameters: frozenset[str]
    """Names of these."""
    returns_ids: bool


def derive_steps(request: Request, path: str = "") -> Steps | None:
    """Returns the steps that the tools of a request prescribe; None if there are none.

    Args:
        request: The request, with the whole conversation.
        path: Position of what asks for them, for errors.
    """
    offered = [tool for tool in request.tools if tool.kind == "function" and tool.loading == "listed"]
    if not 1 < len(offered) <= MAX_STEPS:
        return None
    tools = list(map(_facts, offered))
    ends = [tool.name for tool in tools if _is_terminal(tool)]
    terminal = tuple(ends) if len(ends) == 1 else ()
    prerequisites = _prerequisites(tools, request, terminal)
    if not prerequisites and not terminal:
        return None
    is_new = terminal and not succeeded_names(request.messages) - tool_searches(request)
    required = (ANY_TOOL,) if is_new else ()
    steps = Steps(required, prerequisites=prerequisites, terminal=terminal, max_calls=MAX_DERIVED_CALLS, path=path)
    try:
        validate_steps(steps)
    except RequestError:  # a cycle, or too many
        return None
    return steps


def _facts(tool: Tool) -> _ToolFacts:
    name, description, properties = _snake_case(tool.name), tool.description[:_MAX_TEXT_CHARS], _required(tool)
    returns_ids = bool(_PRODUCER_VERB.match(name) and _IDS.search(description))
    parameters = frozenset(map(_snake_case, properties))
    return _ToolFacts(tool.name, frozenset(name.split("_")), description, properties, parameters, returns_ids)


def _is_terminal(tool: _ToolFacts) -> bool:
    if _TERMINAL_NAME.fullmatch(_snake_case(tool.name)):
        return True
    return any(not _is_negated(tool.description, found.start()) for found in _TERMINAL_TEXT.finditer(tool.description))


def _is_negated(text: str, end: int) -> bool:
    return _NEGATED.search(text[max(0, end - _NEGATION_CHARS) : end]) is not None


def _prerequisites(
    tools: Sequence[_ToolFacts], request: Request, terminal: tuple[str, ...]
) -> Mapping[str, tuple[str, ...]]:
    """Returns what each tool needs and the conversation does not contain yet."""
    names = {tool.name for tool in tools}.difference(terminal)
    progress = request_progress(request)
    failed = {name for name, count in progress.calls.items() if count >= MAX_FAILURES and not progress.done.get(name)}
    known = failed | (succeeded_names(request.messages) - progress.done.keys())
    producers = {} if user_names_ids(request.messages) else _producers_by_word(tools)
    found: dict[str, tuple[str, ...]] = {}
    for tool in tools:
        needed = dict.fromkeys([*_named_tools(tool, names), *_producers(tool, producers)])
        if before := tuple(name for name in needed if name != tool.name and name in names and name not in known):
            found[tool.name] = before
    return found


def _named_tools(tool: _ToolFacts, names: set[str]) -> Iterator[str]:
    """Yields the tools whose results the descriptions of a tool and its parameters ask for."""
    for text in (tool.description, *tool.properties.values()):
        for word in _WORD.finditer(text):
            if word[0] not in names or _is_negated(text, word.start()):
                continue
            before = _NAMES_RESULT.search(text[max(0, word.start() - _BEFORE_CHARS) : word.start()])
            if before and (not before[0].lower().startswith(("call", "as")) or _NEEDS_VERB.match(text, word.end())):
                yield word[0]


def _producers_by_word(tools: Sequence[_ToolFacts]) -> Mapping[str, Sequence[_ToolFacts]]:
    """Returns the tools that return ids by the words of their names, each in the singular too."""
    found: dict[str, list[_ToolFacts]] = {}
    for tool in tools:
        if not tool.returns_ids:
            continue
        singular = {
            word.removesuffix(end) + more for word in tool.name_parts for end, more in _PLURALS if word.endswith(end)
        }
        for word in tool.name_parts | singular:
            found.setdefault(word, []).append(tool)
    return found


def _producers(tool: _ToolFacts, producers: Mapping[str, Sequence[_ToolFacts]]) -> Iterator[str]:
    """Yields the tool that finds the value of an id parameter, where there is exactly one."""
    for parameter in tool.parameters if producers else ():
        kind = parameter.removesuffix("_id")
        if kind == parameter or len(kind) < 3:
            continue
        word = kind.rsplit("_", 1)[-1]
        own = {parameter, "id", f"{word}_id"}
        others = (each.name for each in producers.get(word, ()) if each is not tool and own.isdisjoint(each.parameters))
        found = list(islice(others, 2))
        if len(found) == 1:
            yield found[0]


def _required(tool: Tool) -> Mapping[str, str]:
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


def user_names_ids(messages: Sequence[Message]) -> bool:
    """Returns whether a word of the user may be an id: it has digits, and is not a short number.

    Args:
        messages: The whole conversation.
    """
    parts = [part for message in messages if message.role == "user" for part in message.parts]
    found = (match[0] for part in parts if isinstance(part, Text) for match in _USER_WORD.finditer(part.text))
    return any(any(map(str.isdigit, each)) for each in found)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[-.\s]+", "_", name).lower()
