"""`dragoman init`: at a real terminal, in a pipe and without questions; `dragoman serve` accepts what it writes."""

import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.terminal import Terminal

from dragoman.backends.probe import discover
from dragoman.cli import parser
from dragoman.cli.init import report
from dragoman.cli.init.choices import find_choice, list_choices
from dragoman.cli.init.machine import Machine, examine_machine
from dragoman.cli.init.measure import with_context_window
from dragoman.cli.init.settings_text import check_settings, format_tables
from dragoman.cli.init.tables import settings_tables
from dragoman.config import load
from support.base_environment import dragoman
from support.gateway import DEADLINE_S, environment, link_weights
from support.gateway import run as run_command
from support.gguf_files import WHOLE, gguf
from support.scripted_backend import in_thread, plain
from support.servers.real import llama
from support.source_path import SOURCES
from support.stub_servers import NOTHING_HERE, Answer, models, odd, refused

at_terminal = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX pseudo-terminal")

WITH_PORTS = """
import os, sys
from dragoman.backends.probe import discover
discover.default_ports = lambda: [int(port) for port in os.environ["PORTS"].split(",") if port]
discover.CONNECT_TIMEOUT_S = discover.IDENTIFY_TIMEOUT_S = 60
from dragoman.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""The command, which looks for model servers only at the ports of the test."""


def command(*args: str) -> list[str]:
    return [sys.executable, "-c", WITH_PORTS, "init", *args]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with the small model, the program `dragoman`, and without agents."""
    link_weights(tmp_path / "state")
    folder = tmp_path / "bin"
    folder.mkdir()
    install(folder, "dragoman", f'exec "{sys.executable}" -m dragoman "$@"')
    return tmp_path


def install(folder: Path, name: str, script: str = "exit 0") -> None:
    """Puts a program into the folder."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def variables(home: Path, *urls: str, **more: str) -> dict[str, str]:
    ports = ",".join(url.removesuffix("/v1").rpartition(":")[2] for url in urls)
    own = {"DRAGOMAN_HOME": str(home / "state"), "PYTHONPATH": SOURCES, "PORTS": ports, "SHELL": "/bin/bash"}
    path = os.pathsep.join([str(home / "bin"), os.defpath])
    return {**environment(home), **own, "PATH": path, "NO_COLOR": "1", **more}


def settings_path(home: Path) -> Path:
    return home / ".config" / "dragoman" / "config.toml"


def run(home: Path, *args: str, urls: tuple[str, ...] = (), **more: str) -> "subprocess.CompletedProcess[str]":
    env = variables(home, *urls, **more)
    return subprocess.run(
        command(*args), env=env, cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S
    )


@contextmanager
def terminal(home: Path, *args: str, urls: tuple[str, ...] = (), **more: str) -> Iterator[Terminal]:
    with Terminal(command(*args), variables(home, *urls, **more), home, columns=120, rows=100) as opened:
        yield opened


def assert_served(home: Path, path: Path) -> dict[str, Any]:
    """`dragoman serve` accepts the settings, which are returned."""
    done = run_command(home, "serve", "--config", str(path), "--print-config", DRAGOMAN_HOME=str(home / "state"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("# the settings are valid\n")
    return tomllib.loads(path.read_text())


def written_files(home: Path) -> list[str]:
    """The files in the home that the fixture has not created."""
    found = (path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file())
    return sorted(name for name in found if not name.startswith(("state/", "bin/")))


# Without a terminal


def test_settings_are_printed_and_not_written_without_terminal(home: Path) -> None:
    done = run(home)
    assert done.returncode == 0, done.stderr
    (home / "printed.toml").write_text(done.stdout)
    assert assert_served(home, home / "printed.toml")["embedded"]["model"] == "qwen2.5-coder-1.5b"
    assert f"nothing was written; to write this to {settings_path(home)}: dragoman init --yes" in done.stderr
    assert written_files(home) == ["printed.toml"]


def test_yes_writes_settings_without_questions(home: Path) -> None:
    install(home / "bin", "codex")
    with in_thread(plain) as url:
        done = run(home, "--yes", "--no-measure", "--upstream", f"{url}/v1")
        assert done.returncode == 0, done.stderr
        found = assert_served(home, settings_path(home))
    assert found["upstreams"]["dragoman"]["url"] == f"{url}/v1"
    assert "embedded" not in found
    assert "agents         Codex" in done.stdout
    assert "dragoman run codex --model m start Codex" in " ".join(done.stdout.split())
    assert written_files(home) == [".config/dragoman/config.toml"]


def test_existing_file_is_not_overwritten(home: Path) -> None:
    path = settings_path(home)
    path.parent.mkdir(parents=True)
    path.write_text("[server]\nport = 9000\n")
    done = run(home, "--yes", "--no-measure")
    assert done.returncode == 2
    assert "exists already, and is not overwritten; --force replaces it and keeps a copy" in done.stderr
    assert path.read_text() == "[server]\nport = 9000\n"
    assert "--yes --force (a copy of the existing file is kept)" in run(home).stderr
    done = run(home, "--yes", "--no-measure", "--force", "--model", "smollm2")
    assert done.returncode == 0, done.stderr
    assert assert_served(home, path)["embedded"] == {"model": "smollm2-135m"}
    assert path.with_name("config.toml.old").read_text() == "[server]\nport = 9000\n"


def test_other_path_is_part_of_the_next_steps(home: Path) -> None:
    done = run(home, "--yes", "--no-measure", "--output", "my team.toml", "--model", "smollm2")
    assert done.returncode == 0, done.stderr
    assert_served(home, home / "my team.toml")
    assert f"dragoman serve --config '{home}/my team.toml'" in done.stdout
    assert written_files(home) == ["my team.toml"]


def test_path_of_variable_is_written(home: Path) -> None:
    done = run(home, "--yes", "--no-measure", DRAGOMAN_CONFIG=str(home / "own.toml"))
    assert done.returncode == 0, done.stderr
    assert "--config" not in done.stdout.partition("Next:")[2]
    assert written_files(home) == ["own.toml"]


def test_json_has_findings_settings_and_next_steps(home: Path) -> None:
    install(home / "bin", "claude")
    done = run(home, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [model["name"] for model in result["found"]["models"]] == ["smollm2-135m"]
    assert result["found"]["agents"] == ["claude"]
    assert result["written"] == []
    assert tomllib.loads(result["settings"])["embedded"]["model"] == result["model"]
    assert any(step["command"].startswith("dragoman run claude") for step in result["next"])
    done = run(home, "--json", "--yes", "--no-measure", "--model", "smollm2-135m")
    assert json.loads(done.stdout)["written"] == [str(settings_path(home))]
    assert_served(home, settings_path(home))


def test_server_with_key_is_off_and_named_server_with_key_is_on(home: Path) -> None:
    with in_thread(plain) as url:
        done = run(home, "--upstream", f"{url}/v1", "--api-key-env", "MY_KEY")
        assert done.returncode == 2
        assert "expected a key in the variable MY_KEY, got none" in done.stderr
        done = run(
            home, "--yes", "--no-measure", "--upstream", f"{url}/v1", "--api-key-env", "MY_KEY", MY_KEY="a-long-key"
        )
        assert done.returncode == 0, done.stderr
    found = tomllib.loads(settings_path(home).read_text())
    assert found["upstreams"]["dragoman"]["api_key_env"] == "MY_KEY"
    assert "export MY_KEY=…" in done.stdout
    assert "a-long-key" not in settings_path(home).read_text() + done.stdout


def test_unreachable_server_is_an_error(home: Path) -> None:
    done = run(home, "--yes", "--upstream", "http://127.0.0.1:9/v1")
    assert done.returncode == 1
    assert "nothing answers at http://127.0.0.1:9/v1" in done.stderr
    assert written_files(home) == []


def test_service_is_written_on_request(home: Path) -> None:
    if sys.platform == "linux" and not shutil.which("systemctl"):
        install(home / "bin", "systemctl", "exit 1")
    done = run(home, "--yes", "--no-measure", "--service", "--model", "smollm2")
    assert done.returncode == 0, done.stderr
    assert written_files(home) == [".config/dragoman/config.toml", ".config/systemd/user/dragoman.service"]
    unit = (home / ".config/systemd/user/dragoman.service").read_text()
    assert f"serve --config {settings_path(home)}\n" in unit
    assert f"Environment=DRAGOMAN_HOME={home / 'state'}\n" in unit
    assert "systemctl --user daemon-reload && systemctl --user enable --now dragoman" in done.stdout


def test_base_install_writes_settings_and_names_missing_extras(tmp_path: Path) -> None:
    done = dragoman("init", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert any("pip install 'dragoman[server" in note for note in result["notes"])
    assert result["next"][0]["command"] == "pip install 'dragoman[server,embedded]'"
    assert "embedded" in tomllib.loads(result["settings"])
    done = dragoman("init", "--yes", "--output", str(tmp_path / "config.toml"))
    assert done.returncode == 0, done.stderr
    assert "is not measured, which needs more than is installed" in done.stdout or "download the model" in done.stdout
    assert tomllib.loads((tmp_path / "config.toml").read_text())["embedded"]


@pytest.mark.parametrize("model", ["smollm2-135m", "tiny-q4"])
def test_next_steps_are_valid_commands(model: str, home: Path) -> None:
    """The agent is started on the chosen model, of the catalogue or of another file."""
    install(home / "bin", "claude")
    folder = home / ".lmstudio" / "models" / "owner" / "repository"
    folder.mkdir(parents=True)
    (folder / "tiny-q4.gguf").write_bytes(gguf(WHOLE))
    done = run(home, "--json", "--yes", "--no-measure", "--output", "own.toml", "--model", model)
    assert done.returncode == 0, done.stderr
    steps = [shlex.split(step["command"]) for step in json.loads(done.stdout)["next"]]
    assert [step[:2] for step in steps] == [["dragoman", name] for name in ("run", "chat", "serve")]
    for step in steps:
        parser().parse_args(step[1:])
    more = {"PATH": variables(home)["PATH"], "DRAGOMAN_HOME": str(home / "state"), "DRAGOMAN_SERVER_PORT": "9"}
    done = run_command(home, *steps[0][1:], "--dry-run", **more)
    assert done.returncode == 0, done.stderr
    assert f"={model}\n" in done.stdout


def test_gateway_does_not_use_itself(home: Path) -> None:
    with in_thread(plain) as url:
        port = url.rpartition(":")[2]
        done = run(home, "--upstream", f"{url}/v1", DRAGOMAN_SERVER_PORT=port)
    assert done.returncode == 2
    assert "is this gateway itself" in done.stderr


def test_help_imports_none_of_it() -> None:
    code = "from dragoman.cli import parser; parser(); import sys; print([m for m in sys.modules if 'cli.init.' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.stdout == "[]\n", done.stderr


# What is found


async def found(monkeypatch: pytest.MonkeyPatch, home: Path, *urls: str) -> Machine:
    """What is found with model servers at these URLs."""
    monkeypatch.setattr(discover, "default_ports", lambda: [int(url.rpartition(":")[2]) for url in urls])
    for patience in ("CONNECT_TIMEOUT_S", "IDENTIFY_TIMEOUT_S"):
        monkeypatch.setattr(discover, patience, DEADLINE_S)
    for name, value in variables(home).items():
        monkeypatch.setenv(name, value)
    config, _ = load(None, {}, {"server.port": 0})
    return await examine_machine(config, None)


def ollama(path: str, body: dict[str, Any]) -> Answer:
    """An Ollama server with a model that is loaded with the default context window."""
    if path == "/api/version":
        return Answer('{"version": "0.30.1"}')
    if path == "/api/ps":
        return Answer('{"models": [{"name": "llama3.2:3b", "context_length": 4096}]}')
    return models("llama3.2:3b") if path == "/v1/models" else NOTHING_HERE


def locked(path: str, body: dict[str, Any]) -> Answer:
    """The same server behind a proxy that requires a key for its API."""
    return refused("no key", 401) if path.startswith("/v1") else ollama(path, body)


async def test_server_that_requires_a_key_is_off_in_the_settings(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    async with odd(locked) as server:
        machine = await found(monkeypatch, home, server.url)
    assert [(each.title, each.models, each.requires_key) for each in machine.servers] == [("Ollama", (), True)]
    choice = list_choices(machine)[0]
    text = format_tables(settings_tables(machine, choice))
    assert "#[upstreams.ollama]" in text
    assert check_settings(text).upstreams == {}
    assert any("requires an API key" in note for note in report.notes(machine, choice))


async def test_context_window_of_ollama_is_written(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    async with odd(ollama) as server:
        machine = await found(monkeypatch, home, server.url)
        choice = list_choices(machine)[0]
        assert choice.server
        choice = choice._replace(server=await with_context_window(choice.server, choice.name))
    config = check_settings(format_tables(settings_tables(machine, choice)))
    assert config.upstreams["ollama"].context_window == 4096
    (note,) = [note for note in report.notes(machine, choice) if "OLLAMA_CONTEXT_LENGTH=32768 ollama serve" in note]
    assert "a context window of 4,096 tokens" in note


async def test_models_of_other_programs_are_found(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    folder = home / ".lmstudio" / "models" / "owner" / "repository"
    folder.mkdir(parents=True)
    (folder / "tiny-q4.gguf").write_bytes(gguf(WHOLE))
    (folder / "broken.gguf").write_bytes(b"GGUF")
    machine = await found(monkeypatch, home)
    assert [model.id for model in machine.files] == ["smollm2-135m", "tiny-q4"]
    tiny = find_choice("tiny-q4", list_choices(machine))
    assert check_settings(format_tables(settings_tables(machine, tiny))).embedded.model == "tiny-q4"


def test_model_of_ollama_is_written_by_its_name(home: Path) -> None:
    store = home / ".ollama" / "models"
    (manifest := store / "manifests" / "registry.ollama.ai" / "library" / "tiny" / "1b").parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:abc"}
    manifest.write_text(json.dumps({"layers": [layer]}))
    (store / "blobs").mkdir()
    (store / "blobs" / "sha256-abc").write_bytes(gguf(WHOLE))
    done = run(home, "--yes", "--no-measure", "--model", "tiny:1b")
    assert done.returncode == 0, done.stderr
    assert assert_served(home, settings_path(home))["embedded"] == {"model": "tiny:1b"}
    assert "Also served, loaded on request: smollm2-135m." in done.stdout


# At a terminal


@at_terminal
@pytest.mark.model
def test_newcomer_accepts_defaults_on_a_real_server(home: Path) -> None:
    """llama-server is found, its model is chosen and tested, and the settings are written."""
    install(home / "bin", "claude")
    with llama("native") as real, terminal(home, urls=(real.url,)) as opened:
        opened.wait_for("Which model should your agents use?", DEADLINE_S)
        assert f"llama-server at {real.url}: smollm2" in opened.text
        assert "Claude Code" in opened.text
        opened.type("\r")
        opened.wait_for("Test the speed and the tool calls of smollm2")
        opened.type("\r")
        opened.wait_for("Write these settings to", 4 * DEADLINE_S)
        assert "tool calls work best in mode" in opened.text
        opened.type("\r")
        opened.wait_for("written:")
        for number in itertools.count(1):  # the offers, which depend on the system
            opened.wait_for(lambda screen, number=number: "Next:" in screen or screen.count("[y/N]") == number)
            if "Next:" in opened.text:
                break
            opened.type("\r")
        assert opened.wait_end() == 0
        assert "dragoman run claude --model smollm2" in opened.text
        found = assert_served(home, settings_path(home))
    assert found["upstreams"]["llama_cpp"]["url"] == real.url
    assert list((home / "state" / "probes").iterdir())
    assert written_files(home) == [".config/dragoman/config.toml"]


@at_terminal
@pytest.mark.model
def test_embedded_model_is_measured(home: Path) -> None:
    with terminal(home) as opened:
        opened.wait_for("Number or name [1]:")
        opened.type("three\r")
        opened.wait_for("type a number from 1 to 2, a name of the list, or Enter for qwen2.5-coder-1.5b")
        opened.type("smollm2-135m\r")
        opened.wait_for("Measure how fast smollm2-135m reads here")
        opened.type("\r")
        opened.wait_for("tokens/s", DEADLINE_S)
        opened.wait_for("Write these settings to")
        opened.type("\r")
        opened.wait_for("written:")
        opened.interrupt(f"stopped; written: {settings_path(home)}")
        assert opened.wait_end() == 130
    assert assert_served(home, settings_path(home))["embedded"] == {"model": "smollm2-135m"}


def questions() -> list[tuple[str, str]]:
    """Each question in its order, and the answer."""
    return [
        ("Number or name [1]:", "2\r"),
        ("Measure how fast", "n\r"),
        ("Write these settings to", "y\r"),
    ]


@at_terminal
@pytest.mark.parametrize("stop", range(3))
@pytest.mark.parametrize("key", ["ctrl-c", "ctrl-d"])
def test_ended_questions_leave_nothing_written(home: Path, stop: int, key: str) -> None:
    with terminal(home) as opened:
        for question, answer in questions()[:stop]:
            opened.wait_for(question)
            opened.type(answer)
        opened.wait_for(questions()[stop][0])
        if key == "ctrl-c":
            opened.interrupt("stopped; nothing was written")
        else:
            opened.type("\x04")
        assert opened.wait_end() == 130
        assert "stopped; nothing was written" in opened.text
    assert written_files(home) == []


@at_terminal
def test_service_and_completion_are_added_after_agreement(home: Path) -> None:
    install(home / "bin", "systemctl", 'echo "systemctl $*" >> "$HOME/calls"')
    (home / ".bashrc").write_text("alias ll='ls -l'")
    with terminal(home, "--model", "smollm2", "--no-measure") as opened:
        for question in ("Write these settings", "Start the gateway at each login", "Run these commands now?"):
            opened.wait_for(question)
            opened.type("y\r")
        opened.wait_for("Complete `dragoman` at Tab in bash")
        opened.type("y\r")
        opened.wait_for("Next:")
        assert opened.wait_end() == 0
        assert "dragoman serve" not in opened.text.partition("Next:")[2]
    assert (home / "calls").read_text() == "systemctl --user daemon-reload\nsystemctl --user enable --now dragoman\n"
    alias, line = (home / ".bashrc").read_text().splitlines()
    assert alias == "alias ll='ls -l'"
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{line} && complete -p dragoman"],
        env=variables(home),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert "_python_argcomplete" in done.stdout, done.stderr
    with terminal(home, "--model", "smollm2", "--no-measure", "--force") as opened:
        opened.wait_for("Write these settings")
        opened.type("n\r")
        opened.wait_for("nothing was written")
        assert opened.wait_end() == 0


@at_terminal
@pytest.mark.model
def test_ctrl_c_ends_measurement(home: Path) -> None:
    with terminal(home, "--model", "smollm2") as opened:
        opened.wait_for("Measure how fast smollm2-135m reads here")
        opened.type("\r")
        opened.wait_for("loading smollm2-135m")
        opened.interrupt("stopped; nothing was written")
        assert opened.wait_end() == 130
        assert "Traceback" not in opened.output
    assert written_files(home) == []


@at_terminal
def test_existing_file_is_reported_before_the_first_question(home: Path) -> None:
    settings_path(home).parent.mkdir(parents=True)
    settings_path(home).write_text("")
    with terminal(home) as opened:
        assert opened.wait_end() == 2
        assert "exists already" in opened.text
        assert "Which model" not in opened.text
