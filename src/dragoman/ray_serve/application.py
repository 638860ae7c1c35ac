"""Builds the application of Ray Serve: the gateway, bound to the deployments of its models."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ray import serve
from ray.serve import Application

from dragoman import compose
from dragoman.core.errors import ConfigError
from dragoman.ray_serve.gateway_replica import GatewayReplica
from dragoman.ray_serve.plan import DeploymentPlan, plan
from dragoman.ray_serve.replicas import ModelReplica
from dragoman.ray_serve.settings import load


def build_app(args: Mapping[str, str]) -> Application:
    """Returns the application that a settings file describes; `serve run` and `serve deploy` call it.

    Args:
        args: `config`, the path of the settings file on the node that builds the application; without it, the default.

    Raises:
        ConfigError: an argument or a setting is wrong.
    """
    if unknown := args.keys() - {"config"}:
        raise ConfigError(f"unknown argument {min(unknown)!r}, expected config=FILE")
    path = args.get("config")
    return bind(plan(*load(compose.settings_path(Path(path) if path else None))))


def bind(plans: Sequence[DeploymentPlan]) -> Application:
    """Returns the application of these deployments, of which the last is the gateway."""
    *models, gateway = plans
    bound = [_deployment(ModelReplica, each).bind(each) for each in models]
    application: Application = _deployment(GatewayReplica, gateway).bind(gateway, models, *bound)
    return application


def _deployment(replica: type, plan: DeploymentPlan) -> Any:
    return serve.deployment(replica).options(name=plan.name, **plan.options)
