"""Writes the parts of the documentation that are generated from code and data.

`python docs/generate.py` writes them; with `--check` it only reports whether they are up to date.
"""

import argparse
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from textwrap import indent

from canitoolcall.checks import run_checks
from canitoolcall.fixtures import load_fixtures
from canitoolcall.results import Observation, Status

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import combinations
import edge_cases
import faults
import settings_page
import supported_servers
from docs import tables

from dragoman import cli, formats
from dragoman.catalog.format_coverage import FormatCoverage
from dragoman.catalog.warning_codes import warning_codes
from dragoman.cli.formats.facts import collect_facts
from support import canitoolcall_suite as neutral

DOCS = Path(__file__).parent
CASES = DOCS.parent / "tests" / "data" / "formats"
PROVEN = DOCS.parent / "src" / "dragoman" / "catalog" / "format_coverage.toml"
NOTE = "<!-- Written by docs/generate.py: run `make docs`. -->\n\n"


def formats_page() -> str:
    """Returns the page of formats: their properties, the models that write them, their tests, and an example call."""
    heads = ("format", "written by", "reasoning", "ids", "arguments", "grammar", "cases", "neutral suite")
    rows, sections = [], []
    proof = proven()
    for name in formats.names():
        known = collect_facts(formats.get(name))
        tried = proof[name]
        suite = f"{tried.passed} of {tried.fixtures}" if tried.fixtures else ""
        reasoning = ", ".join(f"`{shown}`" for shown in known.reasoning)
        held = "yes" if known.constrained else "no"
        link = f"[`{name}`](#{name})"
        rows.append((link, known.models, reasoning, known.ids, known.arguments, held, str(tried.cases), suite))
        also = f"Also called {', '.join(f'`{alias}`' for alias in known.aliases)}. " if known.aliases else ""
        sections.append(f"### {name}\n\n{also}Source: {known.source}.\n\n{indent(known.calls, '    ')}\n")
    intro = FORMATS_INTRO.format(suite=version("canitoolcall"))
    return f"# Formats\n\n{NOTE}{intro}{tables.table(heads, rows)}\n## How calls look\n\n" + "\n".join(sections)


@cache
def proven() -> dict[str, FormatCoverage]:
    """Returns for each format the number of its cases, and how many fixtures of the neutral suite it passes."""
    good, all_of = Counter[str](), Counter[str]()
    for fixture in load_fixtures():
        observed = Observation(neutral.result(neutral.events(fixture, [fixture.raw_output])), {})
        rows = run_checks(fixture, neutral.families()[fixture.family], observed)
        name = neutral.format_of(fixture)
        all_of[name] += 1
        good[name] += all(row.status in (Status.PASS, Status.SOFT_PASS) for row in rows)
    cases = {name: len(re.findall(r"^# ", (CASES / f"{name}.txt").read_text(), re.M)) for name in formats.names()}
    return {name: FormatCoverage(count, all_of[name], good[name]) for name, count in cases.items()}


def proven_table() -> str:
    """Returns these numbers as TOML, for `dragoman formats`."""
    note = f"# Written by docs/generate.py: run `make docs`. Fixtures of canitoolcall {version('canitoolcall')}."
    rows = (
        f"{name} = {{ cases = {p.cases}, fixtures = {p.fixtures}, passed = {p.passed} }}"
        for name, p in proven().items()
    )
    return "\n".join([note, "", *rows, ""])


FORMATS_INTRO = """The formats in which models write tool calls as text. Dragoman parses and renders each;
`auto` detects those that begin with markup of their own. `dragoman formats` prints this table, `dragoman formats NAME`
one format in full, `--json` either as JSON.

- *ids*: `model's`: the model's own are used; `replaced`: the model writes them in a form or place that APIs do not
  accept; `ours`: the model writes none, so they are generated.
- *arguments*: `JSON`: one JSON object; `tagged`: each between tags; `notation`: in a notation of the format; `Python`:
  as keyword arguments.
- *grammar*: whether decoding can be constrained to calls that match the tools' JSON Schemas
  (`dragoman.build_constraint`, the embedded engine).
- *cases*: test texts in `tests/data/formats`, each parsed as expected however it is split into chunks.
- *neutral suite*: fixtures of canitoolcall {suite} for this format that pass when calls are streamed.
  `tests/formats/test_canitoolcall.py` lists the others, with reasons; with `buffering="all"` all pass.

"""


COMMANDS_INTRO = """\
The help of each command (`dragoman COMMAND --help`). Pages that describe commands:
[configuration](configuration.md) for `serve`, [running agents](run.md), [models](models.md) for `pull`,
[models of this machine](local-models.md) for `models`,
[probe](probe.md), [reports](report.md) for `report` and `log`, [debugging](debugging.md) for `replay` and `bundle`,
[the library](library.md#explain-why-text-is-not-a-call) for `parse --explain`,
[local models](local.md#trimming) for `tokens`.

"""


def with_commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yields a parser, and then those of its commands, and of theirs."""
    yield parser
    for action in parser._actions:
        for command in action.choices.values() if isinstance(action, argparse._SubParsersAction) else ():
            yield from with_commands(command)


def commands_page() -> str:
    """Returns the page with the help of each command."""
    os.environ["COLUMNS"] = "100"  # independent of the terminal
    sections = [
        f"## {parser.prog}\n\n```text\n{parser.format_help().rstrip()}\n```\n" for parser in with_commands(cli.parser())
    ]
    return f"# Commands\n\n{NOTE}{COMMANDS_INTRO}" + "\n".join(sections)


def warnings_page() -> str:
    """Returns the page of warnings, with the table of the codes from the catalog."""
    before = (DOCS / "warnings.md").read_text().partition("## Codes\n")[0]
    rows = ((f"`{code}`", known.meaning) for code, known in warning_codes().items())
    return f"{before}## Codes\n\n{tables.table(('code', 'meaning'), rows)}"


PAGES = {
    DOCS / "warnings.md": warnings_page,
    DOCS / "commands.md": commands_page,
    DOCS / "formats.md": formats_page,
    DOCS / "configuration.md": partial(settings_page.page, NOTE),
    DOCS / "edge-cases.md": partial(edge_cases.page, NOTE),
    DOCS / "upstream-failures.md": partial(faults.page, NOTE),
    DOCS / "supported-servers.md": partial(supported_servers.page, NOTE),
    DOCS / "agents-and-backends.md": partial(combinations.page, NOTE),
    combinations.README: combinations.readme,
    PROVEN: proven_table,
}


def main() -> int:
    """Writes or checks the pages; returns the exit status."""
    stale = [file for file, page in PAGES.items() if not file.is_file() or file.read_text() != page()]
    names = [str(file.relative_to(DOCS.parent)) for file in stale]
    if "--check" in sys.argv:
        print(f"stale: {', '.join(names)}; run: make docs" if stale else "fresh")
        return 1 if stale else 0
    for file, name in zip(stale, names, strict=True):
        file.write_text(PAGES[file]())
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
