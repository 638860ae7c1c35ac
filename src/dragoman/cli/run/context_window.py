"""The context window of a model, and whether it writes reasoning, as its server or its file says."""

import os

from dragoman.backends.embedded import gguf
from dragoman.backends.embedded.config import CONTEXT_WINDOW, EmbeddedConfig, context_window_of
from dragoman.backends.http.config import HttpConfig
from dragoman.catalog import servers
from dragoman.compose import embedded_weights
from dragoman.core.errors import ConfigError


async def reported_context_window(server: HttpConfig, model: str) -> tuple[int, bool]:
    """Returns the context window that the server reports, or 0, and whether the model writes reasoning, if known."""
    from dragoman.backends.probe.connect import open_connection
    from dragoman.backends.probe.server_info import ServerInfo

    async with open_connection(server, os.environ) as connection:
        info = ServerInfo(connection, server.url)
        provider = servers.get(server.provider) if server.provider else await info.find_provider()
        window = server.context_window or (await info.get_number(provider.context, model) if provider else 0)
        template = await info.get(provider.template, model) if provider and provider.template else None
        return window, template is None or _mentions_reasoning(template)


def embedded_context_window(config: EmbeddedConfig) -> tuple[int, bool]:
    """Returns the same for the embedded model, from its file if it is downloaded."""
    try:
        metadata = gguf.metadata(embedded_weights.find_weights(config))
    except ConfigError:
        return config.context_window or CONTEXT_WINDOW, True
    window = context_window_of(metadata.context_window, config)
    return window, _mentions_reasoning(metadata.chat_template)


def _mentions_reasoning(template: str) -> bool:
    """Whether the chat template mentions reasoning: those of reasoning models have a tag or a field for it."""
    return not template or any(word in template for word in ("think", "reason", "channel"))
