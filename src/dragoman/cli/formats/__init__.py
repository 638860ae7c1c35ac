"""`dragoman formats`: lists and describes tool-call formats, and writes and tests new ones."""

import argparse
import json
import sys
from pathlib import Path
from shutil import get_terminal_size
from typing import Final

import msgspec

from dragoman import formats
from dragoman.cli._common import add_config_flag
from dragoman.cli.completion import complete_with, format_names
from dragoman.cli.formats.check_cases import check_cases, find_cases
from dragoman.cli.formats.facts import collect_facts, format_facts, format_table
from dragoman.cli.formats.find import BUILT_IN, KnownFormat, added_formats, find_format
from dragoman.cli.formats.new_format import DEFAULT_LIKE, write_format
from dragoman.cli.formats.templates import SHAPES
from dragoman.core.errors import ConfigError
from dragoman.identify import detect_format

_EXAMPLES: Final = """
    columns of the list:
      ARGUMENTS   how arguments are written: as JSON, between tags (tagged), as Python, or in a notation of their own
      IDS         who writes the id of a call: the model (model's) or Dragoman (ours; replaced: the model's is unusable)
      GRAMMAR     yes: constrained decoding can enforce calls that match the tools' schemas
      CASES       test cases of Dragoman for this format
      SUITE       passed cases of canitoolcall, a test suite by others; -: it has none
      REASONING   markers of the model's reasoning
      WRITTEN BY  models that write this format; for formats that are not built in, also their [origin]

    examples:
      dragoman formats                 list all formats
      dragoman formats hermes          describe one format
      dragoman formats Qwen/Qwen3-8B   describe the format of this model
      dragoman formats new mine        write mine.py and mine.txt, a new format and its test cases
      dragoman formats test mine.txt   run the test cases in this file

    exit status:
      0  success
      1  a test case failed
      2  the format, model or file is unknown or invalid
"""
_NEW: Final = "new"
_TEST: Final = "test"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "formats",
        help="list the tool-call formats, write and test a new one",
        description="List the formats in which models write tool calls, also those of the settings and of installed "
        "packages. With a NAME, describe one format: its models, an example of a call, and the grammar that "
        "constrained decoding enforces. `new` and `test` write and test a format of your own (docs/plugins.md).",
        epilog=_EXAMPLES,
    )
    named = command.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="a format, a module `x.py`, or a model such as Qwen/Qwen3-8B (default: list all); or `new`, `test`",
    )
    complete_with(named, format_names)
    command.add_argument(
        "target",
        nargs="?",
        metavar="FILE",
        help="for `new`: the name of the format; for `test`: its module or case file",
    )
    command.add_argument("--json", action="store_true", help="print the list or the format as JSON")
    command.add_argument(
        "--like",
        choices=tuple(SHAPES),
        metavar="NAME",
        help="for `new`: a format with the same notation: hermes (one JSON object), mistral (the name, then JSON) or "
        f"minimax_m2 (parameters between tags) (default: {DEFAULT_LIKE})",
    )
    command.add_argument(
        "--package", action="store_true", help="for `new`: write a package that can be installed, with its entry point"
    )
    add_config_flag(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the table or one format, or writes or tests a format.

    Raises: ConfigError: there is no such format or file, and no known model of that name.
    """
    _check_arguments(args)
    if args.name == _NEW:
        return _run_new(args)
    if args.name == _TEST:
        return _run_test(Path(args.target), args.config)
    if args.name:
        found = _find(args.name, args.config)
        print(_json(collect_facts(*found)) if args.json else format_facts(*found))
        return 0
    added, failures = added_formats(args.config)
    for failure in failures:
        print(f"dragoman: {failure}", file=sys.stderr)
    if args.json:
        built_in = [KnownFormat(each, BUILT_IN) for each in formats.built_in()]
        print(_json([collect_facts(*each) for each in (*built_in, *added)]))
    else:
        print(format_table(get_terminal_size().columns if sys.stdout.isatty() else None, added))
    return 0


def _check_arguments(args: argparse.Namespace) -> None:
    has_target = args.name in (_NEW, _TEST)
    if args.target and not has_target:
        raise ConfigError(f"unexpected argument {args.target!r}: only `new` and `test` have a second one")
    if has_target and not args.target:
        what = "the name of the new format" if args.name == _NEW else "a case file, or the module of a format"
        raise ConfigError(f"`dragoman formats {args.name}` needs {what}")
    if (args.like or args.package) and args.name != _NEW:
        raise ConfigError("--like and --package are for `dragoman formats new NAME`")
    if args.json and has_target:
        raise ConfigError(f"--json cannot be combined with `{args.name}`")


def _json(value: object) -> str:
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=2)


def _find(name: str, config: Path | None) -> KnownFormat:
    """Returns the format of this name, or the format of this model; prints to standard error how it was found."""
    try:
        return find_format(name, config)
    except ConfigError as error:
        detected = detect_format(name)
        if detected.by == "nothing" or not str(error).startswith("unknown format"):
            raise
    print(f"dragoman: format {detected.format.name}: {detected.why}", file=sys.stderr)
    return KnownFormat(detected.format, BUILT_IN)


def _run_new(args: argparse.Namespace) -> int:
    files = write_format(args.target, args.like or DEFAULT_LIKE, package=args.package)
    print(f"wrote {', '.join(str(path) for path in files if path)}")
    status = _run_test(files.module, args.config)
    print(f"\nEdit the markers in {files.module} and {files.cases}, then run: dragoman formats test {files.module}")
    if files.pyproject is not None:
        print(f"To install it: pip install ./{files.pyproject.parent}; then `dragoman formats {args.target}` knows it.")
    elif files.module.parent == Path():
        print(f"To parse a reply: dragoman parse reply.txt --format {files.module}")
    return status


def _run_test(file: Path, config: Path | None) -> int:
    """Runs the cases of a format and prints those that fail."""
    (format, origin), cases = find_cases(file, config)
    failures = check_cases(format, cases)
    for failure in failures:
        print(failure)
    failed = len({failure.title for failure in failures})
    result = f"{failed} failed" if failed else "all passed"
    print(f"{format.name} ({origin}): {len(cases)} cases and round trips, {result}")
    return 1 if failures else 0
