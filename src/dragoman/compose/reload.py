"""Builds a gateway from changed settings, with the parts of a running gateway whose settings have not changed."""

from dataclasses import replace
from pathlib import Path

from dragoman.compose import routes, shared_state, upstream_backends, vendor_tools
from dragoman.compose.costs import price_book
from dragoman.compose.examples import remember_examples
from dragoman.compose.limits import check_limits
from dragoman.compose.prefixes import share_prefixes
from dragoman.compose.replies import share_replies
from dragoman.config import Config
from dragoman.config.own_formats import with_formats
from dragoman.gateway.gateway import Gateway


def rebuild_gateway(
    config: Config, running: Gateway, running_config: Config, shared_dir: Path | None = None
) -> Gateway:
    """Returns a gateway with these settings.

    Upstream servers with equal settings are the same objects, so they keep their connections, circuit breakers and
    probe results. Hooks, plug-ins, the embedded model, Claude and stored responses are always those of the running
    gateway: their settings change only with a restart.

    Args:
        config: The settings.
        running: The running gateway.
        running_config: The settings that the running gateway was built from.
        shared_dir: The private folder of several gateway processes; None: there is one process.

    Raises:
        ConfigError: An API does not exist, the variable with a key is not set, or an extra is missing.
    """
    from dragoman.backends.http.backend import HttpBackend

    check_limits(config)
    before, count = running_config.upstreams, len(running_config.upstreams)
    started = dict(zip(before, running.backends[:count], strict=True))
    old, new = running_config.formats, config.formats
    same = {
        name: started[name]
        for name, server in config.upstreams.items()
        if name in started and with_formats(server, new) == with_formats(before[name], old)
    }
    replies = next((each.reply_store for each in started.values() if isinstance(each, HttpBackend)), None)
    shared = shared_state(shared_dir, config.state)
    servers = upstream_backends(config, probe=True, shared=shared, reuse=same, replies=replies)
    prices = running.prices if _priced(config) == _priced(running_config) else price_book(config)
    is_same = (config.tools, config.mcp) == (running_config.tools, running_config.mcp)
    tools = replace(running.vendor_tools, prices=prices) if is_same else vendor_tools(config, prices)
    backends = [*servers, *running.backends[count:]]
    gateway = running.successor(backends, config.model_aliases, config.guard, tools, prices, routes(config))
    remember_examples(gateway, config, shared_dir)
    share_prefixes(gateway, config, shared_dir, running)
    share_replies(gateway.backends, config, shared_dir)
    return gateway


def _priced(config: Config) -> object:
    """Returns the settings that prices depend on."""
    return config.prices, config.limits, {name: upstream.url for name, upstream in config.upstreams.items()}
