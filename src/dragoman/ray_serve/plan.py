"""Plans the deployments of an application of Ray Serve from the settings. It does not import Ray.

gateway        the HTTP API; sends each request to the deployment of its model
MODEL          one embedded model; each replica has an engine of its own
shared_models  several embedded models, which each replica loads on request
claude_cli     the `claude` program, on nodes with a login
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from dragoman import compose
from dragoman.backends.claude_cli.config import ClaudeCliConfig
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.ray.config import CLAUDE, GATEWAY, PROXIES, SHARED, RayConfig, RayDeploymentConfig
from dragoman.catalog import models as catalog
from dragoman.compose.embedded_weights import embedded_model_name
from dragoman.config import Config
from dragoman.core.errors import ConfigError, nearest, quote

APPLICATION: Final = "dragoman"
IMPORT_PATH: Final = "dragoman.ray_serve:build_app"
ROUTER: Final = "dragoman.ray_serve.request_router:PrefixRequestRouter"
POLICY: Final = "dragoman.ray_serve.autoscaling:LoadPolicy"
CLAUDE_LOGIN: Final = "claude_login"
"""Custom resource of nodes on which `claude` is logged in."""
_GATEWAY_REQUESTS: Final = 1000
"""Requests that one replica of the gateway answers at a time; almost all of them wait for a model."""
_GATEWAY_TARGET: Final = 100.0
_MORE_CALLS: Final = 2
"""Calls of a replica next to its requests, which report its state or count tokens."""
_HEALTH_PERIOD_S: Final = 5.0
_LOOK_BACK_S: Final = 11.0
"""Time over which the number of requests is averaged; Ray wants more than the 10 s between two reports."""

Kind: TypeAlias = Literal["gateway", "model", "shared", "claude"]


class DeploymentPlan(msgspec.Struct, frozen=True):
    """What Ray Serve needs to know about one deployment, and the settings of its replicas."""

    name: str
    kind: Kind
    options: Mapping[str, Any]
    """Options of Ray Serve's deployment, as JSON values."""
    config: Config
    """The settings of its replicas: those of models have no keys of clients or servers."""
    models: tuple[str, ...] = ()
    """Names of its models, as served."""


def plan(config: Config, origin: Mapping[str, str]) -> list[DeploymentPlan]:
    """Returns the deployments that the settings describe, the gateway last.

    Args:
        config: the settings.
        origin: where each setting that is not at its default comes from.

    Raises:
        ConfigError: the settings name nothing that could be deployed, or an unknown model.
    """
    ray = config.ray
    names = ray.models
    if not names and not ray.shared_models and compose.serves_embedded(config, origin):
        names = (config.embedded.model,)
    plans = [_model(config, name) for name in names]
    if ray.shared_models:
        plans.append(_shared(config))
    if config.claude_cli.enabled:
        plans.append(_claude(config))
    if unknown := config.ray_deployments.keys() - {each.name for each in plans} - {GATEWAY, *names}:
        name = min(unknown)
        known = [each.name for each in plans]
        raise ConfigError(f"no deployment has the name {quote(name)}{nearest(name, known)} - at ray_deployments.{name}")
    return [*plans, _gateway(config)]


def serve_config(config: Config, plans: list[DeploymentPlan], path: str) -> dict[str, Any]:
    """Returns the configuration for `serve run` and `serve deploy`, as JSON values.

    Args:
        config: the settings.
        plans: the deployments.
        path: the settings file, as on the head node.
    """
    return {
        "proxy_location": PROXIES[config.ray.proxies],
        "http_options": {"host": config.server.host, "port": config.server.port},
        "applications": [
            {
                "name": APPLICATION,
                "route_prefix": "/",
                "import_path": IMPORT_PATH,
                "args": {"config": path},
                "deployments": [{"name": each.name, **each.options} for each in plans],
            }
        ],
    }


def warnings(config: Config) -> list[str]:
    """Returns what the user should change for several replicas of the gateway."""
    gateway = _settings(config, GATEWAY)
    if gateway.most_replicas == 1 or config.state.url:
        return []
    return [
        f"up to {gateway.most_replicas} replicas of the gateway, and each has responses of its own, which the others "
        "cannot continue: set state.url (docs/replicas.md)"
    ]


def missing_nodes(plans: Sequence[DeploymentPlan], nodes: Sequence[Mapping[str, float]]) -> list[str]:
    """Returns a message for each deployment whose replicas fit on no node.

    Args:
        plans: the deployments.
        nodes: the resources of each node, by name, such as `CPU` and `GPU`.
    """
    return [text for each in plans if (text := _missing(each, nodes))]


def _missing(plan: DeploymentPlan, nodes: Sequence[Mapping[str, float]]) -> str:
    actor = plan.options["ray_actor_options"]
    custom: Mapping[str, float] = actor.get("resources", {})
    needs = {"CPU": actor["num_cpus"], "GPU": actor.get("num_gpus", 0), **custom}
    if any(all(node.get(name, 0) >= needed for name, needed in needs.items()) for node in nodes):
        return ""
    expected = ", ".join(f"{needed:g} {name}" for name, needed in needs.items() if needed)
    lacking = [name for name, needed in needs.items() if not any(node.get(name, 0) >= needed for node in nodes)]
    got = "no node has " + " or ".join(lacking) if lacking else "no single node has all of it"
    advice = ""
    if name := next((name for name in lacking if name in custom), ""):
        login = " on a machine where `claude` is logged in" if plan.kind == "claude" else ""
        advice = f"; start Ray{login} with --resources='{{\"{name}\": 1}}'"
    return f"expected a node with {expected} for {plan.name}, got {len(nodes)} nodes: {got}{advice}"


def deployment_name(model: str) -> str:
    """Returns the name of a model's deployment: that of the model, without characters that have a meaning in URLs."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", model).strip("-")


def _settings(config: Config, *names: str) -> RayDeploymentConfig:
    found = (config.ray_deployments[name] for name in names if name in config.ray_deployments)
    return next(found, RayDeploymentConfig())


def _model(config: Config, name: str) -> DeploymentPlan:
    embedded = msgspec.structs.replace(config.embedded, enabled=True, model=name, discover=False, folders=(), pinned=())
    served = embedded_model_name(embedded)
    options = _options(_settings(config, name, served), config.embedded, has_prefixes=True)
    return DeploymentPlan(deployment_name(served), "model", options, Config(embedded=embedded), (served,))


def _shared(config: Config) -> DeploymentPlan:
    names = config.ray.shared_models
    own = [msgspec.structs.replace(config.embedded, enabled=True, model=name) for name in names]
    served = tuple(map(embedded_model_name, own))
    options = _options(_settings(config, SHARED), config.embedded, has_prefixes=True)
    return DeploymentPlan(
        SHARED, "shared", options, Config(embedded=own[0], ray=RayConfig(shared_models=names)), served
    )


def _claude(config: Config) -> DeploymentPlan:
    settings = _settings(config, CLAUDE)
    settings = msgspec.structs.replace(settings, resource=settings.resource or CLAUDE_LOGIN)
    options = _options(settings, config.claude_cli)
    return DeploymentPlan(CLAUDE, "claude", options, Config(claude_cli=config.claude_cli))


def _gateway(config: Config) -> DeploymentPlan:
    settings = _settings(config, GATEWAY)
    if GATEWAY not in config.ray_deployments or settings.target_requests == RayDeploymentConfig().target_requests:
        settings = msgspec.structs.replace(settings, target_requests=_GATEWAY_TARGET)
    return DeploymentPlan(GATEWAY, "gateway", _options(settings, None), config)


def _options(
    settings: RayDeploymentConfig, limits: EmbeddedConfig | ClaudeCliConfig | None, *, has_prefixes: bool = False
) -> dict[str, Any]:
    autoscaling: dict[str, Any] = {
        "min_replicas": settings.min_replicas,
        "max_replicas": settings.most_replicas,
        "target_ongoing_requests": settings.target_requests,
        "upscale_delay_s": settings.upscale_delay_s,
        "downscale_delay_s": settings.downscale_delay_s,
        "look_back_period_s": _LOOK_BACK_S,
    }
    if settings.target_tokens:
        target = {"target_tokens": settings.target_tokens}
        autoscaling["policy"] = {"policy_function": POLICY, "policy_kwargs": target}
    actor: dict[str, Any] = {"num_cpus": settings.num_cpus}
    if settings.num_gpus:
        actor["num_gpus"] = settings.num_gpus
    if settings.resource:
        actor["resources"] = {settings.resource: 1}
    options: dict[str, Any] = {
        "autoscaling_config": autoscaling,
        "ray_actor_options": actor,
        "max_ongoing_requests": limits.max_concurrency + _MORE_CALLS if limits else _GATEWAY_REQUESTS,
        "graceful_shutdown_timeout_s": settings.drain_timeout_s,
        "graceful_shutdown_wait_loop_s": 1.0,
        "health_check_period_s": _HEALTH_PERIOD_S,
    }
    if limits:
        options["max_queued_requests"] = limits.max_queue * settings.most_replicas
    if has_prefixes:
        options["request_router_config"] = {"request_router_class": ROUTER}
    return options


def other_names(models: Sequence[str]) -> dict[str, str]:
    """Returns other names that the catalogue has for these models, each with the name of its model."""
    profiles = [(model, profile) for model in models if (profile := catalog.find(model))]
    return {alias: model for model, profile in profiles for alias in profile.aliases}
