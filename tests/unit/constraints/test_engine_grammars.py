"""Grammars for other engines: accepted text is read as the same calls, and every valid call is accepted."""

import json
import random
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman import formats
from dragoman.constraints.constraint import Constraint
from dragoman.constraints.gbnf import to_gbnf
from dragoman.constraints.llguidance import llguidance_grammar
from dragoman.constraints.reply_schema import json_schema
from dragoman.constraints.structural_tag import to_structural_tag
from dragoman.core import events as ev
from dragoman.core import messages as v
from dragoman.core.collect import collect
from dragoman.parsing.format import Format
from dragoman.parsing.reply_reader import ReplyReader
from support.grammar_engines import accepts, sampled
from support.sampling import sample

SCHEMAS: dict[str, dict[str, Any]] = {
    "get_weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "ping": {"type": "object", "properties": {}, "additionalProperties": False},
    "set_mode": {
        "type": "object",
        "properties": {
            "mode": {"enum": ["on", "off", None, 3]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "level": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "more": {"type": "object", "properties": {"a": {"type": "boolean"}}, "additionalProperties": False},
        },
        "required": ["tags"],
        "additionalProperties": False,
    },
    "tree": {
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/node"}},
        "required": ["root"],
        "additionalProperties": False,
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
                "required": ["v"],
                "additionalProperties": False,
            }
        },
    },
}
TOOLS = [v.Tool(name, "", json.dumps(schema)) for name, schema in SCHEMAS.items()]
CHOICES = {
    "auto": v.ToolChoice(),
    "one at most": v.ToolChoice(parallel_tool_calls=False),
    "required": v.ToolChoice("required"),
    "one": v.ToolChoice("required", parallel_tool_calls=False),
    "named": v.ToolChoice("named", "get_weather"),
}
CONSTRAINED = [f for f in map(formats.get, formats.names()) if f.constrain(TOOLS, v.ToolChoice("required"))]
each = pytest.mark.parametrize("format", CONSTRAINED, ids=lambda f: f.name)
FREE = [f for f in CONSTRAINED if f.constrain(TOOLS, v.ToolChoice())]
each_free = pytest.mark.parametrize("format", FREE, ids=lambda f: f.name)
WRITERS = {
    "structural_tag": to_structural_tag,
    "gbnf": lambda constraint: to_gbnf(constraint).grammar,
    "lark": llguidance_grammar,
}
FEW_EXAMPLES = max(1, settings.default.max_examples // 30)
"""Number of examples for each format and writer."""
each_constrained = pytest.mark.parametrize(
    ("format", "writer"),
    [
        pytest.param(format, name, id=f"{format.name}-{name}")
        for format in CONSTRAINED
        for name in sample(list(WRITERS), 1, format.name)
    ],
)
"""Each format with one of the writers; with all of them in `make test-all`."""

words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)


def strings(format: Format) -> st.SearchStrategy[str]:
    """Strings that a call can contain: any; in formats with raw values only those without the format's markers."""
    raw = format.arguments in ("tagged", "notation")
    pieces = [m[:-1] for m in format.markers if len(m) > 1] if raw else format.markers
    odd = st.lists(st.sampled_from([*pieces, '"', "\\", "\n"]), max_size=2).map("".join)
    return words | (odd.filter(lambda text: not any(m in text for m in format.markers)) if raw else odd)


def constraint(format: Format, choice: v.ToolChoice, tools: list[v.Tool] = TOOLS) -> Constraint:
    found = format.constrain(tools, choice)
    assert found is not None
    return found


def free(format: Format, auto: str, *others: str) -> list[str]:
    """Returns the names of the choices, `auto` only if the format can constrain it."""
    return [auto, *others] if format.constrain(TOOLS, CHOICES["auto"]) else [*others]


def calls(strings: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    node = {"v": st.integers(-(10**18), 10**18)}
    arguments: dict[str, st.SearchStrategy[dict[str, Any]]] = {
        "get_weather": st.fixed_dictionaries({"city": strings}, optional={"days": st.integers(0, 99)}),
        "ping": st.just({}),
        "set_mode": st.fixed_dictionaries(
            {"tags": st.lists(strings, max_size=2)},
            optional={
                "mode": st.sampled_from(["on", "off", None, 3]),
                "level": st.none() | st.floats(allow_nan=False, allow_infinity=False),
                "more": st.fixed_dictionaries({}, optional={"a": st.booleans()}),
            },
        ),
        "tree": st.fixed_dictionaries(
            {"root": st.fixed_dictionaries(node, optional={"next": st.fixed_dictionaries(node)})}
        ),
    }
    return st.sampled_from([*SCHEMAS]).flatmap(
        lambda name: st.tuples(st.just(name), arguments[name].map(lambda value: ordered(value, SCHEMAS[name])))
    )


def ordered(value: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the members in the order of the schema, as the grammars require."""
    node = SCHEMAS["tree"]["$defs"]["node"]
    of = schema["properties"]
    return {k: ordered(value[k], node) if k in ("root", "next") else value[k] for k in of if k in value}


def written(format: Format, made: list[tuple[str, dict[str, Any]]]) -> str:
    texts = (format.write_call(v.ToolCall("", n, json.dumps(a, ensure_ascii=False))) for n, a in made)
    return format.section[0] + format.separator.join(texts) + format.section[1]


def read(format: Format, text: str) -> list[tuple[str, dict[str, Any]]]:
    """Returns the calls; asserts that the text contains nothing else and no warnings."""
    reader = ReplyReader(format, TOOLS, new_id=lambda: "x")
    events = [*reader.feed(text), *reader.close()]
    assert not [e for e in events if isinstance(e, ev.Notice | ev.ToolCallIncomplete)]
    reply = collect([ev.Start("i", "m", 0), *events, ev.Finish("stop")])
    assert not [p for p in reply.parts if isinstance(p, v.Text) and p.text.strip()]
    return [(p.name, json.loads(p.arguments)) for p in reply.parts if isinstance(p, v.ToolCall)]


@each_constrained
@settings(max_examples=FEW_EXAMPLES)
@given(data=st.data())
def test_valid_calls_are_accepted_and_read(format: Format, writer: str, data: st.DataObject) -> None:
    write = WRITERS[writer]
    made = data.draw(st.lists(calls(strings(format)), min_size=1, max_size=2))
    text = written(format, made)
    for name in sample(free(format, "auto", "required"), 1, text):
        assert accepts(write(constraint(format, CHOICES[name])), text), name
    for name in sample(free(format, "one at most", "one"), 1, text):
        assert accepts(write(constraint(format, CHOICES[name])), text) == (len(made) == 1), name
    named = write(constraint(format, CHOICES["named"]))
    assert accepts(named, text) == (len(made) == 1 and made[0][0] == "get_weather")
    assert read(format, text) == made


@each_constrained
@settings(max_examples=FEW_EXAMPLES)
@given(choice=st.sampled_from(["required", "one", "named"]), seed=st.integers(0, 1 << 32))
def test_accepted_text_is_read_as_valid_calls(format: Format, writer: str, choice: str, seed: int) -> None:
    write = WRITERS[writer]
    likely = [around + marker for marker in format.markers for around in ("", "\n")]
    text = sampled(write(constraint(format, CHOICES[choice])), random.Random(seed), likely)
    if text is None:
        return
    found = read(format, text)
    assert found
    assert choice == "required" or len(found) == 1
    for name, arguments in found:
        assert choice != "named" or name == "get_weather"
        jsonschema.validate(arguments, SCHEMAS[name])


JSON_FORMAT = formats.get("xlam")
"""Reads a reply that is constrained to a JSON Schema as a whole."""


def whole(choice: v.ToolChoice) -> tuple[str, str]:
    """Returns the schema of the whole reply, and an engine's grammar for it."""
    schema = json_schema(TOOLS, choice)
    assert schema is not None
    return schema, json.dumps(
        {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": json.loads(schema)}}
    )


@settings(max_examples=FEW_EXAMPLES * 5)
@given(made=st.lists(calls(words), min_size=1, max_size=2), spaces=st.sampled_from([None, 1]))
def test_reply_matching_schema_is_read_as_same_calls(
    made: list[tuple[str, dict[str, Any]]], spaces: int | None
) -> None:
    objects = [{"name": name, "arguments": arguments} for name, arguments in made]
    for choice, listed in ((CHOICES["required"], objects), (CHOICES["one"], objects[:1])):
        schema, grammar = whole(choice)
        reply = {"tool_calls": listed}
        text = json.dumps(reply, ensure_ascii=False, indent=spaces)
        jsonschema.validate(reply, json.loads(schema))
        assert accepts(grammar, text)
        assert read(JSON_FORMAT, text) == (made if choice.parallel_tool_calls else made[:1])
    assert accepts(whole(CHOICES["one"])[1], json.dumps({"tool_calls": objects})) == (len(objects) == 1)
    assert not accepts(whole(CHOICES["required"])[1], '{"tool_calls": []}')


@settings(max_examples=FEW_EXAMPLES * 5)
@given(choice=st.sampled_from(["required", "one", "named"]), seed=st.integers(0, 1 << 32))
def test_reply_accepted_by_schema_is_read_as_valid_calls(choice: str, seed: int) -> None:
    schema, grammar = whole(CHOICES[choice])
    text = sampled(grammar, random.Random(seed))
    if text is None:
        return
    jsonschema.validate(json.loads(text), json.loads(schema))
    found = read(JSON_FORMAT, text)
    assert found
    for name, arguments in found:
        assert choice != "named" or name == "get_weather"
        jsonschema.validate(arguments, SCHEMAS[name])


@pytest.mark.parametrize("choice", [v.ToolChoice(), v.ToolChoice("none"), v.ToolChoice("named", "nobody")])
def test_optional_call_has_no_reply_schema(choice: v.ToolChoice) -> None:
    assert json_schema(TOOLS, choice) is None


@pytest.mark.parametrize(
    "stated", ["{}", "true", '{"type": "string"}', '{"type": ["object", "null"]}', '{"properties": {}}']
)
def test_arguments_are_constrained_to_object(stated: str) -> None:
    hermes, tool = formats.get("hermes"), v.Tool("f", "", stated)
    constraint = hermes.constrain([tool], CHOICES["required"])
    assert constraint is not None
    for grammar in (to_gbnf(constraint).grammar, llguidance_grammar(constraint), to_structural_tag(constraint)):
        assert accepts(grammar, hermes.write_call(v.ToolCall("", "f", "{}")))
        for other in ("5", '"x"', "null", "[]"):
            assert not accepts(grammar, hermes.write_call(v.ToolCall("", "f", "{}")).replace("{}", other))


def test_too_deep_schema_is_relaxed_to_any_object() -> None:
    deep = '{"properties": {"a": ' + '{"items": ' * 600 + "{}" + "}" * 602
    whole = json_schema([v.Tool("f", "", deep)], CHOICES["one"])
    assert whole is not None
    (listed,) = json.loads(whole)["properties"].values()
    assert listed["items"]["properties"]["arguments"] == {"type": "object"}


@each_constrained
def test_required_choice_accepts_only_calls(format: Format, writer: str) -> None:
    write = WRITERS[writer]
    required, call = write(constraint(format, CHOICES["required"])), written(format, [("ping", {})])
    assert accepts(required, call)
    for text in ("", "It is sunny.", call[:-1], f"Wait. {call}", written(format, [("pong", {})])):
        assert not accepts(required, text)


@each_free
def test_optional_calls_are_constrained(format: Format) -> None:
    tag = to_structural_tag(constraint(format, CHOICES["auto"]))
    call = written(format, [("ping", {})])
    for text in ("", "It is sunny.\n< 5 degrees", call, f"Wait.\n{call}"):
        assert accepts(tag, text)
    for text in (call[:-1], written(format, [("pong", {})]), written(format, [("ping", {"a": 1})])):
        assert not accepts(tag, text)


@each_free
def test_gbnf_trigger_is_start_of_call(format: Format) -> None:
    free = to_gbnf(constraint(format, CHOICES["auto"]))
    assert free.trigger
    assert written(format, [("ping", {})]).startswith(free.trigger)
    assert free.body() == {
        "grammar": free.grammar,
        "grammar_lazy": True,
        "grammar_triggers": [{"type": 1, "value": free.trigger}],
        "preserved_tokens": [free.trigger],
    }
    held = to_gbnf(constraint(format, CHOICES["required"]))
    assert held.body() == {"grammar": held.grammar}
