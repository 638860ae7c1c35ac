"""Settings of an MCP server: the sections `[mcp.NAME]`. Reading them needs no extra."""

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from dragoman.core.errors import ConfigError, quote
from dragoman.host_names import host_name
from dragoman.schema.setting import setting


class McpServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one MCP server, either a program or a URL."""

    command: Annotated[
        tuple[str, ...], setting("Program that serves MCP over stdio, with its arguments; no shell is used.")
    ] = ()
    env: Annotated[
        tuple[str, ...],
        setting(
            "Names of environment variables that the program gets, besides PATH, HOME, SHELL, TERM, USER, LOGNAME."
        ),
    ] = ()
    cwd: Annotated[str, setting("Working directory of the program; empty: that of Dragoman.")] = ""
    url: Annotated[str, setting("URL of a server that speaks streamable HTTP, instead of `command`.")] = ""
    headers: Annotated[dict[str, str], setting("HTTP headers that are sent to `url`.")] = {}
    headers_env: Annotated[
        dict[str, str], setting("HTTP headers and the environment variables that contain their values.")
    ] = {}
    allowed_tools: Annotated[tuple[str, ...], setting("Tools that may be used; empty: all.")] = ()
    serve: Annotated[
        bool,
        setting("Whether clients may use all these tools: in requests that declare the server, and at `/mcp`."),
    ] = False
    offer_to: Annotated[
        tuple[str, ...],
        setting(
            "Models that are offered the tools in every request, as patterns such as `qwen*`; the gateway runs them."
        ),
    ] = ()
    images: Annotated[
        bool, setting("Whether the model gets images of results, which it must be able to read; else it gets a note.")
    ] = False
    timeout_s: Annotated[float, setting("Timeout of a call, and of starting the server, in seconds.", gt=0)] = 30.0


def check_name(name: str) -> None:
    """Checks the name of a server of the settings.

    Raises:
        ConfigError: Names of tools with this name would be ambiguous.
    """
    if not name or "/" in name or "__" in name or name.endswith("_"):
        raise ConfigError(f"expected a name without '/', '__' and a last '_', got {quote(name)} - at mcp.{name}")


def check_server(name: str, config: McpServerConfig, environ: Mapping[str, str]) -> None:
    """Checks the settings of a server.

    Raises:
        ConfigError: A setting is wrong, or a variable is not set.
    """
    where = f"at mcp.{name}"
    if bool(config.command) == bool(config.url):
        got = "both" if config.url else "neither"
        raise ConfigError(f"expected either command or url, got {got} - {where}")
    if config.command and (config.headers or config.headers_env):
        raise ConfigError(f"headers are sent to a url only, got a command - {where}.headers")
    if config.url and (config.env or config.cwd):
        raise ConfigError(f"env and cwd are for a command only, got a url - {where}")
    if config.url and (not config.url.startswith(("http://", "https://")) or not host_name(config.url)):
        raise ConfigError(f"expected a URL like http://127.0.0.1:9000/mcp, got {quote(config.url)} - {where}.url")
    for variable in (*config.env, *config.headers_env.values()):
        if not environ.get(variable):
            raise ConfigError(f"expected a value in the variable {variable}, got none - {where}")


def request_headers(config: McpServerConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the HTTP headers for the server, with the values of `headers_env`."""
    return {**config.headers, **{name: environ[variable] for name, variable in config.headers_env.items()}}


def url_secrets(url: str) -> list[str]:
    """Returns the parts of a URL that may be secret: its password, and the values of its query."""
    parts = urlsplit(url)
    password = parts.password or ""
    values = [value for _, value in parse_qsl(parts.query)]
    return [password, unquote(password), *values, *(part.partition("=")[2] for part in parts.query.split("&"))]
