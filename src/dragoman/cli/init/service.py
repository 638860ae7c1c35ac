"""A service that starts the gateway at login: a systemd user unit on Linux, a launchd agent on macOS.

deploy/ has the same files for those who write them by hand; a test compares them.
"""

import os
import plistlib
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

LABEL: Final = "local.dragoman"
_FORWARDED: Final = ("DRAGOMAN_HOME", "HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS", "XDG_CACHE_HOME")
"""Variables that say where models are, which a service does not get from the shell."""
_SYSTEM_FOLDERS: Final = ("/usr/local/bin", "/usr/bin", "/bin")
_UNIT: Final = """\
# Written by `dragoman init`. After a change: systemctl --user daemon-reload && systemctl --user restart dragoman
# To let it run while you are not logged in: loginctl enable-linger
[Unit]
Description=Dragoman: tool calls between any agent and any model

[Service]
Type=exec
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
{environment}
Restart=on-failure
RestartSec=2
# Invalid settings stay invalid.
RestartPreventExitStatus=2
# Only the gateway gets the signal: it completes running responses, and then ends its engine. They have 60 s.
KillMode=mixed
TimeoutStopSec=75

LockPersonality=yes
NoNewPrivileges=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""


class Service(NamedTuple):
    """A service of the user, not installed yet."""

    title: str
    """What manages it."""
    path: Path
    text: str
    enable: tuple[tuple[str, ...], ...]
    """Commands that start it now and at each login."""
    secrets: str
    """How it gets variables with API keys."""

    @property
    def enable_line(self) -> str:
        """The commands as one line for a shell."""
        return " && ".join(map(shlex.join, self.enable))


def find_program() -> list[str]:
    """Returns the command that starts this `dragoman`, by its full path."""
    folder = Path(sys.executable).parent
    installed = shutil.which("dragoman")
    if installed and Path(installed).resolve().parent == folder.resolve():
        return [installed]
    own = folder / ("dragoman.exe" if sys.platform == "win32" else "dragoman")
    return [str(own)] if own.is_file() else [sys.executable, "-m", "dragoman"]


def find_service(command: Sequence[str], programs: Sequence[str], environ: Mapping[str, str]) -> Service | None:
    """Returns the service for this system, or None if the system has neither systemd nor launchd.

    Args:
        command: the command that starts the gateway.
        programs: programs that the gateway starts.
        environ: the user's variables.
    """
    if sys.platform == "linux" and shutil.which("systemctl"):
        return systemd_service(command, programs, environ, Path.home())
    if sys.platform == "darwin":
        return launchd_service(command, programs, environ, Path.home())
    return None


def systemd_service(command: Sequence[str], programs: Sequence[str], environ: Mapping[str, str], home: Path) -> Service:
    """Returns the user unit.

    Args:
        command: the command that starts the gateway.
        programs: programs that the gateway starts.
        environ: the user's variables.
        home: the user's home folder.
    """
    base = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    variables = {"PATH": _search_path(command, programs, home), **_forwarded(environ)}
    keys = base / "dragoman" / "environment"
    lines = [f"Environment={_systemd_word(f'{name}={value}')}" for name, value in variables.items()]
    lines += ["# API keys, one a line, such as VLLM_API_KEY=…", f"EnvironmentFile=-{_specifiers(str(keys))}", ""]
    text = _UNIT.format(
        command=" ".join(_systemd_word(word.replace("$", "$$")) for word in command), environment="\n".join(lines)
    )
    reload, start = ("systemctl", "--user", "daemon-reload"), ("systemctl", "--user", "enable", "--now", "dragoman")
    path = base / "systemd" / "user" / "dragoman.service"
    return Service("systemd", path, text, (reload, start), f"write them into {keys} (chmod 600)")


def launchd_service(command: Sequence[str], programs: Sequence[str], environ: Mapping[str, str], home: Path) -> Service:
    """Returns the launchd agent.

    Args:
        command: the command that starts the gateway.
        programs: programs that the gateway starts.
        environ: the user's variables.
        home: the user's home folder.
    """
    path = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    log = str(home / "Library" / "Logs" / "dragoman.log")
    search_path = _search_path(command, programs, home, "/opt/homebrew/bin")
    text = plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": list(command),
            "EnvironmentVariables": {"PATH": search_path, **_forwarded(environ)},
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 10,
            "ExitTimeOut": 75,
            "StandardOutPath": log,
            "StandardErrorPath": log,
        },
        sort_keys=False,
    ).decode()
    user = os.getuid() if sys.platform != "win32" else 0
    start = ("launchctl", "bootstrap", f"gui/{user}", str(path))
    return Service("launchd", path, text, (start,), f"add them to EnvironmentVariables in {path}")


def _search_path(command: Sequence[str], programs: Sequence[str], home: Path, *more: str) -> str:
    """Returns the value of PATH: folders of these programs, the user's own, and those of the system."""
    installed = [path for program in programs if (path := shutil.which(program))]
    folders = [str(Path(path).parent) for path in (command[0], *installed)]
    return os.pathsep.join(dict.fromkeys([*folders, str(home / ".local" / "bin"), *more, *_SYSTEM_FOLDERS]))


def _forwarded(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[name] for name in _FORWARDED if environ.get(name)}


def _systemd_word(text: str) -> str:
    """Returns a word as systemd reads it: in quotes where necessary, without specifiers and variables.

    Source: systemd.service(5), COMMAND LINES; systemd.exec(5), Environment= (256).
    """
    escaped = _specifiers(text)
    if not any(c in text for c in " \t\"'\\;"):
        return escaped
    return '"' + escaped.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _specifiers(text: str) -> str:
    return text.replace("%", "%%")
