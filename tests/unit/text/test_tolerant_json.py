"""Invalid JSON is repaired to what is meant; valid JSON is never changed."""

import itertools
import json
import re
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.text.json_repairs import ALL_REPAIRS, REPAIRS
from dragoman.text.json_stream import JsonStream
from dragoman.text.tolerant_json import GAP_LIMIT_CHARS, KEY_LIMIT_CHARS, TolerantJsonStream
from support.check_each import check_each
from support.chunking import cuttings, places
from support.json_strategies import junk, styles, tails, values


def read(cut: list[str], mends: frozenset[str] = ALL_REPAIRS) -> tuple[str, int, bool, str, tuple[str, ...]]:
    """Returns emitted text, characters consumed, whether the value is complete, the problem, and the repairs."""
    value, held, taken, out = TolerantJsonStream(mends), "", 0, ""
    for i, piece in enumerate([*cut, ""]):
        held += piece
        pos = value.feed(held, 0, closed=i == len(cut))
        held, taken = held[pos:], taken + pos
        out += value.drain()
    return out, taken, value.done, value.problem, tuple(value.repairs)


@given(values, styles, tails, places)
def test_valid_json_is_unchanged(value: object, style: dict[str, Any], tail: str, some: list[int]) -> None:
    text = json.dumps(value, **style)
    if re.search(r"[\dulse]\Z", text) and re.match(r"[\w.]", tail):
        return  # the tail continues the word
    for cut in cuttings(text + tail, some):
        assert read(cut) == (text, len(text), True, "", ())


@given(values, styles, st.integers(0, 60), junk, st.integers(0, 4), places)
def test_damaged_json_has_same_outcome_for_any_cut(
    value: object, style: dict[str, Any], at: int, thrown_in: str, gone: int, some: list[int]
) -> None:
    """Without repairs, the outcome is that of `JsonStream`, except for control characters."""
    text = json.dumps(value, **style)
    at %= len(text) + 1
    text = text[:at] + thrown_in + text[at + gone :]
    whole, strict, nothing = read([text]), JsonStream(), read([text], frozenset())
    taken = strict.feed(text, 0, closed=True)
    for cut in cuttings(text, some):
        assert read(cut) == whole, cut
        assert read(cut, frozenset()) == nothing, cut
    if strict.done:
        assert whole[2]
        assert (whole[0], whole[1]) == (strict.drain(), taken)
    elif not re.search(r"[\x00-\x1f]", text):
        assert (nothing[1], nothing[2], nothing[3]) == (taken, False, strict.problem)


TEXTS = st.text("ab é7.,:;{}[]#/()<>=\"'\\\t\n", max_size=8)
PLAIN = st.text("abé7", min_size=1, max_size=4)
KEYS = st.text("abcdeK_", min_size=1, max_size=6)
SCALARS = [("true", True), ("True", True), ("False", False), ("None", None), ("null", None), ("-1.50", -1.5), ("7", 7)]
ESCAPES = [
    (r'"\d+\s"', r"\d+\s"),
    (r'"C:\Users\data"', r"C:\Users\data"),
    (r'"it\'s"', "it's"),
    (r'"\u12 \$x"', r"\u12 \$x"),
]
GAPS = ["", " ", "\n  ", r"\n", r" \n\n "]
REMARKS = ["", " // a \"note\", or {two: 'x'\n", " /* 'so', \"so\" } * */ ", "\n# it's ] }\n"]


@st.composite
def damaged_objects(draw: st.DrawFn) -> tuple[str, object]:
    """Returns the text of an object with occasional JSON errors, and the object."""
    return _object(draw, draw(st.sampled_from(["remarks", "single quotes", "no commas"])), 0)


def _object(draw: st.DrawFn, habit: str, depth: int) -> tuple[str, object]:
    value: dict[str, object] = {}
    members = []
    for key in draw(st.lists(KEYS, max_size=3, unique=True)):
        name = f'"{key}"'
        if habit == "single quotes":
            name = draw(st.sampled_from([name, f"'{key}'"]))
        if habit != "no commas":
            name = draw(st.sampled_from([name, key]))
        text, value[key] = _value(draw, habit, depth)
        members.append(f"{_gap(draw, habit)}{name}:{_gap(draw, '')}{text}")
    return "{" + _joined(draw, habit, members) + "}", value


def _joined(draw: st.DrawFn, habit: str, members: list[str]) -> str:
    missing = habit == "no commas" and draw(st.booleans())
    spare = draw(st.sampled_from(["", ",", ", "])) if members else ""
    return ("\n" if missing else ",").join(members) + spare + (_gap(draw, habit) if spare else "")


def _gap(draw: st.DrawFn, habit: str) -> str:
    if habit == "no commas":
        return draw(st.sampled_from(["", " ", "\n"]))
    return draw(st.sampled_from(GAPS)) + draw(st.sampled_from(REMARKS if habit == "remarks" else [""]))


def _value(draw: st.DrawFn, habit: str, depth: int) -> tuple[str, object]:
    kinds = ["string", "string", "controls", "escape", "inner", "scalar", *(["list", "object"] if depth < 2 else [])]
    match draw(st.sampled_from(kinds)):
        case "string" if habit == "single quotes":
            text = draw(TEXTS)
            return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'", text
        case "string":
            text = draw(TEXTS)
            return json.dumps(text, ensure_ascii=draw(st.booleans())), text
        case "controls":
            text = draw(TEXTS).replace('"', "").replace("\\", "")
            return f'"{text}"', text
        case "escape":
            return draw(st.sampled_from(ESCAPES))
        case "inner" if habit != "remarks":
            text = f'{draw(PLAIN)} "{draw(PLAIN)}{draw(st.sampled_from(["", ",", ".", "!"]))}" {draw(PLAIN)}'
            return f'"{text}"', text
        case "scalar":
            return draw(st.sampled_from(SCALARS))
        case "list":
            items = [
                _value(draw, "" if habit == "no commas" else habit, depth + 1) for _ in range(draw(st.integers(0, 3)))
            ]
            return "[" + _joined(draw, "", [text for text, _ in items]) + "]", [item for _, item in items]
        case _:
            return _object(draw, habit, depth + 1)


@settings(max_examples=settings.default.max_examples * 2)
@given(damaged_objects(), places)
def test_repaired_json_reads_as_intended_object(made: tuple[str, object], some: list[int]) -> None:
    text, value = made
    whole = read([text])
    assert whole[2:4] == (True, ""), whole
    assert whole[1] == len(text)
    assert json.loads(whole[0]) == value
    again = read([whole[0]])
    assert (again[0], again[4]) == (whole[0], ())
    for cut in cuttings(text, some):
        assert read(cut) == whole, cut


python_values = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=settings.default.max_examples * 2)
@given(st.dictionaries(TEXTS, python_values, max_size=4), places)
def test_python_repr_reads_as_same_value(value: object, some: list[int]) -> None:
    """Most JSON errors come from `repr`; a quote in a key cannot be distinguished from the end of a string."""
    text = repr(value)
    whole = read([text])
    for cut in cuttings(text, some):
        assert read(cut) == whole
    if whole[2]:
        assert json.loads(whole[0]) == value
    else:
        assert re.search(r"""['"](?:[^'"]|\\.)*\\(?:[^'"]|\\.)*['"]:""", text), whole


REPAIRED = [
    ("quotes", "{'city': 'Paris'}", {"city": "Paris"}),
    ("quotes", r"""{'a': 'it\'s "so"', "b": '\n\u00e9'}""", {"a": 'it\'s "so"', "b": "\né"}),
    ("quotes", "{'a': '', 'b': ['', 'x']}", {"a": "", "b": ["", "x"]}),
    ("quotes", "'{}'", "{}"),
    ("bare_keys", '{city: "Paris", $x-1: 2, 7: 3}', {"city": "Paris", "$x-1": 2, "7": 3}),
    ("commas", '{"a": [1, 2, ], "b": {"c": 1,\n},}', {"a": [1, 2], "b": {"c": 1}}),
    ("commas", '{"a": 1,, "b": 2}', {"a": 1, "b": 2}),
    ("commas", '{"a": 1 "b": [] "c": null "d": {} "e": 2}', {"a": 1, "b": [], "c": None, "d": {}, "e": 2}),
    ("commas", '{"a": "x"\n "b": "y"}', {"a": "x", "b": "y"}),
    ("commas", '[{"a": 1} {"b": 2}]', [{"a": 1}, {"b": 2}]),
    ("literals", "[True, False, None]", [True, False, None]),
    ("controls", '{"a": "one\n\ttwo"}', {"a": "one\n\ttwo"}),
    ("escapes", r'{"a": "\d \w+ C:\Users \$HOME \`x\` it\'s"}', {"a": r"\d \w+ C:\Users \$HOME \`x\` it's"}),
    ("escapes", r'{"a": "C:\data \\ \"x\" \u00e9", "b": "\n"}', {"a": 'C:\\data \\ "x" é', "b": "\n"}),
    ("escapes", r'{"a": "one\necho \$HOME\n"}', {"a": "one\necho \\$HOME\n"}),
    ("escapes", r'{"view": \n[1, 2]\n\t}', {"view": [1, 2]}),
    ("escapes", r'{"a": "x"\n, "b": "y" \n }', {"a": "x", "b": "y"}),
    ("comments", '{ // one\n"a": 1, /* two */ "b": 2 # three\n}', {"a": 1, "b": 2}),
    ("comments", '{"a": "x" // note\n}', {"a": "x"}),
    ("inner_quotes", '{"a": "say "hi" to you", "b": 1}', {"a": 'say "hi" to you', "b": 1}),
    ("inner_quotes", '{"a": "to the "dictator", waiting."}', {"a": 'to the "dictator", waiting.'}),
    ("inner_quotes", '{"a": "say "yes""}', {"a": 'say "yes"'}),
    ("inner_quotes", '{"a": "print("x", "y")", "b": "z"}', {"a": 'print("x", "y")', "b": "z"}),
    ("inner_quotes", '{"a": "<b class="x">hi</b>"}', {"a": '<b class="x">hi</b>'}),
    ("inner_quotes", '{"a": "{"k": 1}"}', {"a": '{"k": 1}'}),
    ("inner_quotes", r'{"a": "import "os"\nimport "fmt"\n"}', {"a": 'import "os"\nimport "fmt"\n'}),
    ("inner_quotes", '["the "a" one", "b"]', ['the "a" one', "b"]),
]


def test_json_error_is_repaired_only_if_its_repair_is_enabled(subtests: pytest.Subtests) -> None:
    def check(case: tuple[str, str, object]) -> None:
        slip, text, meant = case
        out, taken, _, problem, slips = read([text])
        assert (problem, slips, taken) == ("", (slip,), len(text))
        assert json.loads(out) == meant
        for cut in cuttings(text, [5, 9, 14]):
            assert read(cut) == read([text])
            assert read(cut, frozenset({slip}))[4] == (slip,)
            assert read(cut, ALL_REPAIRS - {slip})[2:4] != (True, "")

    check_each(subtests, REPAIRED, check, lambda case: f"{case[0]}: {case[1]}")


UNCLEAR = [
    ("a number that is none", '{"a": 01}', "expected a value"),
    ("no value", '{"a": undefined}', "expected a value"),
    ("a word without quotes", '{"a": Paris}', "expected a value"),
    ("no number of JSON's", '{"a": NaN}', "expected a value"),
    ("a color, or a comment", '{"a": #fff}', "expected a value"),
    ("an inch, or a quote", '{"a": "5" wide"}', "expected ',' or '}'"),
    ("a quote that nothing closes", '{"a": "say "yes", "b": 1}', "expected ',' or '}'"),
    ("a forgotten brace", '{"a": "Paris"</tool_call>', "expected ',' or '}'"),
    ("a forgotten brace, then words", '{"a": "Paris" I think', "expected ',' or '}'"),
    ("Python's long strings", '{"a": """x"""}', "expected ',' or '}'"),
    ("two strings, or one", '{"a": "x" "y"}', "expected ',' or '}'"),
    ("no comma, or a quote", '{"a": "x" "b": "y"}', "expected ',' or '}'"),
    ("two items, or one", '["a" "b"]', "expected ',' or ']'"),
    ("two items, or a number with a gap", "[1 000]", "expected ',' or ']'"),
    ("an item that is not there", "[1,,2]", "expected a value"),
    ("a comma and nothing else", "{,}", "expected a string key or '}'"),
    ("an escape of Python's", r'{"a": "\x41"}', "expected a JSON escape"),
    ("an escape of C's", r'{"a": "\0"}', "expected a JSON escape"),
    ("a path, or lines", r'{"path": "C:\data\new\reports", "x": 1}', "expected a JSON escape"),
    ("a path whose first folder may be a tab", r'{"path": "C:\temp\Docs"}', "expected a JSON escape"),
    ("a path in single quotes", r"{'path': 'C:\data\new'}", "expected a JSON escape"),
    ("a path in single quotes, tab first", r"{'path': 'C:\temp\Docs'}", "expected a JSON escape"),
    ("a path after others", r'{"a": "x\n", "path": "it\'s C:\data \\ \reports"}', "expected a JSON escape"),
    ("a line that goes on", '{"a": "x \\\n y"}', "expected a JSON escape"),
    ("a string, or a comment's beginning", "{'a': 'x', # 'b': 1\n}", "expected ',' or '}'"),
    ("a value for two keys", '{"a": "b": 1}', "expected ',' or '}'"),
    ("a key in an array", '["a": 1]', "expected ',' or ']'"),
    ("a bracket that closes nothing", '{"a": "b"]', "expected ',' or '}'"),
    ("a slash", '{"a": 1 / 2}', "expected ',' or '}'"),
]


def test_ambiguous_json_is_not_repaired(subtests: pytest.Subtests) -> None:
    def check(case: tuple[str, str, str]) -> None:
        _, text, problem = case
        got = read([text])
        assert (got[2], got[3]) == (False, problem)
        for cut in cuttings(text, [6, 10]):
            assert read(cut) == got

    check_each(subtests, UNCLEAR, check, itemgetter(0))


def test_every_repair_has_cases() -> None:
    assert {row[0] for row in REPAIRED} == set(REPAIRS) - {"doubled", "fences", "unclosed_object"}


def test_endless_white_space_is_read_in_linear_time() -> None:
    """White space is not searched again with each piece."""
    for text in ('{"a": "x"%s, "b": 1}', '{"a": 1,%s"b": 1}', '{"a": 1,%s}'):
        whole = text % (" \n" * 50_000)
        assert read(re.findall(".{1,4}", whole, re.DOTALL))[2]


ENDLESS = ("\\n", ", ", "/", "'a", "x ", "\\", '"', "``", "# ", '"a": ', "*/ /*")
BEGUN = ('{"a": "x"', "{'a': 'x'", '{"a": "say "x"', '{"a": 1, ', '{"a": 1 ', "[1, /* ")


def test_endless_text_is_buffered_with_limit(subtests: pytest.Subtests) -> None:
    """Ambiguous text is buffered up to a limit, because it is searched again with each piece."""

    def check(case: tuple[str, str]) -> None:
        begun, endless = case
        machine, held, most = TolerantJsonStream(), begun, 0
        for _ in range(3000):
            held += endless
            held = held[machine.feed(held, 0) :]
            if machine.problem:
                break
            most = max(most, len(held))
        assert most <= 2 * KEY_LIMIT_CHARS + GAP_LIMIT_CHARS

    check_each(subtests, itertools.product(BEGUN, ENDLESS), check)


def test_only_ambiguous_text_is_buffered() -> None:
    machine = TolerantJsonStream()
    text = '{"a": "x'
    assert machine.feed(text, 0) == len(text)
    assert machine.drain() == text
    assert machine.feed('"', 0) == 1
    assert machine.drain() == ""
    assert machine.feed(" ,", 0) == 2
    assert machine.drain() == '" '
    assert machine.feed('"', 0) == 1
    assert machine.drain() == ',"'
