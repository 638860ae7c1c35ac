"""Settings: a TOML file, overridden by environment variables, overridden by command-line options.

    # ~/.config/dragoman/config.toml
    [server]
    port = 8484
    [embedded]
    model = "qwen2.5-coder-1.5b"
    [upstreams.lmstudio]
    url = "http://127.0.0.1:1234/v1"

Every key can also be set by the variable `DRAGOMAN_<SECTION>_<KEY>` (`DRAGOMAN_SERVER_PORT=9000`; lists with commas).
A file is not required: by default the gateway serves the small embedded model on loopback.
"""

import math
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_type_hints
from urllib.parse import urlsplit

import msgspec

from dragoman.backends.claude_cli.config import ClaudeCliConfig
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.http.config import HttpConfig
from dragoman.config.chat import ChatConfig
from dragoman.config.hints import hint_for_key, hint_for_named, nearest_setting
from dragoman.config.values import describe_error, is_secret_setting, toml
from dragoman.core.errors import ConfigError, nearest, one_of, quote
from dragoman.gateway.config import ResponseStoreConfig
from dragoman.guard.policy import GuardPolicy
from dragoman.guard.policy import validate_policy as checked_policy
from dragoman.host_names import LOOPBACK, host_name
from dragoman.mcp_client.config import McpServerConfig
from dragoman.schema.setting import setting
from dragoman.tool_executors.config import ToolsConfig

KEY_CHARS = 6
"""Minimum length in characters of an API key of the gateway; a shorter one could not be redacted from captures."""
CAPTURE_FILTERS = ("all", "failed", "requested")


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Address and limits of the gateway."""

    host: Annotated[str, setting("Address to listen on. Other than loopback requires `api_keys`.")] = "127.0.0.1"
    port: Annotated[int, setting("Port to listen on; 0: a free one.", ge=0, le=65535)] = 8484
    workers: Annotated[
        int, setting("Number of gateway processes, all at one port (docs/performance.md).", ge=1, le=64)
    ] = 1
    worker_timeout_s: Annotated[
        float, setting("Time after which a worker that does not respond is replaced, in seconds; 0: never.", ge=0)
    ] = 30.0
    api_keys: Annotated[
        tuple[str, ...],
        setting("API keys, of at least 6 characters; each request must have one. Empty: none is needed."),
    ] = ()
    allowed_hosts: Annotated[
        tuple[str, ...],
        setting(
            "Names accepted in the Host and Origin headers, besides loopback; `*`: any, which requires `api_keys`."
        ),
    ] = ()
    max_body_bytes: Annotated[
        int, setting("Maximum size of a request body when it is decompressed, in bytes.", ge=1024)
    ] = 32 * 1024 * 1024
    body_timeout_s: Annotated[
        float, setting("Timeout to receive the head of a request, and then its body, in seconds.", gt=0)
    ] = 30.0
    max_connections: Annotated[
        int,
        setting("Maximum open connections of each worker; more get status 503. 0: half of its file descriptors.", ge=0),
    ] = 0
    keepalive_interval_s: Annotated[
        float, setting("Time between pings of an idle stream, in seconds.", gt=0, le=15)
    ] = 10.0
    delta_min_chars: Annotated[
        int,
        setting("A delta of a stream waits for this many characters unless another event follows; 0: no wait.", ge=0),
    ] = 0
    delta_max_chars: Annotated[int, setting("Maximum characters of one delta of a stream; 0: no limit.", ge=0)] = 0
    max_status_delay_s: Annotated[float, setting("Time that a status waits for the backend, in seconds.", ge=0)] = 5.0
    write_timeout_s: Annotated[float, setting("Timeout for a client to receive what is sent, in seconds.", gt=0)] = 60.0
    graceful_shutdown_s: Annotated[float, setting("Time for running responses after SIGTERM, in seconds.", ge=0)] = 60.0
    metrics: Annotated[bool, setting("Whether `/metrics` is served (docs/metrics.md).")] = True


class CaptureConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which exchanges are written to disk."""

    dir: Annotated[
        str, setting("Folder that each exchange is written to, stage by stage (docs/debugging.md); empty: no capture.")
    ] = ""
    filter: Annotated[
        str,
        setting(
            "Which exchanges: `all`, `failed` those with an error or a warning, `requested` those with the header "
            "x-dragoman-capture: on.",
            choices=CAPTURE_FILTERS,
        ),
    ] = "all"
    max_exchanges: Annotated[int, setting("Maximum number of exchanges; the oldest are deleted.", ge=1)] = 200
    max_bytes: Annotated[int, setting("Maximum total size of the exchanges, in bytes.", ge=1)] = 256 * 1024 * 1024


NO_CAPTURE = CaptureConfig()


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of all parts of Dragoman."""

    server: ServerConfig = ServerConfig()
    capture: CaptureConfig = CaptureConfig()
    embedded: EmbeddedConfig = EmbeddedConfig()
    claude_cli: ClaudeCliConfig = ClaudeCliConfig()
    upstreams: Annotated[dict[str, HttpConfig], setting("Upstream servers, each a table of its own.")] = {}
    guard: GuardPolicy = GuardPolicy()
    response_store: ResponseStoreConfig = ResponseStoreConfig()
    tools: ToolsConfig = ToolsConfig()
    chat: ChatConfig = ChatConfig()
    mcp: Annotated[dict[str, McpServerConfig], setting("MCP servers, each a table of its own.")] = {}
    model_aliases: Annotated[
        dict[str, str | tuple[str, ...]],
        setting("Model names that clients ask for, and the model meant, or several, the next where one fails."),
    ] = {}


def default_path() -> Path:
    """Returns the path of the settings file that is used if none is named."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "dragoman" / "config.toml"


def load(path: Path | None, environ: Mapping[str, str], flags: Mapping[str, Any]) -> tuple[Config, dict[str, str]]:
    """Returns the settings, and where each key that is not at its default comes from.

    Args:
        path: the settings file, or None.
        environ: the environment variables.
        flags: values by keys such as `server.port`; None means not given.

    Raises:
        ConfigError: the file cannot be read, a key is unknown, a value has the wrong type, or a variable is empty.
    """
    tables = _read(path)
    origin = {key: str(path) for key, _ in _entries(tables)}
    _check_keys(tables, origin)
    _check_variables(environ)
    for key, value in [*_from_environment(environ), *((k, v) for k, v in flags.items() if v is not None)]:
        *sections, name = key.split(".")
        table = tables
        for section in sections:
            table = table.setdefault(section, {})
        table[name] = value
        origin[key] = "command line" if flags.get(key) is not None else _variable(key)
    try:
        upstreams = {name: _upstream(name, table, origin) for name, table in tables.pop("upstreams", {}).items()}
        servers = {
            name: _named_table("mcp", name, table, McpServerConfig, origin)
            for name, table in tables.pop("mcp", {}).items()
        }
        config = msgspec.structs.replace(
            msgspec.convert(tables, Config, strict=False), upstreams=upstreams, mcp=servers
        )
    except msgspec.ValidationError as e:
        raise ConfigError(describe_error(str(e), tables, origin)) from None
    return _check(config, origin), origin


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Returns a message for each variable that has the prefix `DRAGOMAN_` but is not a setting.

    They are not errors: for a service called dragoman, Kubernetes itself sets `DRAGOMAN_PORT`.
    """
    known = [_variable(key) for key, *_ in setting_docs()] + ["DRAGOMAN_HOME", "DRAGOMAN_CONFIG"]
    ours = sorted(name for name in environ if name.startswith("DRAGOMAN_") and name not in known)
    return [f"the variable {name} is not one of ours and does nothing{nearest(name, known)}" for name in ours]


def readable_secrets(path: Path | None, config: Config) -> str:
    """Returns a message if other users can read or change a settings file that contains keys, else ""."""
    secret = any(is_secret_setting(key, value) for key, value in setting_values(config))
    if sys.platform == "win32" or path is None or not secret:
        return ""
    try:
        mode = path.stat().st_mode & 0o777
    except OSError:
        return ""
    may = " and ".join([*(["read"] if mode & 0o044 else []), *(["change"] if mode & 0o022 else [])])
    return f"other users of this machine may {may} {path}, which has keys in it: chmod 600 {path}" if may else ""


def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema of the settings file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Config)}


def setting_docs() -> Iterator[tuple[str, str, Any, str]]:
    """Yields every key with its type, default and description."""
    for section in msgspec.structs.fields(Config):
        if isinstance(section.default, msgspec.Struct):
            yield from _fields(section.name, section.type)


def setting_values(config: Config) -> Iterator[tuple[str, object]]:
    """Yields every key with its value, except for `model_aliases`."""
    yield from ((key, attrgetter(key)(config)) for key, *_ in setting_docs())
    sections: Mapping[str, Mapping[str, msgspec.Struct]] = {"upstreams": config.upstreams, "mcp": config.mcp}
    for section, tables in sections.items():
        for name, table in tables.items():
            yield from ((f"{section}.{name}.{key}", value) for key, value in msgspec.structs.asdict(table).items())


def _fields(section: str, struct: type[msgspec.Struct]) -> Iterator[tuple[str, str, Any, str]]:
    hints = get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        if isinstance(field.default, msgspec.Struct):
            yield from _fields(f"{section}.{field.name}", type(field.default))
            continue
        meaning = hints[field.name].__metadata__[0].description
        origin = hints[field.name].__origin__
        kind = getattr(get_args(origin)[0] if isinstance(origin, UnionType) else origin, "__name__", "")
        yield f"{section}.{field.name}", kind, field.default, meaning


def _read(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ConfigError(f"cannot read the configuration {path}: {e.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise ConfigError(f"{path} is not TOML: {e}") from None


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for key, kind, _, _ in setting_docs():
        value = environ.get(_variable(key))
        if value is None:
            continue
        items = [v.strip() for v in value.split(",") if v.strip()]
        if not items:  # an empty list would override the keys in the file, and admit every client
            raise ConfigError(f"{_variable(key)} is empty; give it a value, or unset it")
        yield key, items if kind == "tuple" else value


def _variable(key: str) -> str:
    return "DRAGOMAN_" + key.replace(".", "_").upper()


_NESTED = ("upstreams", "tools", "mcp")
"""Sections that contain tables of their own."""


def _entries(tables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields each key, with its section, and its value."""
    for section, content in tables.items():
        if not isinstance(content, dict):
            yield section, content
            continue
        for name, value in content.items():
            if section in _NESTED and isinstance(value, dict):
                yield from ((f"{section}.{name}.{key}", each) for key, each in value.items())
            else:
                yield f"{section}.{name}", value


def _check_keys(tables: Mapping[str, Any], origin: Mapping[str, str]) -> None:
    known = [key for key, *_ in setting_docs()]
    sections = {*Config.__struct_fields__, *_names_by_section()}
    for key, value in _entries(tables):
        if key in sections:
            raise ConfigError(f"expected a table, [{key}], got {toml(value)} - at {key}, from {origin[key]}")
        if (section := key.partition(".")[0]) in _NAMED:
            _check_named_key(section, key, value, origin[key])
        elif key not in known and not key.startswith("model_aliases."):
            hint = hint_for_key(key, value, _names_by_section())
            raise ConfigError(f"unknown setting '{key}'{hint} - in {origin[key]}")
    for alias, target in tables.get("model_aliases", {}).items():
        names = target if isinstance(target, list) else [target]
        if not names or not all(isinstance(name, str) for name in names):
            where = f"at model_aliases.{alias}, from {origin[f'model_aliases.{alias}']}"
            raise ConfigError(f"expected the name of a model, or a list of names, got {toml(target)} - {where}")


_NAMED: Mapping[str, type[msgspec.Struct]] = {"upstreams": HttpConfig, "mcp": McpServerConfig}
"""Sections of tables whose names the user chooses."""


def _check_named_key(section: str, key: str, value: object, origin: str) -> None:
    _, name, *setting = key.split(".")
    if not setting:
        raise ConfigError(f"expected a table, [{section}.{name}], with its url - at {key}, from {origin}")
    struct = _NAMED[section]
    if setting[0] not in struct.__struct_fields__:
        is_table = isinstance(value, dict)
        fields = msgspec.structs.fields(struct)
        known = [f.name for f in fields if (f.default_factory is dict) is is_table]
        what = "an upstream" if section == "upstreams" else "an MCP server"
        raise ConfigError(f"unknown setting '{key}'{hint_for_named(setting[0], known, what)} - in {origin}")


def _names_by_section() -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for section, _, name in (key.rpartition(".") for key, *_ in setting_docs()):
        names.setdefault(section, []).append(name)
    return names


def _check_variables(environ: Mapping[str, str]) -> None:
    """Raises an error for a mistyped variable, instead of ignoring it."""
    known = {_variable(key) for key, *_ in setting_docs()}
    for section, names in reversed(_names_by_section().items()):  # [tools.web_search] precedes [tools]
        prefix = _variable(section) + "_"
        for variable in environ.keys() - known:
            if variable.startswith(prefix) and (name := variable.removeprefix(prefix).lower()) not in names:
                nearest_key = nearest_setting(name, names)
                hint = f"; did you mean {_variable(f'{section}.{nearest_key}')!r}?" if nearest_key else ""
                raise ConfigError(f"unknown setting {variable}{hint} - in the environment")


_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def _named_table(
    section: str, name: str, table: dict[str, Any], struct: type[_Struct], origin: Mapping[str, str]
) -> _Struct:
    """Returns a table whose name the user chose; errors name its keys as the settings do."""
    try:
        return msgspec.convert(table, struct, strict=False)
    except msgspec.ValidationError as e:
        message = str(e).replace("`$.", f"`$.{name}.").replace("`$`", f"`{section}.{name}`")
        described = describe_error(message, {name: table}, origin, f"{section}.")
        raise ConfigError(described.replace("`$.", f"`{section}.")) from None


def _upstream(name: str, table: dict[str, Any], origin: Mapping[str, str]) -> HttpConfig:
    upstream = _named_table("upstreams", name, table, HttpConfig, origin)
    if urlsplit(upstream.url).scheme not in ("http", "https") or not host_name(upstream.url):
        where = f"at upstreams.{name}.url, from {origin[f'upstreams.{name}.url']}"
        raise ConfigError(f"expected a URL like http://127.0.0.1:1234/v1, got {quote(upstream.url)} - {where}")
    if "@" in urlsplit(upstream.url).netloc and (upstream.api_key or upstream.api_key_env):
        where = f"at upstreams.{name}.url, from {origin[f'upstreams.{name}.url']}"
        raise ConfigError(f"expected one way to be let in, got a password in the URL and a key - {where}")
    return upstream


def _check(config: Config, origin: Mapping[str, str]) -> Config:
    server = config.server
    for key, *_ in setting_docs():
        value = attrgetter(key)(config)
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"expected a finite number, got {value} - at {key}, from {origin[key]}")
    for entry in server.allowed_hosts:
        if not host_name(entry):
            raise ConfigError(f"expected a host's name, got {quote(entry)} - at server.allowed_hosts")
    if any(len(key.strip()) < KEY_CHARS or key != key.strip() for key in server.api_keys):
        raise ConfigError(
            f"expected API keys of at least {KEY_CHARS} characters without blanks around them, got another; "
            "`openssl rand -hex 16` makes a good one - at server.api_keys"
        )
    if "*" in server.allowed_hosts and not server.api_keys:
        raise ConfigError(
            "server.allowed_hosts has '*', by which every web page that is open on this machine can ask the gateway: "
            "set server.api_keys (or DRAGOMAN_SERVER_API_KEYS), or name the hosts"
        )
    if server.host not in LOOPBACK and not server.api_keys:
        raise ConfigError(
            f"server.host is {server.host!r}, which other machines can reach: set server.api_keys "
            "(or DRAGOMAN_SERVER_API_KEYS), or listen on 127.0.0.1"
        )
    if config.capture.filter not in CAPTURE_FILTERS:
        hint = one_of(config.capture.filter, CAPTURE_FILTERS, "expected ")
        raise ConfigError(f"unknown {quote(config.capture.filter)}{hint} - at capture.filter")
    checked_policy(config.guard)
    if config.claude_cli.enabled and not config.claude_cli.allow_remote_clients and _is_reachable(server):
        raise ConfigError(
            "other machines can reach this gateway, and the login of claude is for its owner alone: listen on "
            "127.0.0.1 without server.allowed_hosts, or set claude_cli.allow_remote_clients if it uses your API key"
        )
    return config


def _is_reachable(server: ServerConfig) -> bool:
    """Whether other machines are admitted, by the address or by the host name of a proxy."""
    return server.host not in LOOPBACK or any(host_name(entry) not in LOOPBACK for entry in server.allowed_hosts)
