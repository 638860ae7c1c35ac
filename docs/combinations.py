"""The tables of what ran in front of what, made of tests/data/ran.toml; no cell is typed by hand."""

import re
from pathlib import Path

from support import ran_pairs

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BEGIN, END = "<!-- ran: written by docs/generate.py -->\n", "<!-- /ran -->\n"
INTRO = """Which agents and packages were run through Dragoman, by its tests, and in front of what. All in front are the
real programs, each in a home of its own and without a network. Behind them is one of three:

- *real*: the server or program itself, with a real model but where another is named;
- *recorded*: a real server's answers, byte for byte, or a real model's texts;
- *played*: a server of that API, real down to the socket, whose model does what the test says.

Few agents stand in front of real models here, as those that fit the tests' machine rarely call tools freely, and take
minutes (`tests/e2e/agents/test_agents_on_models.py`, only with `--every`); the scripted models call what a larger one
would. `make test-all ARGS="--ran"` records what passed, and this page and the README's table are generated from that;
a test fails where the two differ.

"""


def readme() -> str:
    """The README, with its table as it is now."""
    text = README.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, behind = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"README.md has no place for the table, {BEGIN.strip()} … {END.strip()}")
    return f"{before}{BEGIN}{table()}{END}{behind}"


def table() -> str:
    """Programs in front by what is behind, what is played in one column."""
    known = ran_pairs.read()
    shown = [name for name, behind in ran_pairs.BEHIND.items() if behind.kind != "played"]
    played = [name for name, behind in ran_pairs.BEHIND.items() if behind.kind == "played"]
    odd = [ran_pairs.BEHIND[name].but or ran_pairs.BEHIND[name].kind for name in shown]
    heads = [name if but == "real" else f"{name} ({but})" for name, but in zip(shown, odd, strict=True)]
    rows = [["", *heads, "played"], ["---"] * (len(heads) + 2)]
    for front in ran_pairs.FRONT:
        cells = [any((front, name) in known for name in names) for names in ([n] for n in shown)]
        cells.append(any((front, name) in known for name in played))
        if any(cells):
            rows.append([front, *("ran" if cell else "" for cell in cells)])
    return "".join(_row(row) for row in rows)


def page(note: str) -> str:
    """Each pair, in which versions it ran, and which tests ran it."""
    heads = ["in front", "version", "behind", "version", "", "last ran", "by"]
    rows = [heads, ["---"] * len(heads)]
    for (front, behind), record in ran_pairs.read().items():
        tests = ", ".join(f"`{re.sub(r'^tests/', '', test)}`" for test in record.tests)
        about = ran_pairs.BEHIND[behind]
        versions = record.front_version, record.behind_version
        rows.append([front, versions[0], behind, versions[1], about.kind, record.date, tests])
    behinds = "".join(f"- *{name}* ({each.kind}): {each.about}\n" for name, each in ran_pairs.BEHIND.items())
    pairs = "".join(_row(row) for row in rows)
    return f"# Agents and backends\n\n{note}{INTRO}{table()}\n## What is behind\n\n{behinds}\n## Each pair\n\n{pairs}"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"
