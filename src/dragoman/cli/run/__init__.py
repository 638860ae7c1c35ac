"""`dragoman run AGENT`: starts an agent on a gateway, which ends with it; the user's configuration stays unchanged."""

import argparse
import os
import shutil
import sys
from pathlib import Path
from textwrap import dedent
from typing import Final

from dragoman import agents, compose
from dragoman import config as settings
from dragoman.agents import Agent
from dragoman.cli._common import (
    CAPTURE_DIR_HELP,
    EMBEDDED_MODEL,
    add_config_flag,
    add_server_flags,
    print_status,
    require_extras,
    upstream_flags,
)
from dragoman.cli.completion import all_model_names, complete_with
from dragoman.cli.run import output
from dragoman.cli.run.child_process import InterruptedBySignal
from dragoman.cli.run.select_model import RunOptions
from dragoman.core.errors import ConfigError
from dragoman.prompting import trim

_EXAMPLES: Final = """
    examples:
      dragoman run claude                                  on a local model server or an embedded model
      dragoman run codex --upstream http://127.0.0.1:1234/v1 --model qwen3-8b
      dragoman run claude --model qwen2.5-coder-1.5b -- -p "Say hello"
      dragoman run -- python my_agent.py                   any program that reads OPENAI_BASE_URL
      eval "$(dragoman run any --print-env)"               variables for the running gateway

    exit status:
      the agent's status (128 plus the signal's number if a signal ended it); if no agent was started:
      0  the output of --dry-run or --print-env was printed
      1  the model, a server or the network failed
      2  the command or its settings are invalid, or the agent is not installed
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "run",
        help="start an agent with a gateway and a model",
        usage="dragoman run AGENT [options] [-- arguments of the agent]\n"
        "       dragoman run [options] -- COMMAND [arguments]",
        description="Start an agent on a gateway. A gateway that already runs at the port of the settings (8484) is "
        "used if it has the model; otherwise a new one is started, and stopped when the agent ends. Its models are "
        "those of the settings and flags; if these name none, those of the model servers that run on this machine "
        "(LM Studio, Ollama, llama-server, vLLM and others); if none runs, the largest downloaded embedded model that "
        "suits agents. The agent's own configuration files do not change.",
        epilog=_epilog(),
    )
    command.rest_dest = "args"  # type: ignore[attr-defined]  # a Parser of ours
    named = command.add_argument("agent", nargs="?", metavar="AGENT", help="an agent of the list below (default: any)")
    complete_with(named, agents.names)
    _add_model_flags(command)
    add_config_flag(command)
    command.add_argument(
        "--new-gateway",
        action="store_true",
        help="start a new gateway even if one runs already; implied by --upstream, --claude-cli, --prompt-trim, "
        "--capture, --log-file and --debug",
    )
    command.add_argument("--dry-run", action="store_true", help="print what would be started, without keys, and exit")
    command.add_argument(
        "--print-env", nargs="?", const="posix", choices=output.SHELLS, metavar="SHELL",
        help="print the variables that connect the agent to a gateway that is running, and exit; SHELL: %(choices)s "
        "(default: posix)",
    )  # fmt: skip
    command.add_argument(
        "--log-file",
        type=Path,
        metavar="FILE",
        help="append the new gateway's log to this file (default: a temporary "
        "file, which is kept after a warning or an error)",
    )
    command.add_argument("--capture", type=Path, metavar="DIR", help=CAPTURE_DIR_HELP)
    command.add_argument(
        "--debug", nargs="?", const=1, type=int, choices=(1, 2), default=0, metavar="LEVEL",
        help="print the agent's command, variables and files, and keep the log as text (its path is printed at "
        "the end); LEVEL 2: with each step of each request (default: 1)",
    )  # fmt: skip
    command.set_defaults(run=run)


def _add_model_flags(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("model")
    model = group.add_argument(
        "-m",
        "--model",
        metavar="NAME",
        help="a model of the gateway or server, an alias (model_aliases in the settings), or an embedded model, which "
        f"is downloaded if it is missing: {EMBEDDED_MODEL} (default: the only one, or the one that you choose at the "
        "terminal)",
    )
    complete_with(model, all_model_names)
    add_server_flags(group)
    group.add_argument(
        "--context-window",
        type=_tokens,
        metavar="TOKENS",
        default=0,
        help="context window of the model (default: as the server reports, or the embedded model's)",
    )
    group.add_argument(
        "--prompt-trim",
        choices=trim.NAMES,
        metavar="TIER",
        help="trim the agent's prompt: %(choices)s; see `dragoman help tokens` (default: tools for an embedded model, "
        "else off; a model on this machine that would read the prompt for over a minute gets a shorter one)",
    )


def _tokens(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number of tokens, got {text!r}")
    return int(text)


def _epilog() -> str:
    titles = {name: agents.get(name).title for name in agents.names()} | {agents.ANY: "the command after `--`"}
    return "agents:\n" + "\n".join(f"  {name:10}{title}" for name, title in titles.items()) + "\n" + dedent(_EXAMPLES)


def run(args: argparse.Namespace) -> int:
    """Starts the agent, and returns its exit status.

    Raises:
        ConfigError: the settings are wrong, the agent is not installed, or it is not clear which model it should use.
    """
    name = args.agent or agents.ANY
    agent = agents.get(name)
    if not (agent.programs or args.args or args.print_env):
        raise ConfigError(f"expected an agent ({', '.join(agents.names())}), or a command after `--`; got neither")
    require_extras("server", doing="serving")
    config, origin = _settings(args)
    options = RunOptions(
        agent=args.agent or "",
        args=args.args or (),
        model=args.model or "",
        named=bool(args.upstream or args.claude_cli),
        new=bool(args.new_gateway or args.prompt_trim or args.capture or args.debug or args.log_file),
        context_window=args.context_window,
        prompt_trim=args.prompt_trim or "",
        check=bool(args.dry_run or args.print_env),
        ask=output.ask_for_model if sys.stdin.isatty() and sys.stderr.isatty() else None,
    )
    from dragoman.cli.run.agent_run import AgentRun
    from dragoman.server.run import runner

    agent_run = AgentRun(agent, _program(agent), args, options)
    try:
        with runner() as loop:
            return loop.run(agent_run.printed(config, origin) if args.print_env else agent_run.run(config, origin))
    except InterruptedBySignal as stopped:
        return stopped.status


def _program(agent: Agent) -> str:
    """Returns the path of the agent's program; "" if the user names the command.

    Raises: ConfigError: it is not installed; the message has the command that installs it.
    """
    if not agent.programs:
        return ""
    for program in agent.programs:
        if path := shutil.which(program):
            return path
    raise ConfigError(
        f"{agent.title} is not installed (no {' or '.join(agent.programs)} in PATH); run: {agent.install}"
    )


def _settings(args: argparse.Namespace) -> tuple[settings.Config, dict[str, str]]:
    flags = {**upstream_flags(args), "capture.dir": str(args.capture) if args.capture else None}
    for unknown in settings.unknown_variables(os.environ):
        print_status(unknown)
    return settings.load(compose.settings_path(args.config), os.environ, flags)
