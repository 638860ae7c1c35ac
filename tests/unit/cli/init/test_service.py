"""The service that `dragoman init` writes: the same as in deploy/, with the user's own paths."""

import plistlib
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from dragoman.cli.init.service import find_program, launchd_service, systemd_service
from support.paths import ROOT

COMMAND = ["/home/ada/.local/bin/dragoman", "serve", "--config", "/home/ada/my settings/100%.toml"]
HOME = Path("/home/ada")


def settings(text: str) -> dict[str, str]:
    """The settings of a unit without those that depend on the user."""
    lines = [line for line in text.splitlines() if "=" in line and not line.startswith("#")]
    pairs = dict(line.split("=", 1) for line in lines)
    return {name: value for name, value in pairs.items() if not name.startswith(("Environment", "ExecStart"))}


def test_unit_has_the_settings_of_the_deployed_one() -> None:
    unit = systemd_service(COMMAND, [], {}, HOME)
    assert settings(unit.text) == settings((ROOT / "deploy" / "dragoman-user.service").read_text())
    assert unit.path == HOME / ".config/systemd/user/dragoman.service"
    assert unit.enable_line == "systemctl --user daemon-reload && systemctl --user enable --now dragoman"


def test_unit_escapes_paths() -> None:
    text = systemd_service(COMMAND, [], {"HF_HOME": "/a b/$x"}, HOME).text
    assert 'ExecStart=/home/ada/.local/bin/dragoman serve --config "/home/ada/my settings/100%%.toml"' in text
    assert 'Environment="HF_HOME=/a b/$x"' in text
    assert (
        "ExecStart=/a/dragoman serve --config /$$x"
        in systemd_service(["/a/dragoman", "serve", "--config", "/$x"], [], {}, HOME).text
    )


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "dragoman.service"
    unit.write_text(systemd_service(["/bin/true", *COMMAND[1:]], [], {}, HOME).text)
    done = subprocess.run(["systemd-analyze", "--user", "verify", str(unit)], capture_output=True, text=True)
    assert "dragoman.service" not in done.stderr, done.stderr


def test_launchd_agent_has_the_settings_of_the_deployed_one() -> None:
    agent = launchd_service(COMMAND, [], {"OLLAMA_MODELS": "/models"}, Path("/Users/me"))
    own = plistlib.loads(agent.text.encode())
    deployed = plistlib.loads((ROOT / "deploy" / "dragoman.plist").read_bytes())
    assert own.pop("ProgramArguments") == COMMAND
    variables = own.pop("EnvironmentVariables")
    del deployed["ProgramArguments"], deployed["EnvironmentVariables"]
    assert own == deployed
    assert variables["OLLAMA_MODELS"] == "/models"
    assert "/opt/homebrew/bin" in variables["PATH"].split(":")
    assert agent.path == Path("/Users/me/Library/LaunchAgents/local.dragoman.plist")
    assert shlex.split(agent.enable_line)[:2] == ["launchctl", "bootstrap"]


def test_search_path_has_the_folder_of_programs() -> None:
    text = systemd_service(COMMAND, ["sh"], {}, HOME).text
    folder = Path(shutil.which("sh") or "").parent
    assert f"PATH=/home/ada/.local/bin:{folder}" in text


def test_program_is_started_by_its_path() -> None:
    assert Path(find_program()[0]).is_absolute()
