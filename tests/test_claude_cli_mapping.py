"""What a client asks for and how claude is told: by the program itself, with a model that plays a script behind it."""

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from bench import offline

from agents import NOWHERE
from dragoman.backends.claude_cli import ClaudeCli, command, models
from dragoman.backends.claude_cli.command import Spec
from dragoman.backends.claude_cli_config import ClaudeCliConfig
from dragoman.core import values as v
from dragoman.core.events import AnyEvent, Finish, ReasoningDelta, Start, TextDelta, UsageUpdate
from dragoman.gateway import Gateway
from gateway import CHAT, DEADLINE_S, MESSAGES
from scripted import Scripted, served, serving

RESPONSES: Final = "/v1/responses"
KNOWN: Final = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-sonnet-4-5", "claude-fable-5-2")
"""Models of the script; the first are what the CLI has for its aliases."""

Events = Sequence[AnyEvent]


@dataclass
class Play:
    """A script: an answer for each request, in their order; the last again."""

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
    """client → gateway → claude → the script."""

    client: httpx2.AsyncClient
    heard: Callable[[], list[dict[str, Any]]]
    """The bodies of the requests that reached the model."""
    backend: ClaudeCli

    async def ask(self, path: str, words: str = "hi", **more: Any) -> httpx2.Response:
        said = {"input": words} if path == RESPONSES else {"messages": [{"role": "user", "content": words}]}
        limit = {"max_tokens": 5000} if path == MESSAGES else {}
        return await self.client.post(path, json={**said, **limit, **more})


@contextlib.asynccontextmanager
async def chain(home: Path, *answers: Events, **settings: Any) -> AsyncIterator[Chain]:
    async with served(Play(answers or (WORDS,)), names=KNOWN) as far:
        shut = {"HTTPS_PROXY": NOWHERE, "HTTP_PROXY": NOWHERE, "NO_PROXY": "127.0.0.1"}
        environ = offline.environment(home, ANTHROPIC_BASE_URL=far.url, ANTHROPIC_API_KEY="k", **shut)
        config = ClaudeCliConfig(enabled=True, command=str(offline.claude_code()), mode="native", **settings)
        backend = ClaudeCli(config, environ)
        async with (
            serving(Gateway([backend])) as (_, url),
            httpx2.AsyncClient(base_url=url, timeout=DEADLINE_S, trust_env=False, verify=False) as client,
        ):
            yield Chain(client, lambda: [json.loads(sent.body) for sent in far.sent], backend)


async def test_how_to_think_and_how_long(tmp_path: Path) -> None:
    """Two processes do for six requests: one that waits takes any of its model."""
    thoughts = {"type": "adaptive", "display": "summarized"}
    sonnet, older = "claude-sonnet-5-5", "claude-sonnet-4-5"
    cases: list[tuple[str, dict[str, Any], tuple[str, int, Any, str | None]]] = [
        (CHAT, {"model": "sonnet"}, (sonnet, 128000, thoughts, "medium")),
        (
            CHAT,
            {"model": "claude-code-cli/sonnet", "reasoning_effort": "minimal", "max_completion_tokens": 3000},
            (sonnet, 3000, thoughts, "low"),
        ),
        (RESPONSES, {"model": "sonnet", "reasoning": {"effort": "max"}}, (sonnet, 128000, thoughts, "max")),
        (MESSAGES, {"model": "sonnet", "max_tokens": 999999}, (sonnet, 128000, None, "medium")),
        (
            MESSAGES,
            {"model": "anthropic/claude-sonnet-4.5", "thinking": {"type": "enabled", "budget_tokens": 2000}},
            (older, 5000, {"type": "enabled", "budget_tokens": 2000, "display": "summarized"}, None),
        ),
        (CHAT, {"model": "claude-sonnet-4-5", "max_tokens": 50}, (older, 50, None, None)),
    ]
    async with chain(tmp_path) as c:
        for path, more, _ in cases:
            answer = await c.ask(path, **more)
            assert answer.status_code == 200, answer.text
        heard = [
            (body["model"], body["max_tokens"], body.get("thinking"), body.get("output_config", {}).get("effort"))
            for body in c.heard()
        ]
        assert heard == [expected for _, _, expected in cases]
        assert c.backend.state()["cold_starts"] == 2


async def test_thoughts_are_shown_and_kept(tmp_path: Path) -> None:
    thinks = (ReasoningDelta("Hm."), ReasoningDelta("", "c2ln"), *WORDS)
    async with chain(tmp_path, thinks) as c:
        asked: dict[str, Any] = {"model": "haiku", "thinking": {"type": "adaptive"}, "max_tokens": 500}
        first = (await c.ask(MESSAGES, **asked)).json()
        assert first["content"][0] == {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
        history = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": first["content"]},
            {"role": "user", "content": "more"},
        ]
        again = (await c.ask(MESSAGES, **asked, messages=history)).json()
        chat = (await c.ask(CHAT, model="haiku")).json()
    assert [m["content"] for m in c.heard()[1]["messages"] if m["role"] == "assistant"] == [first["content"]]
    assert again["usage"] == first["usage"]
    assert (first["usage"]["input_tokens"], first["usage"]["output_tokens"]) == (40, 5)
    assert (first["usage"]["cache_read_input_tokens"], first["usage"]["cache_creation_input_tokens"]) == (40, 20)
    assert chat["choices"][0]["message"]["reasoning_content"] == "Hm."
    assert chat["usage"]["prompt_tokens_details"]["cached_tokens"] == 40


@pytest.mark.parametrize(
    ("name", "own"),
    {
        "opus": "opus",
        "sonnet[1m]": "sonnet[1m]",
        "claude-code-cli/fable": "fable",
        "claude-code-cli/claude-opus-4": "opus",
        "claude-haiku-4": "haiku",
        "claude-haiku-4-5-20251001": "claude-haiku-4-5-20251001",
        "anthropic/claude-opus-4.5": "claude-opus-4-5",
        "maxproxy/claude-opus-4-8[1m]": "claude-opus-4-8[1m]",
        "gpt-5": None,
        "claude-code-cli/gpt-5": None,
        "claude": None,
        "claude-$(id)": None,
        "--model": None,
        "claude-code-cli/--bare": None,
        "opus sonnet": None,
    }.items(),
)
def test_names_of_models(name: str, own: str | None) -> None:
    taken = models.meant(name)
    assert (None if taken is None else models.spec(v.Request(taken, ())).model) == own


async def test_an_unknown_model_is_refused_in_each_api(tmp_path: Path) -> None:
    async with chain(tmp_path) as c:
        for path in (CHAT, MESSAGES, RESPONSES):
            answer = await c.ask(path, model="opus-magnum")
            assert answer.status_code == 404
            told = answer.json()["error"]
            assert told["type"] == "not_found_error" if path == MESSAGES else told["code"] == "model_not_found"
            assert "'opus'" in told["message"]
    assert c.heard() == []


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({}, Spec("m")),
        ({"effort": "xhigh"}, Spec("m", "xhigh")),
        ({"effort": "none"}, Spec("m", "", 0)),
        ({"effort": "immense"}, Spec("m")),
        ({"max_tokens": 1024}, Spec("m", "", 0, 1024)),
        ({"max_tokens": 1025}, Spec("m", "", None, 1025)),
        ({"dialect": "anthropic_messages"}, Spec("m", "", 0)),
        ({"dialect": "anthropic_messages", "extra": {"thinking": b'{"type":"adaptive"}'}}, Spec("m")),
        ({"dialect": "anthropic_messages", "extra": {"thinking": b'{"type":"disabled"}'}}, Spec("m", "", 0)),
        ({"dialect": "anthropic_messages", "extra": {"thinking": b"[]"}}, Spec("m", "", 0)),
        (
            {"dialect": "anthropic_messages", "extra": {"thinking": b'{"type":"enabled","budget_tokens":5000}'}},
            Spec("m", "", 5000),
        ),
    ],
)
def test_what_is_asked_of_the_model(asked: dict[str, Any], told: Spec) -> None:
    assert models.spec(v.Request("m", (), **asked)) == told


def test_what_a_process_is_told_when_it_starts_or_when_it_runs() -> None:
    spec = Spec("m", "low", 2000, 3000)
    variables = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "3000", "MAX_THINKING_TOKENS": "2000"}
    assert variables.items() <= command.environment({}, (), spec, 0).items()
    assert command.controls(spec)[0]["settings"] == {"env": variables, "effortLevel": "low"}
    assert command.controls(Spec("m", "", 0)) == [
        {"subtype": "apply_flag_settings", "settings": {"env": {"CLAUDE_CODE_DISABLE_THINKING": "1"}}}
    ]
