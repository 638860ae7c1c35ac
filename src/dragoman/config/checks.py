"""Checks settings against each other."""

import math
import os
from collections.abc import Iterable, Mapping

from dragoman.backends.ray.config import check_ray
from dragoman.config.keys import SECRET_CHARS, is_secret
from dragoman.config.sections import Config
from dragoman.config.server import CAPTURE_FILTERS, RELOAD_MODES, ServerConfig
from dragoman.core.errors import ConfigError, one_of, quote
from dragoman.guard.policy import validate_policy
from dragoman.host_names import LOOPBACK, host_name
from dragoman.prices.config import check_prices
from dragoman.state.config import check_state
from dragoman.usage_limits.config import check_limits


def check(config: Config, values: Iterable[tuple[str, object]], origin: Mapping[str, str]) -> None:
    """Checks what no single setting can.

    Args:
        config: the settings.
        values: every key with its value.
        origin: where each setting that is not at its default comes from.

    Raises:
        ConfigError: settings are wrong, or together not safe.
    """
    server = config.server
    for key, value in values:
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"expected a finite number, got {value} - at {key}, from {origin[key]}")
    for entry in server.allowed_hosts:
        if not host_name(entry):
            raise ConfigError(f"expected a host's name, got {quote(entry)} - at server.allowed_hosts")
    if not all(map(is_secret, server.api_keys)):
        raise ConfigError(
            f"expected API keys of at least {SECRET_CHARS} characters without blanks around them, got another; "
            "`openssl rand -hex 16` makes a good one - at server.api_keys"
        )
    filters = ("capture.filter", config.capture.filter, CAPTURE_FILTERS)
    for key, choice, known in (filters, ("server.reload", server.reload, RELOAD_MODES)):
        if choice not in known:
            raise ConfigError(f"unknown {quote(choice)}{one_of(choice, known, 'expected ')} - at {key}")
    validate_policy(config.guard)
    check_prices(config.prices)
    check_limits(config.limits)
    check_state(config.state)
    check_ray(config.ray, config.ray_deployments, config.embedded.model, has_claude=config.claude_cli.enabled)
    if config.formats:
        from dragoman.config.own_formats import own_formats  # imports all formats

        own_formats(config.formats)


def check_access(config: Config) -> None:
    """Checks that other machines and web pages need a key.

    Raises:
        ConfigError: they would be admitted without one, or to the login of claude.
    """
    server = config.server
    if "*" in server.allowed_hosts and not requires_keys(config):
        raise ConfigError(
            "server.allowed_hosts has '*', by which every web page that is open on this machine can ask the gateway: "
            "set server.api_keys (or DRAGOMAN_SERVER_API_KEYS), run `dragoman keys create NAME`, or name the hosts"
        )
    if server.host not in LOOPBACK and not requires_keys(config):
        raise ConfigError(
            f"server.host is {server.host!r}, which other machines can reach: set server.api_keys "
            "(or DRAGOMAN_SERVER_API_KEYS), run `dragoman keys create NAME`, or listen on 127.0.0.1"
        )
    if config.claude_cli.enabled and not config.claude_cli.allow_remote_clients and is_reachable(server):
        raise ConfigError(
            "other machines can reach this gateway, and the login of claude is for its owner alone: listen on "
            "127.0.0.1 without server.allowed_hosts, or set claude_cli.allow_remote_clients if it uses your API key"
        )


def requires_keys(config: Config) -> bool:
    """Returns whether requests need an API key."""
    server = config.server
    return bool(server.api_keys or config.keys or (server.keys_path and os.path.exists(server.keys_path)))


def is_reachable(server: ServerConfig) -> bool:
    """Whether other machines are admitted, by the address or by the host name of a proxy."""
    return server.host not in LOOPBACK or any(host_name(entry) not in LOOPBACK for entry in server.allowed_hosts)
