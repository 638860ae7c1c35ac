"""Settings of a Ray cluster: the sections `[ray]` and `[ray_deployments.NAME]`."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec

from dragoman.core.errors import ConfigError, nearest, one_of, quote
from dragoman.schema.setting import setting

GATEWAY: Final = "gateway"
CLAUDE: Final = "claude_cli"
SHARED: Final = "shared_models"
"""Names of deployments; each other deployment has the name of its model."""
PROXIES: Final = {"head": "HeadOnly", "every_node": "EveryNode"}


class RayConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `dragoman deploy ray` runs on a Ray cluster."""

    models: Annotated[
        tuple[str, ...],
        setting(
            "Embedded models that have a deployment of their own; empty: the model at `embedded.model`, unless there "
            "are `shared_models`."
        ),
    ] = ()
    shared_models: Annotated[
        tuple[str, ...],
        setting("Embedded models that share the deployment `shared_models`, whose replicas load them on request."),
    ] = ()
    proxies: Annotated[
        str, setting("Which nodes accept HTTP connections at `server.port`.", choices=tuple(PROXIES))
    ] = "head"


class RayDeploymentConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The replicas of one deployment: `gateway`, `claude_cli`, `shared_models`, or the name of a model."""

    min_replicas: Annotated[
        int, setting("Minimum number of replicas; 0: none while there are no requests (models only).", ge=0)
    ] = 1
    max_replicas: Annotated[int, setting("Maximum number of replicas; 0: as `min_replicas`, at least one.", ge=0)] = 0
    target_requests: Annotated[
        float, setting("Requests per replica, waiting ones included, from which on more replicas are started.", gt=0)
    ] = 2.0
    target_tokens: Annotated[
        int,
        setting(
            "Tokens in flight per replica (estimated prompts, and the requests' limits of tokens) from which on more "
            "replicas are started; 0: only requests count.",
            ge=0,
        ),
    ] = 0
    num_cpus: Annotated[float, setting("CPUs of a node that a replica reserves.", ge=0)] = 1.0
    num_gpus: Annotated[
        float, setting("GPUs of a node that a replica reserves; 0.5: two replicas share one.", ge=0)
    ] = 0.0
    resource: Annotated[
        str,
        setting(
            "Custom resource of Ray of which a replica takes one unit, so it runs only on nodes that have it; empty: "
            "none, for `claude_cli`: `claude_login`."
        ),
    ] = ""
    upscale_delay_s: Annotated[
        float, setting("Time with too many requests before replicas are added, in seconds.", ge=0)
    ] = 10.0
    downscale_delay_s: Annotated[
        float, setting("Time with too few requests before replicas are removed, in seconds.", ge=0)
    ] = 300.0
    drain_timeout_s: Annotated[
        float, setting("Maximum time for running responses of a replica that is being stopped, in seconds.", gt=0)
    ] = 300.0

    @property
    def most_replicas(self) -> int:
        """The maximum number of replicas, at least one."""
        return self.max_replicas or max(self.min_replicas, 1)


def check_ray(
    ray: RayConfig, deployments: Mapping[str, RayDeploymentConfig], default_model: str, *, has_claude: bool
) -> None:
    """Checks the settings of a Ray cluster.

    Args:
        ray: the section `[ray]`.
        deployments: the sections `[ray_deployments.NAME]`, by name.
        default_model: the setting `embedded.model`.
        has_claude: whether the models of `claude` are served.

    Raises:
        ConfigError: a setting is wrong, or settings contradict each other.
    """
    if ray.proxies not in PROXIES:
        choices = one_of(ray.proxies, PROXIES, "expected ")
        raise ConfigError(f"unknown {quote(ray.proxies)}{choices} - at ray.proxies")
    if both := sorted({*ray.models} & {*ray.shared_models}):
        raise ConfigError(f"expected each model once, got {quote(both[0])} in ray.models and in ray.shared_models")
    known: Sequence[str] = [GATEWAY, *([CLAUDE] if has_claude else []), *([SHARED] if ray.shared_models else [])]
    known = [*known, *(ray.models or ([] if ray.shared_models else [default_model]))]
    for name, settings in deployments.items():
        where = f"ray_deployments.{name}"
        if name not in known and "" not in known:
            advice = nearest(name, known) or "; name its model in ray.models"
            raise ConfigError(f"no deployment has the name {quote(name)}{advice} - at {where}")
        if settings.most_replicas < settings.min_replicas:
            raise ConfigError(
                f"expected at least min_replicas, {settings.min_replicas}, got {settings.max_replicas} - at "
                f"{where}.max_replicas"
            )
        if name == GATEWAY and not settings.min_replicas:
            raise ConfigError(
                f"expected at least 1, because the gateway admits requests, got 0 - at {where}.min_replicas"
            )
        for key in ("num_cpus", "num_gpus"):
            value = getattr(settings, key)
            if value > 1 and value != math.floor(value):
                raise ConfigError(f"expected a whole number or less than 1, got {value:g} - at {where}.{key}")
