"""A gateway with the real Claude CLI, and the requests that reach its model."""

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
from bench import offline

from dragoman.backends.claude_cli.backend import ClaudeCliBackend
from dragoman.backends.claude_cli.config import ClaudeCliConfig
from dragoman.core import messages as v
from dragoman.core.events import (
    AnyEvent,
    Finish,
    Start,
    TextDelta,
    UsageUpdate,
)
from dragoman.gateway.gateway import Gateway
from support.agents import NOWHERE
from support.gateway import MESSAGES
from support.http_client import http_client
from support.scripted_backend import Scripted, served, serving

RESPONSES: Final = "/v1/responses"


KNOWN: Final = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-sonnet-4-5", "claude-fable-5-2")
"""Models of the script; the first ones are the targets of the CLI's aliases."""


Events = Sequence[AnyEvent]


@dataclass
class Play:
    """A scripted model: one response per request, in order; the last one is repeated."""

    answers: Sequence[Events]
    asked: list[v.Request] = field(default_factory=list)

    async def __call__(self, backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        self.asked.append(request)
        yield Start("", "", 0, 100)
        for event in self.answers[min(len(self.asked), len(self.answers)) - 1]:
            yield event
        yield UsageUpdate(v.Usage(100, 5, 40, cache_write_tokens=20))
        yield Finish("stop")


WORDS: Final = (TextDelta("Hello"),)


@dataclass
class Chain:
    """The chain client → gateway → claude → scripted model."""

    client: httpx2.AsyncClient
    heard: Callable[[], list[dict[str, Any]]]
    """The bodies of the requests that reached the model."""
    backend: ClaudeCliBackend

    async def ask(self, path: str, words: str = "hi", **more: Any) -> httpx2.Response:
        said = {"input": words} if path == RESPONSES else {"messages": [{"role": "user", "content": words}]}
        limit = {"max_tokens": 5000} if path == MESSAGES else {}
        return await self.client.post(path, json={**said, **limit, **more})


@contextlib.asynccontextmanager
async def chain(home: Path, *answers: Events, **settings: Any) -> AsyncIterator[Chain]:
    async with served(Play(answers or (WORDS,)), names=KNOWN) as far:
        shut = {"HTTPS_PROXY": NOWHERE, "HTTP_PROXY": NOWHERE, "NO_PROXY": "127.0.0.1"}
        environ = offline.environment(home, ANTHROPIC_BASE_URL=far.url, ANTHROPIC_API_KEY="k", **shut)
        config = ClaudeCliConfig(
            enabled=True, command=str(offline.claude_code()), **{"tool_mode": "native", **settings}
        )
        backend = ClaudeCliBackend(config, environ)
        async with (
            serving(Gateway([backend])) as (_, url),
            http_client(url) as client,
        ):
            yield Chain(client, lambda: [json.loads(sent.body) for sent in far.sent], backend)


def warned(answer: httpx2.Response) -> list[str]:
    return [label.partition(":")[0] for label in answer.headers.get("x-dragoman-warnings", "").split(", ") if label]
