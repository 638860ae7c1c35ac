"""Two days of a team: three agents, four models on three upstream servers, a real gateway between them.

One model, `tiny-coder`, writes bad calls, above all of Codex's `apply_patch`. The agents' headers are those of the
real programs; the records get the times of two days.
"""

import asyncio
import contextlib
import itertools
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, NamedTuple

import httpx2
import msgspec

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.gateway.gateway import Gateway
from dragoman.records.config import RecordsConfig
from dragoman.records.record import ExchangeRecord
from dragoman.records.writer import RecordWriter
from support.clock import Clock
from support.fake_upstream import END, HEAD, Server, server
from support.http_client import http_client
from support.scripted_backend import serving

DAY_S: Final = 86_400
MODELS: Final = {"gpt-6": "cloud", "glm-5": "cloud", "qwen3-coder": "vllm", "tiny-coder": "laptop"}
"""The upstream server of each model."""
BAD_MODEL, BAD_SHARE, OTHER_BAD_SHARE = "tiny-coder", 0.8, 0.1
BAD_TOOL: Final = "apply_patch"


class Agent(NamedTuple):
    """An agent: its headers, its API, and its tools with their required arguments."""

    name: str
    path: str
    headers: dict[str, str]
    tools: dict[str, Sequence[str]]


AGENTS: Final = (
    Agent(
        "claude-code",
        "/v1/messages",
        {
            "user-agent": "claude-cli/2.1.329 (external, sdk-cli)",
            "x-app": "cli",
            "x-claude-code-session-id": "5f4c8a52-0c1d-4b8e-9a55-1d2e3f405162",
            "anthropic-version": "2023-06-01",
            "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14",
        },
        {"Read": ["file_path"], "Bash": ["command"], "Edit": ["file_path", "old_string", "new_string"]},
    ),
    Agent(
        "codex",
        "/v1/responses",
        {"user-agent": "codex_exec/0.169.0 (Debian 12.0.0; x86_64) unknown", "session-id": "019a-codex"},
        {"exec_command": ["cmd"], "apply_patch": ["path", "patch"]},
    ),
    Agent(
        "opencode",
        "/v1/chat/completions",
        {"user-agent": "opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun/1.3.14", "x-session-id": "ses_1"},
        {"read": ["filePath"], "bash": ["command"], "edit": ["filePath", "oldString", "newString"]},
    ),
)


class TimedWriter(RecordWriter):
    """Writes records with the times of a clock."""

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        super().__init__(RecordsConfig(url=url, keep_days=36_500), batch_delay_s=0.01)
        self._clock = clock

    def add(self, record: ExchangeRecord) -> None:
        super().add(msgspec.structs.replace(record, ended_s=self._clock()))


async def simulate(url: str, exchanges: int, start_s: float) -> None:
    """Sends the requests, and writes their records to the database, spread over two days."""
    chance = random.Random(exchanges)
    clock, pairs = Clock(), list(itertools.product(AGENTS, (*MODELS, BAD_MODEL)))
    writer = TimedWriter(url, clock)
    try:
        async with _gateway(chance, writer) as gateway_url, http_client(gateway_url) as client:
            for place in range(exchanges):
                clock.s = start_s + 2 * DAY_S * place / exchanges
                answer = await _send(client, *pairs[place % len(pairs)])
                assert answer.status_code == 200, answer.text
    finally:
        await asyncio.to_thread(writer.close)


@contextlib.asynccontextmanager
async def _gateway(chance: random.Random, writer: RecordWriter) -> AsyncIterator[str]:
    async def play(upstream: Server, stream: asyncio.StreamWriter) -> None:
        request = json.loads(upstream.asked.pop()[2])
        stream.write(HEAD + b"".join(_chunks(request, chance)) + END)

    async with contextlib.AsyncExitStack() as stack:
        backends = []
        for name in dict.fromkeys(MODELS.values()):
            upstream = await stack.enter_async_context(server(play))
            models = tuple(model for model, place in MODELS.items() if place == name)
            config = HttpConfig(url=upstream.url + "/v1", models=models, tool_mode="native", max_retries=0)
            backends.append(HttpBackend(name, config, {}))
        _, url = await stack.enter_async_context(serving(Gateway(backends), records=writer))
        yield url


async def _send(client: httpx2.AsyncClient, agent: Agent, model: str) -> httpx2.Response:
    text = "Rename the function."
    body: dict[str, Any] = {"model": model, "stream": True}
    schemas = {name: _schema(required) for name, required in agent.tools.items()}
    match agent.path:
        case "/v1/messages":
            tools = [{"name": name, "input_schema": schema} for name, schema in schemas.items()]
            body |= {"messages": [{"role": "user", "content": text}], "max_tokens": 99, "tools": tools}
        case "/v1/responses":
            tools = [{"type": "function", "name": name, "parameters": schema} for name, schema in schemas.items()]
            body |= {"input": text, "store": False, "tools": tools}
        case _:
            functions = [{"name": name, "parameters": schema} for name, schema in schemas.items()]
            body |= {
                "messages": [{"role": "user", "content": text}],
                "tools": [{"type": "function", "function": function} for function in functions],
                "stream_options": {"include_usage": True},
            }
    return await client.post(agent.path, json=body, headers=agent.headers)


def _schema(required: Sequence[str]) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in required}, "required": list(required)}


def _chunks(request: dict[str, Any], chance: random.Random) -> list[bytes]:
    """Returns a call of one of the offered tools, as an upstream server streams it."""
    function = chance.choice(request["tools"])["function"]
    arguments = {name: "text" for name in function["parameters"]["required"]}
    bad_share = 0.0
    if request["model"] == BAD_MODEL:
        bad_share = BAD_SHARE if function["name"] == BAD_TOOL else OTHER_BAD_SHARE
    if chance.random() < bad_share:
        arguments.popitem()
    call = {"name": function["name"], "arguments": json.dumps(arguments)}
    id = f"call_{chance.getrandbits(60):x}"
    delta = {"role": "assistant", "tool_calls": [{"index": 0, "id": id, "type": "function", "function": call}]}
    usage = {"prompt_tokens": chance.randrange(5_000, 50_000), "completion_tokens": chance.randrange(20, 400)}
    usage |= {"total_tokens": sum(usage.values())}
    details = {"prompt_tokens_details": {"cached_tokens": usage["prompt_tokens"] // 2}}
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": delta, "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": "tool_calls"},
    ]
    events = [{"id": "x", "choices": [choice]} for choice in choices]
    events.append({"id": "x", "choices": [], "usage": {**usage, **details}})
    return [_chunk(f"data: {json.dumps(event)}\n\n".encode()) for event in events]


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"
