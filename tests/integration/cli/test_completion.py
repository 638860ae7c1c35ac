"""`dragoman completion`: completions at Tab, read from the real shells.

bash is on every system that runs these tests; zsh and fish are tested where they are installed.
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
        # print only the names; zsh's own display of completions needs a terminal
        'autoload -U compinit; compinit -u -D; eval "$(dragoman completion zsh)"; words=(dragoman)\n'
        '_describe() { print -l -- "${completions[@]}"; }; BUFFER="$1"; CURSOR=${#1}; _python_argcomplete'
    ),
    "fish": 'dragoman completion fish | source; complete --do-complete="$argv[1]"',
}
HERE = [shell for shell in SHELLS if shutil.which(shell)]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="bash, zsh and fish are not on Windows")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home directory with a `dragoman` executable in `bin`."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "dragoman"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dragoman "$@"\n')
    program.chmod(0o755)
    return tmp_path


def offered(home: Path, shell: str, line: str) -> list[str]:
    """Returns the completions that the shell offers for this line, without their descriptions."""
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
def test_shell_completes_command_names(shell: str, home: Path) -> None:
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
def test_bash_completes_options_and_argument_values(line: str, names: list[str], home: Path) -> None:
    assert sorted(offered(home, "bash", line)) == names


def test_completion_offers_models_from_probe_cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_HOME", str(home))
    store(HttpConfig(url="http://127.0.0.1:1"), "mistral-nemo", "", "1", Recommendation("native", "a test has it"))
    (home / "probes" / "broken.json").write_text("{")
    assert set(all_model_names()) == {*model_names(), "mistral-nemo"}


def test_missing_argcomplete_reports_install_command(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['argcomplete'] = None\n"
        "from dragoman.cli import main; sys.exit(main(['completion', 'bash']))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 2
    assert "completion needs the terminal extra: " in done.stderr
    assert "dragoman[terminal]" in done.stderr


def test_unknown_shell_is_rejected_with_suggestion(tmp_path: Path) -> None:
    done = run(tmp_path, "completion", "basch")
    assert done.returncode == 2
    assert "did you mean 'bash'?" in done.stderr
