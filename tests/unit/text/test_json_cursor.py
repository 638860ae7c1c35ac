"""The JSON cursor: paths in errors, verbatim bytes, and input as real clients send it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.errors import RequestError, UsageError
from dragoman.text import json_cursor
from dragoman.text.json_cursor import Cursor, Fields

TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def value(text: str) -> Cursor:
    return json_cursor.parse(b'{"x":' + text.encode() + b"}").fields().require("x")


def fields(text: str) -> Fields:
    return json_cursor.parse(text.encode()).fields()


def walk(cursor: Cursor) -> object:
    match cursor.kind:
        case "object":
            return {k: walk(Cursor(raw, "$")) for k, raw in cursor.fields().remaining_with_nulls().items()}
        case "array":
            return [walk(item) for item in cursor.items()]
        case "string":
            return cursor.string()
        case "number":
            return cursor.integer()
        case "boolean":
            return cursor.boolean()
    return None


@given(TREES, st.booleans())
def test_every_value_is_read_like_json_module(tree: object, ascii_only: bool) -> None:
    text = json.dumps(tree, ensure_ascii=ascii_only)
    assert walk(json_cursor.parse(text.encode())) == tree


@pytest.mark.parametrize(
    "text", ["1.10", "12345678901234567890", '{ "b": 1, "a" : [ ] }', r'"\u00e9\/"', "-0.0", "1e5", "null", "true"]
)
def test_raw_text_is_verbatim(text: str) -> None:
    assert json_cursor.parse(text.encode()).text == text


ERRORS = [
    ("string", "5", lambda c: c.string(), "expected string, got number - at $.x"),
    ("string too long", '"abc"', lambda c: c.string(2), "expected at most 2 characters, got 3 - at $.x"),
    (
        "word",
        '""',
        lambda c: c.nonempty_string(),
        "expected a string of at least 1 character, got an empty one - at $.x",
    ),
    ("object", "[]", lambda c: c.object(), "expected object, got array - at $.x"),
    ("boolean", '"true"', lambda c: c.boolean(), "expected boolean, got string - at $.x"),
    ("number", "true", lambda c: c.number(), "expected number, got boolean - at $.x"),
    ("number over", "3", lambda c: c.number(0, 2), "expected a number from 0 to 2, got 3 - at $.x"),
    ("number under", "-1", lambda c: c.number(0, 2), "expected a number from 0 to 2, got -1 - at $.x"),
    ("no float holds it", "1e999", lambda c: c.number(), "expected number: Number out of range - at $.x"),
    ("whole", "1.5", lambda c: c.integer(), "expected a whole number, got 1.5 - at $.x"),
    ("least", "0", lambda c: c.integer(1), "expected a number of at least 1, got 0 - at $.x"),
    ("array", "{}", lambda c: c.items(), "expected array, got object - at $.x"),
    ("item", "[1,null]", lambda c: c.items()[1].string(), "expected string, got null - at $.x[1]"),
    ("member", '{"y":[{"z":1}]}', lambda c: deep(c).string(), "expected string, got number - at $.x.y[0].z"),
    ("missing", "{}", lambda c: c.fields().require("y"), "missing required field 'y' - at $.x"),
    ("null is missing", '{"y":null}', lambda c: c.fields().require("y"), "missing required field 'y' - at $.x"),
    (
        "choice",
        '"autp"',
        lambda c: c.one_of(("auto", "none"), "mode"),
        "unknown mode 'autp'; did you mean 'auto'? expected 'auto', 'none' - at $.x",
    ),
]


def deep(cursor: Cursor) -> Cursor:
    return cursor.fields().require("y").items()[0].fields().require("z")


@pytest.mark.parametrize(("text", "look", "message"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_error_has_expected_value_and_path(text, look, message) -> None:
    with pytest.raises(RequestError) as raised:
        look(value(text))
    assert raised.value.message == message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "expected JSON: Input data was truncated - at $"),
        (b"{", "expected JSON: Input data was truncated - at $"),
        (b'{"a":1}x', "expected JSON: JSON is malformed: trailing characters (byte 8) - at $"),
        (b"[" * 5000, "expected JSON of at most 500 levels, got deeper nesting - at $"),
        (
            b'{"a":"\xff"}',
            "expected JSON in UTF-8, got the byte 0xff at position 6, which is not UTF-8 - at $",
        ),
    ],
)
def test_invalid_json_body_is_rejected(body: bytes, message: str) -> None:
    with pytest.raises(RequestError) as raised:
        json_cursor.parse(body)
    assert raised.value.message == message


def test_str_body_is_parsed() -> None:
    assert json_cursor.parse('{"x":"é"}').fields().string("x") == "é"
    with pytest.raises(RequestError, match="expected JSON in UTF-8"):
        json_cursor.parse('{"x":"\ud83d"}')


def test_non_text_body_is_rejected() -> None:
    with pytest.raises(UsageError, match=r"expected JSON as bytes or str, got dict; json\.dumps makes it"):
        json_cursor.parse({"model": "m"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"\ud800", "\ufffd"),
        (r"\udc00", "\ufffd"),
        (r"a\uD83Db", "a\ufffdb"),
        (r"\ud83d\ude00", "😀"),
        (r"\ud83d\ud83d\ude00", "\ufffd😀"),
        (r"\ud800 \\ud800", "\ufffd \\ud800"),
        (r"\ud800 \\\ud800", "\ufffd \\\ufffd"),
        (r"\ud800\u0041\n", "\ufffdA\n"),
    ],
)
def test_lone_surrogate_becomes_replacement_character(written: str, read: str) -> None:
    assert value(f'"{written}"').string() == read


@given(st.lists(st.sampled_from(["\\\\", "\\ud83d", "\\ude00", "\\n", '\\"', "u", "d83d", "x", "\\u0041"])))
def test_surrogate_pairs_are_decoded_like_python(pieces: list[str]) -> None:
    text = '"' + "".join(pieces) + '"'
    expected = json.loads(text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert value(text).string() == "".join("\ufffd" if 0xD800 <= ord(c) < 0xE000 else c for c in expected)


def test_members_are_popped_once_and_rest_is_kept() -> None:
    found = fields('{"a":1,"b":null,"c":{ "d": 1.0 },"a":2}')
    taken = found.pop("a")
    assert taken
    assert taken.integer() == 2
    assert found.pop("a") is None
    assert found.pop("none") is None
    assert {k: bytes(raw) for k, raw in found.remaining_with_nulls().items()} == {"b": b"null", "c": b'{ "d": 1.0 }'}
    assert {k: bytes(raw) for k, raw in found.remaining().items()} == {"c": b'{ "d": 1.0 }'}
    assert bytes(found.raw).startswith(b'{"a":1,')


def test_optional_members_have_defaults() -> None:
    found = fields('{"s":"x","n":1.5,"i":9007199254740993,"f":true,"o":{ },"l":[1],"two":2.0}')
    assert (found.string("s"), found.number("n", 0, 2), found.integer("i")) == ("x", 1.5, 9007199254740993)
    assert (found.flag("f"), found.object("o"), len(found.items("l")), found.integer("two")) == (True, "{ }", 1, 2)
    assert (found.string("-"), found.number("-", 0, 2), found.integer("-")) == ("", None, None)
    assert (found.flag("-"), found.flag("-", default=True), found.object("-"), found.items("-")) == (
        False,
        True,
        "",
        [],
    )


@pytest.mark.parametrize("item", [b"1", b"{}", b'""', b"[]", b'{"role":"user","content":"a"}', b'"\\""'])
def test_number_of_values_in_request_is_limited(item: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_cursor, "MAX_VALUES", 20_000)
    body = b'{"messages":[' + b",".join([item] * 20_002) + b"]}"
    with pytest.raises(RequestError, match="expected at most"):
        json_cursor.parse_request(body)


def test_json_inside_strings_is_not_counted() -> None:
    text = json.dumps({"text": '{"a": 1}, ' * json_cursor.MAX_VALUES})
    assert len(json_cursor.parse_request(text).fields().require("text").string()) == 10 * json_cursor.MAX_VALUES


def test_number_of_array_items_is_limited() -> None:
    with pytest.raises(RequestError, match=r"expected at most 2 items, got 3 - at \$\.x"):
        value("[1, 2, 3]").items(2)


def test_byte_order_mark_is_reported() -> None:
    with pytest.raises(RequestError, match="got a byte order mark before it; send the body without"):
        json_cursor.parse(b'\xef\xbb\xbf{"x": 1}')
