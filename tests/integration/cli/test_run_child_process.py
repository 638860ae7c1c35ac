"""`dragoman run` and its child process: terminal, signals, exit status, and cleanup of temporary files."""

import asyncio
import codecs
import errno
import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench import offline

from dragoman.agents import LaunchPlan
from dragoman.cli.run import output
from dragoman.cli.run.child_process import ForegroundProcess, interruptible
from dragoman.core.errors import ConfigError
from support import gateway, stub_servers
from support.agents import NOWHERE
from support.gateway import DEADLINE_S, command, environment, exists
from support.launch_files import launch as launched
from support.scripted_backend import in_thread, plain

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and terminals of POSIX")

ASK = """
import json, os, urllib.request
def ask():
    body = {"model": os.environ["OPENAI_MODEL"], "messages": [{"role": "user", "content": "hi"}]}
    headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "content-type": "application/json"}
    url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
    asked = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(asked))["choices"][0]["message"]["content"]
"""
"""Code of a minimal agent."""


@pytest.fixture(scope="module")
def far() -> Iterator[str]:
    with in_thread(plain) as url:
        yield url


def agent(far: str, code: str, *options: str) -> tuple[str, ...]:
    return ("run", "--upstream", f"{far}/v1", "--model", "m", *options, "--", sys.executable, "-c", ASK + code)


@contextmanager
def run_in_terminal(home: Path, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], "Screen"]]:
    """Starts the command on a new pseudo-terminal, as the foreground job of a minimal shell."""
    ours, theirs = pty.openpty()
    shell = [sys.executable, "-c", SHELL, *words]
    process = subprocess.Popen(
        shell, stdin=theirs, stdout=theirs, stderr=theirs, env=home_environment(home), cwd=home, start_new_session=True
    )
    os.close(theirs)
    try:
        with closing(Screen(ours)) as screen:
            yield process, screen
    finally:
        process.kill()
        process.wait()
        os.close(ours)


SHELL = """
import fcntl, os, signal, subprocess, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = subprocess.Popen(sys.argv[1:], process_group=0)
os.tcsetpgrp(0, job.pid)
while True:
    _, status = os.waitpid(job.pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        break
    os.tcsetpgrp(0, os.getpgrp())
    print("the shell has the terminal", flush=True)
    input()
    os.tcsetpgrp(0, job.pid)
    os.killpg(job.pid, signal.SIGCONT)
print("exit status", os.waitstatus_to_exitcode(status), flush=True)
"""
"""Code of a minimal shell that can stop and continue one job."""


KEY_REPEAT_S = 5.0


class Screen:
    """The output of a pseudo-terminal, read in a thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._text = ""
        self._came = threading.Condition()
        self._stop, self._stopper = os.pipe()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def close(self) -> None:
        """Stops reading, so that a later file with the same descriptor number loses no data to this thread."""
        os.close(self._stopper)
        self._thread.join()
        os.close(self._stop)

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")()
        while self._stop not in select.select([self._fd, self._stop], [], [])[0]:
            try:
                data = os.read(self._fd, 4096)
            except OSError as error:
                if error.errno != errno.EIO:  # the other end is closed
                    raise
                return
            with self._came:
                self._text += decoder.decode(data)
                self._came.notify_all()

    def shows(self, words: str, key: str = "") -> str:
        """Waits for the words; types the key every few seconds, as CPython handles an early SIGINT at the next key."""
        with self._came:
            for _ in range(int(DEADLINE_S / KEY_REPEAT_S)):
                if key:
                    self.type(key)
                if self._came.wait_for(lambda: words in self._text, KEY_REPEAT_S):
                    break
            assert words in self._text, self._text
            before, _, self._text = self._text.partition(words)
            return before

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())


def home_environment(home: Path) -> dict[str, str]:
    (home / "tmp").mkdir(exist_ok=True)
    return {**environment(home), "TMPDIR": str(home / "tmp"), "PYTHONPATH": os.pathsep.join(sys.path)}


def run(home: Path, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    return gateway.run(home, *words, **{**home_environment(home), **more})


def leftover_files(home: Path) -> list[str]:
    return [path.name for path in (home / "tmp").iterdir()]


def test_run_command_reaches_model_and_removes_temporary_files(far: str, tmp_path: Path) -> None:
    done = run(tmp_path, *agent(far, "print(ask(), os.environ['ANTHROPIC_MODEL'])"))
    assert (done.returncode, done.stdout) == (0, "Hello m\n"), done.stderr
    assert done.stderr == f"dragoman: any command on m, {far}/v1, 100 tokens of context\n"
    assert leftover_files(tmp_path) == []


@pytest.mark.parametrize("logged_in", [True, False])
def test_run_uses_installed_claude_cli(logged_in: bool, far: str, tmp_path: Path) -> None:
    """The installed CLI with a scripted model. A missing login is reported, and the command still runs."""
    path = os.pathsep.join([str(offline.claude_code().parent), os.defpath])
    more = {"PATH": path, "DRAGOMAN_CLAUDE_CLI_MODELS": "m", "HTTPS_PROXY": NOWHERE, "NO_PROXY": "127.0.0.1"}
    more |= {"ANTHROPIC_API_KEY": "sk-ant-dummy", "ANTHROPIC_BASE_URL": far} if logged_in else {}
    code = ASK + ("print(ask())" if logged_in else "print('nothing asked')")
    done = run(tmp_path, "run", "any", "--claude-cli", "--model", "m", "--", sys.executable, "-c", code, **more)
    said = ["dragoman: claude is not logged in; run: claude auth login"] if not logged_in else []
    assert done.stdout == ("Hello\n" if logged_in else "nothing asked\n"), done.stderr
    assert done.stderr.splitlines() == [*said, "dragoman: any command on m, claude"]


def test_stdin_and_exit_status_are_forwarded(far: str, tmp_path: Path) -> None:
    code = "import sys; sys.exit(len(sys.stdin.read()))"
    done = subprocess.run(
        command(*agent(far, code)), input=b"seven..", env=home_environment(tmp_path), cwd=tmp_path, timeout=DEADLINE_S
    )
    assert done.returncode == 7


def test_signal_is_forwarded_and_sets_exit_status(far: str, tmp_path: Path) -> None:
    code = "import signal; print(os.getpid(), flush=True); signal.pause()"
    with subprocess.Popen(
        command(*agent(far, code)), env=home_environment(tmp_path), cwd=tmp_path, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 128 + signal.SIGTERM
    assert not exists(child)
    assert leftover_files(tmp_path) == []


def test_ctrl_c_interrupts_only_the_agent(far: str, tmp_path: Path) -> None:
    """The agent handles SIGINT and can still send a request to its model."""
    code = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("ready", flush=True)
signal.sigwait([signal.SIGINT])
print("stopped:", ask(), flush=True)
sys.exit(9)
"""
    with run_in_terminal(tmp_path, *command(*agent(far, code))) as (_, screen):
        screen.shows("ready")
        screen.type("\x03")
        screen.shows("stopped: Hello")
        screen.shows("exit status 9")
    assert leftover_files(tmp_path) == []


@pytest.mark.parametrize("stops", ["", "os.kill(os.getpid(), signal.SIGSTOP)"], ids=["Ctrl-Z", "itself"])
def test_stopped_agent_returns_terminal_and_can_continue(stops: str, far: str, tmp_path: Path) -> None:
    code = f"""
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCONT])
print("ready", flush=True)
{stops}
signal.sigwait([signal.SIGCONT])
print("again:", ask(), flush=True)
"""
    with run_in_terminal(tmp_path, *command(*agent(far, code))) as (_, screen):
        screen.shows("ready")
        if not stops:
            screen.type("\x1a")
        screen.shows("the shell has the terminal")
        screen.type("\n")
        screen.shows("again: Hello")
        screen.shows("exit status 0")


def test_ctrl_c_before_agent_starts_exits_with_130(far: str, tmp_path: Path) -> None:
    with run_in_terminal(tmp_path, *command("run", "--upstream", f"{far}/v1", "--", "true")) as (_, screen):
        screen.shows("model [1-")  # the upstream gateway's models, and their aliases
        screen.shows("exit status 130", key="\x03")
    assert leftover_files(tmp_path) == []


def test_pending_ctrl_c_is_raised_before_blocking_section() -> None:
    entered = []

    async def holds_up() -> None:
        signal.raise_signal(signal.SIGINT)  # asyncio handles it, and would cancel the task at its next await
        with interruptible():
            entered.append(True)

    was = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(holds_up())
    finally:
        signal.signal(signal.SIGINT, was)
    assert not entered


def test_model_is_selected_at_terminal(far: str, tmp_path: Path) -> None:
    chosen = agent(far, "print('took', os.environ['OPENAI_MODEL'])")
    words = [word for word in chosen if word not in ("--model", "m")]
    with run_in_terminal(tmp_path, *command(*words)) as (_, screen):
        listed = screen.shows("model [1-")
        assert f"2  n, {far}/v1" in listed
        screen.type("2\n")
        screen.shows("took n")


def test_run_without_terminal_lists_commands_to_type(far: str, tmp_path: Path) -> None:
    done = run(tmp_path, "run", "--upstream", f"{far}/v1", "--", "true")
    assert done.returncode == 2
    assert f"  dragoman run --upstream {far}/v1 --model n -- true\n" in done.stderr


def test_negative_context_window_is_rejected(tmp_path: Path) -> None:
    done = run(tmp_path, "run", "--context-window", "-5", "--", "true")
    assert done.returncode == 2
    assert "--context-window: expected a number of tokens, got '-5'" in done.stderr


def test_failed_model_request_keeps_log(far: str, tmp_path: Path) -> None:
    code = "os.environ['OPENAI_MODEL'] = 'none'\ntry: ask()\nexcept OSError as e: print(e)"
    done = run(tmp_path, *agent(far, code))
    told = done.stderr.splitlines()[-1]
    assert told.startswith("dragoman: log of the gateway: ")
    assert told.endswith("; warnings and errors: 1 line")
    log = Path(told.removeprefix("dragoman: log of the gateway: ").partition(";")[0])
    assert "'none'" not in done.stdout
    assert '"status":404' in log.read_text()
    assert leftover_files(tmp_path) == [log.parent.name]


PROBING_AGENT = """
for path in ("/api/tags", "/version", "/v1/props", "/v1/api/show"):
    url = os.environ["OPENAI_BASE_URL"].removesuffix("/v1") + path
    try: urllib.request.urlopen(urllib.request.Request(url, b"{}" if path.endswith("show") else None))
    except OSError as e: print(e.code)
ask()
"""
"""Code of an agent that probes the paths of other servers without an API key."""


def test_missing_paths_probed_by_agent_are_no_failure(far: str, tmp_path: Path) -> None:
    done = run(tmp_path, *agent(far, PROBING_AGENT))
    assert set(done.stdout.split()) <= {"401", "404", "405"}, done.stdout
    assert "went wrong" not in done.stderr
    assert leftover_files(tmp_path) == []


@pytest.mark.parametrize("status", [401, 403])
async def test_rejected_api_key_is_reported_before_agent_starts(status: int, tmp_path: Path) -> None:
    """If the model list needs no key, only the agent would report it, after minutes of retries."""

    def says(path: str, body: dict[str, Any]) -> stub_servers.Answer:
        return stub_servers.models("m") if path == "/v1/models" else stub_servers.refused("no", status)

    async with stub_servers.odd(says) as far:
        words = ("run", "--upstream", f"{far.url}/v1", "--model", "m", "--", "echo", "started")
        done = await asyncio.to_thread(run, tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "wants a key" in done.stderr


async def test_unreported_context_window_is_reported(tmp_path: Path) -> None:
    (tmp_path / "claude").write_text("#!/bin/sh\necho started")
    (tmp_path / "claude").chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.defpath}"}

    def says(path: str, body: dict[str, Any]) -> stub_servers.Answer:
        return stub_servers.models("m") if path == "/v1/models" else stub_servers.refused("no")

    async with stub_servers.odd(says) as far:
        words = ("run", "claude", "--upstream", f"{far.url}/v1", "--model", "m")
        done = await asyncio.to_thread(run, tmp_path, *words, **path)
        named = await asyncio.to_thread(run, tmp_path, *words, "--context-window", "32768", **path)
    assert done.stdout == named.stdout == "started\n", done.stderr
    assert "does not report the context window of m" in done.stderr
    assert "--context-window TOKENS" in done.stderr
    assert "asks before it edits" in done.stderr
    assert "context window" not in named.stderr


@pytest.mark.parametrize("options", [("--console",), ()])
def test_console_is_served_on_request_only(far: str, tmp_path: Path, options: tuple[str, ...]) -> None:
    code = """
url = os.environ["OPENAI_BASE_URL"].removesuffix("/v1") + "/console/api/state"
headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
try:
    print(json.load(urllib.request.urlopen(urllib.request.Request(url, headers=headers)))["models"])
except urllib.error.HTTPError as error:
    print(error.code)
"""
    done = run(tmp_path, *agent(far, code, *options))
    assert done.returncode == 0, done.stderr
    if options:
        assert done.stdout.startswith("['m', 'n', ")
        assert re.search(r"console: http://127\.0\.0\.1:\d+/console, sign in with the key \S{32}", done.stderr)
    else:
        assert done.stdout.strip() == "404"
        assert "console" not in done.stderr


@pytest.mark.parametrize("key", ["\n", "\x03"], ids=["Enter", "Ctrl-C"])
def test_agent_waits_until_the_console_was_opened(far: str, tmp_path: Path, key: str) -> None:
    words = command(*agent(far, "print('agent', 'runs')", "--console"))
    with run_in_terminal(tmp_path, *words) as (_, screen):
        screen.shows("console: ")
        url = screen.shows(", sign in")
        screen.shows("press Enter")
        with urllib.request.urlopen(f"{url}/login") as page:  # the gateway serves meanwhile
            assert b"<html" in page.read()
        screen.shows("agent runs" if key == "\n" else "status 130", key=key)


def test_log_file_is_readable_by_owner_only(far: str, tmp_path: Path) -> None:
    done = run(tmp_path, *agent(far, "ask()", "--log-file", str(tmp_path / "kept.log")))
    assert done.returncode == 0, done.stderr
    assert '"status":200' in (tmp_path / "kept.log").read_text()
    assert (tmp_path / "kept.log").stat().st_mode & 0o777 == 0o600


def test_dry_run_hides_api_keys(far: str, tmp_path: Path) -> None:
    done = run(tmp_path, *agent(far, "", "--dry-run"), OPENAI_API_KEY="sk-own")
    assert done.returncode == 0, done.stderr
    assert "OPENAI_API_KEY=(not shown)" in done.stdout
    assert "OPENAI_BASE_URL=http://127.0.0.1:PORT/v1" in done.stdout


@pytest.mark.parametrize("name", ["claude", "opencode"])
def test_merged_user_settings_are_shown_without_values(name: str) -> None:
    own = json.dumps({"env": {"DATABASE_URL": "postgres://ada:lovelace@db"}, "permissions": ["Read(/home/ada)"]})
    given = {"claude": ({}, "--settings", own), "opencode": ({"OPENCODE_CONFIG_CONTENT": own},)}
    environ, *args = given[name]
    made = launched(name, *args, "--append", "Bearer abcdefgh", "seen-in-the-environment", environ=environ)
    assert "lovelace" in str((made.environ, made.files))
    told = output.format_launch(made, Path("/private"), {"OWN_TOKEN": "seen-in-the-environment"})
    assert "DATABASE_URL" in told
    assert "permissions" in told
    assert "http://127.0.0.1:1" in told
    assert not [secret for secret in ("ada", "abcdefgh", "seen-in") if secret in told]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run"], "expected an agent"),
        (["run", "claud"], "did you mean 'claude'"),
        (["run", "claude", "-p", "hi"], "own options after `--`"),
        (["run", "codex"], "npm install -g @openai/codex"),
        (["run", "any", "--"], "expected an agent"),
    ],
)
def test_invalid_run_arguments_report_fix(words: list[str], told: str, tmp_path: Path) -> None:
    done = run(tmp_path, *words)
    assert done.returncode == 2
    assert told in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--model", "smollm"], "unknown model 'smollm'; did you mean 'smollm2'?"),
        ([], "dragoman pull qwen2.5-coder-1.5b"),
    ],
)
def test_run_without_servers_reports_how_to_get_a_model(words: list[str], told: str, tmp_path: Path) -> None:
    """Runs in a network namespace without any server of this machine."""
    alone = [*offline.separate_network(), *command("run", *words, "--", "true")]
    env = {**home_environment(tmp_path), "DRAGOMAN_HOME": str(tmp_path)}
    done = subprocess.run(alone, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 2
    assert told in done.stderr


async def test_variable_with_null_byte_is_rejected() -> None:
    with pytest.raises(ConfigError, match="true cannot be started with these settings: embedded null byte"):
        await ForegroundProcess().run(["true"], {"OPENAI_MODEL": "a\0b"})


@pytest.mark.parametrize("value", ["plain", "two words", "it's", '"$HOME" `id` \\ \n;'])
def test_variables_are_quoted_for_the_shell(value: str) -> None:
    line = output.format_environment(LaunchPlan(("x",), {"VALUE": value, "GONE": None}), "posix", {})
    shell = subprocess.run(
        ["sh", "-c", f'{line}\nprintf %s "$VALUE${{GONE-gone}}"'], env={"GONE": "x"}, capture_output=True, text=True
    )
    assert shell.stdout == f"{value}gone"
    assert output.format_environment(LaunchPlan(("x",), {"V": "it's"}), "powershell", {}) == "$Env:V = 'it''s'"
    assert output.format_environment(LaunchPlan(("x",), {"V": "it's \\"}), "fish", {}) == "set -gx V 'it\\'s \\\\'"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, {}),
        ({"HTTP_PROXY": "http://proxy"}, "127.0.0.1,localhost"),
        ({"https_proxy": "http://proxy", "no_proxy": "intra, 127.0.0.1"}, "intra,127.0.0.1,localhost"),
        ({"HTTP_PROXY": "http://proxy", "NO_PROXY": "*"}, {}),
    ],
)
def test_proxy_is_bypassed_for_loopback(given: Mapping[str, str], kept: object) -> None:
    assert output.proxy_bypass(given) == (
        kept or {} if not isinstance(kept, str) else {"NO_PROXY": kept, "no_proxy": kept}
    )


@pytest.mark.parametrize("shell", output.SHELLS)
def test_printed_environment_bypasses_proxy_for_loopback(shell: str) -> None:
    made = LaunchPlan(("x",), {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"})
    said = output.format_environment(made, shell, {"HTTP_PROXY": "http://proxy", "NO_PROXY": "intra"})
    assert said.count("intra,127.0.0.1,localhost") == 2
    assert "NO_PROXY" not in output.format_environment(made, shell, {})


def running_gateway_settings(far: str) -> dict[str, str]:
    """Settings with which the upstream gateway is found as the running gateway."""
    return {"DRAGOMAN_SERVER_PORT": far.rpartition(":")[2]}


def test_running_gateway_is_used(far: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", ASK + "print(ask(), os.environ['OPENAI_BASE_URL'])"]
    done = run(tmp_path, "run", "--model", "m", "--", *words, **running_gateway_settings(far))
    assert done.stdout == f"Hello {far}/v1\n", done.stderr
    assert done.stderr == f"dragoman: any command on m, the gateway at {far}, 100 tokens of context\n"
    done = run(tmp_path, "run", "--model", "m", "--new-gateway", "--", *words, **running_gateway_settings(far))
    assert "unknown model 'm'" in done.stderr


def test_printed_environment_uses_running_gateway(far: str, tmp_path: Path) -> None:
    printing = [sys.executable, "-m", "dragoman", "run", "any", "--model", "m", "--print-env"]
    script = f'eval "$({shlex.join(printing)})" && {shlex.join([sys.executable, "-c", ASK + "print(ask())"])}'
    env = {**home_environment(tmp_path), **running_gateway_settings(far)}
    done = subprocess.run(
        ["sh", "-c", script], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.stdout == "Hello\n", done.stderr


def test_files_of_printed_environment_are_kept_and_private(far: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "hermes").symlink_to("/bin/true")
    more = {"PATH": str(tmp_path / "bin"), "DRAGOMAN_HOME": str(tmp_path / "kept"), **running_gateway_settings(far)}
    words = ("run", "hermes", "--model", "m", "--context-window", "65536", "--print-env=json")
    done = run(tmp_path, *words, **more)
    folder = Path(json.loads(done.stdout)["HERMES_MANAGED_DIR"])
    assert folder == tmp_path / "kept" / "run" / "hermes"
    assert (folder.stat().st_mode & 0o777, (folder / "config.yaml").stat().st_mode & 0o777) == (0o700, 0o600)


def test_print_env_without_running_gateway_is_rejected(tmp_path: Path) -> None:
    done = run(tmp_path, "run", "any", "--print-env", DRAGOMAN_SERVER_PORT="1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no gateway answers at port 1; start one: dragoman serve" in done.stderr
