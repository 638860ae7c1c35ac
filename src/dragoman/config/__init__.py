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

import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_type_hints
from urllib.parse import urlsplit

import msgspec

from dragoman.backends.http.config import HttpConfig
from dragoman.backends.ray.config import RayDeploymentConfig
from dragoman.config.checks import check, check_access
from dragoman.config.hints import hint_for_key, hint_for_named, nearest_setting
from dragoman.config.keys_file import keys_path, read_key
from dragoman.config.routes import take_routes
from dragoman.config.sections import Config as Config
from dragoman.config.values import describe_error, is_secret_setting, toml
from dragoman.core.errors import ConfigError, nearest, quote
from dragoman.host_names import host_name
from dragoman.mcp_client.config import McpServerConfig
from dragoman.parsing.tag_format_config import TagFormatConfig
from dragoman.prices.config import PriceConfig


def default_path() -> Path:
    """Returns the path of the settings file that is used if none is named."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "dragoman" / "config.toml"


def load(
    path: Path | None, environ: Mapping[str, str], flags: Mapping[str, Any], *, checks_access: bool = True
) -> tuple[Config, dict[str, str]]:
    """Returns the settings, and where each key that is not at its default comes from.

    Args:
        path: the settings file, or None.
        environ: the environment variables.
        flags: values by keys such as `server.port`; None means not given.
        checks_access: whether settings that need API keys are rejected without one; not while the first is created.

    Raises:
        ConfigError: the file cannot be read, a key is unknown, a value has the wrong type, or a variable is empty.
    """
    tables = _read(path)
    routes = take_routes(tables, str(path))
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
        servers = _named_tables("mcp", tables, McpServerConfig, origin)
        prices = _named_tables("prices", tables, PriceConfig, origin)
        deployments = _named_tables("ray_deployments", tables, RayDeploymentConfig, origin)
        formats = _named_tables("formats", tables, TagFormatConfig, origin)
        keys = {name: read_key(name, table, path, environ) for name, table in tables.pop("keys", {}).items()}
        config = msgspec.convert(tables, Config, strict=False)
        server = msgspec.structs.replace(
            config.server, keys_path=keys_path(config.server.keys_path, path or default_path())
        )
        config = msgspec.structs.replace(
            config,
            server=server,
            upstreams=upstreams,
            mcp=servers,
            formats=formats,
            keys=keys,
            prices=prices,
            ray_deployments=deployments,
            routes=routes,
        )
    except msgspec.ValidationError as e:
        raise ConfigError(describe_error(str(e), tables, origin)) from None
    check(config, ((key, attrgetter(key)(config)) for key, *_ in setting_docs()), origin)
    if checks_access:
        check_access(config)
    return config, origin


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Returns a message for each variable that has the prefix `DRAGOMAN_` but is not a setting.

    They are not errors: for a service called dragoman, Kubernetes itself sets `DRAGOMAN_PORT`.
    """
    known = [_variable(key) for key, *_ in setting_docs()] + ["DRAGOMAN_HOME", "DRAGOMAN_CONFIG", "DRAGOMAN_API_KEY"]
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
            yield from table_docs(section.name, section.type)


def setting_values(config: Config) -> Iterator[tuple[str, object]]:
    """Yields every key with its value, except for `model_aliases`."""
    yield from ((key, attrgetter(key)(config)) for key, *_ in setting_docs())
    sections: Mapping[str, Mapping[str, msgspec.Struct]] = {
        "upstreams": config.upstreams,
        "mcp": config.mcp,
        "keys": config.keys,
        "prices": config.prices,
        "ray_deployments": config.ray_deployments,
        "formats": config.formats,
    }
    for section, tables in sections.items():
        for name, table in tables.items():
            yield from ((f"{section}.{name}.{key}", value) for key, value in msgspec.structs.asdict(table).items())
    for name, settings in config.backends.items():
        yield from ((f"backends.{name}.{key}", value) for key, value in settings.items())


def table_docs(section: str, struct: type[msgspec.Struct]) -> Iterator[tuple[str, str, Any, str]]:
    """Yields every key of a table with its type, default and description.

    Args:
        section: The key of the table.
        struct: Its type.
    """
    hints = get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        if isinstance(field.default, msgspec.Struct):
            yield from table_docs(f"{section}.{field.name}", type(field.default))
            continue
        meaning = hints[field.name].__metadata__[0].description
        origin = hints[field.name].__origin__
        kind = getattr(get_args(origin)[0] if isinstance(origin, UnionType) else origin, "__name__", "")
        default = {} if field.default_factory is dict else field.default
        yield f"{section}.{field.name}", kind, default, meaning


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


_NESTED = ("upstreams", "tools", "mcp", "formats", "prices", "ray_deployments", "backends", "keys")
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
        elif section != "keys" and key not in known and not key.startswith("model_aliases."):
            hint = hint_for_key(key, value, _names_by_section())
            raise ConfigError(f"unknown setting '{key}'{hint} - in {origin[key]}")
    for alias, target in tables.get("model_aliases", {}).items():
        names = target if isinstance(target, list) else [target]
        if not names or not all(isinstance(name, str) for name in names):
            where = f"at model_aliases.{alias}, from {origin[f'model_aliases.{alias}']}"
            raise ConfigError(f"expected the name of a model, or a list of names, got {toml(target)} - {where}")


_NAMED: Mapping[str, type[msgspec.Struct] | None] = {
    "upstreams": HttpConfig,
    "mcp": McpServerConfig,
    "formats": TagFormatConfig,
    "prices": PriceConfig,
    "ray_deployments": RayDeploymentConfig,
    "backends": None,
}
"""Sections of tables whose names the user chooses; None: the table's settings are those of another package."""
_NAMED_TITLES: Mapping[str, tuple[str, str]] = {
    "upstreams": ("an upstream", "url"),
    "mcp": ("an MCP server", "url"),
    "formats": ("a format", "opener"),
    "prices": ("a price", "output_usd_per_million"),
    "ray_deployments": ("a deployment", "max_replicas"),
    "backends": ("a backend", "plugin"),
}
"""For each of them, what a table describes, and its most important setting."""


def _check_named_key(section: str, key: str, value: object, origin: str) -> None:
    name, _, setting = key.removeprefix(f"{section}.").rpartition(".")  # names may contain dots
    what, first = _NAMED_TITLES[section]
    if not name:
        raise ConfigError(f"expected a table, [{section}.{setting}], with its {first} - at {key}, from {origin}")
    struct = _NAMED[section]
    if struct is not None and setting not in struct.__struct_fields__:
        is_table = isinstance(value, dict)
        fields = msgspec.structs.fields(struct)
        known = [f.name for f in fields if (f.default_factory is dict) is is_table]
        raise ConfigError(f"unknown setting '{key}'{hint_for_named(setting, known, what)} - in {origin}")


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


_ANY_NAME = "NAME"
"""Stands for the name of a table in messages about it."""
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def _named_tables(
    section: str, tables: dict[str, Any], struct: type[_Struct], origin: Mapping[str, str]
) -> dict[str, _Struct]:
    """Takes a section of named tables out of the settings, and returns them by name."""
    named = tables.pop(section, {})
    return {name: _named_table(section, name, table, struct, origin) for name, table in named.items()}


def _named_table(
    section: str, name: str, table: dict[str, Any], struct: type[_Struct], origin: Mapping[str, str]
) -> _Struct:
    """Returns a table whose name the user chose; errors name its keys as the settings do."""
    try:
        return msgspec.convert(table, struct, strict=False)
    except msgspec.ValidationError as e:  # a name may contain characters that have a meaning in paths
        message = str(e).replace("`$.", f"`$.{_ANY_NAME}.").replace("`$`", f"`{section}.{name}`")
        own = f"{section}.{name}."
        origins = {key.replace(own, f"{section}.{_ANY_NAME}.", 1): origin[key] for key in origin if key.startswith(own)}
        described = describe_error(message, {_ANY_NAME: table}, origins, f"{section}.")
        described = described.replace(f"$.{_ANY_NAME}.", f"{section}.{name}.")
        raise ConfigError(described.replace(f"{section}.{_ANY_NAME}.", own)) from None


def _upstream(name: str, table: dict[str, Any], origin: Mapping[str, str]) -> HttpConfig:
    upstream = _named_table("upstreams", name, table, HttpConfig, origin)
    if urlsplit(upstream.url).scheme not in ("http", "https") or not host_name(upstream.url):
        where = f"at upstreams.{name}.url, from {origin[f'upstreams.{name}.url']}"
        raise ConfigError(f"expected a URL like http://127.0.0.1:1234/v1, got {quote(upstream.url)} - {where}")
    if "@" in urlsplit(upstream.url).netloc and (upstream.api_key or upstream.api_key_env):
        where = f"at upstreams.{name}.url, from {origin[f'upstreams.{name}.url']}"
        raise ConfigError(f"expected one way to be let in, got a password in the URL and a key - {where}")
    return upstream
