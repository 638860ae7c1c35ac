"""Text that a grammar accepts is read as the same calls, and their arguments match the schema."""

import json
import random
import tracemalloc
from typing import Any

import jsonschema
import llguidance
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman import formats
from dragoman.backends.embedded.grammar import constrain, json_grammar, tools_grammar
from dragoman.core import events as ev
from dragoman.core import messages as v
from dragoman.core.collect import collect
from dragoman.guard.policy import ALL_REPAIRS
from dragoman.guard.verdict import judge_call
from dragoman.parsing.reader_options import ReaderOptions
from dragoman.parsing.reply_reader import ReplyReader

HERMES = formats.get("hermes")
BYTES = llguidance.LLTokenizer("byte")

TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/node"}, "also": {"$ref": "#/properties/root"}},
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
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "get_weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "ping": {"type": "object", "properties": {}, "additionalProperties": False},
    "set_mode": {
        "type": "object",
        "properties": {
            "mode": {"enum": ["on", "off", None, 3]},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["mode", "tags"],
        "additionalProperties": False,
    },
    "either": {"anyOf": [{"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}, {"type": "object"}]},
    "tree": TREE,
    "self": {"type": "object", "properties": {"inner": {"$ref": "#"}}, "additionalProperties": False},
}


def tool(name: str, schema: Any = None) -> v.Tool:
    return v.Tool(name, "", json.dumps(SCHEMAS[name] if schema is None else schema))


TOOLS = [tool(name) for name in SCHEMAS]


def grammar(tools: list[v.Tool], choice: v.ToolChoice) -> str:
    found = tools_grammar(HERMES, tools, choice)
    assert found is not None
    assert found.relaxed == {}
    return found.text


def accepts(text: str, grammar: str) -> bool:
    matcher = llguidance.LLMatcher(BYTES, grammar)
    written = list(text.encode())
    return matcher.try_consume_tokens(written) == len(written) and matcher.is_accepting()


def written(grammar: str, chance: random.Random, limit: int = 300, begun: str = "") -> str | None:
    """Returns random text that the grammar accepts, biased towards closing characters; None if it does not end."""
    matcher, text = llguidance.LLMatcher(BYTES, grammar), bytearray(begun.encode())
    assert matcher.try_consume_tokens(list(text)) == len(text)
    while not (matcher.is_accepting() and (matcher.is_stopped() or chance.random() < 0.5)):
        mask = matcher.compute_bitmask()
        allowed = [i for i in range(256) if mask[i // 8] >> (i % 8) & 1]
        if len(text) > limit or not allowed:
            return None
        ending = [i for i in allowed if i in b'"}],>' and chance.random() < 0.4]
        byte = chance.choice(ending or allowed)
        assert matcher.consume_token(byte)
        text.append(byte)
    return text.decode()


def calls_in(text: str, tools: list[v.Tool], bare: bool = False) -> list[v.ToolCall]:
    """Returns the calls; asserts that the text contains nothing else, and no warnings except for `bare` calls."""
    reader = ReplyReader(HERMES, tools, new_id=lambda: "x", options=ReaderOptions(lenient=bare))
    events = [*reader.feed(text), *reader.close()]
    assert not [e for e in events if isinstance(e, ev.TextDelta | ev.ToolCallIncomplete)]
    codes = {e.code for e in events if isinstance(e, ev.Notice)}
    assert codes <= ({"untagged_call", "stray_closing_tag"} if bare else set())
    reply = collect([ev.Start("i", "m", 0), *events, ev.Finish("stop")])
    return [p for p in reply.parts if isinstance(p, v.ToolCall)]


required = [v.ToolChoice("required"), v.ToolChoice("required", parallel_tool_calls=False)]
choices = st.sampled_from([*required, *(v.ToolChoice("named", name) for name in SCHEMAS)])


@given(choices, st.integers(0, 1 << 32))
def test_accepted_text_is_read_as_valid_calls(choice: v.ToolChoice, seed: int) -> None:
    text = written(grammar(TOOLS, choice), random.Random(seed))
    if text is None:
        return
    calls = calls_in(text, TOOLS)
    assert text == "\n".join(HERMES.write_call(c) for c in calls)
    assert len(calls) >= 1
    assert len(calls) == 1 or (choice.parallel_tool_calls and choice.mode == "required")
    for call in calls:
        assert choice.mode != "named" or call.name == choice.name
        jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])


@given(st.sampled_from([*required, v.ToolChoice()]), st.data())
def test_valid_calls_are_accepted(choice: v.ToolChoice, data: st.DataObject) -> None:
    words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8) | st.sampled_from(HERMES.markers)
    city = data.draw(words)
    call = v.ToolCall("", "get_weather", json.dumps({"city": city, "days": 3}, ensure_ascii=False))
    text = HERMES.write_call(call)
    assert accepts(text, grammar(TOOLS, choice))
    assert accepts(f"{text}\n{text}", grammar(TOOLS, choice)) == choice.parallel_tool_calls


FREE = [
    ("nothing", "", True),
    ("text", "It is sunny.\n\n< 5 degrees", True),
    ("a call", '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>', True),
    ("text, then a call", 'Wait.\n<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>', True),
    ("a tool that is not offered", '<tool_call>\n{"name": "pong", "arguments": {}}\n</tool_call>', False),
    ("arguments that do not fit", '<tool_call>\n{"name": "ping", "arguments": {"a": 1}}\n</tool_call>', False),
    ("a call without its end", '<tool_call>\n{"name": "ping", "arguments": {}}', False),
    ("words behind the call", '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>!', False),
    ("a tag that is spoken of", "the tag <tool_call>", False),
]


@pytest.mark.parametrize(("text", "through"), [row[1:] for row in FREE], ids=[row[0] for row in FREE])
def test_optional_tagged_calls_are_constrained(text: str, through: bool) -> None:
    assert accepts(text, grammar(TOOLS, v.ToolChoice())) == through


CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
PRETTY = json.dumps({"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}, indent=2)
BARE = [
    ("a bare call", CALL, True),
    ("on several lines", PRETTY, True),
    ("in a fence", f"```json\n{PRETTY}\n```", True),
    ("in a fence without a word", f"```\n{CALL}\n```\n", True),
    ("in a fence that stays open", f"```json\n{CALL}", True),
    ("behind thoughts", f"<think>\nHm.\n</think>\n\n{CALL}", True),
    ("behind thoughts that the prompt has opened", f"Hm.</think>{PRETTY}", True),
    ("by another name for arguments", CALL.replace("arguments", "parameters"), True),
    ("two", f"{CALL}\n{PRETTY}", True),
    ("two in a fence", f"```json\n{CALL}\n{CALL}\n```", True),
    ("two in fences", f"```json\n{CALL}\n```\n```json\n{CALL}\n```", True),
    ("arguments that do not fit", CALL.replace('"Paris"', "1"), False),
    ("arguments that do not fit, in a fence", f"```json\n{PRETTY.replace('days', 'day')}\n```", False),
    ("arguments that do not fit, behind thoughts", f"<think>Hm.</think>{CALL.replace('city', 'town')}", False),
    ("arguments that do not fit the second time", f"{CALL}\n{CALL.replace('city', 'town')}", False),
    ("without its end", CALL[:-1], False),
    ("words behind it", f"{CALL}\nI have called.", False),
    ("a tool that is not offered", CALL.replace("get_weather", "get_time"), True),
    ("JSON that is no call", '{"name": "Paris", "days": [1, 2]}', True),
    ("code that begins a reply", '```python\n{"name": "get_weather", "arguments": 1}\n```', True),
    ("an example behind words", f"Write {CALL.replace('Paris', '...')} for it.", True),
]


@pytest.mark.parametrize(("text", "through"), [row[1:] for row in BARE], ids=[row[0] for row in BARE])
def test_optional_untagged_calls_are_constrained(text: str, through: bool) -> None:
    assert accepts(text, grammar(TOOLS, v.ToolChoice())) == through


@given(st.data(), st.integers(0, 1 << 32))
def test_started_untagged_call_completes_to_valid_calls(data: st.DataObject, seed: int) -> None:
    """Except for lists in place of a single value that do not clearly mean several calls."""
    name = data.draw(st.sampled_from([*SCHEMAS]))
    space = st.sampled_from(["", " ", "\n", "\n  "])
    fence = data.draw(st.sampled_from(["", "```", "```json\n", "```tool_call\n"]))
    pieces = ("{", '"name"', ":", json.dumps(name), ",", '"arguments"', ":")
    begun = data.draw(space) + fence + "".join(data.draw(space) + piece for piece in pieces)
    text = written(grammar(TOOLS, v.ToolChoice()), random.Random(seed), begun=begun)
    if text is None:
        return
    calls = calls_in(text, TOOLS, bare=True)
    assert calls
    assert calls[0].name == name
    for call in calls:
        offered = tool(call.name, SCHEMAS[call.name])
        verdict = judge_call(offered, call.arguments, ALL_REPAIRS)
        if not verdict.valid:
            verdict = judge_call(offered, json.dumps(with_first_items(call)), ALL_REPAIRS)
        for arguments in (verdict.arguments, *(each.arguments for each in verdict.extra_calls)):
            jsonschema.validate(json.loads(arguments), SCHEMAS[call.name])


def with_first_items(call: v.ToolCall) -> dict[str, Any]:
    """Returns the arguments, with the first item of each list in place of a single value."""
    members, single = json.loads(call.arguments), SCHEMAS[call.name]["properties"]
    lists = [name for name, each in members.items() if isinstance(each, list) and single[name].get("type") != "array"]
    assert lists
    return members | {name: members[name][0] for name in lists}


REPAIRABLE_ARGUMENTS = [
    ("null for what need not be", '{"city": "Paris", "days": null}', True),
    ("null for what must be", '{"city": null}', False),
    ("a list for one value", '{"city": ["Paris", "Rome"], "days": 1}', True),
    ("a list of what is none", '{"city": ["Paris", 3]}', False),
    ("a list of one", '{"city": ["Paris"]}', False),
    ("something else", '{"city": "Paris", "days": "3"}', False),
]


@pytest.mark.parametrize(
    ("arguments", "through"), [row[1:] for row in REPAIRABLE_ARGUMENTS], ids=[row[0] for row in REPAIRABLE_ARGUMENTS]
)
def test_repairable_arguments_are_accepted_in_untagged_call(arguments: str, through: bool) -> None:
    call = f'{{"name": "get_weather", "arguments": {arguments}}}'
    assert accepts(call, grammar(TOOLS, v.ToolChoice())) == through
    if through:
        assert judge_call(tool("get_weather", SCHEMAS["get_weather"]), arguments, ALL_REPAIRS).valid


def test_list_for_single_value_is_accepted_only_with_parallel_calls() -> None:
    call = '{"name": "get_weather", "arguments": {"city": ["Paris", "Rome"]}}'
    assert not accepts(call, grammar(TOOLS, v.ToolChoice(parallel_tool_calls=False)))


def test_second_untagged_call_is_rejected_without_parallel_calls() -> None:
    one = grammar(TOOLS, v.ToolChoice(parallel_tool_calls=False))
    assert accepts(f"```json\n{PRETTY}\n```", one)
    assert not accepts(f"{CALL}\n{CALL}", one)


@pytest.mark.parametrize("name", sorted({*formats.names()} - {"llama3_json", "xlam"}))
def test_untagged_call_is_constrained_in_every_lenient_format(name: str) -> None:
    format, tools = formats.get(name), [tool("get_weather")]
    found = tools_grammar(format, tools, v.ToolChoice())
    reader = ReplyReader(format, tools, new_id=lambda: "x", options=ReaderOptions(lenient=True))
    taken = [e for e in [*reader.feed(CALL), *reader.close()] if isinstance(e, ev.ToolCallEnd)]
    if found is None or not taken:
        return
    assert accepts(CALL, found.text)
    assert not accepts(CALL.replace('"Paris"', "1"), found.text)


def test_text_is_rejected_if_tool_is_required() -> None:
    assert not accepts("It is sunny.", grammar(TOOLS, v.ToolChoice("required")))
    assert not accepts("", grammar(TOOLS, v.ToolChoice("required")))


def test_named_choice_accepts_only_that_tool() -> None:
    only = grammar(TOOLS, v.ToolChoice("named", "ping"))
    assert accepts(HERMES.write_call(v.ToolCall("", "ping", "{}")), only)
    assert not accepts(HERMES.write_call(v.ToolCall("", "get_weather", '{"city": "x"}')), only)


@pytest.mark.parametrize(
    ("tools", "choice"),
    [
        ([], v.ToolChoice("required")),
        (TOOLS, v.ToolChoice("none")),
        (TOOLS, v.ToolChoice("named", "nobody")),
        ([v.Tool("search", kind="web_search")], v.ToolChoice()),
    ],
    ids=["no tools", "choice none", "a name that is not offered", "tools of the vendor"],
)
def test_choice_without_callable_tools_has_no_grammar(tools: list[v.Tool], choice: v.ToolChoice) -> None:
    assert tools_grammar(HERMES, tools, choice) is None


REFERENCES = [
    ('{"root": {"v": 1, "next": {"v": 2}}}', True),
    ('{"root": {"v": 1}, "also": {"v": 3}}', True),
    ('{"root": {"v": "x"}}', False),
    ('{"root": {"v": 1, "next": {"v": "x"}}}', False),
]


@pytest.mark.parametrize("others", [[], ["ping"]], ids=["alone", "beside another"])
@pytest.mark.parametrize(("arguments", "through"), REFERENCES)
def test_schema_references_are_resolved_within_tool(arguments: str, through: bool, others: list[str]) -> None:
    tools = [*(tool(n) for n in others), tool("tree")]
    text = HERMES.write_call(v.ToolCall("", "tree", arguments))
    assert accepts(text, grammar(tools, v.ToolChoice("required"))) == through


def test_member_named_ref_is_not_a_reference() -> None:
    schema = {"type": "object", "properties": {"$ref": {"type": "integer"}}, "additionalProperties": False}
    text = HERMES.write_call(v.ToolCall("", "f", '{"$ref": 1}'))
    assert accepts(text, grammar([tool("f", schema)], v.ToolChoice("required")))


UNSATISFIABLE = [
    ("nothing can fit", {"type": "object", "properties": {"a": False}, "required": ["a"]}),
]


@pytest.mark.parametrize("schema", [row[1] for row in UNSATISFIABLE], ids=[row[0] for row in UNSATISFIABLE])
def test_unsatisfiable_schema_is_relaxed_to_any_object(schema: dict[str, Any]) -> None:
    found = tools_grammar(HERMES, [tool("hard", schema), tool("ping")], v.ToolChoice("required"))
    assert found is not None
    assert found.relaxed == {"hard": "any object is accepted"}
    assert accepts(HERMES.write_call(v.ToolCall("", "hard", '{"a": [1, {"b": null}]}')), found.text)
    assert not accepts(HERMES.write_call(v.ToolCall("", "hard", "1")), found.text)
    assert not accepts(HERMES.write_call(v.ToolCall("", "ping", '{"a": 1}')), found.text)


PARTLY_RELAXED = [
    ("a reference to elsewhere", {"$ref": "https://example.com/x.json"}, "[1]", None),
    ("a reference to nothing", {"$ref": "#/$defs/none"}, "[1]", None),
    ("a pattern the engine lacks", {"type": "string", "pattern": "(?=x)y"}, '"z"', "[1]"),
    ("a type that is none", {"type": "strng", "description": "d"}, "[1]", None),
    ("a count that it gets wrong", {"type": "object", "properties": {"b": {}}, "minProperties": 1}, '{"b": 1}', "[1]"),
]


@pytest.mark.parametrize(
    ("part", "through", "other"), [row[1:] for row in PARTLY_RELAXED], ids=[row[0] for row in PARTLY_RELAXED]
)
def test_unsupported_schema_part_is_relaxed_in_place(part: dict[str, Any], through: str, other: str | None) -> None:
    schema = {"type": "object", "properties": {"a": part, "n": {"type": "integer"}}, "required": ["a", "n"]}
    found = tools_grammar(HERMES, [tool("hard", schema)], v.ToolChoice("required"))
    assert found is not None
    assert found.relaxed["hard"].endswith(" at $.properties.a")

    def takes(a: str, n: str) -> bool:
        return accepts(HERMES.write_call(v.ToolCall("", "hard", f'{{"a": {a}, "n": {n}}}')), found.text)

    assert takes(through, "1")
    assert not takes(through, '"x"')
    assert other is None or not takes(other, "1")


UNSUPPORTED_FEATURES = [
    ("a bound out of reach", {"type": "object", "properties": {"a": {"exclusiveMinimum": 0}}}, '{"a": 0}'),
    (
        "a bound out of reach, deeper",
        {"properties": {"a": {"anyOf": [{"type": "array", "items": {"type": "number", "exclusiveMaximum": 0}}]}}},
        '{"a": [0]}',
    ),
    ("format", {"type": "object", "properties": {"a": {"type": "string", "format": "color"}}}, '{"a": "x"}'),
    ("not", {"type": "object", "properties": {"a": {"not": {"type": "string"}}}}, '{"a": 1}'),
    ("if", {"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}}, '{"b": 1}'),
    ("uniqueItems", {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}, '{"a": [1]}'),
    ("no type", {"properties": {"a": {"type": "integer"}}}, '{"a": 1}'),
    ("a reference to itself", {"type": "object", "properties": {"a": {"$ref": "#"}}}, '{"a": {}}'),
    ("empty", {}, '{"a": 1}'),
    ("annotations", {"type": "object", "title": "T", "default": {}, "examples": [{}], "$schema": "x"}, "{}"),
]


@pytest.mark.parametrize(
    ("schema", "arguments"), [row[1:] for row in UNSUPPORTED_FEATURES], ids=[row[0] for row in UNSUPPORTED_FEATURES]
)
def test_unsupported_schema_features_do_not_reject_valid_calls(schema: dict[str, Any], arguments: str) -> None:
    found = tools_grammar(HERMES, [tool("f", schema)], v.ToolChoice("required"))
    assert found is not None
    assert accepts(HERMES.write_call(v.ToolCall("", "f", arguments)), found.text)


@pytest.mark.parametrize("levels", [60, 130, 245])
def test_deeply_nested_schema_has_grammar(levels: int) -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    assert tools_grammar(HERMES, [tool("deep", schema)], v.ToolChoice("required")) is not None


def test_schema_with_huge_number_is_relaxed() -> None:
    schema = '{"type": "object", "properties": {"a": {"maximum": 1' + "0" * 5000 + "}}}"
    found = tools_grammar(HERMES, [v.Tool("f", "", schema)], v.ToolChoice("required"))
    assert found is not None
    assert [*found.relaxed] == ["f"]


@pytest.mark.parametrize("name", ["a.b/c", 'with "quotes"', "back\\slash", "naïve 日本", "</tool_call>", "line\nbreak"])
def test_unusual_tool_names_are_accepted_and_read(name: str) -> None:
    tools = [tool(name, {"type": "object"}), tool("ping")]
    text = HERMES.write_call(v.ToolCall("", name, "{}"))
    assert accepts(text, grammar(tools, v.ToolChoice("required")))
    assert [c.name for c in calls_in(text, tools)] == [name]


# Replies that are one JSON value.


def test_response_schema_constrains_reply() -> None:
    found = json_grammar(json.dumps(SCHEMAS["get_weather"]))
    assert found is not None
    assert accepts('{"city": "Paris", "days": 2}', found)
    assert not accepts('{"city": "Paris", "days": "2"}', found)
    assert not accepts("Paris", found)


@pytest.mark.parametrize(("schema", "through"), [("{}", "[1]"), ("true", '"x"'), ('{"type": "integer"}', "12")])
def test_response_schema_of_any_type_is_supported(schema: str, through: str) -> None:
    found = json_grammar(schema)
    assert found is not None
    assert accepts(through, found)


@pytest.mark.parametrize("schema", ['{"$ref": "#/$defs/none"}', '{"maximum": 1' + "0" * 5000 + "}"])
def test_unsupported_response_schema_has_no_grammar(schema: str) -> None:
    assert json_grammar(schema) is None


# Replies that are one JSON value, or calls.

VALUE_OR_CALLS = [
    ("the answer", '{"city": "Paris"}', True),
    ("a call", '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>', True),
    ("an answer that does not fit", '{"city": 1}', False),
    ("text", "Paris", False),
    ("text before a call", 'Wait.\n<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>', False),
]


@pytest.mark.parametrize(
    ("text", "through"), [row[1:] for row in VALUE_OR_CALLS], ids=[row[0] for row in VALUE_OR_CALLS]
)
def test_response_schema_with_tools_accepts_value_or_calls(text: str, through: bool) -> None:
    found = tools_grammar(HERMES, TOOLS, v.ToolChoice(), json.dumps(SCHEMAS["get_weather"]))
    assert found is not None
    assert accepts(text, found.text) == through


def test_grammars_are_not_cached() -> None:
    """Schemas come from clients, and may be megabytes long."""
    tracemalloc.start()
    try:
        for i in range(20):
            assert json_grammar(json.dumps({"type": "object", "description": f"{i}" + "d" * 500_000}))
        assert tracemalloc.get_traced_memory()[0] < 3_000_000
    finally:
        tracemalloc.stop()


def test_found_tools_can_be_called_and_deferred_ones_cannot() -> None:
    search = replace(tool("find", {"type": "object"}), loading="search")
    names = {"find": True, "found": True, "hidden": False}
    tools = [
        search,
        replace(tool("hidden", {"type": "object"}), loading="deferred"),
        replace(tool("found", {"type": "object"}), loading="found"),
    ]
    request = v.Request("m", (v.Message("user", (v.Text("Go."),)),), tuple(tools), v.ToolChoice("required"))
    text, warnings = constrain(HERMES, request, has_tools=True)
    assert warnings == []
    for name, is_callable in names.items():
        written_call = HERMES.write_calls([v.ToolCall("1", name, "{}")])
        assert accepts(written_call, text) is is_callable
