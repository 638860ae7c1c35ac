"""Agents that `dragoman run` starts: one file for each, found by listing the folder. Data and pure functions, no I/O.

    LaunchContext (gateway, model, what the user has) ─launch→ LaunchPlan (command, environment, private files)

A launch plan is valid for one run: it overrides the user's configuration without changing it. It has values of two
kinds. Those that connect the agent to the gateway (URL, key, model) override the user's; those that only make a local
model work better yield to the user's. The arguments that the user passes to the agent override both.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from dragoman.core.errors import ConfigError, nearest, quote
from dragoman.folder_registry import FolderRegistry

ANY: Final = "any"
"""The agent that is used if none is named: the command after `--`."""
_EXPANDED: Final = re.compile(r"\$\{|\{(?:env|file):", re.IGNORECASE)
"""How agents reference a variable or a file in their configurations; they replace it with its value."""


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """The input of a launch."""

    url: str
    """The URL of the gateway, without `/v1`."""
    key: str
    """An API key of the gateway."""
    model: str
    program: str
    """The program to start; empty if the arguments name it."""
    args: tuple[str, ...]
    """The arguments that the user passes to the agent."""
    environ: Mapping[str, str]
    """The user's environment variables."""
    home: Path
    """The user's home folder."""
    folder: Path
    """The folder for the files of the launch, private to this run."""
    read: Callable[[Path], str | None]
    """Returns the text of one of the user's files, or None if it does not exist."""
    permanent_folder: Path | None = None
    """The folder with files of earlier launches, to which the user's variables may still refer; None: no folder."""
    context_window: int = 0
    """Size of the model's context window; 0: unknown."""
    output_tokens: int = 0
    """Maximum length of one response in tokens; 0: unknown."""
    has_reasoning: bool = True
    """Whether the model writes reasoning; True if unknown."""
    has_web_search: bool = False
    """Whether the gateway runs the web search of the APIs' vendors."""
    progress: Path | None = None
    """The file with a line about the prompt that is being read; None: this model has none."""

    def __post_init__(self) -> None:
        """Checks the model's name, which a server chooses freely and which is put into configurations and variables.

        Raises:
            ConfigError: the name would be expanded by an agent, or cannot be passed to it.
        """
        if _EXPANDED.search(self.model) or not self.model.isprintable():
            raise ConfigError(
                f"no agent is given the model name {quote(self.model)}: ${{…}}, {{env:…}} and {{file:…}} would be read "
                f"as variables and files of yours, and what cannot be printed is refused too; give it another name "
                f"in the settings, under [model_aliases], and run on that: --model ALIAS"
            )

    def unset(self, **values: str) -> dict[str, str]:
        """Returns those of the variables that the user has not set."""
        return {name: value for name, value in values.items() if name not in self.environ}


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """How an agent is started for one run."""

    command: tuple[str, ...]
    environ: Mapping[str, str | None] = field(default_factory=dict)
    """Variables that override the user's; None removes one."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts by file name, to be written to the private folder."""
    printed: Mapping[str, str] = field(default_factory=dict)
    """Texts to print in place of variables or files that contain something of the user's."""
    notes: tuple[str, ...] = ()
    """Sentences for the user about what was set for this run."""


@dataclass(frozen=True, slots=True)
class Agent:
    """A program that can be started on a gateway."""

    title: str
    """Its display name."""
    programs: tuple[str, ...]
    """Names of its executable; empty: the user names the command."""
    install: str
    """The command that installs it."""
    source: str
    """Where its way to be configured for one run is documented, and the version that was tested."""
    launch: Callable[[LaunchContext], LaunchPlan]
    """Returns the launch plan. Raises: ConfigError: the user's configuration cannot be overridden."""
    prompt_tokens: int = 0
    """Estimated size of the first request of a conversation in an empty folder, in tokens; 0: unknown."""
    assumes: str = ""
    """The context window that it assumes if it is not told one, as a clause."""
    tools: tuple[str, ...] = ()
    """Names of its tools for ordinary work, the most important first: kept if a model is too slow for all tools."""


_REGISTRY: Final = FolderRegistry[Agent](__name__, __path__, "AGENT")
names = _REGISTRY.names


@cache
def get(name: str) -> Agent:
    """Returns the agent of this name.

    Raises: ConfigError: there is none; the message suggests the nearest name.
    """
    if name not in names():
        others = "put any other command after `--`: dragoman run -- COMMAND"
        raise ConfigError(f"unknown agent {quote(name)}{nearest(name, names())} ({', '.join(names())}; {others})")
    return _REGISTRY.load(name)


def get_option(args: tuple[str, ...], *names: str) -> str | None:
    """Returns the last value of an option in the user's arguments, as `--model m`, `--model=m` or `-mm`, or None."""
    value = None
    for at, word in enumerate(args):
        for name in names:
            if word == name and at + 1 < len(args):
                value = args[at + 1]
            elif name.startswith("--") and word.startswith(f"{name}="):
                value = word.removeprefix(f"{name}=")
    return value


def drop_option(args: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Returns the arguments without this option and its value."""
    remaining, skipped = list[str](), False
    for word in args:
        if skipped or word == name or word.startswith(f"{name}="):
            skipped = word == name and not skipped
        else:
            remaining.append(word)
    return tuple(remaining)


def deep_merge(below: object, above: object) -> object:
    """Merges one JSON value into another: objects member by member, other values as a whole.

    Args:
        below: the value to start from.
        above: the value that wins.
    """
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {name: deep_merge(below[name], value) if name in below else value for name, value in above.items()}


def key_names(value: object) -> object:
    """Returns the user's JSON as it may be shown: the names of its keys, without their values."""
    return {name: key_names(each) for name, each in value.items()} if isinstance(value, dict) else "(yours)"
