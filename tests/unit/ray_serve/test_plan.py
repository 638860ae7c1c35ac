"""Deployments from settings, without Ray."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman import config as settings
from dragoman.core.errors import ConfigError
from dragoman.ray_serve.plan import DeploymentPlan, missing_nodes, plan, serve_config, warnings

Plan = Callable[[str], list[DeploymentPlan]]
CLAUDE = "[claude_cli]\nenabled = true\n"
TWO_MODELS = '[ray]\nmodels = ["smollm2-135m", "qwen2.5-coder-1.5b"]\n'


@pytest.fixture
def planned(tmp_path: Path) -> Plan:
    def of(text: str) -> list[DeploymentPlan]:
        path = tmp_path / "config.toml"
        path.write_text(text)
        return plan(*settings.load(path, {}, {}))

    return of


def names(plans: list[DeploymentPlan]) -> list[str]:
    return [each.name for each in plans]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["smollm2-135m", "gateway"]),
        (TWO_MODELS, ["smollm2-135m", "qwen2.5-coder-1.5b", "gateway"]),
        (CLAUDE, ["claude_cli", "gateway"]),
        (TWO_MODELS + CLAUDE, ["smollm2-135m", "qwen2.5-coder-1.5b", "claude_cli", "gateway"]),
        ('[ray]\nshared_models = ["smollm2-135m", "qwen2.5-coder-1.5b"]', ["shared_models", "gateway"]),
        ('[upstreams.vllm]\nurl = "http://127.0.0.1:8000/v1"', ["gateway"]),
        (
            '[embedded]\nmodel = "hf:a/b/c.gguf"',
            ["hf--a--b--c", "gateway"],
        ),
    ],
)
def test_deployments_of_settings(planned: Plan, text: str, expected: list[str]) -> None:
    assert names(planned(text)) == expected


def test_options_of_deployment(planned: Plan) -> None:
    model, gateway = planned(
        '[ray_deployments."smollm2-135m"]\nmax_replicas = 4\nnum_gpus = 0.5\nnum_cpus = 2\ntarget_tokens = 9000\n'
        'target_requests = 3\nresource = "fast"\ndrain_timeout_s = 7\n[embedded]\nmax_concurrency = 5\n'
    )
    autoscaling = model.options["autoscaling_config"]
    assert (autoscaling["min_replicas"], autoscaling["max_replicas"]) == (1, 4)
    assert autoscaling["target_ongoing_requests"] == 3
    assert autoscaling["policy"]["policy_kwargs"] == {"target_tokens": 9000}
    assert model.options["ray_actor_options"] == {"num_cpus": 2, "num_gpus": 0.5, "resources": {"fast": 1}}
    assert model.options["graceful_shutdown_timeout_s"] == 7
    assert model.options["max_ongoing_requests"] == 7
    assert model.options["max_queued_requests"] == 64
    assert "request_router_class" in model.options["request_router_config"]
    assert "policy" not in gateway.options["autoscaling_config"]


def test_claude_needs_nodes_with_login(planned: Plan) -> None:
    claude, _ = planned(CLAUDE)
    assert claude.options["ray_actor_options"]["resources"] == {"claude_login": 1}
    (message,) = missing_nodes([claude], [{"CPU": 4}, {"CPU": 2}])
    assert message == (
        "expected a node with 1 CPU, 1 claude_login for claude_cli, got 2 nodes: no node has claude_login; "
        "start Ray on a machine where `claude` is logged in with --resources='{\"claude_login\": 1}'"
    )
    assert not missing_nodes([claude], [{"CPU": 4}, {"CPU": 2, "claude_login": 1}])


def test_resources_must_be_on_one_node(planned: Plan) -> None:
    (message,) = missing_nodes(
        planned('[ray_deployments."smollm2-135m"]\nnum_gpus = 1\n')[:1], [{"CPU": 4}, {"GPU": 1, "CPU": 0.5}]
    )
    assert message.endswith("got 2 nodes: no single node has all of it")


def test_replicas_of_models_get_no_keys(planned: Plan) -> None:
    model, gateway = planned(f'[server]\napi_keys = ["{"k" * 32}"]\n')
    assert gateway.config.server.api_keys
    assert not model.config.server.api_keys


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[ray_deployments.smollm]\nmax_replicas = 2\n[ray]\nmodels=["smollm2-135m"]',
            "no deployment has the name 'smollm'",
        ),
        ("[ray_deployments.smollm]\nmax_replicas = 2\n", "no deployment has the name 'smollm'"),
        ("[ray_deployments.claude_cli]\nmax_replicas = 2\n", "no deployment has the name 'claude_cli'"),
        ("[ray_deployments.gateway]\nmin_replicas = 0\n", "expected at least 1, because the gateway admits requests"),
        ("[ray_deployments.gateway]\nmin_replicas = 3\nmax_replicas = 2\n", "expected at least min_replicas, 3, got 2"),
        ("[ray_deployments.gateway]\nnum_cpus = 1.5\n", "expected a whole number or less than 1, got 1.5"),
        ("[ray_deployments.gateway]\nreplicas = 2\n", "unknown setting 'ray_deployments.gateway.replicas'"),
        ('[ray]\nproxies = "all"\n', "unknown 'all'"),
        ('[ray]\nmodels = ["smollm2-135m"]\nshared_models = ["smollm2-135m"]\n', "expected each model once"),
        ('[ray]\nmodels = ["no-such-model"]\n', "no-such-model"),
    ],
)
def test_wrong_settings_are_rejected(planned: Plan, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        planned(text)


def test_serve_config_has_all_deployments(planned: Plan) -> None:
    plans = planned('[server]\nport = 9000\n[ray]\nproxies = "every_node"\n')
    described: dict[str, Any] = serve_config(plans[-1].config, plans, "/etc/dragoman.toml")
    assert described["proxy_location"] == "EveryNode"
    assert described["http_options"] == {"host": "127.0.0.1", "port": 9000}
    (application,) = described["applications"]
    assert application["args"] == {"config": "/etc/dragoman.toml"}
    assert [each["name"] for each in application["deployments"]] == ["smollm2-135m", "gateway"]


def test_several_gateways_need_shared_state(planned: Plan) -> None:
    several = "[ray_deployments.gateway]\nmax_replicas = 2\n"
    assert "state.url" in warnings(planned(several)[-1].config)[0]
    assert not warnings(planned(several + '[state]\nurl = "redis://127.0.0.1:6379/0"\n')[-1].config)
    assert not warnings(planned("")[-1].config)
