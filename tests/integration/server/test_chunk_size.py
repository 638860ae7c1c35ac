"""Delta sizes: no text is lost or reordered, and each delta has the configured length."""

import json
from collections.abc import AsyncGenerator

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config.server import ServerConfig
from dragoman.core.collect import collect
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
from dragoman.core.messages import Request, Usage
from dragoman.gateway.delta_size import DeltaResizer
from dragoman.gateway.gateway import Gateway
from dragoman.server.app import App
from support.fake_upstream import FRONTS
from support.scripted_backend import AS_PLAYED, Scripted

WORDS = st.lists(st.text("aé\U0001f600", min_size=1, max_size=9), max_size=8)


def answer(thoughts: list[str], words: list[str], arguments: list[str]) -> list[AnyEvent]:
    return [
        Start("1", "m", 0),
        *map(ReasoningDelta, thoughts),
        *([ReasoningDelta("", "signed")] if thoughts else []),
        *map(TextDelta, words),
        ToolCallStart(0, "c0", "f"),
        ToolCallDelta(0, '{"a":"'),
        *(ToolCallDelta(0, text) for text in arguments),
        ToolCallDelta(0, '"}'),
        ToolCallEnd(0),
        UsageUpdate(Usage(1, 1)),
        Finish("tool_calls"),
    ]


@settings(max_examples=40)
@given(WORDS, WORDS, WORDS, st.integers(0, 20), st.integers(0, 20))
def test_resized_deltas_keep_response(t: list[str], w: list[str], a: list[str], least: int, most: int) -> None:
    events = answer(t, w, a)
    resizer = DeltaResizer(least, most)
    out = [each for event in events for each in resizer.feed([event])]
    assert DeltaResizer(least, most).feed(events) == out
    assert collect(out) == collect(events)
    sizes = [len(event.text) for event in out if isinstance(event, TextDelta)]
    assert not most or max(sizes, default=0) <= most
    assert most or all(size >= least for size in sizes[:-1])


@pytest.mark.parametrize("path", FRONTS)
async def test_delta_size_settings_apply_to_each_api(path: str) -> None:
    async def script(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        for event in answer([], [*"0123456789abcdef", "ghijklmnopqrstuvwxyz"], []):
            yield event

    config = ServerConfig(delta_min_chars=8, delta_max_chars=10)
    app = App(Gateway([Scripted(script)], policy=AS_PLAYED), config)
    asked: dict[str, object] = {"model": "m", "stream": True, "max_tokens": 9, "tools": []}
    asked |= {"input": "hi"} if path.endswith("responses") else {"messages": [{"role": "user", "content": "hi"}]}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as http:
        said = await http.post(path, json=asked)
        metrics = (await http.get("/metrics")).text
    texts = []
    for line in said.text.splitlines():
        event = json.loads(line[6:]) if line.startswith("data: {") else {}
        deltas = [event.get("delta"), *(choice["delta"].get("content") for choice in event.get("choices", []))]
        texts += [each["text"] if isinstance(each, dict) and "text" in each else each for each in deltas]
    spoken = [text for text in texts if isinstance(text, str) and text.isalnum()]
    assert spoken == ["01234567", "89abcdef", "ghijklmnop", "qrstuvwxyz"]
    assert said.headers["server-timing"].startswith("convert;dur=")
    assert 'dragoman_conversion_seconds_count{model="m"} 1.0' in metrics
