"""The first steps to a server: is it there, is this its API, does it take the key, which model is meant.

What is wrong is said in words that one can act on.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import msgspec

from dragoman import dialects
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.http.connection import UpstreamConnection
from dragoman.backends.probe.server_info import MODELS, Telling, json, members
from dragoman.core.errors import BackendUnavailableError, ConfigError

_SHOWN_AT_MOST: Final = 12
_WANTS_KEY: Final = (401, 403)


def key(config: HttpConfig, environ: Mapping[str, str]) -> str:
    """The key of the settings.

    Raises: ConfigError: its variable is not set.
    """
    if not config.key_env:
        return config.key
    if not environ.get(config.key_env):
        raise ConfigError(f"expected a key in the variable {config.key_env}, got none")
    return environ[config.key_env]


@asynccontextmanager
async def connected(config: HttpConfig, environ: Mapping[str, str]) -> AsyncGenerator[UpstreamConnection, None]:
    """The way to it, as its backend has it.

    Raises: ConfigError: the API or the URL is none, or the key's variable is not set.
    """
    at = urlsplit(config.url)
    if at.scheme not in ("http", "https") or not at.hostname:
        raise ConfigError(f"expected a URL like http://127.0.0.1:1234/v1, got {config.url!r}")
    dialect, secret = dialects.get(config.api), key(config, environ)
    connection = UpstreamConnection("the server", config, dialect.sign(secret), versioned=dialect.versioned, key=secret)
    await connection.start()
    try:
        yield connection
    finally:
        await connection.close()


async def reached(
    connection: UpstreamConnection, telling: Telling, config: HttpConfig, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The models that it lists; none where it has no list.

    Raises: ConfigError: the URL is not that of its API, or the key is missing or wrong. BackendUnavailableError: it is
        not there.
    """
    try:
        said = await connection.request(MODELS)
    except BackendUnavailableError as error:
        raise BackendUnavailableError(
            f"nothing answers at {connection.display_url}: {error.message}; is the server running?"
        ) from None
    if said.status in _WANTS_KEY:
        raise wants_key(config)
    models = await telling.models()
    if not models and not (said.status == 200 and isinstance(json(said.body), dict)):
        for url in _others(config):
            async with connected(msgspec.structs.replace(config, url=url), environ) as other:
                if await _lists(other):
                    raise ConfigError(f"no API at {config.url}, but at {url}: dragoman probe {url}")
    return models


async def _lists(connection: UpstreamConnection) -> bool:
    try:
        said = await connection.request(MODELS)
    except BackendUnavailableError:
        return False
    listed = json(said.body) if said.status == 200 else None
    return next(members(listed, ["data", "*", "id"], ""), None) is not None


def _others(config: HttpConfig) -> list[str]:
    """URLs that may be meant."""
    base, at = config.url.rstrip("/"), urlsplit(config.url)
    root = f"{at.scheme}://{at.netloc}"
    paths = (dialects.get(name).path for name in dialects.names())
    cut = [base.removesuffix(path) + "/v1" for path in paths if base.endswith(path)]
    tried = [*cut, f"{base}/v1", f"{root}/v1", f"{root}/api/v1"]
    return [url for url in dict.fromkeys(tried) if url != base]


def wants_key(config: HttpConfig) -> ConfigError:
    """The error where the key is missing or wrong."""
    if config.key_env or config.key:
        named = f" in the variable {config.key_env}" if config.key_env else ""
        return ConfigError(f"the server at {config.url} does not take the key{named}")
    told = "put it in a variable and name that: --key-env VAR, or key_env in its settings"
    return ConfigError(f"the server at {config.url} wants a key; {told}")


def model_of(models: tuple[str, ...], named: str) -> str:
    """The model that is meant: the one that is named, or the only one.

    Raises: ConfigError: there is none, or it is not clear which. None is guessed, as asking it may load it.
    """
    if named:
        return named
    if len(models) == 1:
        return models[0]
    if not models:
        raise ConfigError("the server lists no model; load one there, or name one: --model NAME")
    listed = ", ".join(models[:_SHOWN_AT_MOST]) + (", …" if len(models) > _SHOWN_AT_MOST else "")
    raise ConfigError(f"the server lists {len(models)} models; name one: --model NAME, of {listed}")
