"""The tables of tested combinations, generated from tests/data/ran.toml."""

import re
from pathlib import Path

from docs import tables

from support import ran_pairs

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BEGIN, END = "<!-- ran: written by docs/generate.py -->\n", "<!-- /ran -->\n"
SCRIPTED = [name for name, behind in ran_pairs.BEHIND.items() if behind.kind == "scripted"]
OVERVIEW = {
    "local model (llama.cpp, MLX)": ["embedded model", "llama-server", "mlx_lm.server"],
    "Claude Code CLI": ["claude CLI"],
    "recorded vLLM, exo or model": ["vLLM", "exo", "Qwen2.5-Coder"],
    "scripted model": SCRIPTED,
}
"""The columns of the README's table."""
INTRO = """The tests run these programs unmodified, each in its own home directory and without a network, against one of
three kinds of model:

- *real*: the server or program itself, with a real model unless stated otherwise
- *recorded*: the recorded bytes of a real server, or the recorded texts of a real model
- *scripted*: a server of that API whose model returns what the test specifies

Few agents run on real models here: models that fit on a test machine rarely call tools without being forced to, and
take minutes
(`tests/e2e/agents/test_agents_on_models.py`, only with `--every`). `make test-all ARGS="--ran"` records what passed;
this page and the table in the README are generated from that record.

"""


def readme() -> str:
    """Returns the README with its table up to date."""
    text = README.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"README.md lacks the markers of the table, {BEGIN.strip()} … {END.strip()}")
    return f"{before}{BEGIN}{overview()}{END}{after}"


def overview() -> str:
    """Returns the table of programs and kinds of model, for the README."""
    known = ran_pairs.read()
    rows = []
    for front in ran_pairs.FRONT:
        cells = [any((front, name) in known for name in names) for names in OVERVIEW.values()]
        if any(cells):
            rows.append([front, *("✓" if cell else "" for cell in cells)])
    return tables.table(["Program", *OVERVIEW], rows, ["---", *[":-:"] * len(OVERVIEW)])


def table() -> str:
    """Returns the table of programs and upstream servers, with the scripted models in one column."""
    known = ran_pairs.read()
    shown = [name for name, behind in ran_pairs.BEHIND.items() if behind.kind != "scripted"]
    odd = [ran_pairs.BEHIND[name].but or ran_pairs.BEHIND[name].kind for name in shown]
    heads = [name if but == "real" else f"{name} ({but})" for name, but in zip(shown, odd, strict=True)]
    rows = []
    for front in ran_pairs.FRONT:
        cells = [any((front, name) in known for name in names) for names in ([n] for n in shown)]
        cells.append(any((front, name) in known for name in SCRIPTED))
        if any(cells):
            rows.append([front, *("✓" if cell else "" for cell in cells)])
    return tables.table(["Program", *heads, "scripted model"], rows)


def page(note: str) -> str:
    """Returns the page: the pairs that ran, their versions, and the tests that ran them."""
    heads = ["Program", "Version", "Model or server", "Version", "Kind", "Last run", "Test"]
    rows = []
    for (front, behind), record in ran_pairs.read().items():
        tests = ", ".join(f"`{re.sub(r'^tests/', '', test)}`" for test in record.tests)
        about = ran_pairs.BEHIND[behind]
        versions = record.front_version, record.behind_version
        rows.append([front, versions[0], behind, versions[1], about.kind, record.date, tests])
    behinds = "".join(f"- *{name}* ({each.kind}): {each.about}\n" for name, each in ran_pairs.BEHIND.items())
    pairs = tables.table(heads, rows)
    return (
        f"# Compatibility: agents and backends\n\n{note}{INTRO}{table()}\n## Models and servers\n\n{behinds}\n"
        f"## All combinations\n\n{pairs}"
    )
