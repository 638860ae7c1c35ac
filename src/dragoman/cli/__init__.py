"""The command line: each file or folder is a command, except those whose name begins with `_`.

Exit status: 0 success; 1 the model, a server or the network failed; 2 the command or its settings are wrong.
"""

import argparse
import copy
import os
import re
import sys
from collections.abc import Callable, Sequence
from shutil import get_terminal_size
from textwrap import dedent, fill
from typing import Any, Final, NoReturn

from dragoman import __version__
from dragoman.cli._terminal import exit_status, printable
from dragoman.core.errors import DragomanError, nearest
from dragoman.folder_registry import FolderRegistry

_ORDER: Final = (
    *("serve", "run", "ask", "doctor", "probe", "pull", "parse", "formats", "tokens", "replay", "bundle", "completion"),
    *("help", "version"),
)
"""Order of the commands in the help; others follow."""
_COMMANDS: Final = FolderRegistry[Callable[..., None]](__name__, __path__, "add")
_WIDTH: Final = 100
_EXAMPLES: Final = """
    examples:
      dragoman serve              starts a gateway at http://127.0.0.1:8484, with a small embedded model
      dragoman ask                shows a model's text next to the tool call; needs no running gateway

    `dragoman help COMMAND` describes a command.
"""
_STATUS: Final = """
    exit status:
      0  success
      1  the model, a server or the network failed
      2  the command or its settings are invalid; see standard error
"""
_SETTINGS: Final = """
    settings:
      Flags override environment variables (DRAGOMAN_SERVER_PORT=9000 for server.port), which override
      the settings file: --config, else $DRAGOMAN_CONFIG, else ~/.config/dragoman/config.toml.
      `dragoman serve --print-config --all` prints all settings; docs/configuration.md in Dragoman's
      source repository describes them.
"""


class Help(argparse.HelpFormatter):
    """Wraps paragraphs at the width of the terminal, at most 100 columns; indented lines stay unchanged."""

    def __init__(self, prog: str, **more: Any) -> None:
        more["width"] = min(get_terminal_size().columns, _WIDTH) - 2
        super().__init__(prog, max_help_position=30, **more)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = (dedent(text).strip("\n").split("\n\n")) if text else []
        return "\n\n".join(block if "\n" in block else fill(block, width) for block in blocks)


class Parser(argparse.ArgumentParser):
    """An argparse parser that suggests the nearest name for a mistyped one, and whose help has common sections."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **{**more, "formatter_class": Help, "allow_abbrev": False})

    rest_dest = ""
    """Attribute for the arguments after `--`, None if there is no `--`. Empty: they are ordinary arguments."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Reports unknown arguments here, where the options of the command are known, and not in the parser above."""
        rest_args = None
        if self.rest_dest and "--" in (args or ()):
            at = args.index("--")
            args, rest_args = args[:at], tuple(args[at + 1 :])
        namespace, rest = super().parse_known_args(args, namespace)
        if self.rest_dest:
            setattr(namespace, self.rest_dest, rest_args)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return namespace, rest

    def format_help(self) -> str:
        """Returns the help, with the sections on exit status and settings where the command has none of its own."""
        epilog = dedent(self.epilog or "").strip("\n")
        more = [] if "exit status:" in epilog else [dedent(_STATUS).strip("\n")]
        more += [dedent(_SETTINGS).strip("\n")] if "--config" in self._option_string_actions else []
        parser = copy.copy(self)
        parser.epilog = "\n\n".join(filter(None, [epilog, *more]))
        return super(Parser, parser).format_help()

    def error(self, message: str) -> NoReturn:
        """Prints the error with the nearest name, and exits with status 2."""
        wrong = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if wrong:
            message += nearest(wrong[1], re.findall(r"[\w.-]+", wrong[2]))
        unknown = re.search(r"unrecognized arguments: (--[\w-]+)", message)
        if unknown:
            message += nearest(unknown[1], [o for o in self._option_string_actions if o.startswith("--")])
        if message.startswith("unrecognized") and self.rest_dest:
            message += "; put the agent's own options after `--`"
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: error: {message}\n")


def parser() -> argparse.ArgumentParser:
    """Returns the parser of all commands."""
    about = (
        "Makes tool calls work between any agent and any model: a gateway that translates between the APIs of OpenAI "
        "and Anthropic and parses tool calls from a model's text, and commands to set it up and debug it."
    )
    top = Parser(prog="dragoman", description=about, epilog=_EXAMPLES)
    top.add_argument("--version", action="version", version=f"dragoman {__version__}")
    commands = top.add_subparsers(title="commands", dest="command", metavar="COMMAND", parser_class=Parser)
    for name in names():
        _COMMANDS.load(name)(commands)
    return top


def names() -> list[str]:
    """Returns the names of all commands, in the order of the help."""
    return sorted(_COMMANDS.names(), key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command, and returns the exit status."""
    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions; nothing else may be printed
        from dragoman.cli.completion import answer_completion

        answer_completion(parser())
    top = parser()
    args = top.parse_args(argv)
    if args.command is None:
        top.print_help()
        return 0
    try:
        status: int = args.run(args)
    except DragomanError as error:
        print(f"dragoman {args.command}: error: {printable(str(error))}", file=sys.stderr)
        return exit_status(error)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has closed it; Python would report an error at exit
        return 1
    except KeyboardInterrupt:
        return 130
    return status
