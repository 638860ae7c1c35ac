"""How a server is told to hold its model to calls: each way's fields, and what the calls so written are read as."""

import json
import random
from typing import Any

import pytest
from msgspec.structs import replace

from behind import ASKED, PING, WEATHER, Answer, ask, cut, gateway, writes
from dragoman import formats
from dragoman.backends import held
from dragoman.backends.ways import Way
from dragoman.core.values import ToolChoice
from dragoman.profiles import servers
from engines import accepts, sampled
from far import server, whole

REQUIRED, NAMED, FREE = ToolChoice("required"), ToolChoice("named", "get_weather"), ToolChoice()
HERMES = formats.get("hermes")
TOOLS = (WEATHER, PING)
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def fields(way: str, choice: ToolChoice = REQUIRED) -> Any:
    """As they go over the wire."""
    return json.loads(held.msgspec.json.encode(held.to_calls([way], HERMES, TOOLS, choice).fields))


def grammar_of(way: str) -> str:
    """What an engine is to make a grammar of."""
    said = fields(way)
    match way:
        case "structural_tag":
            assert said["response_format"].pop("type") == "structural_tag"
            return json.dumps({"type": "structural_tag", **said["response_format"]})
        case "structured_outputs":
            return str(said["structured_outputs"]["grammar"])
        case _:
            return str(next(iter(said.values())))


@pytest.mark.parametrize("way", ["gbnf", "ebnf", "structured_outputs", "structural_tag"])
def test_nothing_but_calls_can_be_written(way: str) -> None:
    grammar = grammar_of(way)
    assert accepts(grammar, CALL)
    assert not accepts(grammar, "It rains.")
    assert not accepts(grammar, CALL.replace("get_weather", "delete_everything"))


def test_a_schema_alone_asks_for_a_bare_call() -> None:
    for choice, names in ((REQUIRED, {"get_weather", "ping"}), (NAMED, {"get_weather"})):
        stated = fields("json_schema", choice)["response_format"]["json_schema"]["schema"]
        calls = stated.get("anyOf", [stated])
        assert {name for call in calls for name in call["properties"]["name"]["enum"]} == names
        assert calls[0]["properties"]["arguments"] == json.loads(WEATHER.parameters)


def test_a_free_choice_is_free() -> None:
    assert held.to_calls(["gbnf"], HERMES, TOOLS, FREE) == held.Held({})


def test_what_cannot_be_held_is_told() -> None:
    for ways in ([], ["guided_choice"]):
        assert [w.code for w in held.to_calls(ways, HERMES, TOOLS, REQUIRED).warnings] == ["unconstrained"]
    assert [w.code for w in held.to_json(["ebnf"], "{}").warnings] == ["unconstrained"]


def test_each_way_is_one_that_is_known() -> None:
    known = {row.name for row in servers.constraints()}
    assert known >= {"gbnf", "ebnf", "structured_outputs", "structural_tag", "json_schema"}


async def asked_of(kind: str, choice: ToolChoice, text: str, **more: Any) -> tuple[Answer, Any]:
    async with server(writes(*cut(text))) as behind, gateway(behind.url, mode="inject", kind=kind) as (url, _):
        answer = await ask(url, "openai_chat", replace(ASKED, tool_choice=choice, **more))
    return answer, json.loads(behind.asked[-1][2])


@pytest.mark.parametrize(
    ("kind", "field"),
    [("llama_cpp", "grammar"), ("vllm", "structured_outputs"), ("sglang", "ebnf"), ("lm_studio", "response_format")],
)
async def test_the_kind_of_server_says_how(kind: str, field: str) -> None:
    bare = '{"name": "ping", "arguments": {}}'
    answer, body = await asked_of(kind, REQUIRED, bare if field == "response_format" else CALL)
    assert field in body
    assert "unconstrained" not in answer.warnings
    assert len(answer.calls) == 1
    assert answer.reply.finish == "tool_calls"
    free, body = await asked_of(kind, FREE, "It rains.")
    assert field not in body
    assert free.text == "It rains."


async def test_a_server_that_is_not_known_is_asked_without() -> None:
    answer, body = await asked_of("", REQUIRED, CALL)
    assert not body.keys() & {"grammar", "structured_outputs", "ebnf", "response_format"}
    assert "unconstrained" in answer.warnings


async def test_a_schema_of_the_reply_does_not_keep_the_model_from_calling() -> None:
    schema = '{"type":"object","properties":{"rain":{"type":"boolean"}},"required":["rain"]}'
    answer, body = await asked_of("llama_cpp", FREE, CALL, response_schema=schema)
    assert "response_format" not in body
    assert "unconstrained" in answer.warnings
    assert len(answer.calls) == 1
    no_tools, body = await asked_of("llama_cpp", FREE, '{"rain": true}', response_schema=schema, tools=())
    assert body["response_format"]["json_schema"]["schema"] == json.loads(schema)
    assert no_tools.text == '{"rain": true}'


async def test_what_was_measured_says_more_than_the_kind() -> None:
    measured = Way("inject", constrain=("ebnf",), why="the probe found it")
    async with server(writes(CALL)) as behind, gateway(behind.url, kind="vllm") as (url, backend):
        backend.ways.take("m", measured)
        await ask(url, "openai_chat", replace(ASKED, tool_choice=REQUIRED))
    assert json.loads(behind.asked[-1][2]).keys() >= {"ebnf"}


async def test_a_server_that_refuses_the_grammar_is_asked_without() -> None:
    async def play(far: Any, writer: Any) -> None:
        refuses = "grammar" in json.loads(far.asked[-1][2])
        said = whole(500, '{"error": {"message": "failed to parse grammar"}}') if refuses else writes(CALL)
        await said(far, writer)

    settings = {"mode": "inject", "kind": "llama_cpp", "retries": 0}
    async with server(play) as behind, gateway(behind.url, **settings) as (url, _):
        answer = await ask(url, "openai_chat", replace(ASKED, tool_choice=REQUIRED))
    assert len(behind.asked) == 2
    assert "unconstrained" in answer.warnings
    assert len(answer.calls) == 1


def test_whatever_a_grammar_lets_through_is_such_calls() -> None:
    grammar = grammar_of("gbnf")
    written = [text for seed in range(20) if (text := sampled(grammar, random.Random(seed), [CALL]))]
    assert written
    assert all(text.startswith("<tool_call>") and text.endswith("</tool_call>") for text in written)
