"""GBNF in llama.cpp: the output of a small model is constrained to calls."""

import json
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from dragoman import formats
from dragoman.api.parse import parse
from dragoman.backends.embedded.engine_output import TokenText
from dragoman.backends.embedded.llama_process import LlamaProcess
from dragoman.constraints.constraint import ConstrainedCall, Constraint
from dragoman.constraints.gbnf import Gbnf, to_gbnf
from dragoman.constraints.grammar import JsonValue
from dragoman.core import messages as v
from support.sampling import sample
from support.scripted_llama import backend

pytestmark = [pytest.mark.model, pytest.mark.asyncio(loop_scope="module")]

STRING = {"type": "string"}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine() -> AsyncIterator[LlamaProcess]:
    embedded = backend(context_window=1024, max_concurrency=1)
    await embedded.start()
    yield embedded.engine
    await embedded.close()


CITY = {"type": "object", "properties": {"city": STRING | {"maxLength": 20}, "unit": {"enum": ["C", "F"]}}}
TOOLS = [v.Tool("get_weather", "", json.dumps(CITY | {"required": ["city", "unit"]}))]


async def complete(engine: LlamaProcess, prompt: str, held: Gbnf) -> str:
    body = {"prompt": prompt, "max_tokens": 150, "temperature": 0, **held.body()}
    return "".join([each.text async for each in engine.complete(body) if isinstance(each, TokenText)])


@pytest.mark.parametrize("name", sample(["hermes", "kimi_k2", "mistral", "lfm2"], 2, "formats"))
async def test_llama_cpp_writes_constrained_call(engine: LlamaProcess, name: str) -> None:
    constraint = formats.get(name).constrain(TOOLS, v.ToolChoice("named", "get_weather"))
    assert constraint is not None
    text = await complete(engine, "The weather in Paris:\n", to_gbnf(constraint))
    (call,) = parse(text, name, TOOLS).parts
    assert isinstance(call, v.ToolCall)
    assert json.loads(call.arguments).keys() == {"city", "unit"}


@pytest.mark.parametrize(
    ("name", "rest"),
    [("qwen3_xml", "\n</parameter>\n</function>\n</tool_call>"), ("gemma4", '<|"|>}<tool_call|>')],
    ids=["qwen3_xml", "gemma4"],
)
async def test_llama_cpp_writes_constrained_raw_strings(engine: LlamaProcess, name: str, rest: str) -> None:
    """The test appends the closing markup: the length of a raw string is not constrained, so it may not end."""
    schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}, "note": STRING}}
    schema |= {"required": ["city", "note"]}
    tools = [v.Tool("get_weather", "", json.dumps(schema))]
    constraint = formats.get(name).constrain(tools, v.ToolChoice("named", "get_weather"))
    assert constraint is not None
    text = await complete(engine, "The weather in Paris:\n", to_gbnf(constraint))
    (call,) = (part for part in parse(text + rest, name, tools).parts if isinstance(part, v.ToolCall))
    assert re.match(r'\{"city": "(Paris|Rome)", "note": "', call.arguments)


async def test_llama_cpp_applies_lazy_grammar_at_trigger(engine: LlamaProcess) -> None:
    call = ConstrainedCall("9, a city: ", JsonValue(json.dumps(CITY | {"required": ["city"]})), "!")
    held = to_gbnf(Constraint("9", ("", ""), (call,), "", parallel=False, optional=True))
    text = await complete(engine, "1, 2, 3, 4, 5, 6,", held)
    assert text.startswith(' 7, 8, 9, a city: {"city":')
    assert text.endswith("}!")
