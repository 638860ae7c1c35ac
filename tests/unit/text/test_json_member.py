"""The text of one member is read from its object, wherever the stream is cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.text.json_member import StringMember, read_string_member
from support.chunking import pieces, places

CASES = [
    ("whole", '{"input":"ls \\"é\\"\\n"}', 'ls "é"\n'),
    ("blanks", ' {\n"input" : "a b" } ', "a b"),
    ("escapes of every kind", '{"input":"\\u00e9\\\\\\/\\b\\f\\t\\ud83d\\udc3b🐻"}', "é\\/\b\f\t🐻🐻"),
    ("half a character", '{"input":"a\\ud83d"}', "a�"),
    ("a raw line break", '{"input":"a\nb"}', "a\nb"),
    ("empty", '{"input":""}', ""),
    ("another member behind", '{"input":"a","more":"b"}', "a"),
    ("another member before", '{"more":"b","input":"a"}', "a"),
    ("none", '{"cmd":1}', '{"cmd":1}'),
    ("a name that begins alike", '{"inputs":"a"}', '{"inputs":"a"}'),
    ("a name with a blank", '{"in put":"a"}', '{"in put":"a"}'),
    ("no string", '{"input":["a"]}', '{"input":["a"]}'),
    ("nothing in it", "{}", "{}"),
    ("cut off in the text", '{"input":"rm -r', "rm -r"),
    ("cut off in an escape", '{"input":"a\\', "a"),
    ("cut off in half a character", '{"input":"a\\ud83d', "a"),
    ("cut off before the text", '{"inp', ""),
    ("cut off, another member", '{"cmd":"x', '{"cmd":"x'),
    ("nothing came", "", ""),
]


def read(parts: list[str]) -> str:
    member = StringMember("input")
    return "".join([*map(member.feed, parts), member.close()])


@pytest.mark.parametrize(("title", "text", "expected"), CASES, ids=[title for title, _, _ in CASES])
def test_string_member_is_read_for_any_cut(title: str, text: str, expected: str) -> None:
    assert read_string_member(text, "input") == expected
    assert read(list(text)) == expected
    for at in range(len(text)):
        assert read([text[:at], text[at:]]) == expected


@given(text=st.text().map(lambda s: s.encode("utf-8", "replace").decode()), some=places, ascii=st.booleans())
def test_wrapped_text_is_read_back(text: str, some: list[int], ascii: bool) -> None:
    wrapped = json.dumps({"input": text}, ensure_ascii=ascii)
    assert read(pieces(wrapped, some)) == text


def test_text_is_returned_as_it_streams() -> None:
    member = StringMember("input")
    assert [member.feed(part) for part in ('{"in', 'put": "a', "b\\", 'n"', "}")] == ["", "a", "b", "\n", ""]


def test_long_text_is_read_in_linear_time() -> None:
    member = StringMember("input")
    said = [member.feed(part) for part in ['{"input":"', *["\\u00e9ab"] * 100_000, '"}']]
    assert "".join(said) == "éab" * 100_000
