"""`dragoman formats`: the formats that Dragoman reads and writes."""

import argparse

from dragoman import formats


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser("formats", help="list the tool-call formats", description="List the formats.")
    command.set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    """Print the table."""
    print(table())
    return 0


def table() -> str:
    """Every format: name, other names, who writes it."""
    rows = [("FORMAT", "ALSO CALLED", "WRITTEN BY")]
    for name in formats.names():
        format = formats.get(name)
        rows.append((format.name, ", ".join(format.aliases), format.models))
    widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
    return "\n".join(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in rows)
