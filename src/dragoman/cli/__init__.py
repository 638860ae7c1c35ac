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
    *("init", "serve", "run", "chat", "ask", "doctor", "probe", "models", "keys", "pull", "parse", "formats", "tokens"),
    *("console", "watch", "route", "report", "log", "replay", "bundle", "mcp", "deploy", "completion", "help"),
    "version",
)
"""Order of the commands in the help; others follow."""
_COMMANDS: Final = FolderRegistry[Callable[..., None]](__name__, __path__, "add")
_WIDTH: Final = 100
_EXAMPLES: Final = """
    examples:
      dragoman serve   start a gateway with a small embedded model
      dragoman chat    talk with a model (no gateway has to run)

    `dragoman help COMMAND` describes a command.
"""
_STATUS: Final = """
    exit status:
      0  success
      1  the model, a server or the network failed
      2  the command or its settings are invalid
"""
_SETTINGS: Final = (
    "settings:\n"
    "  Options override environment variables, which override the settings file. For example, "
    "DRAGOMAN_SERVER_PORT=9000 sets server.port.\n"
    "  The settings file is --config FILE, else $DRAGOMAN_CONFIG, else ~/.config/dragoman/config.toml.\n"
    "  `dragoman serve --print-config --all` prints all settings. `dragoman serve --print-schema` describes them, as "
    "does docs/configuration.md in the source repository."
)
_REMARK: Final = re.compile(r" *\S.*? {2,}(?=\S)")
"""The columns before the remark, in a line of the examples or of the exit statuses."""


class Help(argparse.HelpFormatter):
    """Wraps text at the width of the terminal, at most 100 columns; a list stays a list."""

    def __init__(self, prog: str, **more: Any) -> None:
        more["width"] = min(get_terminal_size().columns, _WIDTH) - 2
        super().__init__(prog, max_help_position=30, **more)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = (dedent(text).strip("\n").split("\n\n")) if text else []
        return "\n\n".join("\n".join(_wrap(line, width) for line in block.split("\n")) for block in blocks)


def _wrap(line: str, width: int) -> str:
    """Returns the line, wrapped in its last column."""
    columns = _REMARK.match(line)
    indent = len(columns[0]) if columns else len(line) - len(line.lstrip())
    return fill(
        line[indent:],
        width,
        initial_indent=line[:indent],
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


class _StoreOnce(argparse.Action):
    """Stores the value of an option or argument, and rejects an option that was already given."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        if option and self.dest in parser.seen_options:
            several = "; name several servers in the settings file: [upstreams.NAME]" if self.dest == "upstream" else ""
            raise argparse.ArgumentError(self, f"can be given only once{several}")
        parser.seen_options.add(self.dest)
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors say what to type instead, and whose help has common sections."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **{**more, "formatter_class": Help, "allow_abbrev": False})
        self.register("action", None, _StoreOnce)
        self.seen_options = set[str]()
        """The options that the command line has contained so far, by attribute."""

    rest_dest = ""
    """Attribute for the arguments after `--`, None if there is no `--`. Empty: they are ordinary arguments."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Reports unknown arguments here, where the options of the command are known, and not in the parser above."""
        self.seen_options.clear()
        rest_args = None
        if self.rest_dest and "--" in (args or ()):
            at = args.index("--")
            args, rest_args = args[:at], tuple(args[at + 1 :])
        namespace, rest = super().parse_known_args(args, namespace)
        if self.rest_dest:
            setattr(namespace, self.rest_dest, rest_args)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}{self._advice(rest[0])}")
        return namespace, rest

    def _advice(self, unknown: str) -> str:
        """Returns what to type instead of an unknown argument, as a clause, or ""."""
        options = [option for option in self._option_string_actions if option.startswith("--")]
        positionals = [str(action.metavar) for action in self._get_positional_actions()]
        name = unknown.partition("=")[0].lstrip("-").upper()
        if unknown.startswith("--") and name in positionals:
            return f"; {name} is not an option: {self.prog} {name}"
        if unknown.startswith("--"):
            advice = nearest(unknown, options)
        elif positionals or unknown.startswith("-"):
            advice = ""
        elif "://" in unknown and "--upstream" in options:
            advice = "; name a server with --upstream"
        else:
            advice = "; name a model with --model" if "--model" in options else ""
        return advice + ("; put the agent's own options after `--`" if self.rest_dest else "")

    def format_help(self) -> str:
        """Returns the help, with the sections on exit status and settings where the command has none of its own."""
        epilog = dedent(self.epilog or "").strip("\n")
        more = [] if "exit status:" in epilog else [dedent(_STATUS).strip("\n")]
        more += [_SETTINGS] if "--config" in self._option_string_actions else []
        parser = copy.copy(self)
        parser.epilog = "\n\n".join(filter(None, [epilog, *more]))
        return super(Parser, parser).format_help()

    def error(self, message: str) -> NoReturn:
        """Prints the error with the nearest name, and exits with status 2."""
        wrong = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if wrong:
            message += nearest(wrong[1], re.findall(r"[\w.-]+", wrong[2]))
        message = re.sub(r"invalid int value: (.*)", r"expected a whole number, got \1", message)
        message = re.sub(r"invalid float value: (.*)", r"expected a number, got \1", message)
        if message.endswith("arguments are required: CAPTURE"):
            message += "; `dragoman serve --capture DIR` and `dragoman run --capture DIR` store captures in DIR"
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: error: {message}\n")


def parser() -> argparse.ArgumentParser:
    """Returns the parser of all commands."""
    about = (
        "Make tool calls work between any agent and any model. The gateway translates between the OpenAI and Anthropic "
        "APIs, and parses tool calls from the model's text. The other commands set up and debug the gateway."
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
