"""`dragoman models`: the models of this machine, and what a running gateway has loaded."""

import argparse
import os
from collections.abc import Callable
from typing import Final

from dragoman import compose
from dragoman import config as settings
from dragoman.cli import pull
from dragoman.cli._common import add_config_flag, add_gateway_flag
from dragoman.cli.completion import complete_with
from dragoman.core.errors import ConfigError

_EXAMPLES: Final = """
    examples:
      dragoman models
      dragoman models show smollm2-135m --measure
      dragoman models ps --json
      dragoman models pull hf:OWNER/REPO:Q4_K_M

    `dragoman help models show` describes the command show.

    exit status:
      0  success
      1  no gateway runs, or it, a model or the network failed
      2  the model is unknown, or the command cannot be used with it
"""
_ORIGINS: Final = (
    "Models are downloaded by Dragoman (pulled), in the folders of the setting embedded.folders (folder), or those of "
    "Ollama (ollama), LM Studio (lmstudio) and the Hugging Face cache (huggingface); without the latter three if "
    "embedded.discover is false."
)
_MEASURE: Final = (
    "load the model, measure how fast it reads prompts and writes output, and how many of ten short tool-call tasks it "
    "gets right; this takes at most two minutes, and the result is stored"
)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command and its own commands."""
    command = commands.add_parser(
        "models",
        help="list, show, measure, unload and delete models of this machine",
        description="List, show, measure, unload and delete the models of this machine, which Dragoman runs itself "
        f"with llama.cpp, and download others.\n\n{_ORIGINS}",
        epilog=_EXAMPLES,
    )
    _add_common_flags(command)
    command.set_defaults(run=_run_list)
    more = command.add_subparsers(title="commands", dest="models_command", metavar="COMMAND", help="(default: list)")
    _add(more, "list", "list the models of this machine", _run_list, _LIST)
    show = _add(more, "show", "describe a model of this machine", _run_show, _SHOW)
    _add_name(show)
    show.add_argument("--measure", action="store_true", help=_MEASURE)
    _add_name(_add(more, "calibrate", "measure when the model should answer in words", _run_calibrate, _CALIBRATE))
    _add(more, "ps", "list what the running gateway has loaded", _run_ps, _PS)
    _add_name(_add(more, "stop", "unload a model from the gateway's memory", _run_stop, _STOP))
    remove = _add(more, "rm", "delete a downloaded model", _run_rm, _RM)
    _add_name(remove)
    remove.add_argument("-y", "--yes", action="store_true", help="do not ask; without a terminal, needed")
    examples = _add(more, "examples", "count or delete learned examples of tool calls", _run_examples, _EXAMPLE_CALLS)
    examples.add_argument("--delete", action="store_true", help="delete them")
    pulled = more.add_parser("pull", help="download a model", description=pull.DESCRIPTION, epilog=pull.EXAMPLES)
    pull.add_arguments(pulled)


_LIST: Final = (
    f"List the models of this machine, with their size, origin, context window of each request in tokens, and the "
    f"format of their tool calls. If a gateway runs, also list which ones it has loaded.\n\n{_ORIGINS}"
)
_SHOW: Final = (
    "Describe a model of this machine: its file, context window, call format and how that was found, licence, "
    "estimated memory with the present settings, and what was measured here."
)
_CALIBRATE: Final = (
    "Load a model of this machine and ask it, for built-in prompts with and without a fitting tool, whether each "
    "needs a call. The threshold that separates them is stored, and the gateway uses it when it starts: where the "
    "probability of a call is below it, the model answers in words (setting embedded.decide_calls). The line for "
    "Dragoman's model catalogue is printed too. This takes some minutes."
)
_PS: Final = (
    "List the models that the running gateway has loaded, is loading, or is about to load: state, estimated memory, "
    "active and waiting requests, the time until an idle model is unloaded (setting embedded.keep_alive_s), and how "
    "often its engine was restarted."
)
_STOP: Final = (
    "Unload a model from the memory of the running gateway: at once, or after its running requests. The next request "
    "for it loads it again. A pinned model (setting embedded.pinned) is not unloaded."
)
_EXAMPLE_CALLS: Final = (
    "Count the examples of tool calls that the running gateway has learned for the prompts of small models (setting "
    "examples.enabled), or delete them. Each API key has examples of its own; those of your key count."
)
_RM: Final = (
    "Delete a model that `dragoman pull` downloaded, with its projector, its checksums and what remains of an "
    "interrupted download. If the running gateway has loaded it, unload it first. Models of other programs, and "
    "of your own folders, are not deleted: the error has the command that does it."
)


def _add(
    more: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    summary: str,
    run: Callable[[argparse.Namespace], int],
    description: str,
) -> argparse.ArgumentParser:
    command = more.add_parser(name, help=summary, description=description)
    _add_common_flags(command, default=argparse.SUPPRESS)
    command.set_defaults(run=run)
    return command


def _add_common_flags(command: argparse.ArgumentParser, default: str | None = None) -> None:
    """Adds the options that all have; with the default `SUPPRESS`, those before the inner command count too."""
    command.add_argument("--json", action="store_true", default=default or False, help="print the result as JSON")
    add_gateway_flag(command, default)
    add_config_flag(command, default=default)


def _add_name(command: argparse.ArgumentParser) -> None:
    name = command.add_argument("name", metavar="NAME", help="name or alias of the model, see `dragoman models`")
    complete_with(name, _local_names)


def _local_names() -> list[str]:
    """Returns the names of the models of this machine, for completion."""
    from dragoman.backends.embedded.local.model_facts import find_local_models
    from dragoman.cli.models.listing import list_names

    try:
        config, _ = settings.load(compose.settings_path(None), os.environ, {})
        return list_names(find_local_models(config.embedded))
    except ConfigError:
        return []


def _run_list(args: argparse.Namespace) -> int:
    from dragoman.cli.models import listing

    return listing.run(args)


def _run_show(args: argparse.Namespace) -> int:
    from dragoman.cli.models import show

    return show.run(args)


def _run_calibrate(args: argparse.Namespace) -> int:
    from dragoman.cli.models import calibrate

    return calibrate.run(args)


def _run_ps(args: argparse.Namespace) -> int:
    from dragoman.cli.models import loaded

    return loaded.ps(args)


def _run_stop(args: argparse.Namespace) -> int:
    from dragoman.cli.models import loaded

    return loaded.stop(args)


def _run_rm(args: argparse.Namespace) -> int:
    from dragoman.cli.models import removal

    return removal.run(args)


def _run_examples(args: argparse.Namespace) -> int:
    from dragoman.cli.models import examples

    return examples.run(args)
