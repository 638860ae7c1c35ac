"""Schemas adapted to servers: supported keywords per target, no loss of valid values, idempotence."""

import json
import re
from collections.abc import AsyncGenerator
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.core import messages as v
from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import ConfigError
from dragoman.core.events import AnyEvent, Finish, Notice, Start
from dragoman.schema import targets
from dragoman.schema.adapt import AdaptedSchema, adapt, summarize_changes
from dragoman.schema.relax import CHANGE_LIMIT, DEPTH_LIMIT, SchemaChange
from dragoman.schema.targets import RELAXING_TARGETS, TARGETS, Target
from support import cpu_cost
from support.check_each import check_each
from support.events import all_events
from support.sampling import exhaustive, sample
from support.scripted_backend import Scripted, served

each_target = pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
LOOKAROUND = r"^(?!\.)[a-z.]+$"


def told(adapted: AdaptedSchema) -> list[str]:
    return [str(change) for change in adapted.changes]


def as_property(schema: Any) -> dict[str, Any]:
    """Returns an object schema with this schema as its only property."""
    return {"type": "object", "properties": {"p": schema}}


# Target, schema of a property, adapted schema, reported changes.
CASES: list[tuple[Target, Any, Any, list[str]]] = [
    (targets.OPENAI, {"pattern": LOOKAROUND, "type": "string"}, {"type": "string"}, ["pattern left out"]),
    (targets.OPENAI, {"pattern": r"^a\(?=$"}, {"pattern": r"^a\(?=$"}, []),
    (targets.OPENAI, {"oneOf": [{"const": 1}, {}]}, {"oneOf": [{"const": 1}, {}]}, []),
    (targets.OPENAI, {"type": "array"}, {"type": "array", "items": {}}, []),
    (targets.OPENAI, {"properties": [], "type": "object"}, {"type": "object"}, ["properties is malformed, left out"]),
    (
        targets.OPENAI,
        {"type": "objekt", "required": True},
        {},
        ["type is malformed, left out", "required is malformed, left out"],
    ),
    (targets.ANTHROPIC, {"items": [{"type": "string"}]}, {"prefixItems": [{"type": "string"}]}, []),
    (
        targets.ANTHROPIC,
        {"items": [{"const": 1}], "additionalItems": False},
        {"prefixItems": [{"const": 1}], "items": False},
        [],
    ),
    (targets.GEMINI, {"type": ["string", "null"]}, {"type": "string", "nullable": True}, []),
    (targets.GEMINI, {"type": ["string"]}, {"type": "string"}, []),
    (
        targets.GEMINI,
        {"type": ["string", "integer"], "minimum": 2, "description": "d"},
        {"description": "d", "anyOf": [{"type": "string"}, {"type": "integer", "minimum": 2}]},
        [],
    ),
    (
        targets.GEMINI,
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"nullable": True, "anyOf": [{"type": "string"}]},
        [],
    ),
    (targets.GEMINI, {"const": "a"}, {"enum": ["a"], "type": "string"}, []),
    (targets.GEMINI, {"enum": ["a", None]}, {"enum": ["a"], "type": "string", "nullable": True}, []),
    (targets.GEMINI, {"enum": [1, 2]}, {"type": "number"}, ["enum left out"]),
    (targets.GEMINI, {"exclusiveMinimum": 0}, {"minimum": 0}, ["exclusiveMinimum became minimum"]),
    (targets.GEMINI, {"exclusiveMaximum": 0}, {"maximum": 0}, ["exclusiveMaximum became maximum"]),
    (targets.GEMINI, {"type": "string", "format": "uri"}, {"type": "string"}, ["format left out"]),
    (
        targets.GEMINI,
        {"allOf": [{"type": "number", "minimum": 1}, {"type": "integer"}], "title": "t"},
        {"title": "t", "type": "integer", "minimum": 1},
        [],
    ),
    (targets.GEMINI, {"allOf": [{"minimum": 1}, {"minimum": 2}]}, {"minimum": 1}, ["of two minimum one left out"]),
    (
        targets.GEMINI,
        {"patternProperties": {"^x": {}}, "additionalProperties": False},
        {},
        ["patternProperties left out", "additionalProperties left out"],
    ),
    (targets.LLAMA_CPP, {"pattern": r"^\d+$"}, {}, ["pattern left out"]),
    (targets.OPENAI, {"type": "float", "minimum": 1}, {"type": "number", "minimum": 1}, []),
    (targets.OPENAI, {"type": "list[str]"}, {"type": "array", "items": {"type": "string"}}, []),
    (targets.GEMINI, {"type": "int|null"}, {"type": "integer", "nullable": True}, []),
    (targets.LLAMA_CPP, {"pattern": "^[0-9]{2}$"}, {"pattern": "^[0-9]{2}$"}, []),
    (targets.LLAMA_CPP, {"pattern": "[0-9]"}, {}, ["pattern left out"]),
    (targets.LLAMA_CPP, {"maxLength": 65536, "minLength": 1}, {"minLength": 1}, ["maxLength left out"]),
    (targets.LLAMA_CPP, {"not": {"maxLength": 65536}}, {}, ["not left out"]),
    (
        targets.LLAMA_CPP,
        {"oneOf": [{"maxLength": 65536}, {"type": "null"}]},
        {"anyOf": [{}, {"type": "null"}]},
        ["oneOf became anyOf"],
    ),
    (targets.LLAMA_CPP, {"if": {"pattern": "a"}, "then": {"maxLength": 2}}, {}, ["if left out", "then left out"]),
    (targets.OLLAMA, {"$ref": "#/$defs/s", "description": "d"}, {"type": "string", "description": "d"}, []),
    (targets.OPENAI_STRICT, {"type": "string", "maxLength": 3}, {"type": ["string", "null"]}, ["maxLength left out"]),
    (targets.OPENAI_STRICT, {"$ref": "#/$defs/s"}, {"anyOf": [{"$ref": "#/$defs/s"}, {"type": "null"}]}, []),
    (
        targets.ANTHROPIC_STRICT,
        {"type": "array", "minItems": 3},
        {"type": "array", "minItems": 1},
        ["minItems became 1"],
    ),
]


@pytest.mark.parametrize(("target", "schema", "expected", "changes"), CASES, ids=lambda x: None)
def test_property_schema_is_adapted_for_target(target: Target, schema: Any, expected: Any, changes: list[str]) -> None:
    definitions = {"$defs": {"s": {"type": "string"}}} if "$ref" in schema else {}
    adapted = adapt(json.dumps(as_property(schema) | definitions), target)
    made = json.loads(adapted.json)["properties"]["p"]
    if target.closed:
        made.pop("items", None)
        assert [what for what in changes if f"$.properties.p: {what}" not in told(adapted)] == []
    else:
        assert [change.what for change in adapted.changes if change.path == "$.properties.p"] == changes
    assert made == expected


def at_root(schema: Any, target: Target = targets.ANTHROPIC) -> tuple[Any, list[str]]:
    adapted = adapt(json.dumps(schema), target)
    return json.loads(adapted.json), told(adapted)


def test_root_any_of_objects_becomes_one_object() -> None:
    file = {"type": "object", "properties": {"path": {"type": "string"}, "n": {"const": 1}}, "required": ["path", "n"]}
    link = {"type": "object", "properties": {"url": {"type": "string"}, "n": {"const": 2}}, "required": ["url", "n"]}
    closed = [{**each, "additionalProperties": False} for each in (file, link)]
    made, changes = at_root({"oneOf": closed, "description": "d"})
    assert changes == ["$: oneOf became the properties of one object"]
    assert made == {
        "description": "d",
        "properties": {
            "path": {"type": "string"},
            "n": {"anyOf": [{"const": 1}, {"const": 2}]},
            "url": {"type": "string"},
        },
        "required": ["n"],
        "additionalProperties": False,
        "type": "object",
    }
    # The second object is open, so it may have a `path` that is not a string.
    made, _ = at_root({"anyOf": [file, link]})
    assert made["properties"]["path"] == {"anyOf": [{"type": "string"}, {}]}


def test_root_any_of_required_is_dropped() -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert at_root(schema)[0] == {"type": "object", "properties": {"a": {}, "b": {}}}
    assert json.loads(adapt(json.dumps(schema), targets.VLLM).json) == schema


def test_root_reference_is_resolved() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    made, changes = at_root({"$ref": "#/$defs/node", "$defs": {"node": node}})
    assert (made, changes) == ({**node, "$defs": {"node": node}}, [])
    made, changes = at_root({"$ref": "#/$defs/node", "$defs": {"node": node}}, targets.GEMINI)
    assert made == {"type": "object", "properties": {"next": {}}}
    assert changes == ["$.properties.next: refers to itself; it may be anything"]


def test_strict_object_with_any_of_is_closed() -> None:
    choice = {"type": "object", "anyOf": [{"properties": {"a": {"type": "string"}}}, {"type": "null"}]}
    once = adapt(json.dumps(as_property(choice)), targets.OPENAI_STRICT)
    made = json.loads(once.json)["properties"]["p"]
    assert (list(made["properties"]), made["additionalProperties"], "anyOf" in made) == (["a"], False, False)
    assert adapt(once.json, targets.OPENAI_STRICT) == (once.json, ())


def test_invalid_property_names_are_dropped() -> None:
    schema = {"properties": {"$top": {}, "a": {}}, "required": ["$top", "a"], "additionalProperties": False}
    made, changes = at_root(schema)
    assert made == {"type": "object", "properties": {"a": {}}, "required": ["a"]}
    assert changes[0] == "$.properties.$top: left out, as its name may not be used"


@pytest.mark.parametrize("schema", ['{"type": "object"}', "{}", '{"description": "none"}', "true"])
def test_tool_without_parameters_gets_empty_object(schema: str) -> None:
    adapted = adapt(schema, targets.OPENAI)
    assert adapted.changes == ()
    made = json.loads(adapted.json)
    assert (made["type"], made["properties"]) == ("object", {})


@each_target
def test_supported_schema_is_kept_verbatim(target: Target) -> None:
    closed = ',  "additionalProperties" :false' if target.closed else ""
    schema = (
        f'{{ "type":"object","properties": {{"n":{{"type":"number","title":"\\u00e9"}}}}, "required":["n"]{closed}}}'
    )
    assert adapt(schema, target) == AdaptedSchema(schema, ())


def test_numbers_are_kept_verbatim() -> None:
    schema = '{"properties": {"n": {"minimum": 1.50, "maximum": 9223372036854775808123, "default": 1e999}}}'
    assert adapt(schema, targets.OPENAI).json == (
        '{"properties":{"n":{"minimum":1.50,"maximum":9223372036854775808123,"default":1e999}},"type":"object"}'
    )


def nested(levels: int) -> str:
    return '{"not":' * levels + "{}" + "}" * levels


def doubling(levels: int) -> str:
    """Returns a schema that doubles with each level if its references are inlined."""
    each = {
        f"d{n}": {"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}, "b": {"$ref": f"#/$defs/d{n + 1}"}}}
        for n in range(levels)
    }
    return json.dumps({"$ref": "#/$defs/d0", "$defs": each | {f"d{levels}": {"type": "string"}}})


HOSTILE = {
    "no JSON": "{",
    "NaN": '{"minimum": NaN}',
    "a list": "[]",
    "nothing": "",
    "half a character": '{"description": "\\ud83d", "pattern": "\ud83d", "not": 1}',
    "deep": nested(DEPTH_LIMIT * 3),
    "very deep": nested(100_000),
    "a deep value": '{"$ref": "", "enum": [' + "[" * 900 + "]" * 900 + "]}",
    "wide": json.dumps({"properties": {f"p{n}": {"pattern": "(?=a)", "format": "x", "anyOf": 1} for n in range(5000)}}),
    "long digits": '{"minLength": ' + "9" * 10_000 + ', "minItems": 1e400, "$ref": "#/anyOf/' + "9" * 5000 + '"}',
    "refers to itself": '{"$ref": "#", "properties": {"a": {"$ref": "#"}}}',
    "refers in a ring": '{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}',
    "refers to nowhere": '{"properties": {"a": {"$ref": "#/no"}, "b": {"$ref": "https://x.test"}, "c": {"$ref": 1}}}',
    "doubling": doubling(40),
    "doubling choices": json.dumps(
        {"$ref": "#/$defs/d0"}
        | {"$defs": {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)} | {"d30": {}}}
    ),
    "many branches": json.dumps(
        {"anyOf": [{"properties": {f"p{n}": {"const": n}, "p": {"const": n}}} for n in range(3000)]}
    ),
    "many parts": json.dumps({"allOf": [{"properties": {f"p{n}": {"const": n}}} for n in range(3000)]}),
    "branches in branches": json.dumps(
        {"oneOf": [{"anyOf": [{"properties": {f"p{n}-{m}": {}}} for m in range(50)]} for n in range(50)]}
    ),
    "every word malformed": json.dumps(
        dict.fromkeys(["type", "enum", "required", "properties", "anyOf", "items", "$ref"], 0)
    ),
    "parts that are none": '{"properties": {"a": null, "b": 1, "c": "x", "d": []}, "anyOf": [null, 1, [], {}]}',
    "nothing fits": '{"anyOf": [false, {"type": "string"}], "allOf": [false], "properties": {"a": {"anyOf": [false]}}}',
}


@pytest.mark.parametrize("schema", HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_schema_is_adapted_in_bounded_time(schema: str, subtests: pytest.Subtests) -> None:
    targets_here = sample(list(TARGETS), 2, schema[:40])
    check_each(subtests, targets_here, lambda name: check_adapted(schema, TARGETS[name]))


def check_adapted(schema: str, target: Target) -> None:
    with cpu_cost.measured() as taken:
        adapted = adapt(schema, target)
    assert taken[0] < 5
    assert len(adapted.changes) <= CHANGE_LIMIT
    if adapted.json != schema:
        assert isinstance(json.loads(adapted.json), dict)
        assert len(adapted.json) < max(len(schema) * 20, 1_000_000)
    assert adapt(adapted.json, target) == (adapted.json, ())


# Properties for any schema and any object.

NAMES = ("a", "b", "x-y")
SCALARS = st.sampled_from([None, True, False, 0, 1, 2.5, "", "a", "aa", "b"])
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(NAMES), v, max_size=3), max_leaves=6
)
OBJECTS = st.dictionaries(st.sampled_from([*NAMES, "$top"]), VALUES, max_size=4)
COUNTS = st.integers(0, 3)
WORDS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(
            ["string", "number", "object", "array", "null", ["string", "null"], ["object", "array", "null"]]
        ),
        "enum": st.lists(SCALARS, min_size=1, max_size=3, unique_by=repr),
        "const": SCALARS,
        "minLength": COUNTS,
        "maxLength": st.sampled_from([1, 3000]),
        "pattern": st.sampled_from(["^a+$", "a", r"^\w$", "^(?!b)a*$"]),
        "format": st.sampled_from(["uuid", "uri", "int32"]),
        "exclusiveMinimum": COUNTS,
        "maximum": COUNTS,
        "minItems": COUNTS,
        "maxItems": COUNTS,
        "uniqueItems": st.booleans(),
        "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
        "minProperties": COUNTS,
        "description": st.just("d"),
        "title": st.just("t"),
        "default": SCALARS,
    },
)


def nested_schemas(part: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(part, min_size=1, max_size=3)
    named = st.dictionaries(st.sampled_from([*NAMES, "$top"]), part, max_size=3)
    return st.builds(
        lambda words, parts: {**words, **parts},
        WORDS,
        st.fixed_dictionaries(
            {},
            optional={
                "properties": named,
                "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$"]), part, max_size=2),
                "additionalProperties": part,
                "dependentSchemas": named,
                "propertyNames": st.just({"maxLength": 3}),
                "items": part,
                "prefixItems": some,
                "contains": part,
                "maxContains": COUNTS,
                "unevaluatedProperties": st.just(False),
                "unevaluatedItems": st.just(False),
                "anyOf": some,
                "oneOf": some,
                "allOf": some,
                "not": part,
                "if": part,
                "then": part,
                "else": part,
            },
        ),
    )


REFERENCES = st.sampled_from(["#", "#/$defs/one", "#/$defs/two", "#/properties/a", "#/$defs/two/items"])
PARTS = st.recursive(st.booleans() | WORDS | st.builds(lambda r: {"$ref": r}, REFERENCES), nested_schemas, max_leaves=5)
SCHEMAS = st.builds(
    lambda root, one, two: {**root, "$defs": {"one": one, "two": two}} if isinstance(root, dict) else root,
    nested_schemas(PARTS) | PARTS,
    PARTS,
    PARTS,
)
many = settings(max_examples=60 if exhaustive() else 25, deadline=None, suppress_health_check=list(HealthCheck))


def fits(schema: Any, value: Any) -> bool:
    return jsonschema.Draft202012Validator(schema).is_valid(value)


def as_json_schema(schema: Any) -> Any:
    """Converts `nullable` of OpenAPI 3.0 to JSON Schema."""
    if isinstance(schema, list):
        return [as_json_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inside = {word: as_json_schema(each) for word, each in schema.items() if word != "nullable"}
    return {"anyOf": [inside, {"type": "null"}]} if schema.get("nullable") is True else inside


@many
@given(
    schema=SCHEMAS,
    values=st.lists(OBJECTS, min_size=6, max_size=6),
    target=st.sampled_from(list(RELAXING_TARGETS.values())),
)
def test_adapted_schema_accepts_all_valid_values(schema: Any, values: list[Any], target: Target) -> None:
    adapted = adapt(json.dumps(schema), target)
    made = as_json_schema(json.loads(adapted.json))
    for value in values:
        try:
            fitted = fits(schema, value)
        except BaseException as e:
            assume(not re.search("Recursion|Unresolvable|Pointer", repr(e)))
            raise
        if fitted:
            assert fits(made, value), (value, adapted)
        elif not adapted.changes:
            assert not fits(made, value) or not isinstance(schema, dict), (value, adapted)


@many
@given(schema=SCHEMAS, target=st.sampled_from(list(TARGETS.values())))
def test_adapt_is_idempotent(schema: Any, target: Target) -> None:
    once = adapt(json.dumps(schema), target)
    assert adapt(once.json, target) == (once.json, ())


@many
@given(schema=SCHEMAS, target=st.sampled_from(list(TARGETS.values())))
def test_adapted_schema_has_no_unsupported_keywords(schema: Any, target: Target) -> None:
    made = json.loads(adapt(json.dumps(schema), target).json)
    if target.object_root:
        assert made["type"] == "object"
        assert isinstance(made.get("properties", None if target.properties else {}), dict)
        assert not made.keys() & target.root_unsupported
    if isinstance(made, dict):
        jsonschema.Draft202012Validator.check_schema(made)
        check_supported(made, target)


def check_supported(schema: Any, target: Target) -> None:
    """Asserts that the schema has no unsupported keyword at any depth."""
    if not isinstance(schema, dict):
        assert target.flags
        return
    assert target.keywords is None or schema.keys() <= target.keywords
    assert target.references or not schema.keys() & {"$ref", "$defs"}
    assert target.types == "list" or isinstance(schema.get("type", ""), str)
    assert target.patterns == "any" or "(?" not in schema.get("pattern", "")
    assert target.formats is None or schema.get("format", "uuid") in {*target.formats, "uuid"}
    if target.closed and schema.get("type") == "object":
        assert schema["additionalProperties"] is False
        assert not target.required or schema["required"] == list(schema["properties"])
    for word in ("properties", "$defs"):
        for each in schema.get(word, {}).values():
            check_supported(each, target)
    for word in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for each in schema.get(word, []):
            check_supported(each, target)
    if "items" in schema:
        check_supported(schema["items"], target)


# The vendors' own code decides what is accepted.

REAL = {
    "type": "object",
    "properties": {
        "to": {"type": "array", "items": {"type": "string", "pattern": LOOKAROUND, "format": "email"}, "minItems": 2},
        "when": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}], "default": None},
        "headers": {"type": "object", "additionalProperties": {"type": "string"}},
        "tree": {"$ref": "#/$defs/node"},
        "level": {"oneOf": [{"type": "integer", "minimum": 1}, {"const": "all"}]},
    },
    "required": ["to"],
    "$defs": {"node": {"type": "object", "properties": {"left": {"$ref": "#/$defs/node"}, "name": {"type": "string"}}}},
    "$schema": "http://json-schema.org/draft-07/schema#",
}


def test_grammar_engines_accept_adapted_schema() -> None:
    from support.grammar_engines import llguidance, xgrammar

    def taken(schema: str) -> str:
        grammar = json.dumps({"grammars": [{"json_schema": json.loads(schema)}]})
        return str(llguidance.LLMatcher.validate_grammar(grammar, None))

    assert "ook" in taken(json.dumps(REAL))  # lookaround
    adapted = adapt(json.dumps(REAL | {"properties": {**REAL["properties"], "headers": True}}), targets.VLLM)
    assert "pattern left out" in told(adapted)[0]
    xgrammar.Grammar.from_json_schema(adapted.json)
    assert "ook" not in taken(adapted.json)


# An upstream server with a `schema_profile`.


async def test_backend_sends_schema_adapted_to_its_profile() -> None:
    asked: list[v.Request] = []

    async def script(_: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        asked.append(request)
        yield Start("", "", 0)
        yield Finish("stop")

    schema = json.dumps(as_property({"type": "string", "pattern": r"^\d$"}))
    message = v.Message("user", (v.Text("hi"),))
    request = v.Request("m", (message,), (v.Tool("f", parameters=schema),), dialect="openai_chat")
    async with served(script) as far:
        backend = HttpBackend("far", HttpConfig(url=far.url, schema_profile="llama_cpp"), {})
        await backend.start()
        events = await all_events(backend.generate(request, ExchangeContext("1", 0, lambda: "1")))
        await backend.close()
    assert [tool.parameters for tool in asked[0].tools] == [adapt(schema, targets.LLAMA_CPP).json]
    assert request.tools[0].parameters == schema
    (told,) = [event for event in events if isinstance(event, Notice)]
    assert (told.code, told.message) == ("schema_adapted", "for llama_cpp: f ($.properties.p: pattern left out)")


def test_unknown_schema_profile_is_rejected() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown server 'llamacpp'; did you mean 'llama_cpp'\?.*upstreams.far.schema_profile"
    ):
        HttpBackend("far", HttpConfig(url="http://x.test", schema_profile="llamacpp"), {})


def test_summary_of_changes_is_bounded() -> None:
    changes = tuple(SchemaChange(f"$.properties.p{n}", "pattern left out") for n in range(9))
    told = summarize_changes({f"tool{n}": changes for n in range(40)})
    assert told.startswith("tool0 ($.properties.p0: pattern left out, ")
    assert " and 6 more); tool1 (" in told
    assert told.endswith("; and 31 more")
