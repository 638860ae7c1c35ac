"""A model that is a program, behind the gateway: calls, ends, errors; and nothing of it stays."""

import contextlib
import sys

import pytest

from dragoman.backends.pipe import Pipe
from dragoman.core.backend import EventStream, ExchangeContext
from dragoman.core.errors import BackendUnavailableError
from dragoman.core.events import Failure
from dragoman.gateway.gateway import Gateway
from support.scripted_backend import serving
from support.text_upstream import ASKED, ask

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}\n</tool_call>'
TELLS = (
    f"import json; turns = json.loads(input()); assert 'get_weather' in turns[0]['content']; print({CALL!r}, end='')"
)
ENDLESS = "while True: print('word', flush=True)"


def pipe(program: str) -> Pipe:
    return Pipe("m", [sys.executable, "-c", program])


def events(backend: Pipe) -> EventStream:
    return backend.generate(ASKED, ExchangeContext("1", 0, iter("abc").__next__))


@pytest.mark.parametrize("front", ["openai_chat", "openai_responses", "anthropic_messages"])
async def test_a_call_arrives(front: str) -> None:
    async with serving(Gateway([pipe(TELLS)])) as (_, url):
        answer = await ask(url, front)
    assert answer.calls == [("get_weather", {"city": "Paris", "days": 3})]
    assert answer.text == ""


async def test_closing_the_answer_ends_the_program() -> None:
    backend = pipe(ENDLESS)
    async with contextlib.aclosing(events(backend)) as answer:
        for _ in range(3):
            await anext(answer)
        assert backend.health()["active"] == 1
    assert backend.health()["active"] == 0


async def test_a_program_that_fails() -> None:
    *_, (last,) = [batch async for batch in events(pipe("raise SystemExit(3)"))]
    assert isinstance(last, Failure)
    assert str(last.error) == "the model's program ended with 3"
    with pytest.raises(BackendUnavailableError, match="cannot start /nowhere: No such file"):
        await anext(events(Pipe("m", ["/nowhere"])))
