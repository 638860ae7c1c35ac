"""Checks this machine: settings, extras, weights, agents, and the installed `claude`."""

import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from dragoman import agents
from dragoman import config as settings
from dragoman import extras as optional
from dragoman.backends.claude_cli.config import ClaudeCliConfig
from dragoman.backends.embedded import weights
from dragoman.catalog import models
from dragoman.cli._common import missing_extras_message
from dragoman.cli.doctor.finding import Finding, Verdict, check
from dragoman.compose import embedded_weights
from dragoman.compose.costs import describe_vendor_prices
from dragoman.config.values import is_secret_setting, toml
from dragoman.core.errors import ConfigError, DragomanError

_EXTRAS: Final = [extra for extra in optional.PACKAGES if extra != "guard"]
"""The extra of the guard is part of the server's."""
_MODES: Final = {
    "native": "asked natively, with the client's tools",
    "text": "asked by text (`claude update` brings a version that is asked natively, unless the settings say text)",
}
_VERSION_S: Final = 5.0
"""Time for an agent to report its version; some take a second to start."""
_CLAUDE_S: Final = 10.0
"""Time for both queries of `claude`, which take 0.5 s, or a few seconds on a busy machine."""


def wrong_settings(path: Path | None, error: ConfigError) -> Finding:
    """Returns the finding for settings that cannot be used."""
    if error.message.endswith(", from command line"):
        return check("settings", "no", error.message)
    if path is None:
        return check("settings", "no", error.message, "correct the variable; `env | grep DRAGOMAN_` shows all")
    exists = path.is_file()
    fix = f"edit {path}, then: dragoman doctor" if exists else "name one that is there: dragoman doctor --config FILE"
    return check("settings", "no", error.message, fix)


def settings_found(path: Path | None, config: settings.Config, origin: Mapping[str, str]) -> list[Finding]:
    """Returns findings about the settings file, the settings that differ from their defaults, and prices."""
    changed = tuple(_changed(config, origin))
    text = str(path) if path else f"no file (defaults); create it at {settings.default_path()}"
    lines = (f"set: {' · '.join(changed)}",) if changed else ()
    unknown = [Finding("settings", "note", text) for text in settings.unknown_variables(os.environ)]
    if loose := settings.readable_secrets(path, config):
        unknown.append(Finding("settings", "note", loose))
    if prices := describe_vendor_prices(config):
        unknown.append(check("prices", "note", prices))
    return [Finding("settings", "ok", text, lines=lines), *unknown]


def _changed(config: settings.Config, origin: Mapping[str, str]) -> Iterator[str]:
    """Yields the settings that differ from their defaults, without keys; servers have findings of their own."""
    defaults = {key: default for key, _, default, _ in settings.setting_docs()}
    for key, default in defaults.items():
        value = attrgetter(key)(config)
        if value != default and key in origin:
            value_text = _value_text(key, value)
            source = origin.get(key, "")
            yield f"{key} = {value_text}" + (f" ({source})" if source == "command line" or source in os.environ else "")
    if config.model_aliases:
        yield (
            f"{len(config.model_aliases)} aliases"
            if len(config.model_aliases) > 1
            else f"alias {next(iter(config.model_aliases))}"
        )


def _value_text(key: str, value: object) -> str:
    if not is_secret_setting(key, value):
        return toml(value)
    return f"{len(value)} not shown" if isinstance(value, tuple) else "not shown"


def hide_credentials(url: str) -> str:
    """Returns the URL without a password."""
    at = urlsplit(url)
    return at._replace(netloc=at.netloc.rpartition("@")[2]).geturl()


def extras_findings(*required: str) -> Finding:
    """Returns which extras are installed, and which required one is missing."""
    others = optional.missing_extras(*_EXTRAS)
    installed = [extra for extra in _EXTRAS if extra not in others]
    if missing := missing_extras_message(*required):
        return check("extras", "no", missing)
    text = ", ".join(installed) or "none"
    return Finding("extras", "ok", f"{text}; not installed: {', '.join(others)}" if others else text)


def weights_found(
    config: settings.Config,
    *,
    served: bool,
    thorough: bool = False,
    report_progress: Callable[[str], None] = lambda text: None,
) -> list[Finding]:
    """Returns the downloaded weights, and whether those of the embedded model are usable if it is served.

    Args:
        config: the settings.
        served: whether the embedded model is served.
        thorough: whether to verify the checksums of all downloaded weights.
        report_progress: receives the progress.
    """
    name = config.embedded.model or models.default().name
    used = _embedded_finding(config, name) if served else None
    downloaded = tuple(_downloaded_models())
    lines = (f"downloaded: {', '.join(downloaded)}",) if downloaded else ()
    if used is None:
        text = (
            "not used by these settings, which name other models" if downloaded else "none downloaded, and none needed"
        )
        used = Finding("weights", "note", text)
    return [
        replace(used, lines=lines),
        *(_verified_weights(name if served else "", report_progress) if thorough else ()),
    ]


def _embedded_finding(config: settings.Config, name: str) -> Finding:
    """Returns the finding for the embedded model."""
    try:
        embedded_weights.embedded_model_name(config.embedded)
        if not models.find(name) or weights.is_downloaded(name):
            path = embedded_weights.find_weights(replace(config.embedded, model=name))
            size = weights.format_size(path.stat().st_size)
            return Finding("weights", "ok", f"{name}, {size}, in {path.parent}")
    except DragomanError as error:
        return check("weights", "no", error.message, "dragoman pull --list")
    text = f"{name} is not downloaded yet; `dragoman serve` downloads it"
    return Finding("weights", "note", text, f"dragoman pull {name}")


def _verified_weights(used: str, report_progress: Callable[[str], None]) -> Iterator[Finding]:
    """Yields a finding for each model whose weights are downloaded; only damage of the `used` one is a problem."""
    listed = [model.name for model in models.models()]
    used = (
        models.get(used).name
        if used and not embedded_weights.is_weights_file(used) and not used.startswith("hf:")
        else used
    )
    others = [used] if used.startswith("hf:") else []
    for name in [name for name in (*others, *listed) if weights.is_downloaded(name)]:

        def progress(done: int, total: int, what: str, name: str = name) -> None:
            report_progress(f"{what} {name}, {done * 100 // max(total, 1)} %")

        what = f"weights {name}"
        try:
            differs = weights.find_mismatch(name, progress, thorough=True)
        except ConfigError as error:
            yield check(what, "no" if name == used else "note", error.message)
            continue
        if differs is None:
            yield Finding(what, "ok", "read completely: the checksum is right")
            continue
        text = f"expected {differs.expected}, got {differs.actual}"
        yield Finding(what, "no" if name == used else "note", text, f"dragoman pull {name}")


def _downloaded_models() -> Iterator[str]:
    """Yields the names and sizes of downloaded weights, smallest first."""
    folder = weights.cache_dir() / "weights"
    try:
        sizes = sorted((file.stat().st_size, file.stem) for file in folder.glob("*.gguf"))
    except OSError:
        return
    yield from (f"{name} {weights.format_size(size)}" for size, name in sizes)


async def hardware_found(config: settings.Config) -> list[Finding]:
    """Returns what embedded models run on, and the build of the engine that would use a GPU which is here."""
    if optional.missing_extras("embedded"):
        return []
    from dragoman.backends.embedded.engine.device_check import check_devices

    try:
        found = await asyncio.to_thread(check_devices, config.embedded)
    except ConfigError as error:
        return [check("hardware", "no", error.message)]
    text = f"{found.text} ({found.reason})" if found.reason else found.text
    return [Finding("hardware", "note" if found.reason else "ok", text, found.command)]


async def agents_found() -> list[Finding]:
    """Returns the installed agents with their versions."""
    programs = [(name, shutil.which(program)) for name in agents.names() for program in agents.get(name).programs[:1]]
    installed = [(name, path) for name, path in programs if path]
    if not installed:
        install_commands = tuple(agents.get(name).install for name in agents.names() if agents.get(name).install)
        return [Finding("agents", "note", "none is installed; install one:", lines=install_commands)]
    versions = await asyncio.gather(*(_version(path) for _, path in installed))
    starting = [(name, version) for (name, _), version in zip(installed, versions, strict=True) if version is not None]
    text = ", ".join(f"{agents.get(name).title} {version}".rstrip() for name, version in starting)
    lines = " | ".join(f"dragoman run {name}" for name, _ in starting)
    works = [Finding("agents", "ok", text, lines)] if starting else []
    return [
        *works,
        *(_broken_agent(name, path) for (name, path), v in zip(installed, versions, strict=True) if v is None),
    ]


def _broken_agent(name: str, path: str) -> Finding:
    """Returns the finding for an agent that is installed and does not start."""
    agent = agents.get(name)
    text = f"{agent.title} at {path} does not start"
    return Finding(name, "note", text, optional.npm_postinstall(path) or agent.install)


async def _version(program: str) -> str | None:
    """Returns the first version number in the program's output; "" if there is none in time, None if the program fails.

    It runs in an empty home folder, so that it cannot read or change files of the user.
    """
    with tempfile.TemporaryDirectory(prefix="dragoman-") as home:
        places = ("HOME", "USERPROFILE", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
        try:
            child = await asyncio.create_subprocess_exec(
                *(program, "--version"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={**os.environ, **dict.fromkeys(places, home)},
                cwd=home,
                start_new_session=True,
            )
        except OSError:
            return None
        output = b""
        try:
            async with asyncio.timeout(_VERSION_S):
                output, _ = await child.communicate()
        except TimeoutError:
            with suppress(ProcessLookupError):
                if sys.platform == "win32":
                    child.kill()
                else:
                    os.killpg(child.pid, signal.SIGKILL)
            await child.wait()
            return ""
    number = re.search(rb"\d+(?:\.\d+)+", output)
    return None if child.returncode else number[0].decode() if number else ""


async def claude(config: ClaudeCliConfig) -> list[Finding]:
    """Returns the finding for `claude` and its login; none if it is not used."""
    verdict: Verdict = "no" if config.enabled else "note"
    try:
        async with asyncio.timeout(_CLAUDE_S):
            return await _claude(config, verdict)
    except ImportError:
        return [check("claude", "no", missing_extras_message("server"))] if config.enabled else []
    except TimeoutError:
        text = f"{config.command} --version, or auth status, prints nothing for {_CLAUDE_S:g} s"
        return [Finding("claude", verdict, text, f"try it by hand: {config.command} --version")]
    except ConfigError as error:
        return [check("claude", verdict, error.message, "set claude_cli.command to the program's path")]


async def _claude(config: ClaudeCliConfig, verdict: Verdict) -> list[Finding]:
    from dragoman.backends.claude_cli import auth_status, discovery
    from dragoman.backends.claude_cli.errors import NOT_LOGGED_IN

    installed = await discovery.find_claude(config, os.environ)
    use = "" if config.enabled else "dragoman serve --claude-cli"
    program = Finding("claude", "ok", f"{installed.name} at {installed.path}, {_MODES[installed.mode]}")
    status = await auth_status.query_auth_status(installed, config, os.environ)
    match status.is_logged_in:
        case True:
            text = f"{status.method or 'logged in'}" + ("" if config.enabled else "; its models can be served")
            return [program, Finding("claude's login", "ok", text, use)]
        case False:
            return [program, check("claude's login", verdict, NOT_LOGGED_IN)]
        case None:
            text = f"claude {installed.name} does not report a login; run claude, and type /login if it asks for it"
            return [program, Finding("claude's login", "note", text)]
