"""The files in deploy/kubernetes: they match their schemas, one another, the image and the settings."""

import contextlib
import importlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman import cli
from dragoman import config as settings
from dragoman.config import Config
from support.gateway import Gateway
from support.paths import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
RESOURCES: dict[str, Any] = {path.name: yaml.safe_load(path.read_text()) for path in FOLDER.glob("*.yaml")}
KUSTOMIZATION = RESOURCES.pop("kustomization.yaml")
POD = RESOURCES["deployment.yaml"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
SECRET = dict(re.findall(r"--from-literal=(\w+)=(\S+)", (FOLDER / "kustomization.yaml").read_text()))
VERSIONS = ("1.30", "1.37")


def config() -> Config:
    loaded, _ = settings.load(FOLDER / "config.toml", SECRET, {"server.host": "0.0.0.0"})
    return loaded


def test_kustomization_lists_all_files() -> None:
    assert sorted(KUSTOMIZATION["resources"]) == sorted(RESOURCES)
    (generated,) = KUSTOMIZATION["configMapGenerator"]
    assert generated["files"] == ["config.toml"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", list(RESOURCES))
def test_resource_is_valid(name: str, version: str) -> None:
    """Each resource is valid by the published schemas, in which unknown fields are errors."""
    validator = importlib.import_module("kubernetes_validate")  # of the group `servers`
    validator.validate(RESOURCES[name], version, strict=True)


def test_kustomize_builds_all_resources() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl")
    built = subprocess.run(["kubectl", "kustomize", str(FOLDER)], check=True, capture_output=True, text=True)
    found = {each["kind"]: each for each in yaml.safe_load_all(built.stdout)}
    assert found.keys() == {"ConfigMap", *(each["kind"] for each in RESOURCES.values())}
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (volume,) = (each for each in pod["volumes"] if each["name"] == "config")
    assert volume["configMap"]["name"] == found["ConfigMap"]["metadata"]["name"]
    assert pod["containers"][0]["image"].startswith("registry.example.com/dragoman:")


def test_labels_select_the_pods() -> None:
    labels = RESOURCES["deployment.yaml"]["spec"]["template"]["metadata"]["labels"]
    assert RESOURCES["deployment.yaml"]["spec"]["selector"]["matchLabels"] == labels
    assert RESOURCES["service.yaml"]["spec"]["selector"] == labels
    assert RESOURCES["pod-disruption-budget.yaml"]["spec"]["selector"]["matchLabels"] == labels
    assert RESOURCES["network-policy.yaml"]["spec"]["podSelector"]["matchLabels"] == labels
    target = RESOURCES["autoscaler.yaml"]["spec"]["scaleTargetRef"]
    assert target == {key: RESOURCES["deployment.yaml"][key] for key in ("apiVersion", "kind")} | {"name": "dragoman"}


def test_command_and_variables_are_valid() -> None:
    args = cli.parser().parse_args(CONTAINER["args"])
    assert args.command == "serve"
    (mount,) = (each for each in CONTAINER["volumeMounts"] if each["name"] == "config")
    assert str(args.config) == f"{mount['mountPath']}/config.toml"
    assert settings.unknown_variables(SECRET) == []
    assert config().state.url
    assert config().state.database_url
    assert config().response_store.seal_key
    assert CONTAINER["ports"] == [{"name": "http", "containerPort": config().server.port}]
    assert POD["enableServiceLinks"] is False, "the variables of the Service begin with DRAGOMAN_ too"


def test_grace_period_has_time_for_delay_and_running_responses() -> None:
    server = config().server
    needed_s = server.drain_delay_s + server.graceful_shutdown_s
    assert POD["terminationGracePeriodSeconds"] >= needed_s + 10
    ready = CONTAINER["readinessProbe"]
    assert ready["periodSeconds"] * ready["failureThreshold"] < server.drain_delay_s


def test_container_is_restricted() -> None:
    """The Pod fulfils the `restricted` Pod Security Standard, and has the user of the image."""
    user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "deploy" / "Dockerfile").read_text(), re.M)
    assert user is not None
    context = POD["securityContext"]
    assert (str(context["runAsUser"]), str(context["runAsGroup"])) == user.groups()
    assert context["runAsNonRoot"] is True
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = {each["mountPath"] for each in CONTAINER["volumeMounts"] if not each.get("readOnly")}
    assert writable == {"/tmp", "/var/lib/dragoman"}


def test_probes_succeed_with_these_settings(tmp_path: Path) -> None:
    """A gateway with these settings, without the stores, answers the probes that arrive at another address."""
    variables = {key: value for key, value in SECRET.items() if not key.endswith("_URL")}
    extra = {"server.host": "0.0.0.0", "embedded.enabled": "false", "server.workers": 1}
    gateway = Gateway(tmp_path, "--config", str(FOLDER / "config.toml"), settings=extra, variables=variables)
    with contextlib.ExitStack() as opened:
        opened.callback(gateway.ended)
        opened.callback(gateway.process.kill)  # it would drain for ten seconds
        gateway.ready()
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = CONTAINER[name]["httpGet"]
            headers = {each["name"].lower(): each["value"] for each in probe["httpHeaders"]}
            port = gateway.url.rpartition(":")[2]
            with gateway.client(**headers) as client:
                answer = client.get(f"http://127.0.0.1:{port}{probe['path']}")
            assert answer.status_code == 200, (name, answer.text)
            assert "status" in answer.json() or json.loads(answer.text)["ready"]
