"""A small check of tool calls: ten short tasks, eight with a suitable tool and two without.

A task is right if the model's first call has the right tool and the facts of the task in valid arguments; without a
suitable tool, if it writes no call. The calls pass the guard, as in a gateway.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from dragoman.core.messages import Message, Request, Sampling, Text, Tool, ToolCall

_REPLY_TOKENS: Final = 96


class Task(NamedTuple):
    """What the user asks for; without `tool`, no tool suits it."""

    text: str
    tool: str = ""
    facts: Mapping[str, object] = {}
    """What the arguments contain: numbers exactly, and texts anywhere in the argument, in any case."""


def _tool(name: str, description: str, properties: Mapping[str, Any], *required: str) -> Tool:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(required or properties),
        "additionalProperties": False,
    }
    return Tool(name, description, json.dumps(schema))


_TEXT: Final = {"type": "string"}
TOOLS: Final = (
    _tool("get_weather", "Get the current weather of a city.", {"city": _TEXT}),
    _tool("read_file", "Read a text file.", {"path": _TEXT}),
    _tool("run_command", "Run a shell command.", {"command": _TEXT}),
    _tool("set_alarm", "Set an alarm.", {"hour": {"type": "integer"}, "minute": {"type": "integer"}}),
    _tool("send_message", "Send a text message to a person.", {"person": _TEXT, "text": _TEXT}),
)
TASKS: Final = (
    Task("What is the weather in Oslo?", "get_weather", {"city": "Oslo"}),
    Task("Is it raining in Kyoto now?", "get_weather", {"city": "Kyoto"}),
    Task("Show me the file docs/plan.md.", "read_file", {"path": "docs/plan.md"}),
    Task("What does setup.cfg contain?", "read_file", {"path": "setup.cfg"}),
    Task("Run `git status`.", "run_command", {"command": "git status"}),
    Task("List the files of /tmp with the shell.", "run_command", {"command": "/tmp"}),
    Task("Wake me at 6:45.", "set_alarm", {"hour": 6, "minute": 45}),
    Task("Write to Maria that dinner is ready.", "send_message", {"person": "Maria", "text": "dinner"}),
    Task("Hello! How are you?"),
    Task("What is the capital of France?"),
)


def request_of(task: Task, model: str) -> Request:
    """Returns the request of a task: a free choice among all tools, at temperature 0."""
    return Request(
        model=model,
        messages=(Message("user", (Text(task.text),)),),
        tools=TOOLS,
        sampling=Sampling(temperature=0),
        max_tokens=_REPLY_TOKENS,
    )


def is_right(task: Task, calls: Sequence[ToolCall]) -> bool:
    """Whether these complete calls are what the task needs."""
    if not task.tool or not calls:
        return not task.tool and not calls
    first = calls[0]
    try:
        arguments = json.loads(first.arguments)
    except ValueError:
        return False
    if first.name != task.tool or not isinstance(arguments, dict):
        return False
    return all(_contains(arguments.get(key), fact) for key, fact in task.facts.items())


def _contains(value: object, fact: object) -> bool:
    if isinstance(fact, str):
        return isinstance(value, str) and fact.lower() in value.lower()
    return value == fact and not isinstance(value, bool)
