"""The real Claude CLI between a gateway and a scripted model.

    client ─its API→ gateway ─JSON lines→ claude ─Messages→ scripted model

The requests to the scripted model are kept byte for byte.
"""

import contextlib
import json
import platform
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench import offline

from dragoman.backends.claude_cli.backend import ClaudeCliBackend
from dragoman.backends.claude_cli.config import ClaudeCliConfig
from dragoman.config.server import CaptureConfig
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
from dragoman.core.identifiers import NAME_FORM, ToolNameMap
from dragoman.gateway.gateway import Gateway
from dragoman.guard.policy import GuardPolicy
from support.agents import NOWHERE
from support.scripted_backend import Script, Scripted, Sent, served, serving

FLOWING = GuardPolicy(buffering="off")
"""Calls are streamed without buffering."""

PREFIX: Final = "mcp__t__"
"""The prefix of the client's tool names in requests to the model."""
BILLING: Final = "x-anthropic-billing-header:"
IDENTITY: Final = "You are a Claude agent, built on Anthropic's Claude Agent SDK."
"""The CLI's own text before the client's system prompt."""
SECRETS: Final = {
    "USER": "ada-of-the-host",
    "LOGNAME": "ada-of-the-host",
    "MY_SECRET": "a-secret-of-the-host",
    "ANTHROPIC_API_KEY": "sk-key-of-the-host",
}
"""Variables of the gateway that must not reach the model."""


@dataclass(frozen=True)
class Says:
    """A response of the model: text, and calls with the client's tool names."""

    text: str = ""
    calls: Sequence[tuple[str, Mapping[str, object]]] = ()
    thoughts: str = ""


@dataclass
class Turns:
    """A scripted model: its n-th response is for a conversation with n - 1 responses."""

    answers: Sequence[Says]
    asked: list[v.Request] = field(default_factory=list)

    async def __call__(self, backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        turn = sum(map(_answers, request.messages))
        said = self.answers[min(turn, len(self.answers) - 1)]
        self.asked.append(request)
        yield Start("", "", 0, 100)
        if said.thoughts:
            yield ReasoningDelta(said.thoughts, "c2ln")
        if said.text:
            yield TextDelta(said.text)
        for index, (name, arguments) in enumerate(said.calls if request.tools else ()):
            text = json.dumps(arguments, ensure_ascii=False)
            yield ToolCallStart(index, f"toolu_{turn}_{index}", _offered(request, name))
            for at in range(0, len(text), 7):
                yield ToolCallDelta(index, text[at : at + 7])
            yield ToolCallEnd(index)
        for name, arguments in said.calls if not request.tools else ():
            text = f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'
            for at in range(0, len(text), 7):
                yield TextDelta(text[at : at + 7])
        yield UsageUpdate(v.Usage(100, 5))
        yield Finish("stop")


def _answers(message: v.Message) -> int:
    """The number of model responses in a message; in text mode the user's message contains all of them."""
    told = "".join(part.text for part in message.parts if isinstance(part, v.Text) and message.role == "user")
    return told.count("</previous_response>") + (message.role == "assistant")


def _offered(request: v.Request, name: str) -> str:
    """The tool's name in the request to the model."""
    names = [tool.name for tool in request.tools]
    (found,) = {PREFIX + name, PREFIX + spelled(name)} & set(names)
    return found


def spelled(name: str) -> str:
    """The client's tool name as the model's API accepts it, without the prefix."""
    return ToolNameMap([name], NAME_FORM).sent(name)


@dataclass
class Seen:
    """A request that reached the model."""

    raw: bytes
    system: str
    """Without the CLI's own text."""
    tools: dict[str, tuple[str, Any]]
    """Description and schema by the client's names; without the empty paragraph that protects a description."""
    said: list[tuple[str, list[Any]]]
    """Role and blocks of each message, without the CLI's additions and cache marks."""

    @classmethod
    def of(cls, sent: Sent) -> "Seen":
        body = json.loads(sent.body)
        texts = [block["text"] for block in body["system"] if not block["text"].startswith(BILLING)]
        assert texts.pop(0) == IDENTITY
        tools = {
            tool["name"].removeprefix(PREFIX): (tool.get("description", "").removeprefix("\n\n"), tool["input_schema"])
            for tool in body.get("tools", ())
        }
        said = [(m["role"], _bare(m["content"])) for m in body["messages"] if m["role"] != "system"]
        return cls(sent.body, "\n\n".join(texts), tools, said)

    def blocks(self, kind: str) -> list[Any]:
        return [block for _, blocks in self.said for block in blocks if block["type"] == kind]


def _bare(content: Any) -> list[Any]:
    blocks = [text(content)] if isinstance(content, str) else content
    return [{name: value for name, value in block.items() if name != "cache_control"} for block in blocks]


def offered(posted: Sent) -> dict[str, tuple[str, Any]]:
    """Description and schema of the tools in a client's request, for any API."""
    tools = [tool.get("function", tool) for tool in json.loads(posted.body).get("tools", ())]
    schemas = [(tool, tool.get("parameters", tool.get("input_schema"))) for tool in tools]
    return {tool["name"]: (tool.get("description", ""), schema) for tool, schema in schemas if schema is not None}


def instructed(posted: Sent) -> str:
    """The system text of a client's request, for any API."""
    body = json.loads(posted.body)
    said = body.get("messages") or body.get("input") or ()
    told = [item["content"] for item in said if item.get("role") in ("system", "developer")]
    told = [body.get("instructions"), body.get("system"), *told]
    return "\n\n".join(
        part["text"]
        for content in filter(None, told)
        for part in ([text(content)] if isinstance(content, str) else content)
    )


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


@dataclass
class Chain:
    """The URL and the recorded requests of the whole chain."""

    url: str
    """The gateway's URL."""
    posted: list[Sent]
    """The client's requests."""
    sent: list[Sent]
    """The requests that reached the model."""
    host: Sequence[str]
    """Strings that must not reach the model."""

    def seen(self) -> list[Seen]:
        """Returns the requests that reached the model; asserts that they contain no host data."""
        for sent in self.sent:
            assert [word for word in self.host if word.encode() in sent.body] == []
        return [Seen.of(sent) for sent in self.sent]


@contextlib.asynccontextmanager
async def behind_claude(
    script: Script,
    home: Path,
    mode: str,
    model: str = "m",
    command: Path | None = None,
    login: str = "ANTHROPIC_API_KEY",
    capture: str = "",
    **settings: Any,
) -> AsyncIterator[Chain]:
    """A gateway with the Claude CLI and a scripted model named `model`; `login` is the credential variable."""
    home = home / "home-of-the-host"
    home.mkdir()
    async with served(script, alias=model, policy=GuardPolicy(enabled=False, buffering="off")) as far:
        shut = {"HTTPS_PROXY": NOWHERE, "HTTP_PROXY": NOWHERE, "NO_PROXY": "127.0.0.1"}
        secrets = {login if name == "ANTHROPIC_API_KEY" else name: value for name, value in SECRETS.items()}
        environ = offline.environment(home, ANTHROPIC_BASE_URL=far.url, **shut, **secrets)
        config = ClaudeCliConfig(
            True, str(command or offline.claude_code()), mode, (model,), **{"warm_processes": 0, **settings}
        )
        posted: list[Sent] = []
        async with serving(
            Gateway([ClaudeCliBackend(config, environ)], policy=FLOWING), posted, capture=CaptureConfig(dir=capture)
        ) as (
            _,
            url,
        ):
            host = [home.name, str(Path.cwd()), platform.node(), *SECRETS.values()]
            yield Chain(url, posted, far.sent, host)
