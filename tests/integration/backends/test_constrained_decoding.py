"""Constrained decoding of tool calls: the request fields of each method, and how the constrained calls are parsed."""

import json
import random
from typing import Any

import jsonschema
import msgspec
import pytest
from msgspec.structs import replace

from dragoman import formats
from dragoman.backends.http.model_modes import ModelMode
from dragoman.backends.http.planning import constrained_decoding
from dragoman.catalog import servers
from dragoman.core.messages import Tool, ToolChoice
from dragoman.schema.targets import get_target
from support.fake_upstream import server, whole
from support.grammar_engines import accepts, sampled
from support.text_upstream import ASKED, PING, WEATHER, Answer, ask, cut, gateway, writes

REQUIRED, NAMED, FREE = ToolChoice("required"), ToolChoice("named", "get_weather"), ToolChoice()
HERMES = formats.get("hermes")
TOOLS = (WEATHER, PING)
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def fields(way: str, choice: ToolChoice = REQUIRED) -> Any:
    """The request fields of one constraint method, as sent."""
    return json.loads(msgspec.json.encode(constrained_decoding.constrain_to_calls([way], HERMES, TOOLS, choice).fields))


def grammar_of(way: str) -> str:
    """The text from which an engine compiles the grammar."""
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
def test_required_grammar_accepts_only_offered_calls(way: str) -> None:
    grammar = grammar_of(way)
    assert accepts(grammar, CALL)
    assert not accepts(grammar, "It rains.")
    assert not accepts(grammar, CALL.replace("get_weather", "delete_everything"))


def test_json_schema_constraint_is_a_list_of_calls() -> None:
    for choice, names in ((REQUIRED, {"get_weather", "ping"}), (NAMED, {"get_weather"})):
        stated = fields("json_schema", choice)["response_format"]["json_schema"]["schema"]
        items = stated["properties"]["tool_calls"]["items"]
        calls = items.get("anyOf", [items])
        assert {name for call in calls for name in call["properties"]["name"]["enum"]} == names
        assert calls[0]["properties"]["arguments"] == json.loads(WEATHER.parameters)


def test_json_schema_constraint_is_adapted_to_server_and_keeps_refs() -> None:
    odd = {"a": {"$ref": "#/$defs/n"}, "b": {"type": "strng"}, "c": {"type": "string", "pattern": "(?=x)y"}}
    schema = {"type": "object", "properties": odd, "$defs": {"n": {"type": "integer"}}}
    tool = Tool("odd", "", json.dumps(schema))
    found = constrained_decoding.constrain_to_calls(
        ["json_schema"], HERMES, [tool, PING], REQUIRED, get_target("lm_studio")
    )
    stated = json.loads(msgspec.json.encode(found.fields))["response_format"]["json_schema"]["schema"]
    jsonschema.Draft202012Validator.check_schema(stated)
    validator = jsonschema.Draft202012Validator(stated)
    call = {"name": "odd", "arguments": {"a": 1, "b": [], "c": "xy"}}
    assert validator.is_valid({"tool_calls": [call]})
    assert not validator.is_valid({"tool_calls": [call | {"arguments": {"a": "x"}}]})
    assert [w.code for w in found.warnings] == ["schema_relaxed"]
    assert "malformed" in found.warnings[0].message


def test_unenforced_keywords_are_reported_for_each_tool() -> None:
    strict = Tool("odd", "", '{"properties": {"a": {"type": "integer", "minimum": 3}, "b": {"type": "strng"}}}')
    for way, choice in (
        ("gbnf", REQUIRED),
        ("structured_outputs", ToolChoice("named", "odd")),
        ("structural_tag", FREE),
    ):
        found = constrained_decoding.constrain_to_calls([way], HERMES, [PING, strict], choice)
        assert [w.message.partition("can express: ")[2] for w in found.warnings] == ["odd: minimum, type"]


async def test_auto_choice_is_constrained_from_the_start_of_a_call() -> None:
    tag = json.loads(
        msgspec.json.encode(
            constrained_decoding.constrain_to_calls(["gbnf", "structural_tag"], HERMES, TOOLS, FREE).fields
        )
    )
    grammar = json.dumps(tag["response_format"])
    for text in ("It rains.", CALL, f"Let me see.\n{CALL}", f"{CALL}\n{CALL}"):
        assert accepts(grammar, text)
    for text in (CALL.replace('"Paris"', "1"), f"Wait. {CALL.replace('get_weather', 'delete_everything')}"):
        assert not accepts(grammar, text)


def test_lazy_grammar_is_used_only_for_completions() -> None:
    assert constrained_decoding.constrain_to_calls(
        ["gbnf"], HERMES, TOOLS, FREE
    ) == constrained_decoding.ConstraintFields({})
    lazy = constrained_decoding.constrain_to_calls(["gbnf"], HERMES, TOOLS, FREE, prompted=True).fields
    assert lazy["grammar_lazy"] is True
    assert lazy["grammar_triggers"] == [{"type": 1, "value": "<tool_call>"}]
    assert accepts(lazy["grammar"], CALL)


@pytest.mark.parametrize("name", ["llama3_json", "xlam", "pythonic"])
def test_format_without_unique_opener_has_no_triggered_constraint(name: str) -> None:
    assert constrained_decoding.constrain_to_calls(
        ["structural_tag"], formats.get(name), TOOLS, FREE
    ) == constrained_decoding.ConstraintFields({})


def test_auto_choice_without_structural_tag_is_not_constrained() -> None:
    for ways in ([], ["gbnf", "json_schema"], ["ebnf"], ["structured_outputs"]):
        assert constrained_decoding.constrain_to_calls(
            ways, HERMES, TOOLS, FREE
        ) == constrained_decoding.ConstraintFields({})


def test_unsupported_constraint_is_reported() -> None:
    for ways in ([], ["guided_choice"]):
        assert [w.code for w in constrained_decoding.constrain_to_calls(ways, HERMES, TOOLS, REQUIRED).warnings] == [
            "constraint_not_applied"
        ]
    assert [w.code for w in constrained_decoding.constrain_to_json(["ebnf"], "{}").warnings] == [
        "constraint_not_applied"
    ]


def test_catalog_contains_all_constraint_methods() -> None:
    known = {row.name for row in servers.constraints()}
    assert known >= {"gbnf", "ebnf", "structured_outputs", "structural_tag", "json_schema"}


async def asked_of(kind: str, choice: ToolChoice, text: str, mode: str = "prompt", **more: Any) -> tuple[Answer, Any]:
    async with server(writes(*cut(text))) as behind, gateway(behind.url, tool_mode=mode, provider=kind) as (url, _):
        answer = await ask(url, "openai_chat", replace(ASKED, tool_choice=choice, **more))
    return answer, json.loads(behind.asked[-1][2])


@pytest.mark.parametrize(
    ("kind", "field"),
    [("llama_cpp", "grammar"), ("vllm", "structured_outputs"), ("sglang", "ebnf"), ("lm_studio", "response_format")],
)
async def test_provider_selects_constraint_field(kind: str, field: str) -> None:
    bare = '{"name": "ping", "arguments": {}}'
    answer, body = await asked_of(kind, REQUIRED, bare if field == "response_format" else CALL)
    assert field in body
    assert "constraint_not_applied" not in answer.warnings
    assert len(answer.calls) == 1
    assert answer.reply.finish_reason == "tool_calls"
    free, body = await asked_of(kind, FREE, "It rains.")
    held_lazily = "triggered_tags" in json.dumps(body.get("response_format", ""))
    assert held_lazily == (kind in ("vllm", "sglang"))
    assert body.keys().isdisjoint({"grammar", "structured_outputs", "ebnf"})
    assert free.text == "It rains."
    assert free.warnings == ["estimated_usage"]


async def test_unknown_provider_gets_no_constraint() -> None:
    answer, body = await asked_of("", REQUIRED, CALL)
    assert not body.keys() & {"grammar", "structured_outputs", "ebnf", "response_format"}
    assert "constraint_not_applied" in answer.warnings


async def test_response_schema_is_not_sent_with_tools() -> None:
    schema = '{"type":"object","properties":{"rain":{"type":"boolean"}},"required":["rain"]}'
    answer, body = await asked_of("llama_cpp", FREE, CALL, response_schema=schema)
    assert "response_format" not in body
    assert "constraint_not_applied" in answer.warnings
    assert len(answer.calls) == 1
    no_tools, body = await asked_of("llama_cpp", FREE, '{"rain": true}', response_schema=schema, tools=())
    assert body["response_format"]["json_schema"]["schema"] == json.loads(schema)
    assert no_tools.text == '{"rain": true}'


async def test_measured_constraint_overrides_provider() -> None:
    measured = ModelMode("prompt", constrain=("ebnf",), why="the probe found it")
    async with server(writes(CALL)) as behind, gateway(behind.url, provider="vllm") as (url, backend):
        backend.modes.set_measured("m", measured)
        await ask(url, "openai_chat", replace(ASKED, tool_choice=REQUIRED))
    assert json.loads(behind.asked[-1][2]).keys() >= {"ebnf"}


async def test_rejected_grammar_is_dropped_and_reported() -> None:
    async def play(far: Any, writer: Any) -> None:
        refuses = "grammar" in json.loads(far.asked[-1][2])
        said = whole(500, '{"error": {"message": "failed to parse grammar"}}') if refuses else writes(CALL)
        await said(far, writer)

    settings = {"tool_mode": "prompt", "provider": "llama_cpp", "max_retries": 0}
    async with server(play) as behind, gateway(behind.url, **settings) as (url, _):
        answer = await ask(url, "openai_chat", replace(ASKED, tool_choice=REQUIRED))
    assert len(behind.asked) == 2
    assert "constraint_not_applied" in answer.warnings
    assert len(answer.calls) == 1


async def test_rejected_auto_constraint_is_remembered_for_same_tools() -> None:
    async def play(far: Any, writer: Any) -> None:
        refuses = "response_format" in json.loads(far.asked[-1][2])
        said = whole(400, '{"error": {"message": "unknown response_format"}}') if refuses else writes("It rains.")
        await said(far, writer)

    settings = {"tool_mode": "prompt", "provider": "vllm", "max_retries": 0}
    async with server(play) as behind, gateway(behind.url, **settings) as (url, _):
        for _ in range(2):
            answer = await ask(url, "openai_chat", replace(ASKED, tool_choice=FREE))
            assert answer.text == "It rains."
            assert "constraint_not_applied" not in answer.warnings
        assert len(behind.asked) == 3
        await ask(url, "openai_chat", replace(ASKED, tool_choice=FREE, tools=(PING,)))
    assert len(behind.asked) == 5


async def test_provider_that_honours_tool_choice_gets_no_constraint() -> None:
    answer, body = await asked_of("llama_cpp", REQUIRED, CALL, mode="native")
    assert body["tool_choice"] == "required"
    assert "response_format" not in body
    assert answer.calls == [("get_weather", {"city": "Paris"})]


@pytest.mark.parametrize(("kind", "mode"), [("ollama", "native"), ("ollama", "parse"), ("llama_cpp", "parse")])
@pytest.mark.parametrize("choice", [REQUIRED, NAMED], ids=["required", "named"])
async def test_unsupported_tool_choice_adds_json_schema_next_to_tools(kind: str, mode: str, choice: ToolChoice) -> None:
    said = '{"tool_calls": [{"name": "get_weather", "arguments": {"city": "Paris"}}]}'
    async with server(writes(*cut(said))) as behind, gateway(behind.url, tool_mode=mode, provider=kind) as (url, _):
        answer = await ask(url, "openai_chat", replace(ASKED, tool_choice=choice))
        free = await ask(url, "openai_chat", replace(ASKED, tool_choice=FREE))
    body = json.loads(behind.asked[-2][2])
    assert "tool_calls" in body["response_format"]["json_schema"]["schema"]["properties"]
    assert body["tools"][0]["function"]["name"] == "get_weather"
    assert answer.calls == [("get_weather", {"city": "Paris"})]
    assert answer.warnings == ["estimated_usage"]
    assert "response_format" not in json.loads(behind.asked[-1][2])
    assert free.text or free.calls


async def test_rejected_json_schema_next_to_tools_is_dropped() -> None:
    async def play(far: Any, writer: Any) -> None:
        refuses = "response_format" in json.loads(far.asked[-1][2])
        await (whole(400, '{"error": {"message": "format with tools"}}') if refuses else writes("It rains."))(
            far, writer
        )

    settings = {"tool_mode": "native", "provider": "ollama", "max_retries": 0}
    async with server(play) as behind, gateway(behind.url, **settings) as (url, _):
        answer = await ask(url, "openai_chat", replace(ASKED, tool_choice=REQUIRED))
    assert "constraint_not_applied" in answer.warnings


def test_text_sampled_from_grammar_is_always_a_call() -> None:
    grammar = grammar_of("gbnf")
    written = [text for seed in range(20) if (text := sampled(grammar, random.Random(seed), [CALL]))]
    assert written
    assert all(text.startswith("<tool_call>") and text.endswith("</tool_call>") for text in written)
