"""`dragoman completion`: shell completion of commands, options and names.

At each Tab the shell runs `dragoman` itself, by argcomplete, so the completions are always up to date: options of this
version, formats, downloaded models. Source: https://kislyuk.github.io/argcomplete/ (3.7, 2026-11).
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
"""The shells, each with its startup file."""
_PIPE: Final = {"fish": "dragoman completion fish | source"}
_EXAMPLES: Final = """
    examples:
      eval "$(dragoman completion bash)"   put this line into ~/.bashrc
      eval "$(dragoman completion zsh)"    ~/.zshrc, after the line with compinit
      dragoman completion fish | source    ~/.config/fish/config.fish

    exit status:
      0  the code was printed
      2  the shell is unknown, or dragoman[terminal] is not installed
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "completion",
        help="set up shell completion",
        description="Print the shell code that completes commands, options, formats, models and agents. The shell's "
        "startup file must run this code: see the examples. Completion requires: pip install 'dragoman[terminal]'.",
        epilog=_EXAMPLES,
    )
    command.add_argument("shell", choices=list(SHELLS), metavar="SHELL", help="%(choices)s")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the lines that enable completion.

    Raises: ConfigError: the extra is missing; the message has the command that installs it.
    """
    print(_argcomplete().shellcode(["dragoman"], shell=args.shell))
    return 0


def answer_completion(parser: argparse.ArgumentParser) -> None:
    """Prints the completions and exits if a shell asks for them; otherwise does nothing."""
    _argcomplete().autocomplete(parser)


def complete_with(action: argparse.Action, names: Callable[[], Iterable[str]]) -> None:
    """Adds completions to an option, which may have other values too."""
    action.completer = lambda **_: sorted(names())  # type: ignore[attr-defined]


def format_names() -> list[str]:
    """Returns the names and aliases of all formats."""
    return [name for format in formats.built_in() for name in (format.name, *format.aliases)]


def model_names() -> list[str]:
    """Returns the names of models that can be downloaded."""
    return [name for model in models.models() for name in (model.name, *model.aliases)]


def all_model_names() -> list[str]:
    """Returns those names, and models that were found on servers."""
    try:
        from dragoman.backends.probe import cache
    except ImportError:
        return model_names()
    return [*model_names(), *cache.cached_models()]


def _argcomplete() -> "ModuleType":
    try:
        import argcomplete
    except ImportError as error:
        raise ConfigError(f"completion needs the terminal extra: {extras.install_command('terminal')}") from error
    return argcomplete
