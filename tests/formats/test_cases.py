"""Every case of every format, whole, per character, cut everywhere, in random pieces, and truncated everywhere."""

import itertools
import random
import re
from collections.abc import Iterable

import jiter
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import formats
from dragoman.core import events as ev
from dragoman.core.messages import ToolCall
from dragoman.formats import auto
from dragoman.parsing.format import Format
from support.check_each import check_each
from support.format_cases import DATA, Case, all_cases, cases_by_format, shown, title
from support.sampling import exhaustive, positions, sample

each_format = pytest.mark.parametrize("name", cases_by_format())
SEEDS = 5


def expected_with_ids(case: Case) -> bool:
    return any(re.search(r"\} (call_\w+|my_call-7|a)$", line) for line in case.expected)


def check_stream(events: Iterable[ev.AnyEvent]) -> None:
    """Asserts a legal order of events, and that the arguments are always a prefix of one JSON object."""
    order = ev.EventOrder()
    order.feed(ev.Start("id", "m", 0))
    text = ""
    for event in events:
        order.feed(event)
        match event:
            case ev.ToolCallStart():
                text = ""
            case ev.ToolCallDelta(_, piece):
                text += piece
                assert text.startswith("{")
                jiter.from_json(text.encode(), partial_mode="trailing-strings")
            case ev.ToolCallEnd():
                assert isinstance(jiter.from_json(text.encode()), dict)
    order.feed(ev.Finish("stop"))


def test_each_format_has_cases() -> None:
    assert {p.stem for p in (DATA / "formats").glob("*.txt")} == set(formats.names())


def test_shared_openers_are_listed_with_their_formats() -> None:
    """An opener that several formats have is in `auto.SHARED`, and each format named there has it."""
    openers = [opener for name in formats.names() for opener in formats.get(name).calls]
    assert {opener for opener in openers if openers.count(opener) > 1} == set(auto.SHARED)
    assert all(opener in formats.get(name).calls for opener, by in auto.SHARED.items() for name in by.values())


@each_format
def test_case_in_one_piece_is_read_as_expected(name: str, subtests: pytest.Subtests) -> None:
    def check(case: Case) -> None:
        events = case.events
        check_stream(events)
        assert shown(events, ids=expected_with_ids(case)) == case.expected

    check_each(subtests, cases_by_format()[name], check, title)


@each_format
def test_case_per_character_is_read_as_expected(name: str, subtests: pytest.Subtests) -> None:
    def check(case: Case) -> None:
        events = case.read(case.text)
        check_stream(events)
        assert shown(events, ids=expected_with_ids(case)) == case.expected

    check_each(subtests, cases_by_format()[name], check, title)


@each_format
def test_case_cut_at_every_position_has_same_events(name: str, subtests: pytest.Subtests) -> None:
    """Short cases are cut everywhere, longer ones at some positions; `make test-all` cuts all of them everywhere."""

    def check(case: Case) -> None:
        whole = shown(case.events, ids=True)
        for i in positions(case.text, len(case.text) + 1):
            assert shown(case.read([case.text[:i], case.text[i:]]), ids=True) == whole, f"cut at {i}"

    check_each(subtests, cases_by_format()[name], check, title)


@each_format
def test_case_in_random_pieces_has_same_events(name: str, subtests: pytest.Subtests) -> None:
    def check(case: Case) -> None:
        whole = shown(case.events, ids=True)
        for seed in range(SEEDS if exhaustive() else 1):
            events = case.read(random_pieces(case.text, seed))
            check_stream(events)
            assert shown(events, ids=True) == whole, f"seed {seed}"

    check_each(subtests, cases_by_format()[name], check, title)


@each_format
def test_truncated_case_completes_no_new_call(name: str, subtests: pytest.Subtests) -> None:
    """A truncated reply raises no error and completes no call that the full reply does not contain."""

    def check(case: Case) -> None:
        events = case.events if case.reason == "stop" else case.read([case.text], "stop")
        whole = [line for line in shown(events) if line.startswith("call")]
        for i in positions(case.text, len(case.text)):
            events = case.read([case.text[:i]], "length")
            check_stream(events)
            calls = [line for line in shown(events) if line.startswith("call")]
            assert calls == whole[: len(calls)], f"truncated at {i}"

    check_each(subtests, cases_by_format()[name], check, title)


WITH_RESULT_MARKERS = [
    name for name in formats.names() if (markup := formats.get(name).markup) and markup.result_markers
]


def invented_results(format: Format) -> list[str]:
    """Returns replies that a hallucinated tool result ends: after a call, and after a call in reasoning."""
    call, markup = format.write_calls([ToolCall("call00009", "ping", "{}")]), format.markup
    thoughts = [f"{opener}hm " for opener in format.reasoning_tags][:1]
    return [before + call + mark for mark in markup.result_markers for before in ("", *thoughts)] if markup else []


def text_after_result(format: Format) -> list[str]:
    """Returns reasoning, answers, calls and framing that a model may write after the result."""
    call, markup = format.write_calls([ToolCall("call00009", "ping", "{}")]), format.markup
    assert markup
    pairs = (*format.reasoning_tags.items(), *markup.answer_wrappers.items())
    marks = (*markup.closers, *markup.ignored_wrappers, *format.reasoning_tags.values(), *markup.result_markers)
    return ["so", call, *(f"{a}so{call}{b}so" for a, b in pairs), *(f"{a}so{b}{call}" for a, b in pairs), *marks]


@pytest.mark.parametrize("name", WITH_RESULT_MARKERS)
def test_hallucinated_result_ends_reply_independent_of_cuts(name: str) -> None:
    """Text after the hallucinated result is dropped, and the calls before it are kept."""
    format, known = formats.get(name), 0
    for reader, begin in itertools.product((name, "auto"), invented_results(format)):
        expected = shown(Case(reader, "", begin, []).events, ids=True)
        if expected[-1:] != ["warning hallucinated_tool_result"]:  # reasoning may not be open to calls
            continue
        known += reader == name
        for rest in sample(list(dict.fromkeys(text_after_result(format))), 4, begin):
            case = Case(reader, "", begin + rest, [])
            for cut in ([case.text], [*case.text], [begin, rest], [begin[:-1], begin[-1] + rest[:1], rest[1:]]):
                assert shown(case.read(cut), ids=True) == expected, cut
    assert known


FAILED_AT_THE_END = (
    '{"name": "ping" {}',
    '{"name": "ping" \n {}',
    '[{"name": "ping" {}]',
    '```json\n{"name": "ping" {}\n```\n',
)


@pytest.mark.parametrize("name", formats.names())
def test_invalid_trailing_json_call_is_returned_as_text(name: str) -> None:
    for text in FAILED_AT_THE_END:
        case = Case(name, "", f"So:\n{text}", [], {"lenient": ""})
        for cut in ([case.text], [*case.text]):
            assert "".join(e.text for e in case.read(cut) if isinstance(e, ev.TextDelta)) == case.text
            assert not any(isinstance(e, ev.ToolCallStart) for e in case.read(cut))


def random_pieces(text: str, seed: int) -> list[str]:
    chance, pieces = random.Random(seed), []
    while text:
        size = chance.randint(1, 9)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


DROPS = ("empty_call_section", "stray_closing_tag", "stray_opening_tag")
MARKER_PIECES = [
    "<tool_call>",
    "</tool_call>",
    "```",
    '{"name": "',
    'ping"',
    ", ",
    '"arguments": ',
    "{}",
    "}",
    "\n",
    "a",
]


@given(
    case=st.sampled_from(all_cases()),
    at=st.floats(0, 1),
    size=st.integers(0, 8),
    junk=st.text('<>/{}[]",:\\ \n`tool_cal', max_size=6),
)
def test_damaged_case_is_read_without_error(case: Case, at: float, size: int, junk: str) -> None:
    """One slice of a valid text is damaged: no error, a legal stream, and the same events for every cut."""
    start = int(at * len(case.text))
    text = case.text[:start] + junk + case.text[start + size :]
    events = case.read([text])
    check_stream(events)
    whole = shown(events, ids=True)
    assert shown(case.read(text), ids=True) == whole
    assert shown(case.read(random_pieces(text, start)), ids=True) == whole


@given(st.lists(st.sampled_from(MARKER_PIECES), max_size=12).map("".join))
def test_random_marker_sequence_keeps_all_text(text: str) -> None:
    case = Case("hermes", "", text, [], {"lenient": ""})
    events = case.read([text])
    check_stream(events)
    assert shown(case.read(text)) == shown(events)
    if not any(isinstance(e, ev.ToolCallStart | ev.ReasoningDelta) for e in events):
        said = "".join(e.text for e in events if isinstance(e, ev.TextDelta))
        dropped = "".join(e.raw for e in events if isinstance(e, ev.Notice) and e.code in DROPS)
        assert sorted("".join((said + dropped).split())) == sorted("".join(text.split()))


UNFINISHED_STRING_ENDS = (
    "\\",
    "\\u",
    "\\u1",
    "\\u12e",
    "\\ud83d",
    "\\ud83d\\",
    "\\ud83d\\u",
    "\\x",
    "\\n",
    '\\"',
    "'",
    '"',
    "\\ud83d\\ude",
)
"""Ends of a string that was never closed."""


@pytest.mark.parametrize("name", [name for name in formats.names() if formats.get(name).arguments == "JSON"])
def test_unclosed_string_does_not_hide_call_closer(name: str) -> None:
    """After an incomplete escape, the call's closer is found wherever the text is cut."""
    written = formats.get(name).write_calls([ToolCall("call00001", "ping", '{"a": "word"}')])
    for broken, gap in sample([*itertools.product(UNFINISHED_STRING_ENDS, ("", "\n", "\r\n "))], 20, name):
        text = written.replace('word"}', f"word{broken}{gap}")
        case = Case(name, "", text, [])
        whole = shown(case.read([text]))
        for at in sample(range(written.index("word"), len(text)), 2, text):
            assert shown(case.read([text[:at], text[at:]])) == whole, (text, at)


@pytest.mark.parametrize("name", [name for name in formats.names() if name != "auto"])
def test_trailing_white_space_before_limit_does_not_change_calls(name: str) -> None:
    """Whether a call that a token limit cuts off is complete does not depend on trailing white space."""
    written = formats.get(name).write_calls([ToolCall("call00001", "ping", '{"a": "word", "b": {"c": [1, 2]}}')])
    assert calls_before_limit(name, written)
    for at, gap in itertools.product(sample(range(len(written) + 1), 12, name), (" ", "\n")):
        text = written[:at]
        assert calls_before_limit(name, text + gap) == calls_before_limit(name, text), text + gap


def calls_before_limit(name: str, text: str) -> list[str]:
    """Returns the lines of the complete calls, if a token limit ended the text."""
    return [line for line in shown(Case(name, "", text, []).read([text], "length")) if line.startswith("call ")]
