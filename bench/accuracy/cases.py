"""Prompts, the tools that they offer, and the right answers."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from dragoman.core.messages import Message, Request, Sampling, Text, Tool, ToolCall

WHEN = (
    "Call a function only where it does what is asked. One call does one thing: for several things, write several "
    "<tool_call> blocks. Where no function fits, or the user only talks, answer in plain words."
)
"""Instruction that Qwen's template lacks. With a wording without the tag, it described its calls in prose."""
REPLY_TOKENS = 256
"""The longest right answer has half of it."""
_WANTED: Final[Mapping[str, Literal["none", "several"]]] = {
    "own_none": "none",
    "irrelevance": "none",
    "own_parallel": "several",
    "parallel": "several",
}
OWN = Path(__file__).parent / "own.toml"

Expected: TypeAlias = tuple[str, Mapping[str, Sequence[Any]]]
"""A right call: its tool, and the right values of each argument; with `LEFT_OUT` it may be absent."""
LEFT_OUT = "(left out)"


@dataclass(frozen=True)
class Case:
    """One prompt."""

    id: str
    category: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    answers: tuple[tuple[Expected, ...], ...] = ()
    """The calls of each right answer, in any order; empty if no call is right. Only of our own prompts."""

    @property
    def wants(self) -> Literal["none", "one", "several"]:
        """Returns the number of calls."""
        return _WANTED.get(self.category, "one")

    def request(self, model: str, *, told: bool = False) -> Request:
        """Returns the request of a client, with a free choice. `told`: with `WHEN` after the system prompt."""
        messages = self.messages
        if told and messages[0].role == "system":
            first = Message("system", (*messages[0].parts, Text(f"\n{WHEN}")))
            messages = (first, *messages[1:])
        elif told:
            messages = (Message("system", (Text(WHEN),)), *messages)
        return Request(model, messages, self.tools, sampling=Sampling(temperature=0), max_tokens=REPLY_TOKENS)

    def is_right(self, calls: Sequence[ToolCall]) -> bool:
        """Whether these calls are one of the right answers."""
        if not self.answers:
            return not calls
        made = [(call.name, json.loads(call.arguments)) for call in calls]
        return any(_matches(made, list(answer)) for answer in self.answers)


def _matches(made: list[tuple[str, Any]], wanted: list[Expected]) -> bool:
    if len(made) != len(wanted):
        return False
    if not made:
        return True
    first, rest = made[0], made[1:]
    return any(_is(first, each) and _matches(rest, wanted[:i] + wanted[i + 1 :]) for i, each in enumerate(wanted))


def _is(call: tuple[str, Any], wanted: Expected) -> bool:
    name, arguments = call
    tool, values = wanted
    if name != tool or not isinstance(arguments, dict) or arguments.keys() - values.keys():
        return False
    return all(any(_same(arguments.get(key, LEFT_OUT), value) for value in right) for key, right in values.items())


def _same(made: Any, right: Any) -> bool:
    """Whether JSON values are equal: 3 and 3.0 are, true and 1 are not; case and outer white space are ignored."""
    if isinstance(made, str) and isinstance(right, str):
        return made.strip().casefold() == right.strip().casefold()
    if isinstance(made, bool) or isinstance(right, bool):
        return made is right
    if isinstance(made, list) and isinstance(right, list):
        return len(made) == len(right) and all(map(_same, made, right))
    if isinstance(made, dict) and isinstance(right, dict):
        return made.keys() == right.keys() and all(_same(made[key], right[key]) for key in made)
    return bool(made == right)


@cache
def own() -> tuple[Case, ...]:
    """Returns our own prompts, in the order of the file."""
    return tuple(_read(tomllib.loads(OWN.read_text())))


def _read(data: Mapping[str, Any]) -> Iterator[Case]:
    for group in data["group"]:
        tools = tuple(Tool(t["name"], t["description"], json.dumps(_schema(t))) for t in group["tools"])
        for number, prompt in enumerate(group["prompts"], 1):
            messages = [Message("system", (Text(group["system"]),))] if "system" in group else []
            messages.append(Message("user", (Text(prompt["ask"]),)))
            answers = tuple(tuple(map(_expected, answer)) for answer in _several(prompt.get("calls", [])))
            yield Case(f"own_{group['name']}_{number}", _category(tools, answers), tuple(messages), tools, answers)


def _schema(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": tool["properties"],
        "required": tool.get("required", []),
        "additionalProperties": False,
    }


def _several(calls: list[Any]) -> list[list[Any]]:
    """Returns the right answers: a list of lists, or the only one."""
    return calls if calls and isinstance(calls[0], list) else [calls] if calls else []


def _expected(call: Mapping[str, Any]) -> Expected:
    values = {key: value if isinstance(value, list) else [value] for key, value in call.items() if key != "tool"}
    return call["tool"], values


def _category(tools: Sequence[Tool], answers: Sequence[Sequence[Expected]]) -> str:
    if not answers:
        return "own_none"
    return "own_parallel" if len(answers[0]) > 1 else "own_single"
