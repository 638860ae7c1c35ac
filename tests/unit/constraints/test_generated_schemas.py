"""Generated schemas: their grammars accept all valid arguments, and accept only calls."""

import json
import random
from collections.abc import Callable
from typing import Any, Final

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dragoman import formats
from dragoman.backends.embedded.grammar import tools_grammar
from dragoman.constraints.gbnf import to_gbnf
from dragoman.constraints.structural_tag import to_structural_tag
from dragoman.core import events as ev
from dragoman.core import messages as v
from dragoman.core.collect import collect
from dragoman.parsing.reply_reader import ReplyReader
from support.grammar_engines import accepts, sampled

Drawn = tuple[Any, Any]
"""A schema, and a value that should match it."""
HERMES: Final = formats.get("hermes")
REQUIRED: Final = v.ToolChoice("required", parallel_tool_calls=False)
WORDS: Final = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6)
INTEGERS: Final = st.integers(-(10**18), 10**18)
"""Within 64 bits, the range that grammars support."""
NAMES: Final = st.sampled_from(["a", "b", "c d", 'q"', "é", "$ref", "type"])
FEW_EXAMPLES: Final = settings().max_examples // 4


def embedded(tool: v.Tool) -> str:
    found = tools_grammar(HERMES, [tool], REQUIRED)
    assert found is not None
    return found.text


def written(make: Callable[[Any], str]) -> Callable[[v.Tool], str]:
    def write(tool: v.Tool) -> str:
        constraint = HERMES.constrain([tool], REQUIRED)
        assert constraint is not None
        return make(constraint)

    return write


WRITERS: Final = {
    "lark": embedded,
    "gbnf": written(lambda constraint: to_gbnf(constraint).grammar),
    "structural_tag": written(to_structural_tag),
}
writers = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


@st.composite
def scalars(draw: st.DrawFn) -> Drawn:
    match draw(st.sampled_from(["string", "integer", "number", "boolean", "null", "enum", "const", "any", "wrong"])):
        case "string":
            value = draw(WORDS)
            words = {"minLength": len(value), "maxLength": len(value) + 2, "pattern": "^[^#]*$", "format": "color"}
            return {"type": "string", **draw(some_keywords(words))}, value
        case "integer":
            number = draw(st.integers(-(10**9), 10**9))
            words = {"minimum": number - 1, "maximum": number, "exclusiveMaximum": number + 2, "multipleOf": 1}
            return {"type": "integer", **draw(some_keywords(words))}, number
        case "number":
            part = draw(st.integers(-4000, 4000)) / 8
            return {"type": "number", **draw(some_keywords({"minimum": part - 1, "maximum": part + 0.5}))}, part
        case "boolean":
            return {"type": "boolean"}, draw(st.booleans())
        case "null":
            return {"type": ["null", "string"]}, None
        case "enum":
            return {"enum": ["x", 1, None, 'q"\n']}, draw(st.sampled_from(["x", 1, None, 'q"\n']))
        case "const":
            return {"const": "only"}, "only"
        case "any":
            return draw(st.sampled_from([{}, True, {"description": "d", "default": 1}])), draw(WORDS | INTEGERS)
        case _:
            return {"type": "strng"}, draw(WORDS | st.booleans())


def some_keywords(words: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Returns up to two of these keywords."""
    return st.lists(st.sampled_from([*words]), max_size=2).map(lambda names: {name: words[name] for name in names})


def nested_schemas(inner: st.SearchStrategy[Drawn]) -> st.SearchStrategy[Drawn]:
    """Returns arrays, objects and unions of these."""
    return arrays(inner) | objects(inner) | either(inner) | combined(inner)


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Drawn]) -> Drawn:
    items, value = draw(inner)
    count = draw(st.integers(0, 2))
    words = {"minItems": count, "maxItems": count + 1, "uniqueItems": count < 2}
    return {"type": "array", "items": items, **draw(some_keywords(words))}, [value] * count


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Drawn]) -> Drawn:
    members = draw(st.dictionaries(NAMES, st.tuples(inner, st.booleans()), max_size=3))
    there = {name: value for name, ((_, value), is_there) in members.items() if is_there}
    required = draw(st.lists(st.sampled_from([*there]), unique=True)) if there else []
    words = {"additionalProperties": False, "minProperties": len(there), "propertyNames": {"minLength": 1}}
    properties = {name: schema for name, ((schema, _), _) in members.items()}
    return {"type": "object", "properties": properties, "required": required, **draw(some_keywords(words))}, there


@st.composite
def either(draw: st.DrawFn, inner: st.SearchStrategy[Drawn]) -> Drawn:
    (one, value), (other, _) = draw(inner), draw(inner)
    return {draw(st.sampled_from(["anyOf", "oneOf"])): draw(st.permutations([one, other]))}, value


@st.composite
def combined(draw: st.DrawFn, inner: st.SearchStrategy[Drawn]) -> Drawn:
    schema, value = draw(inner)
    words = {"allOf": [schema], "not": {"const": "never"}, "if": {"type": "object"}, "then": {"minProperties": 0}}
    return {**(schema if isinstance(schema, dict) else {}), **draw(some_keywords(words))}, value


@st.composite
def tools(draw: st.DrawFn) -> tuple[v.Tool, dict[str, Any]]:
    schema, value = draw(objects(st.recursive(scalars(), nested_schemas, max_leaves=4)))
    assume(fits(value, schema))
    return v.Tool("f", "", json.dumps(schema)), value


def fits(value: Any, schema: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(readable(schema)).is_valid(value))


def readable(schema: Any) -> Any:
    """Returns the schema without invalid types, which a validator cannot check."""
    if isinstance(schema, list):
        return [readable(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: readable(each) for key, each in schema.items() if not (key == "type" and each == "strng")}


def call(arguments: Any) -> str:
    return HERMES.write_call(v.ToolCall("", "f", json.dumps(arguments, ensure_ascii=False)))


def read(text: str, tool: v.Tool) -> list[Any]:
    """Returns the arguments of the calls; asserts that there is no other content."""
    reader = ReplyReader(HERMES, [tool], new_id=lambda: "x")
    events = [*reader.feed(text), *reader.close()]
    assert not [e for e in events if isinstance(e, ev.Notice | ev.TextDelta | ev.ToolCallIncomplete)]
    parts = collect([ev.Start("i", "m", 0), *events, ev.Finish("stop")]).parts
    return [json.loads(part.arguments) for part in parts if isinstance(part, v.ToolCall)]


@writers
@settings(max_examples=FEW_EXAMPLES)
@given(made=tools())
def test_valid_arguments_are_accepted(write: Callable[[v.Tool], str], made: tuple[v.Tool, dict[str, Any]]) -> None:
    tool, arguments = made
    assert accepts(write(tool), call(arguments))


@writers
@settings(max_examples=FEW_EXAMPLES)
@given(made=tools(), seed=st.integers(0, 1 << 32))
def test_accepted_text_is_one_call(
    write: Callable[[v.Tool], str], made: tuple[v.Tool, dict[str, Any]], seed: int
) -> None:
    text = sampled(write(made[0]), random.Random(seed))
    if text is not None:
        (arguments,) = read(text, made[0])
        assert isinstance(arguments, dict)
