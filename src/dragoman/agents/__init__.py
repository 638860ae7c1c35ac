"""Agents that `dragoman run` starts: one file an agent, found by listing the folder. Data and pure functions, no I/O.

    Wiring (where the gateway is, which model, what the user has) ─launch→ Launch (command, environment, private files)

What a launch says holds for one run: it lies over the user's own configuration, and changes none of it. Values are of
two kinds. What wires the agent (where the gateway is, its key, its model) goes over the user's; what only makes a local
model work better gives way to a value that the user has set. What the user passes to the agent goes over both.
"""

import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from dragoman.core.errors import ConfigError, nearest, quote

ANY: Final = "any"
"""The agent that is meant where none is named: whatever command stands behind `--`."""
_EXPANDED: Final = re.compile(r"\$\{|\{(?:env|file):", re.IGNORECASE)
"""How agents write a variable or a file in their configurations, in whose place they put what it holds."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """All that a launch is made of."""

    url: str
    """Of the gateway, without `/v1`."""
    key: str
    """That the gateway takes."""
    model: str
    program: str
    """What is started; empty where the arguments name it."""
    args: tuple[str, ...]
    """What the user passes to the agent."""
    environ: Mapping[str, str]
    """The user's."""
    home: Path
    """The user's."""
    folder: Path
    """Private to this run: where the files of the launch will be."""
    read: Callable[[Path], str | None]
    """A file of the user's; None where there is none."""
    kept: Path | None = None
    """Where the files of an earlier launch stay, whose variables the user's may still be; None: nowhere."""
    context_tokens: int = 0
    """Of the model; 0: not known."""
    output_tokens: int = 0
    """Room for one answer; 0: not known."""
    thinks: bool = True
    """Whether the model has thoughts, as far as is known."""
    progress: Path | None = None
    """The file that holds a line about the prompt that is being read; None: there is none for this model."""

    def __post_init__(self) -> None:
        """A server names its models as it likes, and the name goes into configurations and variables.

        Raises: ConfigError: an agent would read something of the user's in its place, or could not be given it.
        """
        if _EXPANDED.search(self.model) or not self.model.isprintable():
            raise ConfigError(
                f"no agent is given the model name {quote(self.model)}: ${{…}}, {{env:…}} and {{file:…}} would be read "
                f"as variables and files of yours, and what cannot be printed is refused too; give it another name "
                f"in the settings, under [aliases], and run on that: --model ALIAS"
            )

    def unset(self, **values: str) -> dict[str, str]:
        """Those of the variables that the user has not set."""
        return {name: value for name, value in values.items() if name not in self.environ}


@dataclass(frozen=True, slots=True)
class Launch:
    """How an agent is started for one run."""

    command: tuple[str, ...]
    environ: Mapping[str, str | None] = field(default_factory=dict)
    """Variables over the user's; None takes one away."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts by name, to be written into the private folder."""
    shown: Mapping[str, str] = field(default_factory=dict)
    """Where something of the user's is merged into a variable or a file: what is shown in place of its text."""
    notes: tuple[str, ...] = ()
    """Sentences for the user about what was set for this run."""


@dataclass(frozen=True, slots=True)
class Agent:
    """A program that can be started on a gateway."""

    title: str
    """Its name for people."""
    programs: tuple[str, ...]
    """What it is called where it is installed; empty: the user names it."""
    install: str
    """The line that installs it."""
    source: str
    """Where it is stated how it takes a configuration for one run, and in which version that was tried."""
    launch: Callable[[Wiring], Launch]
    """Raises: ConfigError: what the user has cannot be laid over."""
    prompt_tokens: int = 0
    """Estimated size of the first request of a conversation in an empty folder, in tokens; 0: unknown."""
    assumes: str = ""
    """What it takes for the context window of a model of which it is told none, as a clause."""
    tools: tuple[str, ...] = ()
    """Names of its tools that cover ordinary work, the most important first: they stay where a local model reads too
    slowly for all tools."""


@cache
def names() -> tuple[str, ...]:
    """The names of all, sorted."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__)))


@cache
def get(name: str) -> Agent:
    """The agent of this name.

    Raises: ConfigError: there is none; the message offers the nearest.
    """
    if name not in names():
        others = "any other command goes behind `--`: dragoman run -- COMMAND"
        raise ConfigError(f"unknown agent {quote(name)}{nearest(name, names())} ({', '.join(names())}; {others})")
    found: Agent = importlib.import_module(f"{__name__}.{name}").AGENT
    return found


def option(args: tuple[str, ...], *names: str) -> str | None:
    """The last value that the user gives to an option, as `--model m`, `--model=m` or `-mm`; None: it is not given."""
    found = None
    for at, word in enumerate(args):
        for name in names:
            if word == name and at + 1 < len(args):
                found = args[at + 1]
            elif name.startswith("--") and word.startswith(f"{name}="):
                found = word.removeprefix(f"{name}=")
    return found


def without(args: tuple[str, ...], name: str) -> tuple[str, ...]:
    """The arguments but for this option and its value."""
    kept, skipped = list[str](), False
    for word in args:
        if skipped or word == name or word.startswith(f"{name}="):
            skipped = word == name and not skipped
        else:
            kept.append(word)
    return tuple(kept)


def merged(below: object, above: object) -> object:
    """One JSON value over another: objects member by member, anything else as a whole."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {name: merged(below[name], value) if name in below else value for name, value in above.items()}


def members(value: object) -> object:
    """JSON of the user's as it may be shown: the names of what is set, not to what."""
    return {name: members(each) for name, each in value.items()} if isinstance(value, dict) else "(yours)"
