"""Selects the backend that a command asks: by `--gateway`, `--upstream`, `--claude-cli` or the settings."""

import argparse
from collections.abc import Mapping

from msgspec.structs import replace

from dragoman import compose
from dragoman import config as settings
from dragoman.backends.http.config import HttpConfig
from dragoman.cli._common import gateway_key
from dragoman.compose import embedded_weights


def select_backend(
    config: settings.Config, origin: Mapping[str, str], args: argparse.Namespace, model: str
) -> tuple[settings.Config, bool]:
    """Returns the settings with only the backends that may be asked, and whether the embedded model is one of them.

    Args:
        config: The settings.
        origin: Where each setting that is not at its default comes from, by its key.
        args: The arguments `gateway`, `upstream` and `claude_cli`.
        model: The model; empty: any.

    Raises:
        ConfigError: The embedded model is unknown.
    """
    if args.gateway:
        return upstream_only(config, {"gateway": gateway_server(config, args.gateway)}), False
    if args.upstream:
        return upstream_only(config, {"upstream": config.upstreams["upstream"]}), False
    if args.claude_cli:
        return replace(config, upstreams={}), False
    if not (config.upstreams or config.claude_cli.enabled):
        named = replace(config.embedded, model=model or config.embedded.model)
        embedded_weights.embedded_model_name(named)
        return replace(config, embedded=named), True
    needs_embedded = (
        embedded_weights.is_embedded_model(model, config.embedded)
        and compose.serves_embedded(config, origin)
        and embedded_weights.embedded_model_name(replace(config.embedded, model=model))
        == embedded_weights.embedded_model_name(config.embedded)
    )
    return config, needs_embedded


def gateway_server(config: settings.Config, url: str) -> HttpConfig:
    """Returns the running gateway at this URL as a server; the first key of the settings is sent to it."""
    return HttpConfig(
        url=url, api_key=gateway_key(config.server), tool_mode="native", recover_leaked_calls=False, max_retries=0
    )


def upstream_only(config: settings.Config, servers: dict[str, HttpConfig]) -> settings.Config:
    """Returns the settings with these servers, and without the Claude Code CLI."""
    return replace(config, upstreams=servers, claude_cli=replace(config.claude_cli, enabled=False))
