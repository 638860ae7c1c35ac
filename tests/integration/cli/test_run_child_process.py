"""What `dragoman run` is to the command that it starts: its terminal, its signals, its end, and what is left behind."""

import asyncio
import codecs
import errno
import json
import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import threading
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
"""An agent of a few lines."""


@pytest.fixture(scope="module")
def far() -> Iterator[str]:
    with in_thread(plain) as url:
        yield url


def agent(far: str, code: str, *options: str) -> tuple[str, ...]:
    return ("run", "--upstream", f"{far}/v1", "--model", "m", *options, "--", sys.executable, "-c", ASK + code)


@contextmanager
def in_a_terminal(home: Path, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], "Screen"]]:
    """The command in a terminal of its own, as the job of a shell there."""
    ours, theirs = pty.openpty()
    shell = [sys.executable, "-c", SHELL, *words]
    process = subprocess.Popen(
        shell, stdin=theirs, stdout=theirs, stderr=theirs, env=at_home(home), cwd=home, start_new_session=True
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
"""As much of one as it takes to stop a job and go on with it."""


class Screen:
    """What a terminal shows."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._text = ""
        self._came = threading.Condition()
        self._stop, self._stopper = os.pipe()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def close(self) -> None:
        """Stop reading, so that the next to have a file of this number has all that comes there."""
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

    def shows(self, words: str) -> str:
        with self._came:
            assert self._came.wait_for(lambda: words in self._text, DEADLINE_S), self._text
            before, _, self._text = self._text.partition(words)
            return before

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())


def at_home(home: Path) -> dict[str, str]:
    (home / "tmp").mkdir(exist_ok=True)
    return {**environment(home), "TMPDIR": str(home / "tmp"), "PYTHONPATH": os.pathsep.join(sys.path)}


def run(home: Path, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    return gateway.run(home, *words, **{**at_home(home), **more})


def left(home: Path) -> list[str]:
    return [path.name for path in (home / "tmp").iterdir()]


def test_a_command_asks_the_model_and_nothing_is_left(far: str, tmp_path: Path) -> None:
    done = run(tmp_path, *agent(far, "print(ask(), os.environ['ANTHROPIC_MODEL'])"))
    assert (done.returncode, done.stdout) == (0, "Hello m\n"), done.stderr
    assert done.stderr == f"dragoman: any command on m, {far}/v1, 100 tokens of context\n"
    assert left(tmp_path) == []


@pytest.mark.parametrize("logged_in", [True, False])
def test_on_the_installed_claude(logged_in: bool, far: str, tmp_path: Path) -> None:
    """The real one; behind it the model is played. Where nobody is logged in that is said, and the command is run."""
    path = os.pathsep.join([str(offline.claude_code().parent), os.defpath])
    more = {"PATH": path, "DRAGOMAN_CLAUDE_CLI_MODELS": "m", "HTTPS_PROXY": NOWHERE, "NO_PROXY": "127.0.0.1"}
    more |= {"ANTHROPIC_API_KEY": "sk-ant-dummy", "ANTHROPIC_BASE_URL": far} if logged_in else {}
    code = ASK + ("print(ask())" if logged_in else "print('nothing asked')")
    done = run(tmp_path, "run", "any", "--claude-cli", "--model", "m", "--", sys.executable, "-c", code, **more)
    said = ["dragoman: claude is not logged in; run: claude auth login"] if not logged_in else []
    assert done.stdout == ("Hello\n" if logged_in else "nothing asked\n"), done.stderr
    assert done.stderr.splitlines() == [*said, "dragoman: any command on m, claude"]


def test_standard_input_and_the_exit_status_are_the_commands(far: str, tmp_path: Path) -> None:
    code = "import sys; sys.exit(len(sys.stdin.read()))"
    done = subprocess.run(
        command(*agent(far, code)), input=b"seven..", env=at_home(tmp_path), cwd=tmp_path, timeout=DEADLINE_S
    )
    assert done.returncode == 7


def test_a_signal_is_passed_on_and_its_number_is_the_exit_status(far: str, tmp_path: Path) -> None:
    code = "import signal; print(os.getpid(), flush=True); signal.pause()"
    with subprocess.Popen(
        command(*agent(far, code)), env=at_home(tmp_path), cwd=tmp_path, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 128 + signal.SIGTERM
    assert not exists(child)
    assert left(tmp_path) == []


def test_ctrl_c_is_for_the_agent_alone(far: str, tmp_path: Path) -> None:
    """Which may still ask its model for a last word."""
    code = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("ready", flush=True)
signal.sigwait([signal.SIGINT])
print("stopped:", ask(), flush=True)
sys.exit(9)
"""
    with in_a_terminal(tmp_path, *command(*agent(far, code))) as (_, screen):
        screen.shows("ready")
        screen.type("\x03")
        screen.shows("stopped: Hello")
        screen.shows("exit status 9")
    assert left(tmp_path) == []


@pytest.mark.parametrize("stops", ["", "os.kill(os.getpid(), signal.SIGSTOP)"], ids=["Ctrl-Z", "itself"])
def test_a_stop_gives_the_shell_its_terminal_and_it_goes_on(stops: str, far: str, tmp_path: Path) -> None:
    code = f"""
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCONT])
print("ready", flush=True)
{stops}
signal.sigwait([signal.SIGCONT])
print("again:", ask(), flush=True)
"""
    with in_a_terminal(tmp_path, *command(*agent(far, code))) as (_, screen):
        screen.shows("ready")
        if not stops:
            screen.type("\x1a")
        screen.shows("the shell has the terminal")
        screen.type("\n")
        screen.shows("again: Hello")
        screen.shows("exit status 0")


def test_ctrl_c_before_there_is_an_agent(far: str, tmp_path: Path) -> None:
    with in_a_terminal(tmp_path, *command("run", "--upstream", f"{far}/v1", "--", "true")) as (_, screen):
        screen.shows("model [1-")  # the far gateway's models, and their other names
        screen.type("\x03")
        screen.shows("exit status 130")
    assert left(tmp_path) == []


def test_ctrl_c_shortly_before_a_block_that_holds_up_the_loop_ends_it() -> None:
    entered = []

    async def holds_up() -> None:
        signal.raise_signal(signal.SIGINT)  # asyncio takes it, and would end the task where it waits next
        with interruptible():
            entered.append(True)

    was = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(holds_up())
    finally:
        signal.signal(signal.SIGINT, was)
    assert not entered


def test_a_choice_at_the_terminal(far: str, tmp_path: Path) -> None:
    chosen = agent(far, "print('took', os.environ['OPENAI_MODEL'])")
    words = [word for word in chosen if word not in ("--model", "m")]
    with in_a_terminal(tmp_path, *command(*words)) as (_, screen):
        listed = screen.shows("model [1-")
        assert f"2  n, {far}/v1" in listed
        screen.type("2\n")
        screen.shows("took n")


def test_without_a_terminal_the_lines_to_type_are_told(far: str, tmp_path: Path) -> None:
    done = run(tmp_path, "run", "--upstream", f"{far}/v1", "--", "true")
    assert done.returncode == 2
    assert f"  dragoman run --upstream {far}/v1 --model n -- true\n" in done.stderr


def test_a_failure_of_the_model_leaves_the_log(far: str, tmp_path: Path) -> None:
    code = "os.environ['OPENAI_MODEL'] = 'none'\ntry: ask()\nexcept OSError as e: print(e)"
    done = run(tmp_path, *agent(far, code))
    told = done.stderr.splitlines()[-1]
    assert told.startswith("dragoman: the gateway's log is in ")
    log = Path(told.split(" is in ")[1].split(";")[0])
    assert "'none'" not in done.stdout
    assert '"status":404' in log.read_text()
    assert left(tmp_path) == [log.parent.name]


LOOK = """
for path in ("/api/tags", "/version", "/v1/props", "/v1/api/show"):
    url = os.environ["OPENAI_BASE_URL"].removesuffix("/v1") + path
    try: urllib.request.urlopen(urllib.request.Request(url, b"{}" if path.endswith("show") else None))
    except OSError as e: print(e.code)
ask()
"""
"""An agent that looks for what other servers have, without a key."""


def test_what_an_agent_looks_for_in_vain_is_nothing_that_went_wrong(far: str, tmp_path: Path) -> None:
    done = run(tmp_path, *agent(far, LOOK))
    assert set(done.stdout.split()) <= {"401", "404", "405"}, done.stdout
    assert "went wrong" not in done.stderr
    assert left(tmp_path) == []


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_not_taken_is_told_before_the_agent_starts(status: int, tmp_path: Path) -> None:
    """Where the list of models needs no key, nothing else says so but the agent, after minutes of trying."""

    def says(path: str, body: dict[str, Any]) -> stub_servers.Answer:
        return stub_servers.models("m") if path == "/v1/models" else stub_servers.refused("no", status)

    async with stub_servers.odd(says) as far:
        words = ("run", "--upstream", f"{far.url}/v1", "--model", "m", "--", "echo", "started")
        done = await asyncio.to_thread(run, tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "wants a key" in done.stderr


async def test_a_context_that_the_server_does_not_report_is_told(tmp_path: Path) -> None:
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


def test_a_log_that_is_asked_for_is_for_its_owner_alone(far: str, tmp_path: Path) -> None:
    done = run(tmp_path, *agent(far, "ask()", "--log-file", str(tmp_path / "kept.log")))
    assert done.returncode == 0, done.stderr
    assert '"status":200' in (tmp_path / "kept.log").read_text()
    assert (tmp_path / "kept.log").stat().st_mode & 0o777 == 0o600


def test_what_is_shown_has_no_key(far: str, tmp_path: Path) -> None:
    done = run(tmp_path, *agent(far, "", "--dry-run"), OPENAI_API_KEY="sk-own")
    assert done.returncode == 0, done.stderr
    assert "OPENAI_API_KEY=(not shown)" in done.stdout
    assert "OPENAI_BASE_URL=http://127.0.0.1:PORT/v1" in done.stdout


@pytest.mark.parametrize("name", ["claude", "opencode"])
def test_of_what_is_merged_with_ours_the_users_names_alone_are_shown(name: str) -> None:
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
def test_errors_say_what_to_type(words: list[str], told: str, tmp_path: Path) -> None:
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
def test_where_there_is_nothing_to_run_on(words: list[str], told: str, tmp_path: Path) -> None:
    """In a network in which no server of this machine is."""
    alone = [*offline.unshared(), *command("run", *words, "--", "true")]
    env = {**at_home(tmp_path), "DRAGOMAN_HOME": str(tmp_path)}
    done = subprocess.run(alone, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 2
    assert told in done.stderr


async def test_what_no_variable_can_hold_is_refused() -> None:
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
def test_a_proxy_is_not_asked_for_this_machine(given: Mapping[str, str], kept: object) -> None:
    assert output.proxy_bypass(given) == (
        kept or {} if not isinstance(kept, str) else {"NO_PROXY": kept, "no_proxy": kept}
    )


@pytest.mark.parametrize("shell", output.SHELLS)
def test_what_is_printed_keeps_a_proxy_from_this_machine(shell: str) -> None:
    made = LaunchPlan(("x",), {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"})
    said = output.format_environment(made, shell, {"HTTP_PROXY": "http://proxy", "NO_PROXY": "intra"})
    assert said.count("intra,127.0.0.1,localhost") == 2
    assert "NO_PROXY" not in output.format_environment(made, shell, {})


def beside(far: str) -> dict[str, str]:
    """Settings by which the far gateway is the one that runs."""
    return {"DRAGOMAN_SERVER_PORT": far.rpartition(":")[2]}


def test_a_gateway_that_runs_is_used(far: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", ASK + "print(ask(), os.environ['OPENAI_BASE_URL'])"]
    done = run(tmp_path, "run", "--model", "m", "--", *words, **beside(far))
    assert done.stdout == f"Hello {far}/v1\n", done.stderr
    assert done.stderr == f"dragoman: any command on m, the gateway at {far}, 100 tokens of context\n"
    done = run(tmp_path, "run", "--model", "m", "--new-gateway", "--", *words, **beside(far))
    assert "unknown model 'm'" in done.stderr


def test_variables_for_a_shell_lead_to_the_gateway_that_runs(far: str, tmp_path: Path) -> None:
    printing = [sys.executable, "-m", "dragoman", "run", "any", "--model", "m", "--print-env"]
    script = f'eval "$({shlex.join(printing)})" && {shlex.join([sys.executable, "-c", ASK + "print(ask())"])}'
    env = {**at_home(tmp_path), **beside(far)}
    done = subprocess.run(
        ["sh", "-c", script], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.stdout == "Hello\n", done.stderr


def test_the_files_of_printed_variables_stay_and_are_private(far: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "hermes").symlink_to("/bin/true")
    more = {"PATH": str(tmp_path / "bin"), "DRAGOMAN_HOME": str(tmp_path / "kept"), **beside(far)}
    words = ("run", "hermes", "--model", "m", "--context-window", "65536", "--print-env=json")
    done = run(tmp_path, *words, **more)
    folder = Path(json.loads(done.stdout)["HERMES_MANAGED_DIR"])
    assert folder == tmp_path / "kept" / "run" / "hermes"
    assert (folder.stat().st_mode & 0o777, (folder / "config.yaml").stat().st_mode & 0o777) == (0o700, 0o600)


def test_without_one_that_runs_there_is_nothing_to_print(tmp_path: Path) -> None:
    done = run(tmp_path, "run", "any", "--print-env", DRAGOMAN_SERVER_PORT="1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no gateway answers at port 1; start one: dragoman serve" in done.stderr
