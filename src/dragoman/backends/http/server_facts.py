"""What the settings say of a server: its API, its key, whether it may be probed, and what spans tell about it."""

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from dragoman import dialects
from dragoman.backends.http.config import HttpConfig
from dragoman.catalog.servers import Provider
from dragoman.core.backend import UpstreamFacts
from dragoman.core.errors import ConfigError
from dragoman.wire.dialect import Dialect

_PROVIDERS: Final = {
    "amazonaws.com": "aws.bedrock",
    "api.anthropic.com": "anthropic",
    "api.cohere.ai": "cohere",
    "api.cohere.com": "cohere",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral_ai",
    "api.openai.com": "openai",
    "api.perplexity.ai": "perplexity",
    "api.x.ai": "x_ai",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "ml.cloud.ibm.com": "ibm.watsonx.ai",
    "openai.azure.com": "azure.ai.openai",
    "services.ai.azure.com": "azure.ai.inference",
}
"""Values of `gen_ai.provider.name` by host name, subdomains included.

Source: https://opentelemetry.io/docs/specs/semconv/registry/attributes/gen-ai/ (semantic conventions 1.41.1, 2026-11).
"""
COMPACTION_MODES: Final = ("auto", "server", "dragoman")
_HOSTS_WITH_COMPACTION: Final = ("api.openai.com", "chatgpt.com", "api.x.ai")
"""Hosts whose Responses API has compaction."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def dialect_of(name: str, config: HttpConfig) -> Dialect:
    """Returns the API of a server.

    Raises:
        ConfigError: the API is unknown.
    """
    try:
        return dialects.get(config.api)
    except ConfigError as e:
        raise ConfigError(f"{e.message} - at upstreams.{name}.api") from None


def is_host_of(config: HttpConfig, hosts: Collection[str]) -> bool:
    """Returns whether the server is one of these hosts of vendors, or Azure's."""
    host = urlsplit(config.url).hostname or ""
    return host in hosts or host.endswith(".openai.azure.com")


def compacts_itself(config: HttpConfig) -> bool:
    """Returns whether a server with the Responses API compacts conversations."""
    return config.compaction == "server" or (config.compaction == "auto" and is_host_of(config, _HOSTS_WITH_COMPACTION))


def allows_probe(config: HttpConfig) -> bool:
    """Returns whether the server may be probed without being asked to: one with a key may cost money."""
    return not (config.api_key or config.api_key_env) if config.auto_probe is None else config.auto_probe


def key_of(name: str, config: HttpConfig, environ: Mapping[str, str]) -> str:
    """Returns the API key for a server; empty: it needs none.

    Args:
        name: the server's name in the settings.
        config: the server's settings.
        environ: environment variables, for `api_key_env`.

    Raises:
        ConfigError: the variable of the key is not set.
    """
    if not config.api_key_env:
        return config.api_key
    if not environ.get(config.api_key_env):
        raise ConfigError(
            f"expected a key in the variable {config.api_key_env}, got none - at upstreams.{name}.api_key_env"
        )
    return environ[config.api_key_env]


def upstream_facts(url: str, provider: Provider | None, api: str, tool_mode: str) -> UpstreamFacts:
    """Returns what spans tell about a server.

    Args:
        url: the server's URL.
        provider: its type, if it is known.
        api: the name of its API.
        tool_mode: how the model is offered tools.
    """
    vendor, address, port = _endpoint(url)
    known = vendor or (provider.name if provider is not None else "")
    return UpstreamFacts(known or ("anthropic" if api == "anthropic_messages" else "openai"), address, port, tool_mode)


@lru_cache(maxsize=256)
def _endpoint(url: str) -> tuple[str, str, int]:
    """Returns the vendor that has this host, or "", the host, and the port."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    labels = host.split(".")
    suffixes = (".".join(labels[start:]) for start in range(len(labels)))
    vendor = next((_PROVIDERS[suffix] for suffix in suffixes if suffix in _PROVIDERS), "")
    return vendor, host, parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
