"""`dragoman report`: tool calls, tokens, cost, times and errors of a period, by model, tool, agent and so on."""

import argparse
from pathlib import Path
from typing import Final

from dragoman.cli._records.database import add_records_flags
from dragoman.cli._records.time_range import TIME_HELP
from dragoman.cli.report.labels import FILTERS

_EXAMPLES: Final = """
    labels for --by:
      model      the model that answered (requested: the name that the client sent)
      mode       how tools reached the model: native, prompt, ...
      format     the text format from which tool calls were parsed
      role       part of the agent: main, subagent, title, background
      api        the client's API
      day        the day, in UTC (hour: the hour)
      tool       the tool that was called; such rows contain only numbers of calls
      upstream, agent, key, version, status, error

    examples:
      dragoman report
      dragoman report --by tool --model 'qwen*' --since 2026-11-20
      dragoman report --by day,model --since 30d --csv
      dragoman report --compare previous   with the 7 days before
      dragoman report --compare version 1.2.0 1.3.0

    exit status:
      0  success
      1  there are no records, or the database cannot be read
      2  the command or its settings are invalid
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "report",
        help="report tool calls, tokens, cost and latency by model, tool, agent, ...",
        description="Report on the recorded exchanges: tool calls made, valid, repaired, re-asked and failed, tokens, "
        "share of cached input, cost, errors, and latency percentiles. The worst rows are first. If a model or "
        "tool fails significantly more often than the others, it is named.\n\n"
        "The gateway records each exchange, without its content (setting records.enabled).",
        epilog=_EXAMPLES,
    )
    command.add_argument("--by", metavar="LABELS", help="labels that divide the exchanges, separated by commas")
    command.add_argument("--since", metavar="TIME", default="7d", help=f"begin: {TIME_HELP} (default: 7d)")
    command.add_argument("--until", metavar="TIME", default="now", help="end, as --since (default: now)")
    for name in FILTERS:
        command.add_argument(
            f"--{name}", metavar="PATTERN", help=f"only exchanges whose {name} is this; * stands for any characters"
        )
    command.add_argument("--tool", metavar="PATTERN", default="*", help="only calls of this tool")
    command.add_argument(
        "--compare",
        nargs="+",
        metavar=("WHAT", "VERSION"),
        help="compare with another period: `previous`, or BEGIN..END; or two versions of Dragoman: `version A B`",
    )
    command.add_argument("--limit", type=int, metavar="N", default=20, help="rows of a table; 0: all (default: 20)")
    output = command.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print the report as JSON")
    output.add_argument("--csv", action="store_true", help="print one table as CSV")
    output.add_argument("--parquet", type=Path, metavar="FILE", help="write one table to this Parquet file")
    add_records_flags(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints or writes the report.

    Raises:
        ConfigError: an option is wrong.
        UnreadableRecordsError: the database cannot be read.
    """
    from dragoman.cli.report import command

    return command.run(args)
