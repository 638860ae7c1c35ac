"""`dragoman bundle`: packs a capture as a file that can be shared, without the content of messages."""

import argparse
import asyncio
import json
import os
from pathlib import Path

from dragoman.cli._common import CAPTURE_HELP, first_lines, require_extras
from dragoman.cli._terminal import one_line, printable
from dragoman.core.errors import ConfigError

EXAMPLES = """
    examples:
      dragoman bundle captures              pack the newest capture
      dragoman bundle captures -o bug.zip
      dragoman replay bug.zip --explain     what the recipient can do

    exit status:
      0  packed; the output says whether the bundle replays like the capture
      1  the capture cannot be replayed
      2  the capture does not exist, or the file cannot be written
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "bundle",
        help="pack a captured request and response for a bug report",
        description="Pack a captured exchange (a client's request, the resulting requests to the model, and the "
        "response) for a bug report. Capture exchanges with the option --capture DIR of `dragoman serve` or `dragoman "
        "run`.\n\nReplace the text of all messages, of the tool results, of the model's output and of the tool "
        "descriptions by meaningless text that is parsed in the same way. Tool names, tool schemas, model names and "
        "settings are kept. API keys from headers, settings and environment variables are not in the capture: they "
        "were removed when it was written.",
        epilog=EXAMPLES,
    )
    command.add_argument("capture", type=Path, metavar="CAPTURE", help=CAPTURE_HELP)
    command.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="file to write (default: the name of the capture with .zip, in the current directory)",
    )
    command.add_argument(
        "--no-anonymize", action="store_true", help="keep all text unchanged, although it may be private"
    )
    command.add_argument("--json", action="store_true", help="print the report as JSON")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Packs the capture, and prints what the bundle contains.

    Raises: ConfigError: the capture does not exist, or the file cannot be written.
    """
    require_extras("server", doing="bundling")
    from dragoman.server.capture.bundle import anonymize, raw_copy, zip_bundle
    from dragoman.server.capture.diff import difference
    from dragoman.server.capture.load import LoadedCapture, load

    capture = LoadedCapture(*load(args.capture))
    anonymized = None if args.no_anonymize else asyncio.run(anonymize(capture))
    files = anonymized.files if anonymized else raw_copy(capture)
    out = args.output or Path(f"{capture.name}.zip")
    try:
        with open(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(zip_bundle(files))
    except OSError as e:
        raise ConfigError(f"cannot write {out}: {(e.strerror or str(e)).lower()} - at --output") from None
    same = None if anonymized is None else anonymized.is_same_outcome
    changes = difference(anonymized.outcome, anonymized.now) if anonymized and not same else ()
    if args.json:
        report = {"file": str(out), "capture": capture.name, "files": len(files), "bytes": out.stat().st_size}
        print(json.dumps({**report, "anonymized": anonymized is not None, "same_outcome": same, "difference": changes}))
        return 0
    print(printable(f"{out}: {len(files)} files, {out.stat().st_size} bytes, of {capture.name}"))
    print("kept:      names and schemas of tools, names of models, settings, versions, times")
    if anonymized is None:
        print("kept too:  ALL MESSAGES of people, tools and the model (--no-anonymize)")
        return 0
    print("replaced:  the text of messages and tool descriptions, with words of the same shape")
    print("left out:  keys, other headers, addresses, paths of files")
    if same:
        print("The bundle is parsed like the capture: the problem is still in it.")
        return 0
    print("The bundle is NOT parsed like the capture, so it may lack the problem; --no-anonymize keeps all texts:")
    for line in first_lines(changes):
        print(f"  {one_line(line)}")
    return 0
