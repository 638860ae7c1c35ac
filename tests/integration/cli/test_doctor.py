"""`dragoman doctor`: findings and fixes, with and without an installed Claude Code CLI."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest
from bench import offline

from dragoman.backends.claude_cli import auth_status
from dragoman.backends.claude_cli.config import ClaudeCliConfig
from dragoman.backends.claude_cli.discovery import ClaudeInstall
from dragoman.backends.embedded.weights import checksums
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.probe.cache import store
from dragoman.backends.probe.report import Recommendation
from dragoman.catalog import models as model_catalog
from dragoman.cli.doctor.finding import Finding, check
from dragoman.cli.doctor.gateway import format_duration, port_finding
from dragoman.cli.doctor.gateway_client import gateway_url
from dragoman.cli.doctor.metrics_client import Calls
from dragoman.cli.doctor.report import format_report
from dragoman.config.server import ServerConfig
from dragoman.core.events import AnyEvent, Finish, Start, ToolCallDelta, ToolCallEnd, ToolCallStart
from dragoman.core.messages import Request, Text
from dragoman.guard.policy import GuardPolicy
from support.base_environment import dragoman
from support.fake_upstream import server, whole
from support.gateway import CHAT, environment, run, running
from support.llama_server_program import llama_server_program
from support.ports import free_port
from support.scripted_backend import Scripted, Served, in_thread, plain, served

Told = Mapping[str, Mapping[str, Any]]
ROWS = [{"id": id, "object": "model", "owned_by": "vllm"} for id in ("qwen3-8b", "n", "o")]
MODEL_LIST = whole(200, json.dumps({"object": "list", "data": ROWS}))
ALL_WORKS = "Everything that these settings use works."


def doctor(home: Path, *args: str, **settings: str) -> tuple[int, Told]:
    """Runs `dragoman doctor --json`; returns its exit status and the findings by name."""
    done = run(home, "doctor", "--json", *args, **{"DRAGOMAN_SERVER_PORT": str(free_port()), **settings})
    told: list[dict[str, Any]] = json.loads(done.stdout)
    assert not done.stderr
    return done.returncode, {finding["what"]: finding for finding in told}


def finding_text(finding: Mapping[str, Any]) -> str:
    return "\n".join([finding["text"], *finding.get("lines", ()), finding.get("fix", "")])


def with_claude(**more: str) -> dict[str, str]:
    """Variables with which the Claude Code CLI is on the PATH, without network access."""
    path = os.pathsep.join([str(offline.claude_code().parent), os.defpath])
    return {"PATH": path, "HTTPS_PROXY": "http://127.0.0.1:9", **more}


def settings(home: Path, text: str) -> str:
    file = home / "settings.toml"
    file.write_text(text)
    return str(file)


def test_doctor_without_setup_reports_notes_only(tmp_path: Path) -> None:
    """This is no problem: the embedded model is downloaded and served."""
    status, told = doctor(tmp_path, DRAGOMAN_HOME=str(tmp_path))
    assert status == 0
    assert told["weights"]["verdict"] == "note"
    assert told["weights"]["fix"] == "dragoman pull smollm2-135m"
    assert told["claude"]["verdict"] == "note"
    assert told["claude"]["fix"] == "npm install -g @anthropic-ai/claude-code"
    assert not [finding for finding in told.values() if finding["verdict"] == "no"]


def test_changed_weights_are_reported(tmp_path: Path) -> None:
    """The changed time is noticed without reading the file; changed bytes only with --weights."""
    (tmp_path / "weights").mkdir()
    file, model = tmp_path / "weights" / "smollm2-135m.gguf", model_catalog.default()
    with file.open("wb") as sparse:
        sparse.truncate(model.size_bytes)
    checksums.keep(file, model.sha256)
    status, told = doctor(tmp_path, DRAGOMAN_HOME=str(tmp_path))
    assert (status, told["weights"]["verdict"]) == (0, "ok")
    status, told = doctor(tmp_path, "--weights", DRAGOMAN_HOME=str(tmp_path))
    assert (status, told[f"weights {model.name}"]["verdict"]) == (1, "no")
    assert model.sha256 in told[f"weights {model.name}"]["text"]
    assert told[f"weights {model.name}"]["fix"] == "dragoman pull smollm2-135m"
    status, told = doctor(tmp_path, DRAGOMAN_HOME=str(tmp_path))
    assert (status, told["weights"]["verdict"], told["weights"]["fix"]) == (1, "no", "dragoman pull smollm2-135m")


def test_missing_claude_cli_is_reported_when_enabled(tmp_path: Path) -> None:
    status, told = doctor(tmp_path, "--claude-cli")
    assert status == 1
    assert told["claude"]["verdict"] == "no"
    assert told["claude"]["text"] == "there is no program 'claude'"
    assert told["claude"]["fix"] == "npm install -g @anthropic-ai/claude-code"
    assert "name other models" in told["weights"]["text"], "then no embedded model is served"


def test_missing_claude_login_is_reported(tmp_path: Path) -> None:
    status, told = doctor(tmp_path, "--claude-cli", **with_claude())
    assert status == 1
    assert told["claude"]["verdict"] == "ok"
    assert offline.version("@anthropic-ai/claude-code") in told["claude"]["text"]
    assert "natively" in told["claude"]["text"]
    assert told["claude's login"]["verdict"] == "no"
    assert told["claude's login"]["text"] == "claude is not logged in"
    assert told["claude's login"]["fix"] == "claude auth login"


def test_serve_reports_missing_claude_login_and_starts(tmp_path: Path) -> None:
    """The gateway starts all the same: a login made later is used."""
    settings = {"claude_cli.enabled": "true", "claude_cli.command": str(offline.claude_code())}
    with running(tmp_path, settings=settings) as gateway:
        assert gateway.line("claude is not logged in; run: claude auth login")
    done = run(tmp_path, "serve", "--claude-cli", "--print-config")
    assert done.returncode == 2
    assert "install it: npm install -g @anthropic-ai/claude-code" in done.stderr


def test_missing_claude_login_is_note_when_claude_is_disabled(tmp_path: Path) -> None:
    status, told = doctor(tmp_path, **with_claude())
    assert status == 0
    assert told["claude"]["verdict"] == "ok"
    assert told["claude's login"]["verdict"] == "note"


def test_api_key_counts_as_login_and_is_not_shown(tmp_path: Path) -> None:
    file = settings(tmp_path, "[claude_cli]\nenabled = true")
    status, told = doctor(tmp_path, "--config", file, **with_claude(ANTHROPIC_API_KEY="sk-ant-hidden"))
    assert status == 0
    assert told["claude's login"] == {
        "what": "claude's login",
        "verdict": "ok",
        "text": "api_key, ANTHROPIC_API_KEY",
    }
    assert "hidden" not in json.dumps(told)


def test_variable_not_passed_to_claude_is_not_a_login(tmp_path: Path) -> None:
    """`claude auth status` runs with the variables that the CLI processes get, and no others."""
    status, told = doctor(tmp_path, "--claude-cli", **with_claude(CLAUDE_CODE_USE_BEDROCK="1"))
    assert status == 1
    assert told["claude's login"]["verdict"] == "no"


async def test_old_claude_version_is_not_asked_for_auth_status(tmp_path: Path) -> None:
    """It would take the arguments for a prompt."""
    nowhere = ClaudeInstall(str(tmp_path / "not there"), (2, 1, 39), "text")
    assert await auth_status.query_auth_status(nowhere, ClaudeCliConfig(), {}) == auth_status.AuthStatus(None)


@pytest.mark.parametrize("said", [b"", b"Not logged in", b"[]", b'{"other": 1}', b"\xff", b'{"loggedIn": "yes"}'])
def test_invalid_auth_status_output_is_unknown(said: bytes) -> None:
    assert auth_status.parse_status(said) == auth_status.AuthStatus(None)


def test_auth_status_of_subscription_is_parsed() -> None:
    """The account's e-mail address is left out."""
    said: dict[str, Any] = {"loggedIn": True, "authMethod": "claude.ai", "email": "a@b.c", "subscriptionType": "max"}
    assert auth_status.parse_status(json.dumps(said).encode()) == auth_status.AuthStatus(True, "claude.ai, max")


def test_doctor_reports_reachable_and_unreachable_servers(tmp_path: Path) -> None:
    with in_thread(plain) as url:
        file = settings(
            tmp_path,
            f'[upstreams.near]\nurl = "{url}/v1"\n[upstreams.gone]\nurl = "http://127.0.0.1:9/v1"\n'
            f'[upstreams.keyed]\nurl = "{url}/v1"\napi_key_env = "NOT_SET"\n',
        )
        status, told = doctor(tmp_path, "--config", file)
    assert status == 1
    assert told["server near"]["verdict"] == "ok"
    assert url in told["server near"]["text"]
    assert told["server gone"]["verdict"] == told["server keyed"]["verdict"] == "no"
    gone = "nothing answers at http://127.0.0.1:9: Connection refused; is the server running?"
    assert told["server gone"]["text"] == gone
    assert told["server keyed"]["fix"] == "export NOT_SET=…"
    assert told["server gone"]["fix"] == "start it there, or take [upstreams.gone] out of the settings"


def test_doctor_checks_server_of_upstream_with_key(tmp_path: Path) -> None:
    with in_thread(plain) as url:
        args = ("--upstream", f"{url}/v1", "--upstream-api", "anthropic_messages", "--api-key-env", "THE_KEY")
        _, told = doctor(tmp_path, *args, THE_KEY="a-long-key")
        status, missing = doctor(tmp_path, *args)
    assert told["server upstream"]["verdict"] == "ok"
    assert status == 1
    assert missing["server upstream"]["fix"] == "export THE_KEY=…"


def test_invalid_settings_are_reported(tmp_path: Path) -> None:
    status, told = doctor(tmp_path, "--config", settings(tmp_path, "[server]\nprot = 1"))
    assert status == 1
    assert told["settings"]["verdict"] == "no"
    assert "did you mean 'server.port'?" in told["settings"]["text"]


def test_doctor_text_output_fits_screen(tmp_path: Path) -> None:
    done = run(tmp_path, "doctor", "--claude-cli", DRAGOMAN_SERVER_PORT=str(free_port()))
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].split()[:2] == ["dragoman", "ok"]
    assert lines[1].split()[:2] == ["settings", "ok"]
    assert max(map(len, lines)) <= 100 or str(tmp_path) in done.stdout
    assert len(lines) <= 40
    assert lines[-1] == "1 problem to fix: claude."
    assert "\x1b" not in done.stdout


def test_doctor_runs_in_base_install() -> None:
    """The base install reports the missing extras."""
    done = dragoman("doctor")
    assert done.returncode == 1
    assert "pip install 'dragoman[server,embedded]'" in " ".join(done.stdout.split())


# What a running gateway has counted


def schema(name: str) -> dict[str, object]:
    parameters = {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


async def writes(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    """Scripted model that writes the user's text as arguments, also when it is re-asked."""
    said = [part.text for message in request.messages for part in message.parts if isinstance(part, Text)]
    yield Start("", "", 0)
    yield ToolCallStart(0, "call_1", "forecast")
    yield ToolCallDelta(0, said[0])
    yield ToolCallEnd(0)
    yield Finish("stop")


async def diagnosed(home: Path, s: Served, *args: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Runs `dragoman doctor` in a thread, so that the gateway of this event loop can respond."""
    port = s.url.rpartition(":")[2]
    return await asyncio.to_thread(run, home, "doctor", *args, DRAGOMAN_SERVER_PORT=port, **environ)


async def asked(s: Served, *said: str, **headers: str) -> None:
    async with s.client() as client:
        for words in said:
            messages = [{"role": "user", "content": words}]
            body = {"model": "m", "messages": messages, "tools": [schema("forecast")]}
            assert (await client.post(CHAT, json=body, headers=headers)).status_code == 200


async def test_doctor_reports_tool_call_counts(tmp_path: Path) -> None:
    async with served(writes, policy=GuardPolicy()) as s:
        await asked(s, '{"days": 1}', '{"days": 2}', '{"days": "3"}', '{"day": 4}')
        done = await diagnosed(tmp_path, s, "--json")
        people = await diagnosed(tmp_path, s)
    told = {finding["what"]: finding for finding in json.loads(done.stdout)}
    assert told["gateway"]["verdict"] == "ok"
    assert s.url in told["gateway"]["text"]
    assert "4 requests, 0 failed, 0 being answered" in told["gateway"]["text"]
    assert told["calls"]["text"] == "4 tool calls since then"
    assert told["calls"]["models"] == [
        {"model": "m", "calls": 4, "valid": 2, "repaired": 1, "reasked": 0, "failed": 1, "unchecked": 0}
    ]
    assert "models" not in told["gateway"]
    *_, heads, row, _, end = people.stdout.rstrip("\n").splitlines()
    assert end == ALL_WORKS
    assert re.split("  +", heads.strip()) == [
        *("model", "calls", "valid at first", "repaired", "re-asked", "failed", "unchecked"),
    ]
    assert re.split("  +", row.strip()) == ["m", "4", "50.0 %", "1", "0", "1", "0"]
    assert len(row) == len(heads) <= 100


async def test_gateway_metrics_are_read_with_configured_key(tmp_path: Path) -> None:
    """Its metrics are requested with the key from the settings only."""
    async with served(writes, policy=GuardPolicy(), api_keys=("secret-key", "other-key")) as s:
        await asked(s, '{"days": 1}', authorization="Bearer secret-key")
        known = await diagnosed(tmp_path, s, DRAGOMAN_SERVER_API_KEYS="other-key")
        wrong = await diagnosed(tmp_path, s, DRAGOMAN_SERVER_API_KEYS="wrong-key")
    assert "1 tool call since then" in known.stdout
    assert "takes other keys than server.api_keys" in " ".join(wrong.stdout.split())
    assert "-key" not in known.stdout + wrong.stdout + known.stderr + wrong.stderr


async def test_gateway_without_metrics_is_reported(tmp_path: Path) -> None:
    async with served(plain, metrics=False) as s:
        done = await diagnosed(tmp_path, s)
    assert "has no /metrics: server.metrics is off there" in " ".join(done.stdout.split())
    assert done.returncode == 0


async def test_gateway_without_tool_calls_is_reported(tmp_path: Path) -> None:
    async with served(plain) as s:
        done = await diagnosed(tmp_path, s)
    assert ["calls", "ok", "no", "tool", "calls", "since", "then"] in map(str.split, done.stdout.splitlines())


async def test_foreign_server_on_gateway_port_gets_no_key(tmp_path: Path) -> None:
    heard = bytearray()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
        port = str(other.sockets[0].getsockname()[1])
        settings = {"DRAGOMAN_SERVER_PORT": port, "DRAGOMAN_SERVER_API_KEYS": "secret-key"}
        status, told = await asyncio.to_thread(lambda: doctor(tmp_path, **settings))
    assert status == 1
    words = told["gateway"]["text"]
    assert words.startswith(f"127.0.0.1 port {port} is taken by ")
    assert words.endswith(f"(process {os.getpid()}), which is not a gateway")
    assert re.fullmatch(r"end that, or: dragoman serve --port \d+", told["gateway"]["fix"])
    assert heard.startswith(b"GET / ")
    assert b"secret" not in heard


async def test_non_http_server_on_gateway_port_is_reported(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"220 mail.example ready\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
        port = str(other.sockets[0].getsockname()[1])
        status, told = await asyncio.to_thread(lambda: doctor(tmp_path, DRAGOMAN_SERVER_PORT=port))
    assert status == 1
    assert "is taken by" in told["gateway"]["text"]


def test_stopped_gateway_is_reported_with_free_port(tmp_path: Path) -> None:
    port = str(free_port())
    status, told = doctor(tmp_path, DRAGOMAN_SERVER_PORT=port)
    assert status == 0
    assert told["gateway"] == {
        "what": "gateway",
        "verdict": "ok",
        "text": f"not running; 127.0.0.1 port {port} is free; loopback only, no key needed",
        "fix": "dragoman serve",
    }
    assert "calls" not in told


def test_port_zero_is_not_checked(tmp_path: Path) -> None:
    status, told = doctor(tmp_path, DRAGOMAN_SERVER_PORT="0", DRAGOMAN_SERVER_API_KEYS="first-key,second-key")
    assert status == 0
    assert told["gateway"]["text"] == "not checked, because it uses any free port of 127.0.0.1; accepts 2 keys"


def test_port_check_of_foreign_address_returns_error() -> None:
    error = port_finding("192.0.2.1", 8484)
    assert error is not None
    assert error.strerror


@pytest.mark.parametrize(
    ("host", "where"),
    [
        ("127.0.0.1", "http://127.0.0.1:1"),
        ("0.0.0.0", "http://127.0.0.1:1"),
        ("::", "http://[::1]:1"),
        ("::1", "http://[::1]:1"),
        ("box.lan", "http://box.lan:1"),
    ],
)
def test_gateway_url_uses_loopback_for_wildcard_host(host: str, where: str) -> None:
    assert gateway_url(ServerConfig(host=host, port=1)) == where


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7300, "2 h"), (90_000, "25 h"), (2e5, "2 days")],
)
def test_duration_is_formatted_with_largest_unit(seconds: float, told: str) -> None:
    assert format_duration(seconds) == told


def test_long_model_table_is_truncated() -> None:
    models = tuple(Calls(f"lan/{'x' * 60}{n}\x1b[2J", 9, 0, 0, 0, 0, 9) for n in range(25))
    *lines, _, end = format_report([[Finding("calls", "ok", "225 calls since then", models=models)]]).splitlines()
    assert end == ALL_WORKS
    assert lines[-1].strip() == "and 5 more, in /metrics"
    assert all(line.isprintable() and len(line) <= 100 for line in lines)
    assert lines[3].split()[1:] == ["9", "-", "0", "0", "0", "9"]


# What is known about models, and servers that are not in the settings


async def test_model_abilities_are_reported_from_probe_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only cached probe results are reported; the models get no request."""
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path))
    async with server(MODEL_LIST) as behind:
        url = f"{behind.url}/v1"
        held = Recommendation("parse", "a call was left in the text", "hermes", ("json_schema",))
        store(HttpConfig(url=url), "qwen3-8b", "vllm", "1", held)
        file = settings(tmp_path, f'[upstreams.near]\nurl = "{url}"\napi_key_env = "KEY"\n')
        variables = {"DRAGOMAN_HOME": str(tmp_path), "KEY": "k"}
        status, told = await asyncio.to_thread(lambda: doctor(tmp_path, "--config", file, **variables))
    assert status == 0
    near = told["server near"]
    assert near["text"] == f"{url} is vLLM, with 3 models"
    assert near["lines"] == [
        "qwen3-8b  parse, hermes, constrained by json_schema: a call was left in the text",
        "not measured yet: n, o",
    ]
    assert near["fix"] == f"dragoman probe {url} --model n --api-key-env KEY"
    assert not [line for line, _, body in behind.asked if body or not line.startswith("GET ")]


def test_configured_tool_mode_needs_no_probe(tmp_path: Path) -> None:
    with in_thread(plain) as url:
        file = settings(tmp_path, f'[upstreams.near]\nurl = "{url}/v1"\nmodels = ["qwen3"]\ntool_mode = "prompt"\n')
        _, told = doctor(tmp_path, "--config", file)
    assert told["server near"]["lines"] == ["qwen3  prompt, hermes: the settings say so"]
    assert "fix" not in told["server near"]


def test_unconfigured_local_server_is_reported(tmp_path: Path) -> None:
    """Discovery uses the default ports; here it gets one port, since other processes may use the real ones."""
    script = (
        "import sys; from dragoman.backends.probe import discover;"
        "port = int(sys.argv.pop(1)); discover.default_ports = lambda: [port];"
        "from dragoman.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    with in_thread(plain) as url:
        port = url.rpartition(":")[2]
        command = [sys.executable, "-c", script, port, "doctor", "--json"]
        env = {**environment(tmp_path), "DRAGOMAN_SERVER_PORT": str(free_port())}
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        named = subprocess.run([*command, "--upstream", url], env=env, capture_output=True, text=True, timeout=60)
    (near,) = (finding for finding in json.loads(done.stdout) if finding["what"] == "nearby")
    assert near["text"] == f"Dragoman at {url}/v1, with 3 models; not in the settings"
    assert near["fix"] == f"dragoman serve --upstream {url}/v1"
    assert not [finding for finding in json.loads(named.stdout) if finding["what"] == "nearby"]


def test_settings_are_reported_without_secrets(tmp_path: Path) -> None:
    text = '[server]\napi_keys = ["sk-hidden"]\n[upstreams.far]\nurl = "http://me:hidden@127.0.0.1:9/v1"\n'
    text += '[tools.web_search]\nuse = "searxng"\nurl = "http://me:hidden@127.0.0.1:9"\n'
    done = run(tmp_path, "doctor", "--config", settings(tmp_path, text), DRAGOMAN_EMBEDDED_PROMPT_TRIM="aggressive")
    words = " ".join(done.stdout.split())
    assert (
        'set: server.api_keys = 1 not shown · embedded.prompt_trim = "aggressive" (DRAGOMAN_EMBEDDED_PROMPT_TRIM)'
        in words
    )
    assert "hidden" not in done.stdout


def test_missing_weights_without_auto_download_are_a_problem(tmp_path: Path) -> None:
    home = {"DRAGOMAN_HOME": str(tmp_path), "DRAGOMAN_EMBEDDED_AUTO_DOWNLOAD": "false"}
    status, told = doctor(tmp_path, **home)
    assert status == 1
    assert told["weights"]["text"] == "the weights of smollm2-135m are not on this machine"
    assert told["weights"]["fix"] == "dragoman pull smollm2-135m"


def test_hardware_of_the_embedded_engine_is_reported(tmp_path: Path) -> None:
    threads = {"DRAGOMAN_EMBEDDED_THREADS": "2"}
    _, told = doctor(tmp_path, **threads)
    assert "CPU only, 2 threads" in told["hardware"]["text"] or " free" in told["hardware"]["text"]
    own = {"DRAGOMAN_EMBEDDED_ENGINE": "llama-server", "DRAGOMAN_EMBEDDED_LLAMA_SERVER": "/none"}
    status, told = doctor(tmp_path, **own)
    assert status == 1
    assert told["hardware"]["text"].startswith("expected an executable program, got '/none'")
    own["DRAGOMAN_EMBEDDED_LLAMA_SERVER"] = llama_server_program()
    _, told = doctor(tmp_path, **own, **threads)
    assert told["hardware"]["verdict"] in ("ok", "note")


def test_llama_server_that_does_not_start_is_reported(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\necho 'libcudart.so.12: cannot open' >&2\nexit 127\n")
    program.chmod(0o700)
    own = {"DRAGOMAN_EMBEDDED_ENGINE": "llama-server", "DRAGOMAN_EMBEDDED_LLAMA_SERVER": str(program)}
    _, told = doctor(tmp_path, **own)
    assert told["hardware"]["verdict"] == "no"
    assert told["hardware"]["text"] == "the embedded engine could not be started: libcudart.so.12: cannot open"


def test_invalid_settings_do_not_stop_other_checks(tmp_path: Path) -> None:
    file = settings(tmp_path, "[server]\nprot = 1")
    _, told = doctor(tmp_path, "--config", file)
    assert told["settings"]["fix"] == f"edit {file}, then: dragoman doctor"
    assert {"extras", "weights", "claude"} <= set(told)


@pytest.mark.parametrize(
    ("message", "words", "fix"),
    [
        ("it is not there; run: dragoman pull x", "it is not there", "dragoman pull x"),
        ("no program; install it: npm install -g x - at claude_cli.command", "no program", "npm install -g x"),
        ("more is needed: pip install 'dragoman[server]'", "more is needed", "pip install 'dragoman[server]'"),
        ("it is broken", "it is broken", "mend it"),
    ],
)
def test_fix_command_is_separated_from_message(message: str, words: str, fix: str) -> None:
    assert check("x", "no", message, "mend it") == Finding("x", "no", words, fix)


def test_report_colours_only_the_verdict() -> None:
    text = format_report([[Finding("a", "no", "it is gone", "start it")]], colour=True)
    assert "\x1b[1;31mno  \x1b[0m" in text
    assert re.sub(r"\x1b\[[\d;]*m", "", text) == format_report([[Finding("a", "no", "it is gone", "start it")]])


# Agents


def program(folder: Path, name: str, script: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def test_installed_agents_are_reported_with_versions(tmp_path: Path) -> None:
    """The version commands of the agents leave no file in the user's home."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program(folder, "codex", 'echo "codex-cli 0.98.1"; touch "$HOME/seen" seen')
    package = tmp_path / "lib" / "opencode-ai"
    (package / "bin").mkdir(parents=True)
    (package / "postinstall.mjs").write_text("")
    program(package / "bin", "opencode.exe", "echo 1.2.3; exit 1")
    (folder / "opencode").symlink_to(package / "bin" / "opencode.exe")
    before = sorted(tmp_path.rglob("*"))
    status, told = doctor(tmp_path, PATH=f"{folder}:{os.defpath}")
    assert status == 0
    assert told["agents"]["text"] == "Codex 0.98.1"
    assert told["opencode"]["text"].endswith("opencode does not start")
    assert told["opencode"]["fix"] == f"node {package / 'postinstall.mjs'}"
    assert told["agents"]["fix"] == "dragoman run codex"
    assert sorted(tmp_path.rglob("*")) == before


def test_missing_agents_are_reported_with_install_command(tmp_path: Path) -> None:
    _, told = doctor(tmp_path)
    assert told["agents"]["verdict"] == "note"
    assert "npm install -g @openai/codex" in told["agents"]["lines"]


@pytest.mark.parametrize(
    ("args", "variables", "fix"),
    [
        (["--upstream", "here:1"], {}, None),
        (["--config", "not-there.toml"], {}, "name one that is there: dragoman doctor --config FILE"),
        ([], {"DRAGOMAN_SERVER_HOST": "0.0.0.0"}, "correct the variable; `env | grep DRAGOMAN_` shows all"),
    ],
    ids=["option", "file", "variable"],
)
def test_settings_error_fix_depends_on_origin(
    args: list[str], variables: dict[str, str], fix: str | None, tmp_path: Path
) -> None:
    status, told = doctor(tmp_path, *args, **variables)
    assert status == 1
    assert told["settings"].get("fix") == fix
