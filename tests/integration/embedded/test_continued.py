"""A response of which another process wrote a part: the scripted engine, and the real one."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import pytest

from dragoman.backends.embedded.admitted_request import HeldSlot
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.engine_output import Output
from dragoman.backends.shared.answer import TextReports
from dragoman.core import events as ev
from dragoman.core import messages as v
from dragoman.core.backend import ExchangeContext, OpeningText
from support.scripted_llama import PROFILE, ScriptedLlama, backend

pytestmark = pytest.mark.model
SCHEMA = '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'
WEATHER = v.Tool("get_weather", "Weather in a city.", SCHEMA)
CALL = 'Wait.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


class RecordingLlama(ScriptedLlama):
    """Records the last request."""

    body: Mapping[str, Any]

    async def complete(
        self, body: Mapping[str, Any], *, admitted: bool = False, slot: HeldSlot | None = None
    ) -> AsyncGenerator[Output, None]:
        self.body = body
        async with aclosing(super().complete(body, admitted=admitted)) as outputs:
            async for output in outputs:
                yield output


def request(max_tokens: int, *tools: v.Tool) -> v.Request:
    message = v.Message("user", (v.Text("Write a list of 500 animals, one a line."),))
    return v.Request(PROFILE.name, (message,), tools, max_tokens=max_tokens, sampling=v.Sampling(temperature=0))


class Tokens:
    """A link to a gateway, which records the tokens."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def send(self, *frame: object) -> None:
        kind, text = frame
        assert kind == "text"
        self.texts.append(str(text))

    async def send_counted(self, *frame: object) -> None:
        raise AssertionError(frame)


async def events_of(
    model: EmbeddedModel, asked: v.Request, opening: OpeningText | None = None, observer: TextReports | None = None
) -> list[ev.AnyEvent]:
    context = ExchangeContext("id", 0, iter("abcdefgh").__next__, observer=observer, opening=opening)
    async with aclosing(model.generate(asked, context)) as batches:
        return [event async for batch in batches for event in batch]


def content(events: list[ev.AnyEvent]) -> list[str]:
    texts = "".join(each.text for each in events if isinstance(each, ev.TextDelta))
    arguments = "".join(each.text for each in events if isinstance(each, ev.ToolCallDelta))
    return [texts, arguments, str(events[-1])]


def scripted(engine: ScriptedLlama) -> EmbeddedModel:
    model = backend()
    model.engine = engine
    return model


@pytest.mark.parametrize("cut", range(1, len(CALL), 7))
async def test_begun_text_is_parsed_with_its_rest(cut: int) -> None:
    whole = await events_of(scripted(ScriptedLlama(CALL)), request(40, WEATHER))
    engine = RecordingLlama(CALL[cut:])
    assert content(await events_of(scripted(engine), request(40, WEATHER), OpeningText(CALL[:cut], 5))) == content(
        whole
    )
    assert engine.body["prompt"].endswith(CALL[:cut])
    assert engine.body["n_predict"] == 35
    assert "grammar" not in engine.body


async def test_begun_text_of_full_length_asks_for_no_more() -> None:
    events = await events_of(scripted(ScriptedLlama()), request(2), OpeningText("One two", 2))
    assert content(events) == ["One two", "", str(ev.Finish("length"))]


async def test_real_engine_continues_as_it_would_have_written() -> None:
    model = backend(context_window=2048)
    await model.start()
    try:
        tokens = Tokens()
        whole = await events_of(model, request(40), observer=TextReports(tokens))
        opening = OpeningText("".join(tokens.texts[:15]), 15)
        continued = await events_of(model, request(40), opening)
    finally:
        await model.close()
    assert content(continued) == content(whole)
    (usage,) = (each.usage for each in continued if isinstance(each, ev.UsageUpdate))
    (expected,) = (each.usage for each in whole if isinstance(each, ev.UsageUpdate))
    assert (usage.input_tokens, usage.output_tokens) == (expected.input_tokens, expected.output_tokens)
