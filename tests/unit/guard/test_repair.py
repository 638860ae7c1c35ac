"""Invalid arguments are repaired to match the tool's schema, if only one meaning is possible."""

import json
from operator import itemgetter
from typing import Any

import pytest

from dragoman.guard.policy import ARGUMENT_REPAIRS
from dragoman.guard.repair import RepairedArguments
from dragoman.guard.split_calls import SPLIT_INTO_CALLS
from dragoman.guard.validation.compiled_schema import CompiledSchema, compile_schema
from support.check_each import check_each
from support.repairs import repair_one

N = {"type": "integer"}
S = {"type": "string"}
B = {"type": "boolean"}
UNIT = {"enum": ["celsius", "fahrenheit"]}
NULL = {"type": "null"}
DAY = {"type": "string", "format": "date"}


def obj(properties: dict[str, Any] | None = None, **words: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties or {}, **words}


def closed(properties: dict[str, Any], **words: Any) -> dict[str, Any]:
    return obj(properties, additionalProperties=False, **words)


def of(schema: Any) -> CompiledSchema:
    return compile_schema(json.dumps(schema))


def text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


POINT = closed({"file_path": S, "line": N}, required=["file_path"])
BOTH = {"allOf": [obj({"n": N}), obj({"m": N})], "unevaluatedProperties": False}
READ = closed({"act": {"const": "read"}, "id": N}, required=["act", "id"])
DROP = closed({"act": {"const": "drop", "default": "drop"}, "id": N, "hard": B}, required=["act", "id"])

REPAIRED: list[tuple[Any, Any, Any, str]] = [
    # nested
    (obj({"city": S}, required=["city"]), {"arguments": {"city": "Rome"}}, {"city": "Rome"}, "unnest"),
    (closed({"n": N}), {"Params": {"n": "3"}}, {"n": 3}, "unnest to_number"),
    # parse
    (obj({"n": N}), '"{\\"n\\": 1}"', {"n": 1}, "parse_string"),
    (obj({"n": N}), '"{\\"n\\": \\"1\\"}"', {"n": 1}, "parse_string to_number"),
    (obj({"l": {"type": "array", "items": N}}), {"l": "[1, 2]"}, {"l": [1, 2]}, "parse_string"),
    (obj({"l": {"type": "array", "items": N}}), {"l": '["1", 2]'}, {"l": [1, 2]}, "parse_string to_number"),
    (obj({"o": {"anyOf": [POINT, NULL]}}), {"o": '{"filePath": "a"}'}, {"o": {"file_path": "a"}},
     "parse_string rename_key"),
    # numbers, booleans, nulls
    (obj({"n": N}), {"n": " 3 "}, {"n": 3}, "to_number"),
    (obj({"n": {"type": "number"}}), {"n": "1.50e3"}, '{"n":1.50e3}', "to_number"),
    (obj({"n": N}), {"n": "12345678901234567890123"}, '{"n":12345678901234567890123}', "to_number"),
    (obj({"n": N, "m": {"type": "number"}}), '{"m":1.50e3,"n":"1"}', '{"m":1.50e3,"n":1}', "to_number"),
    (obj({"b": B}), {"b": "True"}, {"b": True}, "to_boolean"),
    (obj({"b": B}), {"b": "false"}, {"b": False}, "to_boolean"),
    (obj({"x": {"type": ["integer", "null"]}}), {"x": "None"}, {"x": None}, "to_null"),
    (obj({"x": {"anyOf": [UNIT, NULL]}}), {"x": "null"}, {"x": None}, "to_null"),
    # strings
    (obj({"s": S}), {"s": 3}, {"s": "3"}, "to_string"),
    (obj({"s": S}), '{"s": 1.50}', {"s": "1.50"}, "to_string"),
    (obj({"s": S}), {"s": True}, {"s": "true"}, "to_string"),
    (obj({"content": S}), {"content": {"a": 1}}, {"content": '{"a":1}'}, "to_string"),
    (obj({"v": {"enum": ["1", "2"]}}), {"v": 1}, {"v": "1"}, "to_string"),
    # wrap, unwrap
    (obj({"l": {"type": "array", "items": S}}), {"l": "a"}, {"l": ["a"]}, "wrap"),
    (obj({"l": {"type": "array", "items": POINT}}), {"l": {"file_path": "a"}}, {"l": [{"file_path": "a"}]}, "wrap"),
    (obj({"l": {"type": "array", "items": N}}), {"l": "3"}, {"l": [3]}, "wrap to_number"),
    (obj({"s": S}), {"s": ["a"]}, {"s": "a"}, "unwrap"),
    (obj({"u": UNIT}), {"u": ["celsius"]}, {"u": "celsius"}, "unwrap"),
    # enum
    (obj({"u": UNIT}), {"u": "Celsius"}, {"u": "celsius"}, "match_enum"),
    (obj({"u": UNIT}), {"u": "cel"}, {"u": "celsius"}, "match_enum"),
    (obj({"u": UNIT}), {"u": "F"}, {"u": "fahrenheit"}, "match_enum"),
    (obj({"u": {"enum": ["in_progress", "done"]}}), {"u": "In Progress"}, {"u": "in_progress"}, "match_enum"),
    (obj({"k": {"const": "trip"}}), {"k": "TRIP"}, {"k": "trip"}, "match_enum"),
    (obj({"u": {"enum": [1, 2, "auto", None]}}), {"u": "2"}, {"u": 2}, "to_number"),
    (obj({"u": {"enum": [1, True]}}), {"u": "true"}, {"u": True}, "to_boolean"),
    (obj({"u": {"enum": [1, None]}}), {"u": "null"}, {"u": None}, "to_null"),
    # optional
    (obj({"s": S}), {"s": None}, {}, "drop_null_optional"),
    (obj({"u": UNIT}), {"u": ""}, {}, "drop_null_optional"),
    (obj({"u": UNIT}), {"u": "None"}, {}, "drop_null_optional"),
    (obj({"u": UNIT | {"default": "celsius"}}), {"u": None}, {}, "drop_null_optional"),
    (obj({"day": DAY}), {"day": ""}, {}, "drop_null_optional"),
    (obj({"n": {"type": "integer", "nullable": True}}), {"n": None}, {}, "drop_null_optional"),
    (obj({"o": {"anyOf": [closed({"u": UNIT}), NULL]}}), {"o": {"u": None}}, {"o": {}}, "drop_null_optional"),
    # keys
    (POINT, {"filePath": "a"}, {"file_path": "a"}, "rename_key"),
    (POINT, {"file_path": "a", "Line": 3}, {"file_path": "a", "line": 3}, "rename_key"),
    (obj({"file_path": S}, required=["file_path"]), {"File-Path": "a"}, {"file_path": "a"}, "rename_key"),
    (obj(required=["m"]), {"M": 1}, {"m": 1}, "rename_key"),
    (POINT, {"filePath": "a", "LINE": "3", "why": "x"}, {"file_path": "a", "line": 3},
     "rename_key to_number drop_unknown"),
    # defaults
    (obj({"u": {"default": "a", "type": "string"}}, required=["u"]), {}, {"u": "a"}, "fill_default"),
    (obj({"u": {"allOf": [{"default": 3}]}, "v": {"default": 3}}, required=["v"]), {}, {"v": 3}, "fill_default"),
    # unknown
    (POINT, {"file_path": "a", "explanation": "to see"}, {"file_path": "a"}, "drop_unknown"),
    (POINT, {"file_path": "a", "Thought": "x", "confidence": 0.9}, {"file_path": "a"}, "drop_unknown"),
    (POINT, {"file_path": "a", "pattern": None, "encoding": ""}, {"file_path": "a"}, "drop_unknown"),
    (closed({}), {"why": "to see"}, {}, "drop_unknown"),
    (POINT, {"file_path": "a", "filePath": "a"}, {"file_path": "a"}, "drop_unknown"),
    # nested positions
    (obj({"a": obj({"n": N})}), {"a": {"n": "3"}}, {"a": {"n": 3}}, "to_number"),
    (obj({"a": {"$ref": "#/$defs/p"}}, **{"$defs": {"p": POINT}}), {"a": {"FilePath": "x"}}, {"a": {"file_path": "x"}},
     "rename_key"),
    (BOTH, {"n": "3", "m": 3}, {"n": 3, "m": 3}, "to_number"),
    (BOTH, {"n": "3", "why": "x"}, {"n": 3}, "to_number drop_unknown"),
    (obj({"x": {"anyOf": [N, NULL]}}), {"x": "3"}, {"x": 3}, "to_number"),
    (obj({"x": {"oneOf": [{"type": "array", "items": N}, NULL]}}), {"x": "3"}, {"x": [3]}, "wrap to_number"),
    (obj({"x": {"anyOf": [{"anyOf": [N, B]}, NULL]}}), {"x": "true"}, {"x": True}, "to_boolean"),
    (obj({"x": {"oneOf": [READ, DROP]}}), {"x": {"act": "Read", "id": "7"}}, {"x": {"act": "read", "id": 7}},
     "match_enum to_number"),
    (obj({"l": {"type": "array", "items": obj({"n": N})}}), {"l": [{"n": "1"}, {"n": 2}]}, {"l": [{"n": 1}, {"n": 2}]},
     "to_number"),
    (obj({"l": {"type": "array", "prefixItems": [N, B]}}), {"l": ["1", "true"]}, {"l": [1, True]},
     "to_number to_boolean"),
    (obj({"l": {"type": "array", "items": [N, B]}}), {"l": ["1", "true"]}, {"l": [1, True]}, "to_number to_boolean"),
    (obj(patternProperties={"^n_": N}, additionalProperties=False), {"n_a": "1"}, {"n_a": 1}, "to_number"),
    (obj(additionalProperties=N), {"any": "1"}, {"any": 1}, "to_number"),
    (obj({"m": N}, **{"if": {"required": ["n"]}, "then": {"required": ["m"]}}), {"n": 1, "M": 2}, {"n": 1, "m": 2},
     "rename_key"),
    (obj({"a": N, "b": N}, dependentRequired={"a": ["b"]}), {"a": 1, "B": 2}, {"a": 1, "b": 2}, "rename_key"),
    (obj({"n": N | {"minimum": 0, "exclusiveMinimum": True}}), {"n": "3"}, {"n": 3}, "to_number"),
    (obj({"d": DAY, "n": N}), {"d": "2026-01-31", "n": "1"}, {"d": "2026-01-31", "n": 1}, "to_number"),
    # other members are unchanged
    (obj({"n": N}), '{"z":"ü\\u2028","n":"1","a":[1.0,{}]}', '{"z":"ü\u2028","n":1,"a":[1.0,{}]}', "to_number"),
    (obj({"n": N}), '{"x": 1, "n": "1", "x": 1}', '{"x":1,"n":1}', "to_number"),
]  # fmt: skip


def test_arguments_are_repaired(subtests: pytest.Subtests) -> None:
    def check(case: tuple[Any, Any, Any, str]) -> None:
        schema, written, meant, steps = case
        wanted = meant if isinstance(meant, str) else json.dumps(meant, separators=(",", ":"), ensure_ascii=False)
        assert repair_one(text(written), of(schema)) == RepairedArguments(wanted, tuple(steps.split()))
        for step in steps.split():
            others = [each for each in ARGUMENT_REPAIRS if each != step]
            found = repair_one(text(written), of(schema), others)
            assert found is None or step not in found.repairs

    check_each(subtests, REPAIRED, check)


def test_every_repair_step_has_cases() -> None:
    assert {step for *_, steps in REPAIRED for step in steps.split()} == set(ARGUMENT_REPAIRS) - {SPLIT_INTO_CALLS}


NOT_REPAIRED: list[tuple[str, Any, Any]] = [
    ("a name around arguments that may mean something", obj({"path": S}, required=["path"]), {"except": {"path": "/"}}),
    ("a name around them that is the tool's own", obj({"data": obj(), "n": N}, required=["n"]), {"data": {"n": 1}}),
    ("a wrapper around undeclared members", obj({"n": N}, required=["n"]), {"arguments": {"n": 1, "m": 2}}),
    ("more than arguments inside", closed({"n": N}), {"arguments": {"n": 1, "m": 2}}),
    ("JSON that is not whole", obj({"l": {"type": "array"}}), {"l": "[1, 2"}),
    ("another kind of JSON", obj({"o": obj()}), {"o": "[1]"}),
    ("a number with a unit", obj({"n": N}), {"n": "3 days"}),
    ("a number with zeros in front", obj({"n": N}), {"n": "007"}),
    ("a fraction", obj({"n": N}), {"n": "3.5"}),
    ("digits of other scripts", obj({"n": N}), {"n": "٣"}),
    ("thousands, or a fraction?", obj({"n": N}), {"n": "1,000"}),
    ("a number beyond all numbers", obj({"n": {"type": "number"}}), {"n": "1e400"}),
    ("a number beyond all numbers elsewhere", obj({"n": {"type": "number"}, "m": N}), '{"n": 1e400, "m": "3"}'),
    ("thousands of digits", obj({"n": N}), {"n": "9" * 1001}),
    ("a word for true", obj({"b": B}), {"b": "yes"}),
    ("a number for true", obj({"b": B}), {"b": 1}),
    ("an object where words are wanted", obj({"location": S}), {"location": {"city": "Rome"}}),
    ("several where one is wanted", obj({"s": S}), {"s": ["a", "b"]}),
    ("nothing as an item", obj({"l": {"type": "array", "items": S}}, required=["l"]), {"l": ""}),
    ("an object of nothing as an item", obj({"l": {"type": "array", "items": obj()}}, required=["l"]), {"l": {}}),
    ("several in one text", obj({"l": {"type": "array", "items": S}}), {"l": "a.txt,b.txt"}),
    ("a limit of none", POINT, {"file_path": "a", "limit": 0}),
    ("what is to be confirmed", obj({"confirm": B | {"default": True}}, required=["confirm"]), {}),
    ("null as an item", obj({"l": {"type": "array"}}, required=["l"]), {"l": None}),
    ("the beginning of two", obj({"u": {"enum": ["left", "leftmost"]}}), {"u": "lef"}),
    ("a word that is wider", obj({"u": {"enum": ["all", "none"]}}), {"u": "a"}),
    ("a capital of a word that is wider", obj({"u": {"enum": ["ALL", "NONE"]}}), {"u": "A"}),
    ("a beginning of more", obj({"u": {"enum": ["delete_all", "read"]}}), {"u": "delete"}),
    ("a beginning of more, in another style", obj({"u": {"enum": ["deleteAll", "read"]}}), {"u": "delete"}),
    ("all there are, in another style", obj({"u": {"enum": ["shareEveryone", "keep"]}}), {"u": "sha"}),
    ("all there are, in no style", obj({"u": {"enum": ["purgeall", "keep"]}}), {"u": "purge"}),
    ("a word of several", obj({"u": {"enum": ["delete_permanently", "keep"]}}), {"u": "delete"}),
    ("the beginning of several", obj({"u": {"enum": ["delete_permanently", "keep"]}}), {"u": "del"}),
    ("some of what may be done", obj({"u": {"enum": ["public_read_write", "private"]}}), {"u": "public"}),
    ("some of it, as one word", obj({"u": {"enum": ["publicwrite", "mine"]}}), {"u": "public"}),
    ("a capital of several", obj({"u": {"enum": ["DeletePermanently", "keep"]}}), {"u": "D"}),
    ("a small letter", obj({"u": {"enum": ["add", "remove"]}}), {"u": "a"}),
    ("two letters, which are a word", obj({"u": {"enum": ["insert", "remove"]}}), {"u": "in"}),
    ("a capital of two", obj({"u": {"enum": ["start", "stop", "pause"]}}), {"u": "P"}),
    ("no, which begins a word", obj({"u": {"enum": ["notify", "wait"]}}), {"u": "not"}),
    ("digits that begin others", obj({"u": {"enum": ["100", "25"]}}), {"u": "10"}),
    ("a sign", obj({"u": {"enum": ["-1", "0"]}}), {"u": "1"}),
    ("a point", obj({"u": {"enum": ["15", "30"]}}), {"u": "1.5"}),
    ("marks that mean something", obj({"u": {"enum": ["m/s", "km/h"]}}), {"u": "ms"}),
    ("a language of another name", obj({"u": {"enum": ["c++", "rust"]}}), {"u": "c"}),
    ("a letter that is another", obj({"u": {"enum": ["Bär"]}}), {"u": "Bür"}),
    ("another script", obj({"u": {"enum": ["日本a"]}}), {"u": "中国a"}),
    ("case that tells two apart", obj({"u": {"enum": ["Read", "READ"]}}), {"u": "read"}),
    ("the beginning of a constant", obj({"k": {"const": "drop"}}, required=["k"]), {"k": "dro"}),
    ("text that may be empty, but must not", obj({"where": S | {"minLength": 1}}), {"where": ""}),
    ("no items, where there must be some", obj({"ids": {"type": "array", "minItems": 1}}), {"ids": []}),
    ("a number that is too small", obj({"limit": N | {"minimum": 1}}), {"limit": 0}),
    ("a word for no, where a default says yes", obj({"u": {"enum": ["mail"], "default": "mail"}}), {"u": "None"}),
    ("a word that may be one", obj({"u": {"enum": ["mail", "text"]}}), {"u": "none"}),
    ("nothing, where a default is more", obj({"u": {"enum": ["mine", "all"], "default": "all"}}), {"u": ""}),
    ("a trial run, or none", obj({"dry_run": B}), {"dry_run": ""}),
    ("which ones", obj({"ids": {"type": "array"}}), {"ids": {}}),
    ("which ones, in no words", obj({"ids": {"type": "array"}}), {"ids": ""}),
    ("how old", obj({"older_than": N}), {"older_than": "None"}),
    ("for whom", obj({"scope": {"enum": ["mine", "yours"]}}), {"scope": " "}),
    ("a list of nothing for text", obj({"s": S}), {"s": []}),
    ("null where it must be", obj({"s": S}, required=["s"]), {"s": None}),
    ("null under a name of the model's own", obj({"env": obj(additionalProperties=S)}), {"env": {"A": None}}),
    ("null as an item of a list", obj({"l": {"type": "array", "items": S}}), {"l": ["a", None]}),
    ("one value under two names", POINT, {"filePath": "a", "FilePath": "b"}),
    ("two values for one name", POINT, {"file_path": "a", "filePath": "b"}),
    ("two values under one name", POINT, '{"file_path": "a", "line": "1", "line": "2"}'),
    ("a name that could be two", closed({"a_b": S, "ab": S}), {"aB": "x"}),
    ("a name with a sign", closed({"utc-5": N, "m": N}), {"utc5": 1}),
    ("something else", POINT, {"path": "a"}),
    ("what is missing and known nowhere", obj({"n": N}, required=["n"]), {}),
    ("a constant is no default", obj({"k": {"const": "a"}}, required=["k"]), {}),
    ("a trial run is none without that", POINT, {"file_path": "a", "dry_run": True}),
    ("what is meant of a folder", POINT, {"file_path": "a", "pattern": "*.tmp"}),
    ("one of many", POINT, {"file_path": "a", "id": 5}),
    ("whose", POINT, {"file_path": "a", "from": "x@example.com"}),
    ("of what state", POINT, {"file_path": "a", "status": "read"}),
    ("not yet", POINT, {"file_path": "a", "draft": True}),
    ("later", POINT, {"file_path": "a", "send_at": "2027-01-01"}),
    ("to what is there", POINT, {"file_path": "a", "append": True}),
    ("of what", POINT, {"file_path": "a", "currency": "JPY"}),
    ("somewhere else", POINT, {"file_path": "a", "environment": "staging"}),
    ("not over another", POINT, {"file_path": "a", "overwrite": False}),
    ("not by force", POINT, {"file_path": "a", "force": False}),
    ("none at all", POINT, {"file_path": "a", "only": []}),
    ("a reason that is none of the model's", POINT, {"file_path": "a", "reason_code": "old"}),
    ("a reason beside a narrower", POINT, {"file_path": "a", "reason": "x", "pattern": "*.tmp"}),
    ("a note that is a thing", POINT, {"file_path": "a", "note": {"id": 5}}),
    ("what is not to be touched", POINT, {"file_path": "a", "excludePaths": ["/etc"]}),
    ("a condition", POINT, {"file_path": "a", "only_if": "old"}),
    ("a name that the schema knows, of another type", BOTH, {"n": "x", "m": 1, "y": 1}),
    ("a branch by its default", obj({"x": {"oneOf": [READ, DROP]}}), {"x": {"id": 7}}),
    ("branches that differ in what comes out", obj({"x": {"anyOf": [N, B, obj()]}}), {"x": ["a", "b"]}),
    ("a list of one, or its item made a number", obj({"x": {"anyOf": [{"type": "array", "items": S}, N]}}), {"x": "3"}),
    ("dates in words", obj({"d": DAY}), {"d": "tomorrow"}),
    ("what another needs", obj({"a": N}, dependentRequired={"a": ["b"]}), {"a": "1"}),
    ("half of a pair", obj({"n": N, "s": S}), '{"n": "1", "s": "\\ud800"}'),
    ("no JSON", obj({"n": N}), '{"n": "1"'),
    ("no number of JSON", obj({"n": N}), '{"n": NaN}'),
    ("nothing", obj({"n": N}), ""),
    ("what cannot be checked", {"type": 5}, {"n": "1"}),
]  # fmt: skip


def test_ambiguous_arguments_are_not_repaired(subtests: pytest.Subtests) -> None:
    def check(case: tuple[str, Any, Any]) -> None:
        _, schema, written = case
        assert repair_one(text(written), of(schema)) is None

    check_each(subtests, NOT_REPAIRED, check, itemgetter(0))


def test_no_repair_is_applied_if_none_is_enabled() -> None:
    for schema, written, _, _ in REPAIRED:
        assert repair_one(text(written), of(schema), ()) is None


@pytest.mark.parametrize(
    "written", ['{"n":1}', '{ "n" : 1, "n": 2 }', '{"n": 1.0, "x": "3"}', '{"n": 12345678901234567890123}']
)
def test_valid_arguments_are_unchanged(written: str) -> None:
    assert repair_one(written, of(obj({"n": N}))) in (RepairedArguments(written, ()), None)
