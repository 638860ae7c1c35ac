"""ReplyReader: names, ids, parts opened by the prompt, ends of replies, and round trips."""

import itertools
import json
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import formats
from dragoman.core import events as ev
from dragoman.core.collect import collect
from dragoman.core.errors import UsageError
from dragoman.core.messages import Text, Tool, ToolCall
from dragoman.parsing.reader_options import ReaderOptions
from dragoman.parsing.reply_reader import ReplyReader
from support.check_each import check_each
from support.chunking import cuttings, places
from support.format_cases import shown

HERMES = formats.get("hermes")


def reader(tools: Iterable[str] | None = ("ping", "get_weather"), **options: Any) -> ReplyReader:
    ids = itertools.count()
    offered = None if tools is None else [Tool(n) for n in tools]
    return ReplyReader(HERMES, offered, new_id=lambda: str(next(ids)), options=ReaderOptions(**options))


def read(text: str, tools: Iterable[str] | None = ("ping", "get_weather"), **options: Any) -> list[ev.AnyEvent]:
    one = reader(tools, **options)
    return [*one.feed(text), *one.close()]


def call(name: str, arguments: str = "{}", **more: str) -> str:
    extra = "".join(f'"{k}": {json.dumps(v)}, ' for k, v in more.items())
    return f'<tool_call>\n{{{extra}"name": {json.dumps(name)}, "arguments": {arguments}}}\n</tool_call>'


def starts(events: Iterable[ev.AnyEvent]) -> list[ev.ToolCallStart]:
    return [e for e in events if isinstance(e, ev.ToolCallStart)]


NAMES = [
    ("exact", ["ping"], "ping", "ping"),
    ("with a prefix", ["ping"], "functions.ping", "ping"),
    ("an offered name that has the prefix", ["functions.ping", "ping"], "functions.ping", "functions.ping"),
    ("another case", ["Get_Weather"], "get_weather", "Get_Weather"),
    ("prefix and another case", ["ping"], "functions.PING", "ping"),
    ("exact where cases collide", ["ping", "Ping"], "Ping", "Ping"),
    ("ambiguous case", ["ping", "Ping"], "PING", None),
    ("not offered", ["ping"], "pong", None),
    ("with a blank", ["ping"], "ping ", "ping"),
    ("a letter off in a long word", ["get_weather"], "get_weahter", "get_weather"),
    ("a letter off in a short word", ["ping"], "pint", None),
    ("empty", ["ping"], "", None),
    ("nothing is offered", [], "ping", None),
    ("anything goes", None, "whatever", "whatever"),
    ("anything but nothing", None, "", None),
]


def test_tool_names_are_resolved(subtests: pytest.Subtests) -> None:
    def check(case: tuple[str, list[str] | None, str, str | None]) -> None:
        _, tools, written, meant = case
        events = read(call(written), tools)
        assert [e.name for e in starts(events)] == ([meant] if meant else [])
        if not meant:
            assert shown(events)[-1] == f"text {json.dumps(call(written))}"

    check_each(subtests, NAMES, check, itemgetter(0))


def test_vendor_tool_is_not_called() -> None:
    search = ReplyReader(HERMES, [Tool("search", kind="web_search")], new_id=str)
    assert not starts([*search.feed(call("search")), *search.close()])


IDS = [
    ("none", [{}], ["call_0"]),
    ("the model's own", [{"id": "a-B_9"}], ["a-B_9"]),
    ("of 64 characters", [{"id": "a" * 64}], ["a" * 64]),
    ("too long", [{"id": "a" * 65}], ["call_0"]),
    ("not for every API", [{"id": "a.b"}], ["call_0"]),
    ("letters beyond ASCII", [{"id": "é"}], ["call_0"]),
    ("empty", [{"id": ""}], ["call_0"]),
    ("twice", [{"id": "x"}, {"id": "x"}], ["x", "call_0"]),
    ("of the conversation", [{"id": "old"}], ["call_0"]),
]


@pytest.mark.parametrize(("written", "given_out"), [row[1:] for row in IDS], ids=[row[0] for row in IDS])
def test_call_ids_are_valid_and_unique(written: list[dict[str, str]], given_out: list[str]) -> None:
    events = read("".join(call("ping", **more) for more in written), used_ids=["old"])
    assert [e.id for e in starts(events)] == given_out


def test_lenient_reader_accepts_untagged_calls() -> None:
    text = '{"name": "ping", "arguments": {}}'
    assert starts(read(text, lenient=True))
    assert not starts(read(text))


def test_unknown_members_are_reported() -> None:
    (warning,) = (e for e in read(call("ping", city="Bern", day="1") + "\n") if isinstance(e, ev.Notice))
    assert (warning.code, warning.raw) == ("unknown_member_dropped", '"city": "Bern", "day": "1"')


SCHEMAS = [
    ('{"type": "object"}', True),
    ('{"required": []}', True),
    ('{"required": ["a"]}', False),
    ('{"required": true}', False),
]


def reads_name_as_call(parameters: str) -> bool:
    one = ReplyReader(HERMES, [Tool("ping", parameters=parameters)], new_id=str, options=ReaderOptions(lenient=True))
    return bool(starts([*one.feed('{"name": "ping"}'), *one.close()]))


@pytest.mark.parametrize(("parameters", "is_call"), SCHEMAS, ids=["any", "none", "one", "malformed"])
def test_untagged_name_is_call_only_without_required_parameters(parameters: str, is_call: bool) -> None:
    assert reads_name_as_call(parameters) is is_call


def test_untagged_name_is_no_call_if_the_schema_is_too_deep() -> None:
    assert not reads_name_as_call('{"not": ' * 100_000 + "{}" + "}" * 100_000)


MISUSES: list[tuple[str, dict[str, Any], str]] = [
    (
        "a format's name",
        {"format": "hermes"},
        r"expected a Format, got str; take dragoman\.formats\.get\('hermes'\)",
    ),
    ("no format", {"format": None}, "expected a Format, got NoneType - at format"),
    (
        "tools as an API has them",
        {"tools": [Tool("a"), {"name": "b"}]},
        r"expected a Tool, got dict; .* - at tools\[1\]",
    ),
    ("one tool", {"tools": "ping"}, r"expected a Tool, got str"),
    ("no list", {"tools": 5}, r"expected a Tool, got int"),
]


@pytest.mark.parametrize(("given", "message"), [row[1:] for row in MISUSES], ids=[row[0] for row in MISUSES])
def test_invalid_constructor_argument_is_rejected(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ReplyReader(**({"format": HERMES, "tools": None, "new_id": str} | given))


INVALID_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"prompt_suffix": b"<think>"}, "expected str, got bytes - at prompt_suffix"),
    ({"buffering": "some"}, "expected 'off' or 'all', got 'some' - at buffering"),
]


@pytest.mark.parametrize(("given", "message"), INVALID_OPTIONS, ids=["prompt suffix in bytes", "unknown buffering"])
def test_invalid_option_is_rejected(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ReaderOptions(**given)


def test_invalid_feed_or_close_argument_is_rejected() -> None:
    one = reader()
    with pytest.raises(UsageError, match="expected str, got bytes; decode it"):
        one.feed(b"a")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected 'stop' or 'length', got 'end'"):
        one.close("end")  # type: ignore[arg-type]
    assert [*one.feed("a"), *one.close()] == [ev.TextDelta("a")]


def test_feed_or_close_after_close_is_rejected() -> None:
    one = reader()
    one.close()
    with pytest.raises(UsageError, match="each reply needs a reader of its own"):
        one.feed("a")
    with pytest.raises(UsageError, match=r"close\(\) is called once"):
        one.close()


# Parts opened by the prompt.


def test_reasoning_opened_by_prompt_is_read() -> None:
    assert read("hm</think>\nyes", prompt_suffix="<think>\n") == [ev.ReasoningDelta("hm"), ev.TextDelta("yes")]


def test_text_begun_in_prompt_is_not_repeated() -> None:
    assert read(" two", prompt_suffix="one") == [ev.TextDelta(" two")]


PROMPT_ENDS = ("is: ", "{", '{"', "```json\n{", "a ```", "<", "<tool_call", "<tool_call>\n", '<tool_call>{"name"', "\n")
BEGINNINGS = ("42", ' "city": "Bern"}', " x\n", "\nx")


def test_prompt_suffix_is_never_emitted(subtests: pytest.Subtests) -> None:
    """And no character of the reply is lost."""

    def check(case: tuple[str, str, bool]) -> None:
        tail, reply, lenient = case
        for cut in cuttings(reply, [1]):
            one = reader(prompt_suffix=tail, lenient=lenient)
            events = [e for piece in cut for e in one.feed(piece)] + one.close()
            assert shown(events) == [f"text {json.dumps(reply)}"]

    check_each(subtests, itertools.product(PROMPT_ENDS, BEGINNINGS, (False, True)), check)


def test_call_begun_in_prompt_is_emitted_completely(subtests: pytest.Subtests) -> None:
    """Also if the prompt ends within the arguments: the client gets all of them."""

    text = call("get_weather", '{"city": "Paris"}')

    def check(begun: int) -> None:
        events = read(text[begun:], prompt_suffix=text[:begun])
        check_order(events)
        whole_in_the_prompt = begun > text.index("}}") + 1
        assert shown(events) == ([] if whole_in_the_prompt else ['call get_weather {"city": "Paris"}'])

    check_each(subtests, range(len(text)), check)


def test_complete_calls_in_prompt_are_not_emitted() -> None:
    past = call("ping", id="a")
    events = read(call("ping", id="a"), prompt_suffix=f"Let me see. {past}\n")
    check_order(events)
    assert starts(events) == [ev.ToolCallStart(0, "call_0", "ping")]


def check_order(events: list[ev.AnyEvent]) -> None:
    order = ev.EventOrder()
    for event in [ev.Start("i", "m", 0), *events, ev.Finish("stop")]:
        order.feed(event)


# Ends of replies.


def test_truncated_call_is_incomplete_for_any_finish_reason() -> None:
    text = call("ping", '{"a": 1').split("}")[0]
    for reason in ("stop", "length"):
        one = reader()
        events = [*one.feed(text), *one.close(reason)]  # type: ignore[arg-type]
        assert isinstance(events[-1], ev.ToolCallIncomplete)


def test_unnamed_truncated_call_is_notice_at_limit_and_text_at_stop() -> None:
    for reason, kind in (("stop", ev.TextDelta), ("length", ev.Notice)):
        one = reader()
        assert one.feed('<tool_call>\n{"na') == []
        assert [type(e) for e in one.close(reason)] == [kind]  # type: ignore[arg-type]


def test_windows_line_ends_are_read() -> None:
    """Case files cannot contain them, because they are read as text."""
    text = f"<think>\nhm\n</think>\n\nSo.\n\n```\nx\n```\n{call('ping')}\nDone."
    for lenient in (False, True):
        assert shown(read(text.replace("\n", "\r\n"), lenient=lenient)) == [
            'reasoning "hm"',
            r'text "So.\r\n\r\n```\r\nx\r\n```"',
            "call ping {}",
            r'text "\r\nDone."',
        ]


def test_reader_is_finished_after_hallucinated_result() -> None:
    one = reader()
    assert not one.finished
    one.feed(call("ping"))
    assert not one.finished
    events = one.feed("\n<tool_response>pong")
    assert [e.code for e in events if isinstance(e, ev.Notice)] == ["hallucinated_tool_result"]
    assert one.finished
    assert one.feed("more" + call("ping")) == []
    assert one.close() == []


def test_events_of_one_chunk_are_joined() -> None:
    assert read("a ```b``` c") == [ev.TextDelta("a ```b``` c")]
    assert [e.text for e in read(call("ping", '{"a": [1, "x"]}')) if isinstance(e, ev.ToolCallDelta)] == [
        '{"a": [1, "x"]}'
    ]


random_texts = st.one_of(
    st.text(max_size=30),
    st.binary(max_size=30).map(lambda b: b.decode("utf-8", "replace")),
    st.lists(
        st.sampled_from([*HERMES.markers, "{", "}", '"', "name", ":", "ping", "\\", "`" * 3, "\n"]), max_size=9
    ).map("".join),
)


@given(st.lists(random_texts, max_size=5), st.booleans(), st.sampled_from([None, ["ping"]]), random_texts, places)
def test_random_text_raises_no_error_for_any_cut(
    pieces: list[str], lenient: bool, tools: list[str] | None, tail: str, some: list[int]
) -> None:
    text = "".join(pieces)
    whole = read(text, tools, lenient=lenient, prompt_suffix=tail)
    check_order(whole)
    for cut in cuttings(text, some):
        one = reader(tools, lenient=lenient, prompt_suffix=tail)
        events = [e for piece in cut for e in one.feed(piece)] + one.close()
        assert shown(events, ids=True) == shown(whole, ids=True)


# Round trips.

strings = st.text(max_size=12) | st.lists(st.sampled_from([*HERMES.markers, "\\", '"', "`" * 3, "{"]), max_size=4).map(
    "".join
)
numbers = st.integers() | st.integers(10**40, 10**60) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | strings,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3),
    max_leaves=12,
)
argument_objects = st.dictionaries(strings, json_values, max_size=4)
names = st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True) | strings.filter(bool)


def read_back(calls: list[ToolCall], cut: list[str]) -> list[tuple[str, str]]:
    one = reader(None)
    events = [e for piece in cut for e in one.feed(piece)] + one.close()
    reply = collect([ev.Start("i", "m", 0), *events, ev.Finish("stop")])
    assert not [p for p in reply.parts if isinstance(p, Text)]
    return [(p.name, p.arguments) for p in reply.parts if isinstance(p, ToolCall)]


@given(st.lists(st.tuples(names, argument_objects), min_size=1, max_size=3), st.booleans(), places)
def test_written_calls_are_read_back_verbatim(
    said: list[tuple[str, dict[str, Any]]], ascii_only: bool, some: list[int]
) -> None:
    calls = [ToolCall("", name, json.dumps(arguments, ensure_ascii=ascii_only)) for name, arguments in said]
    text = "\n".join(HERMES.write_call(c) for c in calls)
    for cut in cuttings(text, some):
        assert read_back(calls, cut) == [(c.name, c.arguments) for c in calls]


def test_deeply_nested_arguments_are_read_back() -> None:
    deep = '{"a":' * 5_000 + "{}" + "}" * 5_000
    one = ToolCall("", "ping", deep)
    assert read_back([one], [HERMES.write_call(one)]) == [("ping", deep)]


VERBATIM = [
    '{ "n":1.50e+3 ,"big":9223372036854775808123,"z":-0 }',
    r'{"u":"\u00e9\ud83d\ude00é","s":"\/","u":1}',
    '{\n  "a": [\n    1\n  ]\n}',
]


@pytest.mark.parametrize("arguments", VERBATIM)
def test_arguments_text_is_read_back_verbatim(arguments: str) -> None:
    one = ToolCall("", "ping", arguments)
    assert read_back([one], [HERMES.write_call(one)]) == [("ping", arguments)]


@pytest.mark.parametrize("cut", ['{"city": "Par', "", "[1]", "nothing"])
def test_non_object_arguments_are_written_as_string(cut: str) -> None:
    """A truncated call is kept in the history as received."""
    text = HERMES.write_call(ToolCall("", "ping", cut))
    assert json.loads(text.splitlines()[1]) == {"name": "ping", "arguments": cut}


def test_lone_surrogate_is_never_emitted() -> None:
    """Not in a name, in arguments, or in arguments inside a string."""
    texts = [
        call("\ud83dping"),
        r'<tool_call>{"name": "ping", "arguments": {"a": "\ud83d"}}</tool_call>',
        r'<tool_call>{"name": "ping", "arguments": "{\"a\": \"\\ud83d\"}"}</tool_call>',
        r'<tool_call>{"name": "ping", "arguments": "{\"a\": \"\ud83d\"}"}</tool_call>',
    ]
    for text in texts:
        for event in read(text, None):
            str(event).encode()
            if isinstance(event, ev.ToolCallDelta):
                assert json.loads(event.text) in ({}, {"a": "\ufffd"})
