"""`dragoman init`: finds what this machine has, and writes the first settings."""

import argparse
from pathlib import Path
from typing import Final

from dragoman.cli._common import BASE_URL, add_upstream_details, add_upstream_flag

_EXAMPLES: Final = """
    examples:
      dragoman init          ask a few questions, and write the settings
      dragoman init --yes    write the settings without questions
      dragoman init --upstream http://10.0.0.5:8000/v1 --output team.toml
      dragoman init --json   print what was found, and the settings; write nothing

    exit status:
      0  the settings were written, or printed
      1  the server of --upstream does not respond
      2  the command is invalid, or the settings file exists already
    130  Ctrl-C; the settings were not written, unless the output says so
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "init",
        help="find models, servers and agents, and write the settings",
        description="Look for model servers, downloaded models and agents on this machine, ask which model agents "
        "should use, measure it, and write the settings with a comment for each. Then offer a service that starts the "
        "gateway at login, and shell completion. Each question has a default: press Enter. Nothing is written before "
        "you agree, and an existing file is never overwritten.\n\n"
        "Without a terminal, print the settings to standard output and write nothing, unless --yes is given.",
        epilog=_EXAMPLES,
    )
    command.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="file to write (default: the file that other commands read: $DRAGOMAN_CONFIG, else "
        "~/.config/dragoman/config.toml)",
    )
    command.add_argument(
        "--force", action="store_true", help="replace an existing file, and keep a copy of it (FILE.old)"
    )
    command.add_argument(
        "-y",
        "--yes",
        action="store_true",
        help="ask nothing: write the settings with the default model, measure it if it is on this machine, download "
        "nothing, and add neither a service nor completion",
    )
    command.add_argument(
        "-m",
        "--model",
        metavar="NAME",
        help="model for agents, of a server, on this machine or in `dragoman pull --list`",
    )
    add_upstream_flag(command, f"also use the server {BASE_URL}")
    add_upstream_details(command)
    command.add_argument("--no-measure", action="store_true", help="do not measure the model")
    command.add_argument(
        "--service", action="store_true", help="also write the service that starts the gateway at login, without asking"
    )
    command.add_argument("--json", action="store_true", help="print the result as JSON, and ask nothing")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Writes or prints the settings.

    Raises:
        ConfigError: the file exists, or an option is wrong.
        BackendUnavailableError: the server of `--upstream` does not respond.
    """
    from dragoman.cli.init.setup import Setup

    return Setup(args).run()
