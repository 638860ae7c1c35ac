"""The files in deploy/ agree with the code: ports, paths, variables, options, extras and shutdown times."""

import json
import plistlib
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman import cli
from dragoman import config as settings
from dragoman.config.server import ServerConfig
from dragoman.core.errors import ConfigError
from dragoman.gateway.gateway import Gateway
from dragoman.server.app import App
from support.paths import ROOT

DEPLOY = ROOT / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
SERVER = ServerConfig()
KEY = {"DRAGOMAN_SERVER_API_KEYS": "a-long-key"}


def read(name: str) -> str:
    return (DEPLOY / name).read_text()


def dockerfile() -> list[tuple[str, str]]:
    lines = [line for line in read("Dockerfile").splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines())]


def instructions(instruction: str) -> list[str]:
    return [rest for name, rest in dockerfile() if name == instruction]


def image_environment() -> dict[str, str]:
    (variables,) = instructions("ENV")
    return dict(each.split("=", 1) for each in shlex.split(variables))


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(read("compose.yaml"))
    return loaded["services"]


def unit(name: str) -> dict[str, list[str]]:
    """The settings of a unit by name; in systemd, a setting may occur several times."""
    found: dict[str, list[str]] = {}
    for line in read(name).splitlines():
        if line and not line.startswith(("#", "[")):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def commands() -> Iterator[tuple[str, list[str]]]:
    """All `dragoman` command lines in these files."""
    (entry,), (usual,) = instructions("ENTRYPOINT"), instructions("CMD")
    yield "Dockerfile", [*json.loads(entry), *json.loads(usual)]
    yield "compose.yaml", ["dragoman", *compose()["dragoman"]["command"]]
    for name in ("dragoman.service", "dragoman-user.service"):
        yield name, shlex.split(unit(name)["ExecStart"][0])
    yield "dragoman.plist", plistlib.loads(read("dragoman.plist").encode())["ProgramArguments"]


@pytest.mark.parametrize(("name", "command"), list(commands()), ids=lambda what: what if isinstance(what, str) else "")
def test_deployed_commands_are_valid(name: str, command: list[str]) -> None:
    assert Path(command[0]).name == "dragoman"
    assert cli.parser().parse_args(command[1:]).command == "serve"


def test_image_contains_the_package_files() -> None:
    (extras,) = [rest.removeprefix("EXTRAS=") for rest in instructions("ARG") if rest.startswith("EXTRAS=")]
    assert set(extras.split(",")) <= set(EXTRAS)
    (python,) = [rest.removeprefix("PYTHON=") for rest in instructions("ARG") if rest.startswith("PYTHON=")]
    assert f"Programming Language :: Python :: {python.split('-')[0]}" in PROJECT["classifiers"]
    needed = {"pyproject.toml", "src", "deploy/*.lock", PROJECT["readme"], *PROJECT["license-files"]}
    copied = {name for rest in instructions("COPY") if not rest.startswith("--from") for name in rest.split()[:-1]}
    let_in = {line[1:] for line in read("Dockerfile.dockerignore").splitlines() if line.startswith("!")}
    assert copied == let_in == needed


@pytest.mark.parametrize("extras", ["server", "server,embedded", "server,limits,state"])
def test_lock_file_has_all_packages_with_hashes_and_no_index(extras: str) -> None:
    """Each package of the extras occurs once, or once for each platform, with hashes, without the URL of an index."""
    text = read(f"{extras}.lock")
    blocks = re.split(r"\n(?=[a-z])", re.sub(r"^ *#.*\n", "", text, flags=re.M).strip())
    names = [block.partition("==")[0] for block in blocks]
    assert all(re.search(r"==\S+( ; [^\\]*)? \\\n +--hash=sha256:[0-9a-f]{64}", block) for block in blocks)
    everywhere = [block.partition("==")[0] for block in blocks if " ; " not in block.partition("\n")[0]]
    assert len(everywhere) == len(set(everywhere))
    named = [PROJECT["dependencies"], *(EXTRAS[extra] for extra in extras.split(","))]
    assert {re.split(r"[<>=\[]", each)[0].replace(".", "-") for needs in named for each in needs} <= set(names)
    assert "://" not in text
    assert "--index" not in text


def test_image_exposes_port_and_requires_api_key() -> None:
    """The image does not start without an API key."""
    environ = {key: value for key, value in image_environment().items() if key.startswith("DRAGOMAN_")}
    assert settings.unknown_variables(environ) == []
    with pytest.raises(ConfigError, match=r"set server\.api_keys"):
        settings.load(None, environ, {})
    config, _ = settings.load(None, environ | KEY, {})
    assert instructions("EXPOSE") == [str(config.server.port)]
    assert instructions("VOLUME") == [environ["DRAGOMAN_HOME"]]
    assert any(environ["DRAGOMAN_HOME"] in run and "--owner dragoman" in run for run in instructions("RUN"))


def test_image_health_check_uses_ready_endpoint() -> None:
    (check,) = instructions("HEALTHCHECK")
    (url,) = re.findall(r"'(http://[^']+)'", check)
    assert url == f"http://127.0.0.1:{SERVER.port}/ready"
    assert "/ready" in App(Gateway([]), SERVER)._gets


def test_image_runs_as_unprivileged_user() -> None:
    last = max(i for i, (name, _) in enumerate(dockerfile()) if name == "FROM")
    (user,) = [rest for name, rest in dockerfile()[last:] if name == "USER"]
    uid, gid = user.split(":")
    assert uid == gid != "0"
    assert any(f"--uid {uid} --gid {gid}" in run for run in instructions("RUN"))


def test_compose_services_match_settings() -> None:
    ours, behind = compose()["dragoman"], compose()["llama"]
    environ = {**image_environment(), **ours["environment"]}
    assert environ["DRAGOMAN_SERVER_API_KEYS"].startswith("${DRAGOMAN_SERVER_API_KEYS:?"), "it does not start without"
    environ = {key: value for key, value in environ.items() if key.startswith("DRAGOMAN_")} | KEY
    assert settings.unknown_variables(environ) == []
    command = cli.parser().parse_args(ours["command"])
    config, _ = settings.load(None, environ, {"upstreams.behind.url": command.upstream})
    assert config.server.allowed_hosts == ("dragoman",)
    assert config.upstreams["behind"].url == f"http://llama:{behind['environment']['LLAMA_ARG_PORT']}/v1"
    assert ours["ports"] == [f"127.0.0.1:{SERVER.port}:{SERVER.port}"], "on loopback alone"
    assert "ports" not in behind, "asked through the gateway alone"
    assert ours["volumes"] == [f"state:{environ['DRAGOMAN_HOME']}"]
    assert (DEPLOY / ours["build"]["context"] / ours["build"]["dockerfile"]).samefile(DEPLOY / "Dockerfile")
    assert set(ours["build"]["args"]["EXTRAS"].split(",")) <= set(EXTRAS)
    assert ours["depends_on"]["llama"]["condition"] == "service_healthy"
    assert "healthcheck" in behind
    assert int(ours["stop_grace_period"].removesuffix("s")) > SERVER.graceful_shutdown_s


@pytest.mark.parametrize("name", ["dragoman.service", "dragoman-user.service"])
def test_systemd_unit_allows_graceful_shutdown(name: str) -> None:
    told = unit(name)
    assert int(told["TimeoutStopSec"][0]) > SERVER.graceful_shutdown_s
    assert told["KillMode"] == ["mixed"], "the engine is ended by the gateway, behind its answers"
    assert told["RestartPreventExitStatus"] == ["2"], "the status of wrong settings (cli/__init__.py)"
    assert "\\" not in read(name)


def test_system_service_finds_settings_and_state(monkeypatch: pytest.MonkeyPatch) -> None:
    told = unit("dragoman.service")
    environ = dict(each.split("=", 1) for each in told["Environment"][0].replace("%S", "/var/lib").split())
    monkeypatch.setenv("XDG_CONFIG_HOME", environ["XDG_CONFIG_HOME"])
    assert str(settings.default_path()) == "/etc/dragoman/config.toml"
    assert "/etc/dragoman/config.toml" in read("dragoman.service")
    assert environ["DRAGOMAN_HOME"] == f"/var/lib/{told['StateDirectory'][0]}"


def test_launchd_agent_restarts_and_allows_graceful_shutdown() -> None:
    told = plistlib.loads(read("dragoman.plist").encode())
    assert told["Label"] == "local.dragoman"
    assert told["ExitTimeOut"] > SERVER.graceful_shutdown_s
    assert told["KeepAlive"] == {"SuccessfulExit": False}
    paths = [told["ProgramArguments"][0], told["StandardOutPath"], told["StandardErrorPath"]]
    assert all(path.startswith("/Users/me/") for path in paths), "what the line with sed writes the home into"
