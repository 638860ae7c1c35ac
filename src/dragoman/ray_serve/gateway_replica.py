"""The gateway's deployment: the ASGI application, with the deployments of the models as its backends."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ray import serve
from ray.serve.handle import DeploymentHandle

from dragoman import compose
from dragoman.backends.shared.client import SharedBackend
from dragoman.compose.limits import usage_limits
from dragoman.compose.records import record_writer
from dragoman.core.backend import Backend, UpstreamFacts
from dragoman.core.messages import Request
from dragoman.ray_serve.calls import ReplicaCalls
from dragoman.ray_serve.plan import DeploymentPlan, other_names
from dragoman.server.app import App
from dragoman.server.keys.ring import KeyRing

_PROVIDERS: Final = {"claude": "anthropic"}


class RayBackend(SharedBackend):
    """The models of one deployment."""

    def __init__(self, plan: DeploymentPlan, handle: DeploymentHandle) -> None:
        """
        Args:
            plan: the deployment.
            handle: calls it.
        """
        if plan.kind == "claude":
            from dragoman.backends.claude_cli.models import resolve_model

            resolve = resolve_model
        else:
            resolve = _unknown
        is_shared, is_continued = plan.kind == "shared", plan.kind != "claude"
        keeps_one = plan.options["autoscaling_config"]["min_replicas"] > 0
        calls = ReplicaCalls(
            handle, plan.name, _assumed(plan), is_shared=is_shared, is_continued=is_continued, is_polled=keeps_one
        )
        super().__init__(calls, plan.name, resolve)
        self._provider = _PROVIDERS.get(plan.kind, "llama_cpp")

    def health(self) -> Mapping[str, object]:
        """Returns the state that one replica reported last."""
        return {**super().health(), "backend": self.name}

    def describe(self, model: str) -> Mapping[str, object]:
        """Returns the deployment; what only its replicas know is not in captures."""
        return {"backend": self.name, "model": model}

    def request_as_shown(self, request: Request) -> Request:
        """Returns the request; the model's earlier output is known to its replicas only."""
        return request

    def secret_values(self) -> Sequence[str]:
        """Returns nothing: replicas of models have no keys."""
        return ()

    def upstream_facts(self, model: str) -> UpstreamFacts:
        """Returns what spans tell about the server; see `Backend`."""
        return UpstreamFacts(self._provider)


@serve.ingress()
class GatewayReplica:
    """One replica of the gateway."""

    def __init__(self, plan: DeploymentPlan, plans: Sequence[DeploymentPlan], *handles: DeploymentHandle) -> None:
        """
        Args:
            plan: the gateway's own deployment.
            plans: the deployments of models.
            *handles: for each of `plans`.
        """
        self._plan = plan
        self._backends: list[Backend] = [RayBackend(*each) for each in zip(plans, handles, strict=True)]

    def __serve_build_asgi_app__(self) -> App:
        """Returns the application; Ray calls this after the constructor, and starts it by its lifespan.

        Raises:
            ConfigError: a setting is wrong on this node, such as a variable with a key that is not set.
        """
        config = self._plan.config
        gateway = compose.build_gateway(config, embedded=False, remote=self._backends)
        return App(
            gateway,
            config.server,
            capture=config.capture,
            keys=KeyRing.from_config(config),
            records=record_writer(config.records),
            limits=usage_limits(config, None),
        )


def _assumed(plan: DeploymentPlan) -> Mapping[str, Any]:
    """Returns the state of a deployment whose replicas have not reported theirs yet."""
    models = [{"id": name} for name in plan.models]
    return {"models": models, "names": other_names(plan.models), "health": {"ready": True}}


def _unknown(name: str) -> str | None:
    return None
