"""`dragoman completion`: what makes a shell complete commands, options and names.

The shell asks `dragoman` itself at each Tab, by way of argcomplete, so what it offers is always what there is: options
of this version, formats, models whose weights are here. Source: https://kislyuk.github.io/argcomplete/ (3.7, 2026-11).
"""

import argparse
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from dragoman import extras, formats
from dragoman.catalog import models
from dragoman.core.errors import ConfigError

if TYPE_CHECKING:
    from types import ModuleType

SHELLS: Final = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/config.fish"}
"""Each with the file that it reads at its start."""
_PIPE: Final = {"fish": "dragoman completion fish | source"}
_EXAMPLES: Final = """
    examples:
      eval "$(dragoman completion bash)"         in ~/.bashrc; the same with zsh in ~/.zshrc
      dragoman completion fish | source          in ~/.config/fish/config.fish
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser(
        "completion",
        help="have your shell complete commands, options and names",
        description="Print the lines that make a shell complete commands, options, formats, models and agents at Tab. "
        "In zsh they belong behind compinit. It needs the terminal extra.",
        epilog=_EXAMPLES,
    )
    command.add_argument("shell", choices=list(SHELLS), help="whose lines: bash, zsh or fish")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print them.

    Raises: ConfigError: the extra is missing; the message has the line to type.
    """
    print(_argcomplete().shellcode(["dragoman"], shell=args.shell))
    return 0


def answer_completion(parser: argparse.ArgumentParser) -> None:
    """Tell the shell that asks what may come next, and end; where nobody asks, do nothing."""
    _argcomplete().autocomplete(parser)


def complete_with(action: argparse.Action, names: Callable[[], Iterable[str]]) -> None:
    """Have these names offered for an option, which may have others too."""
    action.completer = lambda **_: sorted(names())  # type: ignore[attr-defined]


def format_names() -> list[str]:
    """Formats, by all their names."""
    return [name for format in formats.names() for name in (format, *formats.get(format).aliases)]


def model_names() -> list[str]:
    """Models that can be fetched."""
    return [name for model in models.models() for name in (model.name, *model.aliases)]


def all_model_names() -> list[str]:
    """Those, and what servers were found to have."""
    try:
        from dragoman.backends.probe import cache
    except ImportError:
        return model_names()
    return [*model_names(), *cache.models()]


def _argcomplete() -> "ModuleType":
    try:
        import argcomplete
    except ImportError as error:
        raise ConfigError(f"completion needs the terminal extra: {extras.to_type('terminal')}") from error
    return argcomplete
