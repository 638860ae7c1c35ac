"""GBNF in llama.cpp: a small model writes the calls that the grammar holds it to."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman import formats
from dragoman.api.parse import parse
from dragoman.backends.embedded import weights
from dragoman.catalog import models
from dragoman.constraints.constraint import ConstrainedCall, Constraint
from dragoman.constraints.gbnf import Gbnf, to_gbnf
from dragoman.constraints.grammar import JsonValue
from dragoman.core import messages as v

STRING = {"type": "string"}


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights.find_weights(models.default().name))
    params.n_ctx, params.verbosity, params.warmup = 1024, 1, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # several wait for one another on a busy machine
    return xllamacpp.Server(params)


CITY = {"type": "object", "properties": {"city": STRING | {"maxLength": 20}, "unit": {"enum": ["C", "F"]}}}
TOOLS = [v.Tool("get_weather", "", json.dumps(CITY | {"required": ["city", "unit"]}))]


def complete(engine: Any, prompt: str, held: Gbnf) -> str:
    body = {"prompt": prompt, "max_tokens": 150, "temperature": 0, **held.body()}
    text = engine.handle_completions(body)["choices"][0]["text"]
    assert isinstance(text, str)
    return text


@pytest.mark.model
@pytest.mark.parametrize("name", ["hermes", "kimi_k2", "mistral", "lfm2"])
def test_llama_cpp_writes_the_call(engine: Any, name: str) -> None:
    constraint = formats.get(name).constrain(TOOLS, v.ToolChoice("named", "get_weather"))
    assert constraint is not None
    text = complete(engine, "The weather in Paris:\n", to_gbnf(constraint))
    (call,) = parse(text, name, TOOLS).parts
    assert isinstance(call, v.ToolCall)
    assert json.loads(call.arguments).keys() == {"city", "unit"}


@pytest.mark.model
@pytest.mark.parametrize(
    ("name", "rest"),
    [("qwen3_xml", "\n</parameter>\n</function>\n</tool_call>"), ("gemma4", '<|"|>}<tool_call|>')],
    ids=["qwen3_xml", "gemma4"],
)
def test_llama_cpp_writes_raw_strings(engine: Any, name: str, rest: str) -> None:
    """Without an end, as it may be, which is then added: the length of a raw string is not held."""
    schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}, "note": STRING}}
    schema |= {"required": ["city", "note"]}
    tools = [v.Tool("get_weather", "", json.dumps(schema))]
    constraint = formats.get(name).constrain(tools, v.ToolChoice("named", "get_weather"))
    assert constraint is not None
    text = complete(engine, "The weather in Paris:\n", to_gbnf(constraint))
    (call,) = (part for part in parse(text + rest, name, tools).parts if isinstance(part, v.ToolCall))
    assert re.match(r'\{"city": "(Paris|Rome)", "note": "', call.arguments)


@pytest.mark.model
def test_llama_cpp_begins_to_hold_at_the_trigger(engine: Any) -> None:
    call = ConstrainedCall("9, a city: ", JsonValue(json.dumps(CITY | {"required": ["city"]})), "!")
    held = to_gbnf(Constraint("9", ("", ""), (call,), "", parallel=False, optional=True))
    text = complete(engine, "1, 2, 3, 4, 5, 6,", held)
    assert text.startswith(' 7, 8, 9, a city: {"city":')
    assert text.endswith("}!")
