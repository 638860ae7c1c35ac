"""Arguments are validated against the schema of their tool, and violations have actionable messages."""

import json
from typing import Any

import pytest

from dragoman.guard.arguments import Arguments
from dragoman.guard.validation import compiled_schema
from dragoman.guard.validation.compiled_schema import CompiledSchema, compile_schema, decode_arguments
from dragoman.guard.validation.violations import format_path, quote_value

TRIP = {
    "type": "object",
    "$defs": {
        "unit": {"enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "traveller": {
            "type": "object",
            "properties": {"name": {"type": "string", "minLength": 2}},
            "required": ["name"],
            "additionalProperties": False,
        },
    },
    "properties": {
        "days": {"type": "integer", "minimum": 1, "maximum": 30},
        "unit": {"$ref": "#/$defs/unit"},
        "when": {"type": "string", "format": "date-time"},
        "code": {"type": "string", "pattern": "^[A-Z]{3}$"},
        "to": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
        "by": {"oneOf": [{"required": ["train"]}, {"required": ["plane"]}], "type": "object"},
        "who": {"type": "array", "items": {"$ref": "#/$defs/traveller"}, "maxItems": 2, "uniqueItems": True},
        "kind": {"const": "trip"},
        "odd name": {"type": "number", "multipleOf": 0.5},
    },
    "required": ["days"],
    "additionalProperties": False,
}


def of(schema: Any) -> CompiledSchema:
    return compile_schema(json.dumps(schema))


VIOLATIONS: list[tuple[Any, str, tuple[Any, ...], str]] = [
    ({"days": "three"}, "type", ("days",), 'days: expected an integer, got "three"'),
    ({"days": 0}, "range", ("days",), "days: expected at least 1, got 0"),
    ({"days": 31}, "range", ("days",), "days: expected at most 30, got 31"),
    ({}, "required", (), '"days" is missing'),
    ({"days": 1, "unit": "Celsius"}, "enum", ("unit",), 'unit: expected one of "celsius", "fahrenheit", got "Celsius"'),
    (
        {"days": 1, "when": "now"},
        "format",
        ("when",),
        'when: expected the format "date-time" such as 2026-01-31T09:30:00Z, got "now"',
    ),
    ({"days": 1, "code": "ab"}, "pattern", ("code",), 'code: expected text that matches "^[A-Z]{3}$", got "ab"'),
    ({"days": 1, "to": 5}, "any_of", ("to",), "to: expected a string or an array or null, got 5"),
    (
        {"days": 1, "by": {}},
        "one_of",
        ("by",),
        'by: fits none of the forms that are allowed (by: "train" is missing; or by: "plane" is missing)',
    ),
    (
        {"days": 1, "by": {"train": 1, "plane": 2}},
        "one_of",
        ("by",),
        'by: expected exactly one of the forms that are allowed, got {"train": 1, "plane": 2}, which fits several',
    ),
    (
        {"days": 1, "who": [{"name": "A"}]},
        "length",
        ("who", 0, "name"),
        'who[0].name: expected at least 2 characters, got "A"',
    ),
    ({"days": 1, "who": [{}]}, "required", ("who", 0), 'who[0]: "name" is missing'),
    (
        {"days": 1, "who": [{"name": "Al", "nmae": [1]}]},
        "additional",
        ("who", 0),
        'who[0]: "nmae" must not be there; known: "name"',
    ),
    (
        {"days": 1, "who": [{"name": "Al"}, {"name": "Al"}]},
        "unique",
        ("who",),
        "who: expected items that differ from each other, got [{…}, {…}]",
    ),
    ({"days": 1, "kind": {"a": {"b": 1}}}, "const", ("kind",), 'kind: expected "trip", got {"a": {…}}'),
    ({"days": 1, "odd name": 0.7}, "multiple_of", ("odd name",), '["odd name"]: expected a multiple of 0.5, got 0.7'),
    ([], "type", (), "expected an object, got []"),
]


@pytest.mark.parametrize(("value", "kind", "path", "message"), VIOLATIONS, ids=[each[3] for each in VIOLATIONS])
def test_violation_is_reported(value: Any, kind: str, path: tuple[Any, ...], message: str) -> None:
    (problem,) = of(TRIP).violations(value)
    assert (problem.kind, problem.path, problem.message) == (kind, path, message)
    assert Arguments(json.dumps(value)).valid(of(TRIP)) is False


def test_valid_value_has_no_violations() -> None:
    value = {"days": 3.0, "unit": "celsius", "who": [{"name": "Al"}], "to": None, "by": {"train": 1}, "odd name": 1.5}
    assert of(TRIP).violations(value) == ()
    assert Arguments(json.dumps(value)).valid(of(TRIP)) is True


def test_last_duplicate_member_counts() -> None:
    assert Arguments('{"days": "x", "days": 1}').valid(of(TRIP)) is True
    assert Arguments('{"days": 1, "days": "x"}').valid(of(TRIP)) is False
    assert decode_arguments('{"days": 1, "days": "x"}') == {"days": "x"}


def test_violation_has_expected_values() -> None:
    value = {"unit": "C", "days": None, "x": 1, "to": [1], "code": "a", "kind": 1}
    expected = {problem.kind: problem.expected for problem in of({**TRIP, "required": ["city"]}).violations(value)}
    assert expected == {
        "enum": ("celsius", "fahrenheit"),
        "type": ("integer",),
        "additional": ("x",),
        "any_of": None,
        "pattern": "^[A-Z]{3}$",
        "const": "trip",
        "required": "city",
    }


def test_violation_has_branches_of_any_of() -> None:
    (problem,) = of(TRIP).violations({"days": 1, "to": ["a", 1, 2]})
    assert [[(each.kind, each.path) for each in branch] for branch in problem.branches] == [
        [("type", ("to",))],
        [("type", ("to", 1)), ("type", ("to", 2))],
        [("type", ("to",))],
    ]


def test_violation_has_its_schema() -> None:
    (problem,) = of(TRIP).violations({"days": 1, "unit": "C"})
    assert problem.schema == {"enum": ["celsius", "fahrenheit"], "default": "celsius"}
    (problem,) = of(TRIP).violations({"days": 1, "who": [{}]})
    assert of(TRIP).member_schema(problem.schema, problem.expected) == {"type": "string", "minLength": 2}


def test_schema_at_path_is_resolved() -> None:
    assert of(TRIP).schema_at(("unit",)) == TRIP["$defs"]["unit"]  # type: ignore[index]
    assert of(TRIP).schema_at(("who", 7, "name")) == {"type": "string", "minLength": 2}
    assert of(TRIP).schema_at(("who", "x")) == {}
    whole = {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"properties": {"b": {"prefixItems": [{"const": 1}]}}}}}
    assert of(whole).schema_at(("b", 0)) == {"const": 1}
    assert of({"$ref": "#"}).schema_at(("a",)) == {}
    assert of({"items": [{"const": 1}], "additionalItems": {"const": 2}}).schema_at((0,)) == {"const": 1}


def test_violations_and_quoted_values_are_bounded() -> None:
    problems = of({"items": {"type": "string"}}).violations([1] * 500)
    assert len(problems) == compiled_schema.MAX_VIOLATIONS
    (problem,) = of({"type": "string"}).violations({"k" * 5000: ["v" * 5000] * 50, "b": {"c": 1}})
    assert len(problem.message) < 200
    (problem,) = of({"enum": [f"value {i}" for i in range(5000)]}).violations("x" * 5000)
    assert len(problem.message) < 400
    assert len(quote_value("\x00" * 500)) <= 100
    assert quote_value(10**5000) == "a number of thousands of digits"
    assert format_path(("a", 0, "b c", "d")) == 'a[0]["b c"].d'


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer"}, ["1", "1.0", "-0", "1e3", "9" * 40, "1e30"], ["1.5", "true", '"1"', "null"]),
        ({"type": "number"}, ["1", "1.5", "9" * 40], ["true", '"1"']),
        ({"const": 1}, ["1", "1.0"], ["true", "2"]),
        ({"maximum": 9007199254740992}, ["9007199254740992"], ["9007199254740993"]),
        ({"enum": [10**30]}, [str(10**30)], [str(10**30 + 1)]),
        ({"maxLength": 1}, ['"é"', '"😀"'], ['"ab"']),
    ],
)
def test_numbers_and_strings_are_compared_as_json(schema: Any, good: list[str], bad: list[str]) -> None:
    assert [Arguments(text).valid(of(schema)) for text in good] == [True] * len(good)
    assert [Arguments(text).valid(of(schema)) for text in bad] == [False] * len(bad)


@pytest.mark.parametrize(
    "url", ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"]
)
def test_schema_is_read_by_its_declared_draft(url: str) -> None:
    old = "07" in url
    schema = of({"$schema": url, "items": [{"type": "string"}]})
    assert schema.can_check is old
    if old:
        assert Arguments("[1]").valid(schema) is False


def test_schema_without_draft_accepts_older_keywords() -> None:
    assert Arguments("[1]").valid(of({"items": [{"type": "string"}]})) is False
    assert Arguments("1").valid(of({"minimum": 1, "exclusiveMinimum": True})) is False


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ('{"type": "strng"}', "the schema cannot be used"),
        ("[]", "the schema cannot be used"),
        ("null", "the schema cannot be used"),
        ("{", "the schema is not JSON"),
        ('{"a": NaN}', "the schema is not JSON"),
        ('{"$schema": "https://example.com/mine"}', "Unknown meta-schema"),
        ('{"$ref": "#/$defs/none"}', "refers to '#/$defs/none', which is not in it"),
        ('{"$ref": "https://example.com/other.json"}', "which is not in it"),
        ('{"properties": {"a": {"$ref": "file:///etc/passwd"}}}', "which is not in it"),
        ('{"$defs": {"a": {"$ref": "http://127.0.0.1:9/a.json"}}}', "Retrieval is disabled"),
        ('{"not": {"pattern": "("}}', "the schema has a pattern that is invalid, or takes too long: '('"),
        ('{"not":' * 300 + "{}" + "}" * 300, "64 of its parts apply to one value"),
        (
            '{"a":' * 5000 + "1" + "}" * 5000,
            "the schema ",
        ),  # with Python 3.14 and later it is valid JSON, but too deep to validate
        ('{"description": "' + "x" * compiled_schema.MAX_SCHEMA_CHARS + '"}', "more than 500,000 characters"),
    ],
    ids=range(14),
)
def test_unusable_schema_has_reason(schema: str, why: str) -> None:
    made = compile_schema(schema)
    assert not made.can_check
    assert why in made.reason
    assert Arguments("{}").valid(made) is None
    assert made.violations({}) == ()
    assert made.reason_unchecked({}) == made.reason


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^\d{3}$", "123", "12a"),
        (r"^(?!\s*$).+", " a", "  "),
        (r"^(?=.*[A-Z])(?=.*(\d|[)]))[^|]{4,}$", "Abc1", "abc1"),
        (r"^(?!-)(?!.*--)(a|b|-)+$", "a-b", "a--b"),
    ],
)
def test_safe_patterns_are_enforced(pattern: str, good: str, bad: str) -> None:
    made = of({"pattern": pattern})
    assert (Arguments(json.dumps(good)).valid(made), Arguments(json.dumps(bad)).valid(made), made.skipped_patterns) == (
        True,
        False,
        (),
    )
    assert Arguments(json.dumps(good + "a" * 200_000)).valid(made) in (True, False)


@pytest.mark.parametrize(
    "pattern", ["(", r"[\w-.]+", r"^(?:(?=.*b|a)a)*$", r"(a+)\1$", r"^(?!a)b|c(?=d)", r"\p{L}{1,900}"]
)
def test_invalid_or_slow_patterns_are_skipped(pattern: str) -> None:
    made = of({"properties": {"a": {"pattern": pattern, "type": "string"}, "pattern": {"const": 1}}})
    assert made.skipped_patterns == (pattern,)
    assert Arguments(json.dumps({"a": "a" * 100_000, "pattern": 1})).valid(made) is True
    assert Arguments('{"a": 1}').valid(made) is False
    assert Arguments('{"pattern": 2}').valid(made) is False
    assert not of({"patternProperties": {pattern: {}}, "additionalProperties": False}).can_check
    assert of({"pattern": "a", "oneOf": [{"pattern": pattern}, {}]}).reason.startswith("the schema has a pattern")


def test_boolean_schema_is_supported() -> None:
    assert Arguments("{}").valid(compile_schema("true")) is True
    assert [problem.message for problem in compile_schema("false").violations({})] == ["must not be there"]


def test_lone_surrogate_counts_as_one_character() -> None:
    """JSON allows it, and models write it when an emoji is cut; UTF-8 cannot encode it."""
    made = of({"properties": {"a": {"type": "string", "maxLength": 1}, "b": {"type": "integer"}}})
    assert Arguments('{"a": "\\ud83d"}').valid(made) is True
    assert Arguments('{"a": "\\ud83d\\ud83d"}').valid(made) is False
    (problem,) = made.violations({"a": "\ud83d", "b": "\ud83d"})
    assert problem.path == ("b",)


@pytest.mark.parametrize("arguments", ["", "{", "nonsense", '{"a": 1e999}', '{"a": NaN}', f'{{"a": {"9" * 5000}}}'])
def test_unreadable_arguments_are_not_validated(arguments: str) -> None:
    assert Arguments(arguments).valid(of({"type": "object"})) is None
    with pytest.raises(ValueError, match="no arguments that can be read"):
        decode_arguments(arguments)


def test_compiled_schemas_are_cached_with_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"title": "kept"}'
    assert compile_schema(text) is compile_schema("".join([text]))
    monkeypatch.setattr(compiled_schema, "MAX_CACHED_SCHEMAS", 4)
    first = compile_schema('{"title": "0"}')
    for i in range(1, 5):
        compile_schema(f'{{"title": "{i}"}}')
        assert compile_schema('{"title": "0"}') is first, "a schema in use stays in the cache"
    assert len(compiled_schema._cache) == 4
    monkeypatch.setattr(compiled_schema, "MAX_CACHED_CHARS", 1000)
    for i in range(5):
        compile_schema(f'{{"title": "{"x" * 400}{i}"}}')
    assert sum(map(len, compiled_schema._cache)) <= 1000
