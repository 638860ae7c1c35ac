"""Runs real agents against a gateway: with their own home and, where possible, without access to other hosts.

Where the system allows it, they run in a network namespace with only the gateway's port; elsewhere all other hosts go
through a proxy that does not exist.
"""

import asyncio
import contextlib
import json
import os
import signal
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench import offline
from bench.claude_code import QUIET

from dragoman.core import messages as v
from dragoman.core.events import (
    AnyEvent,
    Finish,
    ReasoningDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageUpdate,
)
from support.gateway import DEADLINE_S
from support.scripted_backend import Scripted

PROMPT: Final = "Read notes.txt and say what it holds"
NOTES: Final = "pomegranate\n"
OURS: Final = ("notes.txt", NOTES.strip())
"""Strings that mark text as the test's own, not the client's."""
NOWHERE: Final = "http://127.0.0.1:9"
"""A proxy that does not exist, for all other hosts."""


@dataclass
class Calling:
    """A scripted model: reasoning and one call, in small deltas; once there is a result, returns its text.

    It waits for pings before the first delta, and within the call.
    """

    tool: str
    arguments: dict[str, object]
    asked: list[v.Request] = field(default_factory=list)
    """The requests with tools; requests without tools are for other purposes, such as a title."""
    pauses: bool = True
    """Whether it waits for pings."""

    async def __call__(self, backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        results = [p for m in request.messages for p in m.parts if isinstance(p, v.ToolResult)]
        if request.tools and self.pauses:
            await backend.pause(request)
        yield Start("", "", 0, 100)
        if not request.tools:
            yield TextDelta("Notes")
        else:
            self.asked.append(request)
            yield ReasoningDelta("hm", "c2ln")
            if results:
                yield TextDelta(words(results[-1]))
            else:
                text = json.dumps(self.arguments)
                yield ToolCallStart(0, "call_0", self.tool)
                if self.pauses:
                    await backend.pause(request)
                for at in range(0, len(text), 7):
                    yield ToolCallDelta(0, text[at : at + 7])
                yield ToolCallEnd(0)
        yield UsageUpdate(v.Usage(100, 5))
        yield Finish("stop")

    def called(self) -> v.ToolCall:
        """Returns the call as the client sent it back with its result."""
        (call,) = (p for m in self.asked[-1].messages for p in m.parts if isinstance(p, v.ToolCall))
        return call

    def result(self) -> str:
        """Returns the text of the tool result."""
        (result,) = (p for m in self.asked[-1].messages for p in m.parts if isinstance(p, v.ToolResult))
        return words(result)


def words(result: v.ToolResult) -> str:
    return "".join(part.text for part in result.parts if isinstance(part, v.Text))


def folder_of(home: Path) -> Path:
    """Creates the agent's working directory, which contains one file."""
    folder = home / "folder"
    folder.mkdir()
    (folder / "notes.txt").write_text(NOTES)
    return folder


@contextlib.asynccontextmanager
async def started(
    url: str,
    home: Path,
    folder: Path,
    command: Sequence[str | Path],
    stdin: int,
    deadline_s: float = 4 * DEADLINE_S,
    **env: str,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Starts the agent; all its processes end with the test."""
    async with _reachable(url) as before:
        shut = {} if before else {"HTTPS_PROXY": NOWHERE, "HTTP_PROXY": NOWHERE, "NO_PROXY": "127.0.0.1"}
        process = await asyncio.create_subprocess_exec(
            *before,
            *command,
            cwd=folder,
            env=dict(offline.environment(home, **env, **shut)),
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=2**20,  # one line can contain all tools and commands
        )
        try:
            async with asyncio.timeout(deadline_s):  # some need half a minute of CPU time to start
                yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def run(
    url: str, home: Path, folder: Path, command: Sequence[str | Path], deadline_s: float = 4 * DEADLINE_S, **env: str
) -> str:
    """Runs the agent, and returns its output; asserts exit status 0."""
    async with started(url, home, folder, command, asyncio.subprocess.DEVNULL, deadline_s, **env) as process:
        said, complaints = await process.communicate()
    assert process.returncode == 0, (complaints.decode(), said.decode())
    return said.decode()


def lines(said: str) -> list[dict[str, Any]]:
    """Parses output of JSON lines."""
    return [json.loads(line) for line in said.splitlines()]


async def claude_code(
    url: str, home: Path, folder: Path, *more: str, prompt: str = PROMPT, deadline_s: float = 4 * DEADLINE_S
) -> list[dict[str, Any]]:
    """Runs Claude Code once, and returns its JSON output lines."""
    options = ["--model", "m", "--allowedTools", "Read", "--output-format", "stream-json", "--verbose", *more]
    env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", **QUIET}
    command = [offline.claude_code(), "-p", prompt, *options]
    return lines(await run(url, home, folder, command, deadline_s, **env))


async def converse(
    url: str, home: Path, folder: Path, contents: Sequence[object], *more: str, **env: str
) -> list[dict[str, Any]]:
    """Runs a conversation with Claude Code; sends each message after the response to the one before."""
    options = ["--model", "m", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", *more]
    env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", **QUIET, **env}
    told: list[dict[str, Any]] = []
    command = [offline.claude_code(), "-p", *options]
    async with started(url, home, folder, command, asyncio.subprocess.PIPE, **env) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for content in contents:
            line = {"type": "user", "message": {"role": "user", "content": content}}
            process.stdin.write(json.dumps(line).encode() + b"\n")
            async for said in process.stdout:
                told.append(json.loads(said))
                if told[-1]["type"] == "result":
                    break
        process.stdin.close()
        _, complaints = await process.communicate()
    assert process.returncode == 0, (complaints.decode(), told)
    return told


async def codex(url: str, home: Path, folder: Path, model: str = "m", *more: str) -> list[dict[str, Any]]:
    """Runs Codex, and returns its JSON output lines."""
    provider = f'{{name="test",base_url="{url}/v1",env_key="KEY",wire_api="responses"}}'
    settings = {"analytics.enabled": "false", "model_provider": "test", "model_providers.test": provider}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    plain = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--ephemeral", "--json"]
    command = ["exec", *plain, "--disable", "plugins", "--disable", "apps", "-m", model, *options, *more, "--", PROMPT]
    return lines(await run(url, home, folder, [offline.codex(), *command], KEY="k"))


async def opencode(url: str, home: Path, folder: Path, package: str) -> list[dict[str, Any]]:
    """Runs OpenCode, and returns its JSON output lines; the provider package selects the API."""
    options = {"baseURL": f"{url}/v1", "apiKey": "k"}
    provider = {"npm": package, "options": options, "models": {"m": {"name": "m", "tool_call": True}}}
    env = {
        "OPENCODE_CONFIG_CONTENT": json.dumps({"provider": {"test": provider}, "permission": {"*": "allow"}}),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    }
    flags = ("--pure", "--format", "json", "--title", "t", "-m", "test/m")
    return lines(await run(url, home, folder, [offline.opencode(), "run", *flags, PROMPT], **env))


async def hermes(url: str, home: Path, folder: Path, mode: str, *more: str, **settings: object) -> str:
    """Runs Hermes Agent, and returns its last message; the mode selects the API."""
    provider = {"name": "test", "base_url": url, "api_key": "k", "api_mode": mode}
    model = {"default": "m", "provider": "custom:test", "context_length": 131072}
    patient = {"mcp_discovery_timeout": DEADLINE_S}  # otherwise it starts without its MCP servers
    calm = {"security": {"tirith_enabled": False}}  # otherwise it tries to download it
    config = {"model": model, "custom_providers": [provider], **patient, **calm, **settings}
    (home / ".hermes").mkdir()
    (home / ".hermes" / "config.yaml").write_text(json.dumps(config))  # which is YAML too
    command = [offline.agent("hermes"), *more, "--yolo", "--ignore-rules"]
    return (await run(url.removesuffix("/v1"), home, folder, command)).strip()


async def openclaw(url: str, home: Path, folder: Path, *more: str) -> dict[str, Any]:
    """Runs OpenClaw over Chat Completions, and returns its report."""
    model = {"id": "m", "name": "m", "input": ["text", "image"], "contextWindow": 131072, "maxTokens": 8192}
    provider = {"baseUrl": f"{url}/v1", "apiKey": "k", "api": "openai-completions", "models": [model]}
    defaults = {"model": {"primary": "test/m"}, "models": {"test/m": {}}}
    config = {"models": {"providers": {"test": provider}}, "agents": {"defaults": defaults}}
    (home / "openclaw.json").write_text(json.dumps(config))
    env = {"OPENCLAW_CONFIG_PATH": str(home / "openclaw.json"), "OPENCLAW_NO_AUTO_UPDATE": "1"}
    path = ":".join([str(offline.node().parent), os.defpath])
    command = [offline.openclaw(), "agent", "exec", "--json", "--cwd", str(folder), *more, PROMPT]
    told: dict[str, Any] = json.loads(await run(url, home, folder, command, PATH=path, **env))
    return told


@contextlib.asynccontextmanager
async def _reachable(url: str) -> AsyncIterator[list[str]]:
    """Yields the command prefix with which a program can reach only the gateway."""
    port = int(url.rpartition(":")[2])

    async def link(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(offline.forward(reader, there_writer), offline.forward(there_reader, writer))

    with tempfile.TemporaryDirectory() as short:  # a socket's path may have 107 characters
        socket_path = Path(short) / "gateway"
        links = await asyncio.start_unix_server(link, socket_path)
        try:
            yield offline.port_network(port, socket_path)
        finally:
            links.close()
