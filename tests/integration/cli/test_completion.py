"""`dragoman completion`: what shells offer at Tab, asked of the shells themselves.

bash is on every system that runs these tests; zsh and fish are asked too where they are.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman import cli
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.probe.cache import store
from dragoman.backends.probe.report import Recommendation
from dragoman.cli.completion import all_model_names, model_names
from support.gateway import environment, run

SHELLS = {
    "bash": (
        'eval "$(dragoman completion bash)"; COMP_LINE="$1" COMP_POINT=${#1} COMP_TYPE=9\n'
        '_python_argcomplete dragoman; printf "%s\\n" "${COMPREPLY[@]}"'
    ),
    "zsh": (
        # of what zsh would show, the names alone; its own way of showing them wants a terminal
        'autoload -U compinit; compinit -u -D; eval "$(dragoman completion zsh)"; words=(dragoman)\n'
        '_describe() { print -l -- "${completions[@]}"; }; BUFFER="$1"; CURSOR=${#1}; _python_argcomplete'
    ),
    "fish": 'dragoman completion fish | source; complete --do-complete="$argv[1]"',
}
HERE = [shell for shell in SHELLS if shutil.which(shell)]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="its shells are others")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """With the command as it is installed."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "dragoman"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dragoman "$@"\n')
    program.chmod(0o755)
    return tmp_path


def offered(home: Path, shell: str, line: str) -> list[str]:
    """What the shell offers behind this line, without what it says of each."""
    env = environment(home)
    env["PATH"] = f"{home / 'bin'}:{env['PATH']}"
    where = shutil.which(shell)
    assert where
    flags = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    name = [] if shell == "fish" else ["completing"]
    command = [where, *flags, "-c", SHELLS[shell], *name, line]
    done = subprocess.run(command, env=env, cwd=home, capture_output=True, text=True, timeout=60)
    lines = [text.split("\t")[0].split(":")[0].strip() for text in done.stdout.splitlines()]
    return [text for text in lines if text]


@pytest.mark.parametrize("shell", HERE)
def test_a_shell_completes_commands(shell: str, home: Path) -> None:
    assert set(cli.names()) <= set(offered(home, shell, "dragoman "))
    assert offered(home, shell, "dragoman prob") == ["probe"]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("dragoman serve --cla", ["--claude-cli"]),
        ("dragoman parse --format herm", ["hermes"]),
        ("dragoman pull qwen2.5-coder-1", ["qwen2.5-coder-1.5b", "qwen2.5-coder-1.5b-instruct"]),
        ("dragoman serve --upstream-api openai_c", ["openai_chat"]),
        ("dragoman completion f", ["fish"]),
    ],
)
def test_options_and_names(line: str, names: list[str], home: Path) -> None:
    assert sorted(offered(home, "bash", line)) == names


def test_models_that_servers_were_found_to_have(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_HOME", str(home))
    store(HttpConfig(url="http://127.0.0.1:1"), "mistral-nemo", "", "1", Recommendation("native", "a test has it"))
    (home / "probes" / "broken.json").write_text("{")
    assert set(all_model_names()) == {*model_names(), "mistral-nemo"}


def test_without_argcomplete_the_line_to_type_is_told(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['argcomplete'] = None\n"
        "from dragoman.cli import main; sys.exit(main(['completion', 'bash']))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 2
    assert "completion needs the terminal extra: " in done.stderr
    assert "dragoman[terminal]" in done.stderr


def test_a_shell_that_is_not_known(tmp_path: Path) -> None:
    done = run(tmp_path, "completion", "basch")
    assert done.returncode == 2
    assert "did you mean 'bash'?" in done.stderr
