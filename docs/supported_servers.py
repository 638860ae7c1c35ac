"""Writes the page of supported servers from their rows."""

from docs import tables

from dragoman.catalog import servers
from dragoman.catalog.servers import Provider

INTRO = """Known limits of each type of model server: tool calling, reasoning and constrained decoding. Set the type
with `provider = "NAME"` in `[upstreams.NAME]`, or let `dragoman probe` or tool mode `auto` detect it
([probe](probe.md)). Probe results override this table, and the server's own settings override both. The data is in
`src/dragoman/catalog/servers.toml`.

- *tool calls*: `trusted` for every model, or `measured` per model by the probe.
- *tool_choice*: the forms that the server honours; others are ignored or rejected. `all`: auto, required, named
  and none.
- *past reasoning*: the field of Chat Completions that accepts earlier reasoning.
- *schema profile*: the JSON Schema subset, if it differs from that of the API ([configuration](configuration.md)).
- *constrained decoding*: methods to constrain the model, best first.

"""


def page(note: str) -> str:
    """Returns the page as Markdown, with `note` below its title."""
    heads = (
        "provider",
        "server",
        "default port",
        "tool calls",
        "tool_choice",
        "past reasoning",
        "schema profile",
        "constrained decoding",
    )
    table = tables.table(heads, map(_row, servers.providers()))
    return f"# Supported servers\n\n{note}{INTRO}{table}\n" + "\n".join(map(_section, servers.providers()))


def _row(provider: Provider) -> tuple[str, ...]:
    return (
        f"[`{provider.name}`](#{provider.name})",
        provider.title,
        str(provider.port or ""),
        provider.native,
        "all" if len(provider.tool_choice) == 4 else ", ".join(provider.tool_choice),
        f"`{provider.reasoning_field}`" if provider.reasoning_field else "",
        f"`{provider.schema_profile}`" if provider.schema_profile else "",
        ", ".join(f"`{name}`" for name in provider.constrain),
    )


def _section(provider: Provider) -> str:
    quirks = [f"- {quirk.description} ({quirk.source})" for quirk in provider.quirks]
    known = "\n".join([*quirks, ""]) + "\n" if quirks else ""
    return f"## {provider.name}\n\n{provider.title}. Source: {provider.source}.\n\n{known}".rstrip("\n") + "\n"
