"""Repairs of JSON errors in calls, in every JSON format and from every upstream API; and wrapped arguments alone."""

import itertools
import json
from collections.abc import Iterable

import pytest

from dragoman import dialects, formats
from dragoman.core import events as ev
from dragoman.core.backend import ExchangeContext
from dragoman.core.messages import Request, Tool, ToolCall
from dragoman.parsing.reader_options import READER_REPAIRS, ReaderOptions
from dragoman.parsing.reply_reader import ReplyReader
from dragoman.text.json_repairs import ALL_REPAIRS, REPAIRS
from dragoman.text.unwrap_arguments import unwrap_arguments
from support.check_each import check_each
from support.chunking import cuttings
from support.paths import ROOT

TOOL = Tool("get_weather", parameters='{"type": "object", "properties": {"city": {"type": "string"}}}')
INTENDED = '{"city": "Paris", "on": true}'
INVALID = "{'city': 'Paris', on: True,}"
NAMES = ("quotes", "bare_keys", "literals", "commas")


def call_text(name: str) -> str:
    format = formats.get(name)
    return format.section[0] + format.write_call(ToolCall("1", "get_weather", INTENDED)) + format.section[1]


IN_JSON = [name for name in formats.names() if INTENDED in call_text(name)]


def arguments_and_end(events: Iterable[ev.AnyEvent]) -> tuple[str, list[ev.AnyEvent]]:
    """Returns the arguments, and the end events and notices of the call."""
    found = list(events)
    arguments = "".join(e.text for e in found if isinstance(e, ev.ToolCallDelta))
    return arguments, [e for e in found if isinstance(e, ev.ToolCallEnd | ev.ToolCallIncomplete | ev.Notice)]


def read(name: str, cut: list[str], mends: frozenset[str] = READER_REPAIRS) -> tuple[str, list[ev.AnyEvent]]:
    reader = ReplyReader(formats.get(name), [TOOL], new_id=lambda: "1", options=ReaderOptions(enabled_repairs=mends))
    return arguments_and_end([*(e for piece in cut for e in reader.feed(piece)), *reader.close("stop")])


def test_most_formats_have_json_arguments() -> None:
    assert len(IN_JSON) > 25


def test_json_errors_are_repaired_in_every_json_format(subtests: pytest.Subtests) -> None:
    def check(name: str) -> None:
        text = call_text(name).replace(INTENDED, INVALID)
        for cut in cuttings(text, [3, 30, 50, 70, 90, 110]):
            arguments, (end, warning) = read(name, cut)
            assert arguments == INTENDED
            assert isinstance(end, ev.ToolCallEnd)
            assert (end.index, end.repairs) == (0, NAMES)
            assert isinstance(warning, ev.Notice)
            assert (warning.code, warning.message) == (
                "json_repaired",
                "repaired the JSON of a call: quotes, bare_keys, literals, commas",
            )
            assert INVALID in warning.raw

    check_each(subtests, IN_JSON, check)


def test_disabled_repair_reports_malformed_arguments(subtests: pytest.Subtests) -> None:
    def check(name: str) -> None:
        text = call_text(name).replace(INTENDED, INVALID)
        for slip in NAMES:
            arguments, after = read(name, [text], READER_REPAIRS - {slip})
            assert INTENDED.startswith(arguments.removesuffix(","))
            assert not any(isinstance(e, ev.ToolCallEnd) for e in after)
            assert "malformed_arguments" in [e.code for e in after if isinstance(e, ev.Notice)]

    check_each(subtests, IN_JSON, check)


def test_valid_call_reports_no_repairs(subtests: pytest.Subtests) -> None:
    def check(name: str) -> None:
        for cut in cuttings(call_text(name), [3, 30, 50, 70, 90, 110]):
            arguments, (end,) = read(name, cut)
            assert arguments == INTENDED
            assert isinstance(end, ev.ToolCallEnd)
            assert (end.index, end.repairs) == (0, ())

    check_each(subtests, IN_JSON, check)


@pytest.mark.parametrize("dialect", dialects.names())
def test_json_errors_are_repaired_for_every_api(dialect: str) -> None:
    api, request = dialects.get(dialect), Request("m", (), (TOOL,), stream=True)
    writer = api.writer(request)
    sent: list[ev.AnyEvent] = [ev.Start("1", "m", 7), ev.ToolCallStart(0, "call_1", "get_weather")]
    sent += [ev.ToolCallDelta(0, piece) for piece in (INVALID[:9], INVALID[9:20], INVALID[20:])]
    sent += [ev.ToolCallEnd(0), ev.Finish("tool_calls")]
    wire = b"".join(map(writer.feed, sent))
    for disabled, whole in ((), True), (NAMES[:1], False):
        reader = api.reader(request, ExchangeContext("1", 7, lambda: "1", disabled))
        arguments, after = arguments_and_end([*reader.feed(wire), *reader.close()])
        assert (arguments == INTENDED) is whole
        assert isinstance(after[0], ev.ToolCallEnd) is whole
        if whole:
            warning = ev.Notice(
                "json_repaired", "repaired the JSON of a call: quotes, bare_keys, literals, commas", INVALID
            )
            assert after == [ev.ToolCallEnd(0, NAMES), warning]


OBJECT = '{"city": "Paris"}'
WRAPPED = [
    ("nothing", "", "{}", ()),
    ("null", "null", "{}", ()),
    ("None", "None", "{}", ("literals",)),
    ("an empty string", '""', "{}", ()),
    ("a string", json.dumps(OBJECT), OBJECT, ("doubled",)),
    ("a string in a string", json.dumps(json.dumps(OBJECT)), OBJECT, ("doubled",)),
    ("null in a string", '"null"', "{}", ("doubled",)),
    ("an empty string in a string", json.dumps('""'), "{}", ("doubled",)),
    ("Python in a string", json.dumps("{'city': 'Paris'}"), OBJECT, ("doubled", "quotes")),
    ("a string of single quotes", f"'{OBJECT}'", OBJECT, ("quotes", "doubled")),
    ("a string that is not escaped", f'"{OBJECT}"', OBJECT, ("doubled",)),
    ("a fence", f"```json\n{OBJECT}\n```", OBJECT, ("fences",)),
    ("a fence on one line, not closed", f"```{OBJECT}", OBJECT, ("fences",)),
    ("a fence in a string", json.dumps(f"```\n{OBJECT}\n```"), OBJECT, ("doubled", "fences")),
]


@pytest.mark.parametrize(("text", "meant", "slips"), [row[1:] for row in WRAPPED], ids=[row[0] for row in WRAPPED])
def test_wrapped_arguments_are_unwrapped(text: str, meant: str, slips: tuple[str, ...]) -> None:
    assert unwrap_arguments(text, ALL_REPAIRS) == (meant, slips, "")
    for slip in slips:
        assert unwrap_arguments(text, ALL_REPAIRS - {slip}).problem == "expected the arguments as an object"


NOT_OBJECTS = ["1", "[]", '"x"', '"[1]"', "x", "'", '"', "```", "``` [] ```", f"{OBJECT} x", '"{"a": 1}', "[{}]"]


@pytest.mark.parametrize("text", [*NOT_OBJECTS, json.dumps(json.dumps(json.dumps(json.dumps(OBJECT))))])
def test_non_object_arguments_are_rejected(text: str) -> None:
    assert unwrap_arguments(text, ALL_REPAIRS) == ("", (), "expected the arguments as an object")


WRITTEN = [row for row in WRAPPED if row[1] and "closed" not in row[0]]


def test_wrapped_arguments_in_reply_are_unwrapped(subtests: pytest.Subtests) -> None:
    def check(case: tuple[tuple[str, str, str, tuple[str, ...]], str]) -> None:
        row, before = case
        _, arguments, meant, slips = row
        behind = "" if before else ', "name": "get_weather"'
        text = f'<tool_call>{{{before}"arguments": {arguments}{behind}}}</tool_call>'
        for cut in cuttings(text, [40, 50, 55, 60]):
            found, (end, *warnings) = read("hermes", cut)
            assert (found, end) == (meant, ev.ToolCallEnd(0, slips))
            assert [w.code for w in warnings if isinstance(w, ev.Notice)] == ["json_repaired"] * bool(slips)

    check_each(
        subtests,
        itertools.product(WRITTEN, ('"name": "get_weather", ', "")),
        check,
        lambda case: f"{case[0][0]}, {'after' if case[1] else 'before'} the name",
    )


def test_repairs_in_text_that_is_not_a_call_are_not_reported() -> None:
    text = f"<tool_call>{{'name': 'no_tool', 'arguments': {INVALID}}}</tool_call>" + call_text("hermes")
    arguments, after = read("hermes", [text])
    assert arguments == INTENDED
    assert [e.code if isinstance(e, ev.Notice) else e for e in after] == ["unknown_tool", ev.ToolCallEnd(0)]


def test_each_repair_is_documented() -> None:
    page = (ROOT / "docs/deviations.md").read_text()
    assert all(f"| `{slip}` |" in page for slip in REPAIRS)
