"""A scenario: a prompt, tools over a small state, and what a right run changes and reports."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

State: TypeAlias = dict[str, Any]
"""Tables by name; `CHANGES` lists what the tools changed."""
CHANGES: Final = "changes"
Change: TypeAlias = tuple[str | float | bool, ...]
"""Name of the tool, and the values that count."""
Fact: TypeAlias = str | tuple[str, ...]
"""Text that an answer must contain; of several, one."""


class ToolError(Exception):
    """A tool's error; the model gets its text as the result."""


@dataclass(frozen=True)
class ScenarioTool:
    """A tool and its implementation."""

    name: str
    description: str
    run: Callable[..., Any]
    """Gets the state and the arguments; returns JSON."""
    properties: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    optional: Sequence[str] = ()

    @property
    def parameters(self) -> dict[str, Any]:
        """Returns the JSON Schema of the arguments."""
        return {
            "type": "object",
            "properties": dict(self.properties),
            "required": [name for name in self.properties if name not in self.optional],
            "additionalProperties": False,
        }


@dataclass(frozen=True)
class ToolScenario:
    """One task; a run is right if it makes exactly the changes, by successful steps, and reports the facts."""

    name: str
    prompt: str
    tools: Sequence[ScenarioTool]
    tables: Mapping[str, Any]
    """The state before the run."""
    steps: Sequence[str] = ()
    """Tools that must succeed; those of the arm with steps, in this order, are these without the terminal one."""
    terminal: Sequence[str] = ()
    """Tools whose success ends the run."""
    loose_steps: Sequence[str] = ()
    """Steps without a binding order in place of `steps`, where these would reveal more than a developer knows."""
    changes: Sequence[Change] = ()
    """Expected changes, in any order."""
    facts: Sequence[Fact] = ()
    """What the final answer contains, ignoring case."""
    forbidden_facts: Sequence[str] = ()
    derived: Sequence[str] = ()
    """Facts that a right answer may compute from the results."""

    @property
    def request_steps(self) -> dict[str, Any]:
        """Returns the steps that a request contains; empty: none."""
        required = [*(self.loose_steps or (name for name in self.steps if name not in self.terminal))]
        steps: dict[str, Any] = {}
        if self.terminal:
            steps["terminal"] = [*self.terminal]
        if required:
            steps |= {"required": required, "ordered": not self.loose_steps}
        if required and not self.terminal:
            steps["after"] = "text"
        return steps

    def state(self) -> State:
        """Returns a new state."""
        return {**copy.deepcopy(dict(self.tables)), CHANGES: []}


def text(description: str, *values: str) -> dict[str, Any]:
    """Returns the schema of a string; `values`: the allowed ones."""
    return {"type": "string", "description": description} | ({"enum": list(values)} if values else {})


def number(description: str) -> dict[str, Any]:
    """Returns the schema of a number."""
    return {"type": "number", "description": description}


def integer(description: str) -> dict[str, Any]:
    """Returns the schema of a whole number, at least 1."""
    return {"type": "integer", "minimum": 1, "description": description}


def require(condition: object, message: str) -> None:
    """Raises a tool's error unless the condition holds.

    Raises:
        ToolError: with this message.
    """
    if not condition:
        raise ToolError(message)


def row(state: State, table: str, key: str, hint: str = "") -> dict[str, Any]:
    """Returns a row of a table.

    Args:
        state: the state.
        table: name of the table, such as "orders".
        key: key of the row.
        hint: what the error tells the model to do.

    Raises:
        ToolError: the table does not have it.
    """
    rows: dict[str, dict[str, Any]] = state[table]
    require(key in rows, f"{table} has no entry {key!r}. {hint}".strip())
    return rows[key]


def change(state: State, *values: str | float | bool) -> dict[str, Any]:
    """Records a change and returns the tool's result."""
    state[CHANGES].append(values)
    return {"ok": True}
