"""Writes the page of kinds of servers from their rows."""

from dragoman.catalog import servers
from dragoman.catalog.servers import ServerKind

INTRO = """What is known of servers, by kind: a row each in `src/dragoman/catalog/servers.toml`.
`kind = "NAME"` in `[upstreams.NAME]` sets one; `dragoman probe` and mode `auto` detect it ([probe](probe.md)).
What is measured of a server says more than its row, and its own settings win over both.

- *own calls*: `trusted` whatever the model, or `measured` for each.
- *tool_choice*: the forms that it heeds; of others it takes no notice, or refuses them.
- *past thoughts*: the field of Chat Completions in which it gives the model what it thought before.
- *schemas*: whose JSON Schemas it takes, where that is not what its API takes ([configuration](configuration.md)).
- *grammars*: the ways to hold a model to one, best first.

"""


def page(note: str) -> str:
    """All of it."""
    heads = ("kind", "what it is", "port", "own calls", "tool_choice", "past thoughts", "schemas", "grammars")
    rows = [heads, ("---",) * len(heads), *map(_row, servers.server_kinds())]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"# Kinds of servers\n\n{note}{INTRO}{table}\n\n" + "\n".join(map(_section, servers.server_kinds()))


def _row(kind: ServerKind) -> tuple[str, ...]:
    return (
        f"[`{kind.name}`](#{kind.name})",
        kind.title,
        str(kind.port or ""),
        kind.native,
        ", ".join(kind.tool_choice),
        f"`{kind.reasoning_field}`" if kind.reasoning_field else "",
        f"`{kind.schemas}`" if kind.schemas else "",
        ", ".join(f"`{name}`" for name in kind.constrain),
    )


def _section(kind: ServerKind) -> str:
    quirks = [f"- {quirk.description} ({quirk.source})" for quirk in kind.quirks]
    known = "\n".join([*quirks, ""]) + "\n" if quirks else ""
    return f"## {kind.name}\n\n{kind.title}. Source: {kind.source}.\n\n{known}".rstrip("\n") + "\n"
