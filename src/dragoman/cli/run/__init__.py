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
      dragoman run claude                      on an automatically selected model
      dragoman run codex --upstream http://127.0.0.1:1234/v1 --model qwen3-8b
      dragoman run claude --model qwen2.5-coder-1.5b -- -p "Say hello"
      dragoman run -- python my_agent.py       a program that uses OPENAI_BASE_URL
      eval "$(dragoman run any --print-env)"   variables for the running gateway

    exit status:
      the exit status of the agent (128 plus the number of the signal that ended it); if no agent was started:
      0  the output of --dry-run or --print-env was printed
      1  the model, a server or the network failed
      2  the command or its settings are invalid, or the agent is not installed
"""
_AGENT_FIRST: Final = "put AGENT before this option"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "run",
        help="start an agent with a gateway and a model",
        usage="dragoman run AGENT [options] [-- ARGUMENT ...]\n       dragoman run [options] -- COMMAND [ARGUMENT ...]",
        description="Start an agent on a gateway. Use the gateway that runs at the configured port (8484 by default) "
        "if it serves the model of --model (without --model: any model that suits agents). Otherwise start a new "
        "gateway, and stop it when the agent ends. The agent's own configuration files do not change.\n\n"
        "A new gateway serves the models of the settings and options. If these name none, it serves those of the model "
        "servers that run on this machine (LM Studio, Ollama, llama-server, vLLM and others). If no server runs, it "
        "serves the largest downloaded embedded model that suits agents. An embedded model is one that Dragoman runs "
        "itself.",
        epilog=_epilog(),
    )
    command.rest_dest = "args"  # type: ignore[attr-defined]  # a Parser of ours
    named = command.add_argument(
        "agent", nargs="?", metavar="AGENT", help="agent to start, from the list below; leave it out to start COMMAND"
    )
    complete_with(named, agents.names)
    _add_model_flags(command)
    add_config_flag(command)
    command.add_argument(
        "--new-gateway",
        action="store_true",
        help="start a new gateway even if one runs already; implied by --upstream, --claude-cli, --prompt-trim, "
        "--capture, --console, --log-file and --debug",
    )
    command.add_argument(
        "--dry-run",
        action="store_true",
        help="print the command, variables and files that would be used, with keys hidden, and exit",
    )
    command.add_argument(
        "--print-env", nargs="?", const="posix", type=_shell, choices=output.SHELLS, metavar="SHELL",
        help="print the variables that connect the agent to a running gateway, for this shell, and exit: %(choices)s; "
        "without SHELL, posix. Put AGENT before this option",
    )  # fmt: skip
    command.add_argument(
        "--log-file",
        type=Path,
        metavar="FILE",
        help="append the new gateway's log to this file (default: a temporary file, which is kept only after a warning "
        "or an error)",
    )
    command.add_argument("--capture", type=Path, metavar="DIR", help=CAPTURE_DIR_HELP)
    command.add_argument(
        "--console",
        action="store_true",
        help="serve the console of the new gateway, a web page with each exchange; print its address and a key for it",
    )
    command.add_argument(
        "--debug", nargs="?", const=1, type=_debug_level, choices=(1, 2), default=0, metavar="LEVEL",
        help="print the agent's command, variables and files, and keep the gateway's log as text; its path is printed "
        "at the end. LEVEL 2 also logs each step of each request; without LEVEL, 1. Put AGENT before this option",
    )  # fmt: skip
    command.set_defaults(run=run)


def _add_model_flags(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("model")
    model = group.add_argument(
        "-m",
        "--model",
        metavar="NAME",
        help="model to use: a model of the gateway or of a server, an alias (setting model_aliases), or an embedded "
        f"model ({EMBEDDED_MODEL}; missing weights are downloaded). Default: if there is just one model, that one; "
        "otherwise you choose at the terminal",
    )
    complete_with(model, all_model_names)
    add_server_flags(group)
    group.add_argument(
        "--context-window",
        type=_tokens,
        metavar="TOKENS",
        default=0,
        help="context window of the model: the agent is told this size, and an embedded model is loaded with it "
        "(default: the size that the server reports, or that of the embedded model)",
    )
    group.add_argument(
        "--prompt-trim",
        choices=trim.NAMES,
        metavar="TIER",
        help="how much to shorten the agent's prompt: %(choices)s; `dragoman help tokens` describes these tiers. "
        "Default: tools for an embedded model, otherwise off; if a model on this machine would need over a minute to "
        "read the prompt, it is shortened more",
    )


def _shell(text: str) -> str:
    if text in agents.names():
        raise argparse.ArgumentTypeError(f"expected one of {', '.join(output.SHELLS)}, got {text!r}; {_AGENT_FIRST}")
    return text


def _debug_level(text: str) -> int:
    if text not in ("1", "2"):
        raise argparse.ArgumentTypeError(f"expected LEVEL 1 or 2, got {text!r}; {_AGENT_FIRST}")
    return int(text)


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
        new=bool(args.new_gateway or args.prompt_trim or args.capture or args.console or args.debug or args.log_file),
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
