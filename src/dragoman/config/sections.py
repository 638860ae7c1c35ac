"""The sections of the settings."""

from typing import Annotated, Any

import msgspec

from dragoman.backends.claude_cli.config import ClaudeCliConfig
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.ray.config import RayConfig, RayDeploymentConfig
from dragoman.config.chat import ChatConfig
from dragoman.config.console import ConsoleConfig
from dragoman.config.keys import KeyConfig
from dragoman.config.server import CaptureConfig, ServerConfig
from dragoman.gateway.config import ResponseStoreConfig
from dragoman.gateway.examples.config import ExamplesConfig
from dragoman.gateway.hooks.config import HooksConfig
from dragoman.gateway.routing.config import RouteConfig
from dragoman.guard.policy import GuardPolicy
from dragoman.mcp_client.config import McpServerConfig
from dragoman.parsing.tag_format_config import TagFormatConfig
from dragoman.prices.config import PriceConfig
from dragoman.records.config import RecordsConfig
from dragoman.schema.setting import setting
from dragoman.state.config import StateConfig
from dragoman.tool_executors.config import ToolsConfig
from dragoman.usage_limits.config import LimitsConfig


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of all parts of Dragoman."""

    server: ServerConfig = ServerConfig()
    capture: CaptureConfig = CaptureConfig()
    embedded: EmbeddedConfig = EmbeddedConfig()
    claude_cli: ClaudeCliConfig = ClaudeCliConfig()
    upstreams: Annotated[dict[str, HttpConfig], setting("Upstream servers, each a table of its own.")] = {}
    guard: GuardPolicy = GuardPolicy()
    examples: ExamplesConfig = ExamplesConfig()
    response_store: ResponseStoreConfig = ResponseStoreConfig()
    state: StateConfig = StateConfig()
    records: RecordsConfig = RecordsConfig()
    tools: ToolsConfig = ToolsConfig()
    chat: ChatConfig = ChatConfig()
    console: ConsoleConfig = ConsoleConfig()
    limits: LimitsConfig = LimitsConfig()
    ray: RayConfig = RayConfig()
    ray_deployments: Annotated[
        dict[str, RayDeploymentConfig], setting("Deployments on a Ray cluster, each a table of its own (docs/ray.md).")
    ] = {}
    prices: Annotated[
        dict[str, PriceConfig],
        setting("Prices of models, each a table named by a pattern of `MODEL` or `UPSTREAM/MODEL`."),
    ] = {}
    hooks: HooksConfig = HooksConfig()
    mcp: Annotated[dict[str, McpServerConfig], setting("MCP servers, each a table of its own.")] = {}
    keys: Annotated[dict[str, KeyConfig], setting("API keys of clients, each a table of its own (docs/keys.md).")] = {}
    formats: Annotated[dict[str, TagFormatConfig], setting("Formats of tool calls, each a table of its own.")] = {}
    backends: Annotated[
        dict[str, dict[str, Any]], setting("Backends of installed packages, each a table of its own.")
    ] = {}
    model_aliases: Annotated[
        dict[str, str | tuple[str, ...]],
        setting("Model names that clients ask for, and the model meant, or several, the next where one fails."),
    ] = {}
    routes: Annotated[
        tuple[RouteConfig, ...], setting("Rules that select models; the first whose conditions all hold applies.")
    ] = ()
