"""First contact with a server: whether it is reachable, has this API, accepts the key, and which model is meant.

Error messages say what to do.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import msgspec

from dragoman import dialects
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.http.connection import UpstreamConnection
from dragoman.backends.probe.server_info import MODELS, ServerInfo, decode_or_none, values_at
from dragoman.core.errors import BackendUnavailableError, ConfigError

_MAX_SHOWN: Final = 12
_KEY_ERROR_STATUSES: Final = (401, 403)


def api_key(config: HttpConfig, environ: Mapping[str, str]) -> str:
    """Returns the API key of the settings.

    Raises:
        ConfigError: its variable is not set.
    """
    if not config.api_key_env:
        return config.api_key
    if not environ.get(config.api_key_env):
        raise ConfigError(f"expected a key in the variable {config.api_key_env}, got none")
    return environ[config.api_key_env]


@asynccontextmanager
async def open_connection(config: HttpConfig, environ: Mapping[str, str]) -> AsyncGenerator[UpstreamConnection, None]:
    """Opens a connection to the server, like that of its backend.

    Raises:
        ConfigError: the API or the URL is invalid, or the key's variable is not set.
    """
    at = urlsplit(config.url)
    if at.scheme not in ("http", "https") or not at.hostname:
        raise ConfigError(f"expected a URL like http://127.0.0.1:1234/v1, got {config.url!r}")
    dialect, secret = dialects.get(config.api), api_key(config, environ)
    connection = UpstreamConnection(
        "the server", config, dialect.auth_headers(secret), versioned=dialect.base_url_has_version, key=secret
    )
    await connection.start()
    try:
        yield connection
    finally:
        await connection.close()


async def list_models(
    connection: UpstreamConnection, server_info: ServerInfo, config: HttpConfig, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Returns the models that the server lists; empty if it has no list.

    Args:
        connection: The connection to the server.
        server_info: The facts that the server reports.
        config: The settings of the server.
        environ: The environment, for the key.

    Raises:
        ConfigError: there is no API at the URL, or the key is missing or wrong.
        BackendUnavailableError: the server cannot be reached.
    """
    try:
        response = await connection.request(MODELS)
    except BackendUnavailableError as error:
        raise BackendUnavailableError(
            f"nothing answers at {connection.display_url}: {error.message}; is the server running?"
        ) from None
    if response.status in _KEY_ERROR_STATUSES:
        raise missing_key_error(config)
    models = await server_info.models()
    if not models and not (response.status == 200 and isinstance(decode_or_none(response.body), dict)):
        for url in _likely_urls(config):
            async with open_connection(msgspec.structs.replace(config, url=url), environ) as other:
                if await _has_models(other):
                    raise ConfigError(f"no API at {config.url}, but at {url}: dragoman probe {url}")
    return models


async def _has_models(connection: UpstreamConnection) -> bool:
    try:
        response = await connection.request(MODELS)
    except BackendUnavailableError:
        return False
    listed = decode_or_none(response.body) if response.status == 200 else None
    return next(values_at(listed, ["data", "*", "id"], ""), None) is not None


def _likely_urls(config: HttpConfig) -> list[str]:
    """Returns URLs that the user may have meant."""
    base, at = config.url.rstrip("/"), urlsplit(config.url)
    root = f"{at.scheme}://{at.netloc}"
    paths = (dialects.get(name).path for name in dialects.names())
    cut = [base.removesuffix(path) + "/v1" for path in paths if base.endswith(path)]
    tried = [*cut, f"{base}/v1", f"{root}/v1", f"{root}/api/v1"]
    return [url for url in dict.fromkeys(tried) if url != base]


def missing_key_error(config: HttpConfig) -> ConfigError:
    """Returns the error for a missing or wrong key."""
    if config.api_key_env or config.api_key:
        named = f" in the variable {config.api_key_env}" if config.api_key_env else ""
        return ConfigError(f"the server at {config.url} does not take the key{named}")
    advice = "put it in an environment variable and name that: --api-key-env VAR, or api_key_env in its settings"
    return ConfigError(f"the server at {config.url} wants a key; {advice}")


def select_model(models: tuple[str, ...], named: str) -> str:
    """Returns the model that is named, or the only one.

    Raises:
        ConfigError: there is none, or several. None is guessed, as a request may load the model.
    """
    if named:
        return named
    if len(models) == 1:
        return models[0]
    if not models:
        raise ConfigError("the server lists no model; load one there, or choose one with --model NAME")
    listed = ", ".join(models[:_MAX_SHOWN]) + (", …" if len(models) > _MAX_SHOWN else "")
    raise ConfigError(f"the server lists {len(models)} models; choose one with --model NAME: {listed}")
