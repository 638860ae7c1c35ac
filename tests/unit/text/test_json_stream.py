"""Streamed JSON, compared with the standard library's reader and jiter."""

import json
import re

import jiter
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.text.json_stream import NUMBER_LIMIT_CHARS, JsonStream
from dragoman.text.tolerant_json import TolerantJsonStream
from support.chunking import cuttings, pieces, places
from support.json_strategies import junk, styles, tails, values
from support.sampling import exhaustive


def read(cut: list[str]) -> tuple[str, int, bool, str]:
    """Returns the emitted text, the characters consumed, whether the value is complete, and the problem."""
    value, held, taken, out = JsonStream(), "", 0, ""
    for i, piece in enumerate([*cut, ""]):
        held += piece
        pos = value.feed(held, 0, closed=i == len(cut))
        held, taken = held[pos:], taken + pos
        out += value.drain()
    return out, taken, value.done, value.problem


@given(values, styles, tails, places)
def test_value_is_forwarded_verbatim_and_ends_itself(value: object, style: dict, tail: str, some: list[int]) -> None:
    text = json.dumps(value, **style)
    if re.search(r"[\dulse]\Z", text) and re.match(r"[\w.]", tail):
        return  # the tail continues the word
    for cut in cuttings(text + tail, some):
        assert read(cut) == (text, len(text), True, "")


@given(values, styles, st.integers(0, 60), junk, st.integers(0, 4), places)
def test_invalid_json_fails_at_same_position_for_any_cut(
    value: object, style: dict, at: int, thrown_in: str, gone: int, some: list[int]
) -> None:
    text = json.dumps(value, **style)
    at %= len(text) + 1
    text = text[:at] + thrown_in + text[at + gone :]
    whole = read([text])
    for cut in cuttings(text, some):
        assert read(cut) == whole, cut
    out, taken, done, problem = whole
    if done:
        found, end = json.JSONDecoder(strict=False).raw_decode(text, len(text) - len(text.lstrip(" \t\r\n")))
        assert (_shown(json.loads(out)), taken) == (_shown(found), end)
    else:
        with pytest.raises(ValueError, match=r".*"):
            json.loads(text, strict=False, parse_constant=_no_constant)
    assert not (done and problem)


def _shown(value: object) -> str:
    """Returns the value as text that UTF-8 can encode."""
    return re.sub("[\ud800-\udfff]", "\ufffd", json.dumps(value, ensure_ascii=False))


def _no_constant(word: str) -> None:
    raise ValueError(word)


@pytest.mark.parametrize("kind", [JsonStream, TolerantJsonStream])
@given(
    value=values, style=styles, at=st.integers(0, 60), thrown_in=junk | st.text("{}[]\"',:\\ux0 1-\nT#/é", max_size=6)
)
def test_emitted_text_is_always_a_json_prefix(
    kind: type[JsonStream], value: object, style: dict, at: int, thrown_in: str
) -> None:
    text = json.dumps(value, **style)
    at %= len(text) + 1
    text = text[:at] + thrown_in + text[at + 1 :]
    machine, out, held = kind(), "", ""
    for character in text:
        held += character
        held = held[machine.feed(held, 0) :]
        out += machine.drain()
        if out.strip():
            jiter.from_json(out.encode(), partial_mode="trailing-strings")
        if machine.done:
            json.loads(out)


PROBLEMS = [
    ("", ""),
    ("}", "expected a value"),
    ("x", "expected a value"),
    ("NaN ", "expected a value"),
    ("-Infinity ", "expected a value"),
    ("01 ", "expected a value"),
    ("1. ", "expected a value"),
    (".5 ", "expected a value"),
    ("+1 ", "expected a value"),
    ("1e ", "expected a value"),
    ("True ", "expected a value"),
    ("'a'", "expected a value"),
    ("[,", "expected a value or ']'"),
    ("[1,]", "expected a value"),
    ("[1 2", "expected ',' or ']'"),
    ("[1}", "expected ',' or ']'"),
    ("{,", "expected a string key or '}'"),
    ("{a", "expected a string key or '}'"),
    ('{"a":1,}', "expected a string key"),
    ('{"a" 1', "expected ':'"),
    ('{"a":}', "expected a value"),
    ('{"a":1]', "expected ',' or '}'"),
    ('{"a":1 "b"', "expected ',' or '}'"),
    (r'"\x', "expected a JSON escape"),
    (r'"\u12g', "expected a JSON escape"),
    (r'"\U', "expected a JSON escape"),
    ("\ufeff1", "expected a value"),
    ("[1\x0c", "expected ',' or ']'"),
    ("[1\xa0", "expected ',' or ']'"),
    ("[\u0661]", "expected a value or ']'"),
]


@pytest.mark.parametrize(("text", "problem"), PROBLEMS)
def test_problem_reports_expected_token(text: str, problem: str) -> None:
    assert read([text])[3] == problem
    assert read(list(text))[:4] == read([text])


@pytest.mark.parametrize(
    "text", ['"\\', '"\\u', '"\\u00e', r'"\ud83d', r'"\ud83d\ud', "tru", "-", "1.", "[1", "{", '{"a', '{"a":tru']
)
def test_incomplete_escape_literal_and_number_are_buffered(text: str) -> None:
    machine = JsonStream()
    taken = machine.feed(text, 0)
    assert not machine.done
    assert not machine.problem
    assert machine.drain() == text[:taken] == re.sub(r"((\\u?[0-9a-f]*)+|[-+.\w]+)\Z", "", text) or text == '{"a'


def test_end_of_text_ends_top_level_number() -> None:
    assert read(["12"]) == ("12", 2, True, "")
    assert read(["[12"]) == ("[", 1, False, "")


def test_control_characters_in_strings_are_escaped() -> None:
    raw = "".join(map(chr, range(32)))
    for cut in cuttings(f'{{"{raw}": "{raw}"}}', [5, 40]):
        out, _, done, _ = read(cut)
        assert done
        assert json.loads(out) == {raw: raw}
    assert read(['"\b\t\n\f\r\x00\x1f"'])[0] == r'"\b\t\n\f\r\u0000\u001f"'


SURROGATES = [
    ("both, escaped", r"\ud83d\uDE00", r"\ud83d\uDE00"),
    ("the first alone", r"\ud83d!", r"\ufffd!"),
    ("the second alone", r"\ude00", r"\ufffd"),
    ("the first twice, then the second", r"\ud83d\ud83d\ude00", r"\ufffd\ud83d\ude00"),
    ("the first, another escape", r"\ud83d\n\u0041", r"\ufffd\n\u0041"),
    ("the first, a backslash", r"\ud83d\\ude00", r"\ufffd\\ude00"),
    ("raw", "\ud83d-\ude00", r"\ufffd-\ufffd"),
    ("neither", r"\ud7ff\ue000", r"\ud7ff\ue000"),
]


@pytest.mark.parametrize(("text", "passed"), [row[1:] for row in SURROGATES], ids=[row[0] for row in SURROGATES])
def test_lone_surrogate_becomes_replacement_character(text: str, passed: str) -> None:
    """UTF-8 cannot encode it and strict JSON readers reject it; a pair is emitted in one piece."""
    for cut in cuttings(f'"{text}"', [3, 8]):
        out, taken, done, _ = read(cut)
        assert (out, taken, done) == (f'"{passed}"', len(text) + 2, True)
    jiter.from_json(f'"{passed}"'.encode())


def test_hundreds_of_escapes_are_read() -> None:
    text = json.dumps({"a": "\n" * 250, "b": "😀é\t" * 250})
    for cut in cuttings(text, [101, 102, 180]):
        assert read(cut) == (text, len(text), True, "")


def test_number_length_is_limited() -> None:
    digits = "1" * NUMBER_LIMIT_CHARS
    assert read([digits]) == (digits, NUMBER_LIMIT_CHARS, True, "")
    assert read(["[" + digits + "]"])[2]
    for cut in cuttings("[" + digits + "1]", [500]):
        assert read(cut) == ("[", 1, False, "expected a value or ']'")


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":[', "]}]")])
def test_nesting_depth_is_unlimited(opening: str, closing: str) -> None:
    depth = 100_000 if exhaustive() else 10_000
    text = opening * depth + "0" + closing * depth
    out, taken, done, _ = read(pieces(text, [199]))
    assert done
    assert taken == len(text)
    assert out == text
    assert not read([text[:-1]])[2]


def test_nothing_is_read_after_end_or_problem() -> None:
    machine = JsonStream()
    assert machine.feed("{} {}", 0) == 2
    assert machine.feed(" {}", 0) == 0
    machine = JsonStream()
    assert machine.feed("[x1]", 0) == 1
    assert machine.feed("1]", 0) == 0
    assert machine.drain() == "["
    assert machine.drain() == ""
