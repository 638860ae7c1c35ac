"""One run of the real CLI as started by the backend, with a scripted API: all messages in order."""

import asyncio
import contextlib
import json
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench import offline

from dragoman.backends.claude_cli import command
from support.claude_cli.fake import words
from support.claude_cli.upstream import Reply, Upstream, upstream

SPEC: Final = command.ModelSpec("m", may_reask=True)
KEY: Final = {"ANTHROPIC_API_KEY": "sk-ant-dummy"}
OAUTH: Final = {"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-dummy"}
DEADLINE_S: Final = 60.0
CALLED: Final = ("message_stop", "tools/call")


@dataclass(frozen=True)
class Case:
    """The scripted API responses, and the input of the CLI."""

    replies: Sequence[Reply]
    tools: Sequence[Mapping[str, Any]] = ()
    schema: Mapping[str, Any] | None = None
    said: Sequence[Mapping[str, Any]] = ({"role": "user", "content": "Hello"},)
    retries: int = 0
    """The number of retries that the CLI may make."""
    login: Mapping[str, str] = field(default_factory=lambda: KEY)
    streams_only: bool = True
    """Whether the CLI must not repeat a broken stream as a request without streaming."""
    until: Sequence[str] = ("result",)
    """The recording ends once lines of all these kinds have arrived (see `words`)."""


@dataclass
class Run:
    """A run of the case in progress."""

    case: Case
    heard: list[tuple[str, Any]] = field(default_factory=list)
    """The source (`us`, `cli`, `stderr`, `wire`) and the message."""
    home: str = ""
    exit: int | None = None
    stdin: asyncio.StreamWriter | None = None
    events: int = 0
    """The number of events in the current stream."""

    async def say(self, line: object) -> None:
        assert self.stdin is not None
        self.heard.append(("us", line))
        self.stdin.write(json.dumps(line).encode() + b"\n")
        with contextlib.suppress(ConnectionError):
            await self.stdin.drain()

    def result(self, message: Any) -> Any:
        """The response to an MCP request; None: it gets no response."""
        match message.get("method"):
            case "initialize":
                info = {"name": "t", "version": "1"}
                version = message["params"]["protocolVersion"]
                return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/list":
                return {"tools": list(self.case.tools)}
            case "tools/call":
                return None
        return {}


async def run(case: Case) -> tuple[Run, Upstream]:
    """Runs a case with the real CLI to its end."""
    made = Run(case)
    async with upstream(*case.replies) as server:
        with tempfile.TemporaryDirectory() as home:
            made.home = home
            child = await asyncio.create_subprocess_exec(
                offline.claude_code(),
                *command.arguments(SPEC, tools=True),
                cwd=home,
                env=environment(case, Path(home), server.url),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=2**24,
                start_new_session=True,
            )
            made.stdin = child.stdin
            try:
                async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
                    tasks.create_task(_complaints(child, made))
                    tasks.create_task(_wire(server, made))
                    await _talk(child, made, server)
                    made.exit = await _ended(child, politely="result" in case.until)
                    server.came.set()
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                await child.wait()
    return made, server


def environment(case: Case, home: Path, url: str) -> dict[str, str]:
    """The backend's environment, with the scripted server in place of the vendor's."""
    ours = {**offline.environment(home), **case.login, "ANTHROPIC_BASE_URL": url}
    env = command.environment(ours, (), SPEC, case.retries)
    return env if case.streams_only else {**env, "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": ""}


async def _talk(child: asyncio.subprocess.Process, made: Run, server: Upstream) -> None:
    request: dict[str, Any] = {"subtype": "initialize", "sdkMcpServers": ["t"], "systemPrompt": ["Be brief."]}
    request |= {"jsonSchema": made.case.schema} if made.case.schema else {}
    await made.say({"type": "control_request", "request_id": "begin", "request": request})
    begun = listed = False
    while not (begun and listed):
        line = await _hear(child, made)
        if line is None:
            return
        begun |= line["type"] == "control_response"
        listed |= "tools/list" in words(line)
    *past, last = made.case.said
    for said in past:
        line = {"type": said["role"], "message": said}
        await made.say({**line, "shouldQuery": False} if said["role"] == "user" else line)
        while said["role"] == "user":
            if (heard := await _hear(child, made)) is None or heard["type"] == "result":
                break
    await made.say({"type": "user", "message": last})
    left = set(made.case.until)
    while left and (heard := await _hear(child, made)) is not None:
        left -= words(heard)
        if heard["type"] == "result":
            return
        if heard["type"] == "stream_event":
            made.events = 1 if "message_start" in words(heard) else made.events + 1
            if made.events == sum(event["type"] != "ping" for event in server.reply.events):
                server.heard.set()


async def _hear(child: asyncio.subprocess.Process, made: Run) -> Any:
    """Reads the next line, and responds to requests; None: the CLI has ended."""
    assert child.stdout is not None
    said = await child.stdout.readline()
    if not said:
        return None
    line = json.loads(said)
    made.heard.append(("cli", line))
    if line["type"] == "control_request":
        message = line["request"]["message"]
        result = made.result(message)
        if result is not None:
            reply = {"mcp_response": {"jsonrpc": "2.0", "id": message.get("id"), "result": result}}
            response = {"subtype": "success", "request_id": line["request_id"], "response": reply}
            await made.say({"type": "control_response", "response": response})
    return line


async def _ended(child: asyncio.subprocess.Process, politely: bool) -> int:
    assert child.stdin is not None
    child.stdin.close()
    if not politely:
        child.terminate()
    return await child.wait()


async def _complaints(child: asyncio.subprocess.Process, made: Run) -> None:
    assert child.stderr is not None
    async for said in child.stderr:
        made.heard.append(("stderr", said.decode().rstrip("\n")))


async def _wire(server: Upstream, made: Run) -> None:
    """Records each request to the model's API."""
    seen = 0
    while made.exit is None:
        await server.came.wait()
        server.came.clear()
        for asked in server.asked[seen:]:
            made.heard.append(("wire", {"path": asked.path, "stream": bool((asked.body or {}).get("stream"))}))
        seen = len(server.asked)
