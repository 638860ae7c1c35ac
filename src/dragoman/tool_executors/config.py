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
    models: Annotated[
        tuple[str, ...], setting("Patterns of the models that may search, such as `qwen*`; empty: all.")
    ] = ()


class WebFetchConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How web pages are fetched."""

    use: Annotated[
        str,
        setting(
            "What fetches pages (docs/vendor-tools.md): `http` the gateway itself, `mcp:NAME/TOOL` a tool of an MCP "
            "server; empty: nothing does."
        ),
    ] = ""
    allowed_hosts: Annotated[
        tuple[str, ...],
        setting("Only pages of these hosts, and of hosts below them; empty: all."),
    ] = ()
    allow_private: Annotated[
        tuple[str, ...],
        setting(
            "Networks (`10.1.0.0/16`) and host names that may be fetched although their addresses are not public. A "
            "host name does not permit link-local and cloud metadata addresses."
        ),
    ] = ()
    allowed_ports: Annotated[tuple[int, ...], setting("Ports that may be fetched from.")] = (80, 443)
    any_url: Annotated[
        bool,
        setting(
            "Fetches any URL. Otherwise a URL must occur in the system prompt, a user's message or a tool result, so "
            "that a misled model cannot send data away in a URL of its own."
        ),
    ] = False
    max_bytes: Annotated[int, setting("Maximum bytes of a page, decompressed, for `http`.", ge=1000)] = 5_000_000
    max_redirects: Annotated[int, setting("Maximum redirects of a fetch, for `http`.", ge=0, le=20)] = 5
    timeout_s: Annotated[float, setting("Timeout of a fetch, with its text extraction, in seconds.", gt=0)] = 20.0
    models: Annotated[
        tuple[str, ...], setting("Patterns of the models that may fetch, such as `qwen*`; empty: all.")
    ] = ()


class CodeExecutionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where code of `code_execution` and `code_interpreter` runs."""

    use: Annotated[
        str, setting("What runs it: `mcp:NAME/TOOL`, a tool of an MCP server; empty: nothing does (docs/mcp.md).")
    ] = ""
    models: Annotated[
        tuple[str, ...], setting("Patterns of the models that may run code, such as `qwen*`; empty: all.")
    ] = ()


class ToolsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tools that an API's vendor runs, run by the gateway for any model."""

    max_rounds: Annotated[
        int, setting("Maximum responses of the model to one request, tool results included.", ge=1, le=100)
    ] = 8
    timeout_s: Annotated[
        float, setting("Time for the tool calls of one reply, in seconds; the model's own time does not count.", gt=0)
    ] = 120.0
    max_result_chars: Annotated[int, setting("Maximum characters of a result, for the model.", ge=100)] = 20_000
    max_concurrent_calls: Annotated[int, setting("Maximum calls of one reply that run at once.", ge=1, le=100)] = 4
    max_tokens: Annotated[
        int,
        setting(
            "Tokens of all rounds, prompts included, after which no round begins; estimated where the backend reports "
            "none; 0: no limit.",
            ge=0,
        ),
    ] = 1_000_000
    max_cost_usd: Annotated[
        float,
        setting(
            "Cost of all rounds, in US dollars, after which no round begins, if the price of the model is known or the "
            "backend reports costs (the Claude Code CLI does); 0: no limit.",
            ge=0,
        ),
    ] = 0.0
    search_above: Annotated[
        int,
        setting(
            "Number of tools above which the model has to find them by a search, at the cost of a round; 0: never "
            "(docs/vendor-tools.md).",
            ge=0,
        ),
    ] = 0
    mcp_allowed_hosts: Annotated[
        tuple[str, ...], setting("Hosts of MCP servers that requests may name; empty: none (docs/mcp.md).")
    ] = ()
    web_search: WebSearchConfig = WebSearchConfig()
    web_fetch: WebFetchConfig = WebFetchConfig()
    code_execution: CodeExecutionConfig = CodeExecutionConfig()
