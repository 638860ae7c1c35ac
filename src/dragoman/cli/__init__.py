"""The command line: one file, or folder, a command; a name that begins with `_` is none.

Exit status: 0 done; 1 the model, engine or network failed; 2 the command or its settings are wrong.
"""

import argparse
import copy
import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Sequence
from shutil import get_terminal_size
from textwrap import dedent, fill
from typing import Any, Final, NoReturn

from dragoman import __version__
from dragoman.cli._terminal_safe import printable
from dragoman.core.errors import ClientError, DragomanError, nearest

_ORDER: Final = ("serve", "run", "ask", "doctor", "probe", "pull", "parse", "formats", "tokens", "replay", "bundle")
"""In which one meets them; others come behind."""
_WIDTH: Final = 100
_EXAMPLES: Final = """
    examples:
      dragoman serve              the APIs at http://127.0.0.1:8484, a small model of its own behind
      dragoman ask                one question to it, and what becomes of the model's words

    `dragoman COMMAND --help` tells each in full.
"""
_STATUS: Final = """
    exit status:
      0  done
      1  the model, the engine, a server or the network failed
      2  the command or its settings are wrong; standard error says what, and where
"""
_SETTINGS: Final = """
    settings:
      Flags win over variables (DRAGOMAN_SERVER_PORT=9000 for server.port), and those over the file:
      --config, else $DRAGOMAN_CONFIG, else ~/.config/dragoman/config.toml where it is there.
      `dragoman serve --check` says what they are and where from; docs/configuration.md lists all.
"""


class Help(argparse.HelpFormatter):
    """Paragraphs broken where the screen ends, at most 100 wide; lines that are set in stay as they are."""

    def __init__(self, prog: str, **more: Any) -> None:
        more["width"] = min(get_terminal_size().columns, _WIDTH) - 2
        super().__init__(prog, max_help_position=30, **more)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = (dedent(text).strip("\n").split("\n\n")) if text else []
        return "\n\n".join(block if "\n" in block else fill(block, width) for block in blocks)


class Parser(argparse.ArgumentParser):
    """Argparse that offers the nearest name for a mistyped one, and whose help tells the same of every command."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **{**more, "formatter_class": Help})

    behind = ""
    """Under which name the words behind `--` are kept as they stand, None where there is no `--`; empty: they are
    arguments like any other."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Refuse what is left over here, where it is known which options there are, and not in the command above."""
        behind = None
        if self.behind and "--" in (args or ()):
            at = args.index("--")
            args, behind = args[:at], tuple(args[at + 1 :])
        namespace, rest = super().parse_known_args(args, namespace)
        if self.behind:
            setattr(namespace, self.behind, behind)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return namespace, rest

    def format_help(self) -> str:
        """What the command does, its options and examples; its exit status and settings where it does not say more."""
        said = dedent(self.epilog or "").strip("\n")
        more = [] if "exit status:" in said else [dedent(_STATUS).strip("\n")]
        more += [dedent(_SETTINGS).strip("\n")] if "--config" in self._option_string_actions else []
        whole = copy.copy(self)
        whole.epilog = "\n\n".join(filter(None, [said, *more]))
        return super(Parser, whole).format_help()

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, offer the nearest, exit 2."""
        wrong = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if wrong:
            message += nearest(wrong[1], re.findall(r"[\w.-]+", wrong[2]))
        unknown = re.search(r"unrecognized arguments: (--[\w-]+)", message)
        if unknown:
            message += nearest(unknown[1], [o for o in self._option_string_actions if o.startswith("--")])
        if message.startswith("unrecognized") and self.behind:
            message += "; what is the agent's own goes behind `--`"
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: error: {message}\n")


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    about = "Real tool calls between any agent and any model: a gateway, and what one needs around it."
    top = Parser(prog="dragoman", description=about, epilog=_EXAMPLES)
    top.add_argument("--version", action="version", version=f"dragoman {__version__}")
    commands = top.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )
    for name in names():
        importlib.import_module(f"{__name__}.{name}").add(commands)
    return top


def names() -> list[str]:
    """All commands, in the order in which one meets them."""
    there = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    return sorted(there, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what may come next, and hears of nothing else
        from dragoman.cli.completion import answer_completion

        answer_completion(parser())
    args = parser().parse_args(argv)
    try:
        status: int = args.run(args)
    except DragomanError as error:
        print(f"dragoman {args.command}: error: {printable(str(error))}", file=sys.stderr)
        return 2 if isinstance(error, ClientError) else 1
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone; python would complain at exit
        return 1
    except KeyboardInterrupt:
        return 130
    return status
