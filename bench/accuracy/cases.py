"""Prompts, the tools that they offer, and the right answers."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from dragoman.core.messages import Message, Request, Sampling, Text, Tool, ToolCall

CALL_INSTRUCTION = (
    "Call a function only where it does what is asked. One call does one thing: for several things, write several "
    "<tool_call> blocks. Where no function fits, or the user only talks, answer in plain words."
)
"""Instruction that Qwen's template lacks. With a wording without the tag, it described its calls in prose."""
REPLY_TOKENS = 256
"""The longest right answer has half of it."""
_CALL_COUNTS: Final[Mapping[str, Literal["none", "several"]]] = {
    "own_none": "none",
    "fresh_none": "none",
    "irrelevance": "none",
    "own_parallel": "several",
    "parallel": "several",
}
FOLDER = Path(__file__).parent

Expected: TypeAlias = tuple[str, Mapping[str, Sequence[Any]]]
"""A right call: its tool, and the right values of each argument; with `OPTIONAL` it may be absent."""
OPTIONAL = "(left out)"


@dataclass(frozen=True)
class Case:
    """A prompt, the tools that it offers, and its right answers."""

    id: str
    category: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    answers: tuple[tuple[Expected, ...], ...] = ()
    """The calls of each right answer, in any order; empty if no call is right. Only of our own prompts."""

    @property
    def call_count(self) -> Literal["none", "one", "several"]:
        """Returns how many calls a right answer has."""
        return _CALL_COUNTS.get(self.category, "one")

    def request(self, model: str, *, is_instructed: bool = False) -> Request:
        """Returns the request of a client, with a free choice; `is_instructed`: with `CALL_INSTRUCTION`, too."""
        messages = self.messages
        if is_instructed and messages[0].role == "system":
            first = Message("system", (*messages[0].parts, Text(f"\n{CALL_INSTRUCTION}")))
            messages = (first, *messages[1:])
        elif is_instructed:
            messages = (Message("system", (Text(CALL_INSTRUCTION),)), *messages)
        return Request(model, messages, self.tools, sampling=Sampling(temperature=0), max_tokens=REPLY_TOKENS)

    def is_right(self, calls: Sequence[ToolCall]) -> bool:
        """Whether these calls are one of the right answers."""
        if not self.answers:
            return not calls
        actual = [(call.name, json.loads(call.arguments)) for call in calls]
        return any(_matches(actual, list(answer)) for answer in self.answers)


def _matches(actual: list[tuple[str, Any]], expected: list[Expected]) -> bool:
    if len(actual) != len(expected):
        return False
    if not actual:
        return True
    first, rest = actual[0], actual[1:]
    return any(
        _is_expected(first, each) and _matches(rest, expected[:i] + expected[i + 1 :])
        for i, each in enumerate(expected)
    )


def _is_expected(call: tuple[str, Any], expected: Expected) -> bool:
    name, arguments = call
    tool, values = expected
    if name != tool or not isinstance(arguments, dict) or arguments.keys() - values.keys():
        return False
    return all(any(_same(arguments.get(key, OPTIONAL), value) for value in right) for key, right in values.items())


def _same(actual: Any, right: Any) -> bool:
    """Whether JSON values are equal: 3 and 3.0 are, true and 1 are not; case and outer white space are ignored."""
    if isinstance(actual, str) and isinstance(right, str):
        return actual.strip().casefold() == right.strip().casefold()
    if isinstance(actual, bool) or isinstance(right, bool):
        return actual is right
    if isinstance(actual, list) and isinstance(right, list):
        return len(actual) == len(right) and all(map(_same, actual, right))
    if isinstance(actual, dict) and isinstance(right, dict):
        return actual.keys() == right.keys() and all(_same(actual[key], right[key]) for key in actual)
    return bool(actual == right)


@cache
def own() -> tuple[Case, ...]:
    """Returns our own prompts, in the order of the file."""
    return tuple(_read("own"))


@cache
def fresh() -> tuple[Case, ...]:
    """Returns the prompts that were stored before any model was asked, in the order of the file."""
    return tuple(_read("fresh"))


def _read(name: str) -> Iterator[Case]:
    data = tomllib.loads((FOLDER / f"{name}.toml").read_text())
    for group in data["group"]:
        tools = tuple(Tool(t["name"], t["description"], json.dumps(_schema(t))) for t in group["tools"])
        for number, prompt in enumerate(group["prompts"], 1):
            messages = [Message("system", (Text(group["system"]),))] if "system" in group else []
            messages.append(Message("user", (Text(prompt["ask"]),)))
            answers = tuple(tuple(map(_expected, answer)) for answer in _answer_lists(prompt.get("calls", [])))
            category = f"{name}_{_kind(answers)}"
            yield Case(f"{name}_{group['name']}_{number}", category, tuple(messages), tools, answers)


def _schema(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": tool["properties"],
        "required": tool.get("required", []),
        "additionalProperties": False,
    }


def _answer_lists(calls: list[Any]) -> list[list[Any]]:
    """Returns the right answers: a list of lists, or the only one."""
    return calls if calls and isinstance(calls[0], list) else [calls] if calls else []


def _expected(call: Mapping[str, Any]) -> Expected:
    values = {key: value if isinstance(value, list) else [value] for key, value in call.items() if key != "tool"}
    return call["tool"], values


def _kind(answers: Sequence[Sequence[Expected]]) -> str:
    if not answers:
        return "none"
    return "parallel" if len(answers[0]) > 1 else "single"
