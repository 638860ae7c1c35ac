"""Texts of `dragoman init`: what was found, and the next steps."""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill
from typing import Final, NamedTuple

from dragoman import agents, extras
from dragoman.backends.embedded import weights
from dragoman.cli.init.choices import ModelChoice, is_agent_model, list_choices, served_on_request
from dragoman.cli.init.machine import FoundServer, Machine
from dragoman.config import Config

_INDENT: Final = re.compile(r" *# | {2,}(?:\S.*? {2,})?")
"""Of a line's continuation: that of a comment's text, or of the second column."""
_MAX_MODELS: Final = 4
_AGENT_WINDOW: Final = 32_768
_NO_SERVER: Final = "none at the usual ports (LM Studio, Ollama, llama-server, vLLM and others)"
_NO_MODELS: Final = "none (looked for those of Dragoman, Ollama, LM Studio and the Hugging Face cache)"


class NextStep(NamedTuple):
    """A command to run next."""

    command: str
    purpose: str


def found_lines(machine: Machine) -> list[str]:
    """Returns what was found, for the user."""
    rows = [("model servers", line) for line in _server_lines(machine)]
    rows.append(
        ("models", _shortened([_file_text(model.id, model.size_bytes) for model in machine.files]) or _NO_MODELS)
    )
    titles = [agents.get(name).title for name in machine.agents]
    rows.append(("agents", ", ".join(titles) or "none"))
    if machine.gateway_url:
        rows.append(("gateway", f"running at {machine.gateway_url}; it gets new settings when it is restarted"))
    lines, before = ["Found on this machine:"], ""
    for head, text in rows:
        lines.append(f"  {'' if head == before else head:14} {text}")
        before = head
    return lines


def short_path(path: Path) -> str:
    """Returns the path with `~` for the home folder."""
    try:
        return f"~/{path.relative_to(Path.home()).as_posix()}"
    except ValueError:
        return str(path)


def wrap(line: str, columns: int | None) -> str:
    """Returns the line in several lines of at most so many columns; None: unchanged."""
    if columns is None or len(line) <= columns:
        return line
    match = _INDENT.match(line)
    start = match[0] if match else ""
    indent = start if start.endswith("# ") else " " * len(start)
    return fill(line, columns, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def choice_line(choice: ModelChoice, width: int) -> str:
    """Returns a model of the list to choose from."""
    return f"{choice.name:{width}}  {choice.about}"


def notes(machine: Machine, choice: ModelChoice) -> list[str]:
    """Returns what the user should know about the settings, as sentences."""
    lines = []
    if "server" in machine.missing_extras:
        command = extras.install_command("server")
        lines.append(f"Model servers were not looked for, which needs more than is installed: {command}")
    for server in machine.servers:
        if server.requires_key:
            lines.append(f"{server.title} at {server.config.url} requires an API key, so it is off in the settings.")
    lines += _context_note(choice)
    if on_request := served_on_request(machine, choice):
        lines.append(f"Also served, loaded on request: {_shortened(on_request)}.")
    if not is_agent_model(choice):
        larger = next((each.name for each in list_choices(machine) if is_agent_model(each)), "")
        advice = f"; for them: dragoman init --force --model {shlex.quote(larger)}" if larger else ""
        lines.append(f"{choice.name} is too small for agents{advice}")
    return lines


def next_steps(
    machine: Machine, choice: ModelChoice, config: Config, config_option: Sequence[str], *, is_running: bool
) -> list[NextStep]:
    """Returns what to do with the settings.

    Args:
        machine: what was found.
        choice: the model that agents use.
        config: the settings that were written.
        config_option: `--config` and the file, if commands would not find it otherwise.
        is_running: whether a service runs the gateway already.
    """

    def line(*arguments: str) -> str:
        return shlex.join(["dragoman", *arguments, *config_option])

    missing = [each for each in ("server", "embedded") if each in machine.missing_extras]
    needed = [each for each in missing if each == "server" or choice.is_embedded]
    steps = [NextStep(extras.install_command(*needed), "install what these settings need")] if needed else []
    if choice.kind == "download":
        size = weights.format_size(choice.size_bytes)
        steps.append(NextStep(shlex.join(["dragoman", "pull", choice.name]), f"download the model ({size})"))
    for key in sorted({server.api_key_env for server in config.upstreams.values() if server.api_key_env}):
        steps.append(NextStep(f"export {key}=…", "set the API key in each shell that starts the gateway"))
    serve: list[NextStep] = []
    if not is_running:
        purpose = "restart the gateway: first stop the running one"
        serve = [NextStep(line("serve"), purpose if machine.gateway_url else "start only the gateway")]
    steps += serve if machine.gateway_url else []
    model = _model_option(machine, choice)
    for name in machine.agents:
        if not (name == "claude" and choice.kind == "claude"):
            steps.append(NextStep(line("run", name, *model), f"start {agents.get(name).title}"))
    if not machine.agents:
        first = agents.get("claude")
        steps.append(NextStep(first.install, f"install an agent, such as {first.title}"))
        steps.append(NextStep(line("run", "claude", *model), f"start {first.title}"))
    steps.append(NextStep(line("chat", *model), "talk with the model"))
    return steps if machine.gateway_url else [*steps, *serve]


def format_steps(steps: Sequence[NextStep], width: int) -> Iterator[str]:
    """Yields the steps in two columns, or one below the other where a command is too long.

    Args:
        steps: the steps.
        width: columns of the terminal.
    """
    longest = max(len(step.command) for step in steps)
    purpose = max(len(step.purpose) for step in steps)
    for step in steps:
        if longest + purpose + 4 <= width:
            yield f"  {step.command:{longest}}  {step.purpose}"
        else:
            yield f"  {step.command}"
            yield f"      {step.purpose}"


def _context_note(choice: ModelChoice) -> list[str]:
    """Returns a note if the server cuts prompts that exceed a context window too small for agents."""
    config = choice.server.config if choice.server else None
    if config is None or config.provider != "ollama" or config.context_window >= _AGENT_WINDOW:
        return []
    size = (
        f"a context window of {config.context_window:,} tokens" if config.context_window else "a small context window"
    )
    return [
        f"Ollama may run {choice.name} with {size}, and cuts longer prompts without an error; for agents, start it by: "
        f"OLLAMA_CONTEXT_LENGTH={_AGENT_WINDOW} ollama serve"
    ]


def _model_option(machine: Machine, choice: ModelChoice) -> tuple[str, ...]:
    """Returns `--model` and the model, where `dragoman run` could select another one.

    A file with the name of a model of the catalogue is selected by the settings only.
    """
    others = sum(len(server.models) for server in machine.servers) + len(machine.files)
    is_by_settings = choice.kind == "file" and choice.setting != choice.name and not machine.servers
    return () if is_by_settings or (others <= 1 and choice.kind != "claude") else ("--model", choice.name)


def _server_lines(machine: Machine) -> list[str]:
    if "server" in machine.missing_extras:
        return ["not looked for"]
    return [_server_line(server) for server in machine.servers] or [_NO_SERVER]


def _server_line(server: FoundServer) -> str:
    models = _shortened(server.models) or "no model is loaded"
    return f"{server.title} at {server.config.url}: {'requires an API key' if server.requires_key else models}"


def _file_text(name: str, size_bytes: int) -> str:
    return f"{name} ({weights.format_size(size_bytes)})"


def _shortened(items: Sequence[str]) -> str:
    more = f" and {len(items) - _MAX_MODELS} more" if len(items) > _MAX_MODELS else ""
    return ", ".join(items[:_MAX_MODELS]) + more
