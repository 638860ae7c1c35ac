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
            "What searches (docs/vendor-tools.md): `searxng` a SearXNG server, `local` a folder of documents; empty: "
            "nothing does.",
            choices=WEB_SEARCH,
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


class ToolsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tools that an API's vendor runs, run by the gateway for any model."""

    max_rounds: Annotated[
        int, setting("Maximum responses of the model to one request, tool results included.", ge=1, le=100)
    ] = 8
    timeout_s: Annotated[float, setting("Time for the tool calls of one reply and the rounds, in seconds.", gt=0)] = (
        120.0
    )
    max_result_chars: Annotated[int, setting("Maximum characters of a result, for the model.", ge=100)] = 20_000
    max_concurrent_calls: Annotated[int, setting("Maximum calls of one reply that run at once.", ge=1, le=100)] = 4
    max_tokens: Annotated[
        int, setting("Tokens of all rounds, prompts included, after which no round begins; 0: no limit.", ge=0)
    ] = 1_000_000
    max_cost_usd: Annotated[
        float, setting("Cost of all rounds, in US dollars, after which no round begins; 0: no limit.", ge=0)
    ] = 0.0
    search_above: Annotated[
        int,
        setting(
            "Number of tools above which the model has to find them by a search, at the cost of a round; 0: never "
            "(docs/vendor-tools.md).",
            ge=0,
        ),
    ] = 0
    web_search: WebSearchConfig = WebSearchConfig()
