"""The command line: one file a command.

Exit status: 0 done; 1 the model, engine or network failed; 2 the command or its settings are wrong.
"""

import argparse
import importlib
import pkgutil
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from dragoman import __version__
from dragoman.core.errors import CallerError, DragomanError, nearest


class Parser(argparse.ArgumentParser):
    """Argparse that offers the nearest name for a mistyped one."""

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
    top = Parser(prog="dragoman", description="Real tool calls between any agent and any model.")
    top.add_argument("--version", action="version", version=f"dragoman {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}").add(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    args = parser().parse_args(argv)
    try:
        status: int = args.run(args)
    except DragomanError as error:
        print(f"dragoman {args.command}: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, CallerError) else 1
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone; python would complain at exit
        return 1
    except KeyboardInterrupt:
        return 130
    return status
