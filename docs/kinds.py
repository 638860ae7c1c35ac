"""Writes the page of kinds of servers from their rows."""

from dragoman.catalog import servers
from dragoman.catalog.servers import Provider

INTRO = """What is known of servers, by provider: a row each in `src/dragoman/catalog/servers.toml`.
`provider = "NAME"` in `[upstreams.NAME]` sets one; `dragoman probe` and tool mode `auto` detect it ([probe](probe.md)).
What is measured of a server says more than its row, and its own settings win over both.

- *own calls*: `trusted` whatever the model, or `measured` for each.
- *tool_choice*: the forms that it heeds; of others it takes no notice, or refuses them.
- *past reasoning*: the field of Chat Completions in which it accepts earlier reasoning.
- *schema profile*: which JSON Schemas it accepts, if not those of its API ([configuration](configuration.md)).
- *grammars*: the ways to hold a model to one, best first.

"""


def page(note: str) -> str:
    """All of it."""
    heads = (
        "provider",
        "what it is",
        "port",
        "own calls",
        "tool_choice",
        "past reasoning",
        "schema profile",
        "grammars",
    )
    rows = [heads, ("---",) * len(heads), *map(_row, servers.providers())]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"# Kinds of servers\n\n{note}{INTRO}{table}\n\n" + "\n".join(map(_section, servers.providers()))


def _row(provider: Provider) -> tuple[str, ...]:
    return (
        f"[`{provider.name}`](#{provider.name})",
        provider.title,
        str(provider.port or ""),
        provider.native,
        ", ".join(provider.tool_choice),
        f"`{provider.reasoning_field}`" if provider.reasoning_field else "",
        f"`{provider.schema_profile}`" if provider.schema_profile else "",
        ", ".join(f"`{name}`" for name in provider.constrain),
    )


def _section(provider: Provider) -> str:
    quirks = [f"- {quirk.description} ({quirk.source})" for quirk in provider.quirks]
    known = "\n".join([*quirks, ""]) + "\n" if quirks else ""
    return f"## {provider.name}\n\n{provider.title}. Source: {provider.source}.\n\n{known}".rstrip("\n") + "\n"
