"""Settings of the tools that the gateway runs: the sections `[tools]` and `[tools.NAME]`."""

from typing import Annotated, Final

import msgspec

from dragoman.schema.setting import setting

WEB_SEARCH: Final = ("", "searxng", "local")


class WebSearchConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where web searches are made."""

    use: Annotated[
        str,
        setting(
            "What searches (docs/vendor-tools.md): `searxng` a SearXNG server, `local` a folder of documents, "
            "`mcp:NAME/TOOL` a tool of an MCP server; empty: nothing does."
        ),
    ] = ""
    url: Annotated[str, setting("Base URL of the SearXNG server, for `searxng`.")] = ""
    path: Annotated[str, setting("Folder of text, Markdown and HTML files, for `local`.")] = ""
    base_url: Annotated[str, setting("URL of that folder, for the links in results; empty: they are `file:` URLs.")] = (
        ""
    )
    max_results: Annotated[int, setting("Maximum results of a search.", ge=1, le=50)] = 8
    timeout_s: Annotated[float, setting("Timeout of a search, in seconds.", gt=0)] = 15.0


class CodeExecutionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where code of `code_execution` and `code_interpreter` runs."""

    use: Annotated[
        str, setting("What runs it: `mcp:NAME/TOOL`, a tool of an MCP server; empty: nothing does (docs/mcp.md).")
    ] = ""


class ToolsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tools that an API's vendor runs, run by the gateway for any model."""

    max_rounds: Annotated[
        int, setting("Maximum responses of the model to one request, tool results included.", ge=1, le=100)
    ] = 8
    timeout_s: Annotated[float, setting("Time for the tool calls of one reply and the rounds, in seconds.", gt=0)] = (
        120.0
    )
    max_result_chars: Annotated[int, setting("Maximum characters of a result, for the model.", ge=100)] = 20_000
    mcp_allowed_hosts: Annotated[
        tuple[str, ...], setting("Hosts of MCP servers that requests may name; empty: none (docs/mcp.md).")
    ] = ()
    web_search: WebSearchConfig = WebSearchConfig()
    code_execution: CodeExecutionConfig = CodeExecutionConfig()
