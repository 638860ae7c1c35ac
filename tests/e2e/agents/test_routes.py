"""The real Claude Code behind routes: its roles are sent to different models."""

import asyncio
import json
import os
import queue
import sys
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench import offline
from bench.terminal import Terminal

from dragoman.config.routes import take_routes
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from dragoman.core.messages import Request, ToolResult, has_part
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.routing.route import Routes
from support import agents
from support.gateway import DEADLINE_S
from support.scripted_backend import AS_PLAYED, Scripted, serving

RULES = [
    {"agent": "claude-code", "role": ["title", "background"], "use": "small"},
    {"agent": "claude-code", "role": "subagent", "use": "medium"},
]
TASK = {"description": "look", "prompt": "Look at notes.txt", "subagent_type": "general-purpose"}


class Played:
    """A scripted model: the conversation starts one agent; everything else gets a text."""

    def __init__(self) -> None:
        self.models: dict[str, set[str]] = {"conversation": set(), "agent": set(), "title": set()}
        """The models that were asked, by what asked them."""

    async def __call__(self, backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        is_agent = "Look at notes.txt" in str(request.messages[:3]) and "start an agent" not in str(
            request.messages[:3]
        )
        asks = "title" if request.response_schema else "agent" if is_agent else "conversation"
        self.models[asks].add(request.model)
        yield Start("", "", 0)
        if asks == "conversation" and not has_part(request.messages, ToolResult):
            yield ToolCallStart(0, "call_0", "Agent")
            yield ToolCallDelta(0, json.dumps(TASK))
            yield ToolCallEnd(0)
        else:
            yield TextDelta('{"title": "Pomegranate"}' if request.response_schema else "pomegranate")
        yield Finish("stop")


@contextmanager
def routed(script: Played) -> Iterator[str]:
    """The URL of a gateway with the rules, in a thread."""
    loop, urls, stop = asyncio.new_event_loop(), queue.Queue[str](), asyncio.Event()

    async def serve() -> None:
        backend = Scripted(script, ["small", "medium"])
        gateway = Gateway([backend], policy=AS_PLAYED, rules=Routes(take_routes({"routes": RULES}, "file")))
        async with serving(gateway, ping_sent=backend.ping_sent) as (_, url):
            urls.put(url)
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    try:
        yield urls.get(timeout=DEADLINE_S)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(DEADLINE_S)
        loop.close()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX terminal")
def test_title_agent_and_conversation_are_sent_to_different_models(tmp_path: Path) -> None:
    folder = agents.folder_of(tmp_path)
    settings = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": ["sk-none"], "rejected": []},
        "projects": {str(folder): {"hasTrustDialogAccepted": True}},
    }
    (tmp_path / ".claude.json").write_text(json.dumps(settings))
    script = Played()
    with routed(script) as url:
        shut = {"HTTPS_PROXY": agents.NOWHERE, "HTTP_PROXY": agents.NOWHERE, "NO_PROXY": "127.0.0.1"}
        own = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-none", "DISABLE_AUTOUPDATER": "1"}
        env = {**offline.environment(tmp_path, **shut, **own), "PATH": os.defpath}
        command = [
            str(offline.claude_code()),
            "--model",
            "m",
            "--permission-mode",
            "default",
            "--allowedTools",
            "Agent",
        ]
        with Terminal(command, env, folder) as terminal:
            terminal.settle()
            terminal.settle()
            terminal.type("Please start an agent")
            terminal.settle()
            for _ in range(5):  # a key that arrives while text is inserted becomes a part of it
                terminal.type("\r")
                terminal.settle()
                if script.models["conversation"]:
                    break
            terminal.wait_for(lambda screen: all(script.models.values()))
    assert script.models == {"conversation": {"m"}, "agent": {"medium"}, "title": {"small"}}
