"""Slips in the JSON of calls, in every format that has JSON and from every API behind; alone, as it is wrapped up."""

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
from support.chunking import cuttings
from support.paths import ROOT

TOOL = Tool("get_weather", parameters='{"type": "object", "properties": {"city": {"type": "string"}}}')
MEANT = '{"city": "Paris", "on": true}'
SLIPPED = "{'city': 'Paris', on: True,}"
NAMES = ("quotes", "bare_keys", "literals", "commas")


def call_text(name: str) -> str:
    format = formats.get(name)
    return format.section[0] + format.write_call(ToolCall("1", "get_weather", MEANT)) + format.section[1]


IN_JSON = [name for name in formats.names() if MEANT in call_text(name)]


def told(events: Iterable[ev.AnyEvent]) -> tuple[str, list[ev.AnyEvent]]:
    """The arguments, and what else is told of the call behind its beginning."""
    found = list(events)
    arguments = "".join(e.text for e in found if isinstance(e, ev.ToolCallDelta))
    return arguments, [e for e in found if isinstance(e, ev.ToolCallEnd | ev.ToolCallIncomplete | ev.Notice)]


def read(name: str, cut: list[str], mends: frozenset[str] = READER_REPAIRS) -> tuple[str, list[ev.AnyEvent]]:
    reader = ReplyReader(formats.get(name), [TOOL], new_id=lambda: "1", options=ReaderOptions(enabled_repairs=mends))
    return told([*(e for piece in cut for e in reader.feed(piece)), *reader.close("stop")])


def test_most_formats_have_json() -> None:
    assert len(IN_JSON) > 25


@pytest.mark.parametrize("name", IN_JSON)
def test_every_format_that_has_json_reads_them(name: str) -> None:
    text = call_text(name).replace(MEANT, SLIPPED)
    for cut in cuttings(text, [3, 30, 50, 70, 90, 110]):
        arguments, (end, warning) = read(name, cut)
        assert arguments == MEANT
        assert isinstance(end, ev.ToolCallEnd)
        assert (end.index, end.repairs) == (0, NAMES)
        assert isinstance(warning, ev.Notice)
        assert (warning.code, warning.message) == (
            "json_repaired",
            "repaired the JSON of a call: quotes, bare_keys, literals, commas",
        )
        assert SLIPPED in warning.raw


@pytest.mark.parametrize("name", IN_JSON)
def test_what_is_switched_off_is_malformed(name: str) -> None:
    text = call_text(name).replace(MEANT, SLIPPED)
    for slip in NAMES:
        arguments, after = read(name, [text], READER_REPAIRS - {slip})
        assert MEANT.startswith(arguments.removesuffix(","))
        assert not any(isinstance(e, ev.ToolCallEnd) for e in after)
        assert "malformed_arguments" in [e.code for e in after if isinstance(e, ev.Notice)]


@pytest.mark.parametrize("name", IN_JSON)
def test_a_call_without_slips_is_not_told_of(name: str) -> None:
    for cut in cuttings(call_text(name), [3, 30, 50, 70, 90, 110]):
        arguments, (end,) = read(name, cut)
        assert arguments == MEANT
        assert isinstance(end, ev.ToolCallEnd)
        assert (end.index, end.repairs) == (0, ())


@pytest.mark.parametrize("dialect", dialects.names())
def test_every_api_behind_is_read_so(dialect: str) -> None:
    api, request = dialects.get(dialect), Request("m", (), (TOOL,), stream=True)
    writer = api.writer(request)
    sent: list[ev.AnyEvent] = [ev.Start("1", "m", 7), ev.ToolCallStart(0, "call_1", "get_weather")]
    sent += [ev.ToolCallDelta(0, piece) for piece in (SLIPPED[:9], SLIPPED[9:20], SLIPPED[20:])]
    sent += [ev.ToolCallEnd(0), ev.Finish("tool_calls")]
    wire = b"".join(map(writer.feed, sent))
    for disabled, whole in ((), True), (NAMES[:1], False):
        reader = api.reader(request, ExchangeContext("1", 7, lambda: "1", disabled))
        arguments, after = told([*reader.feed(wire), *reader.close()])
        assert (arguments == MEANT) is whole
        assert isinstance(after[0], ev.ToolCallEnd) is whole
        if whole:
            warning = ev.Notice(
                "json_repaired", "repaired the JSON of a call: quotes, bare_keys, literals, commas", SLIPPED
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
def test_wrappings_are_taken_off(text: str, meant: str, slips: tuple[str, ...]) -> None:
    assert unwrap_arguments(text, ALL_REPAIRS) == (meant, slips, "")
    for slip in slips:
        assert unwrap_arguments(text, ALL_REPAIRS - {slip}).problem == "expected the arguments as an object"


NO_OBJECT = ["1", "[]", '"x"', '"[1]"', "x", "'", '"', "```", "``` [] ```", f"{OBJECT} x", '"{"a": 1}', "[{}]"]


@pytest.mark.parametrize("text", [*NO_OBJECT, json.dumps(json.dumps(json.dumps(json.dumps(OBJECT))))])
def test_other_things_are_no_arguments(text: str) -> None:
    assert unwrap_arguments(text, ALL_REPAIRS) == ("", (), "expected the arguments as an object")


@pytest.mark.parametrize("row", [row for row in WRAPPED if row[1] and "closed" not in row[0]], ids=lambda row: row[0])
@pytest.mark.parametrize("before", ['"name": "get_weather", ', ""])
def test_wrappings_in_a_reply(row: tuple[str, str, str, tuple[str, ...]], before: str) -> None:
    _, arguments, meant, slips = row
    behind = "" if before else ', "name": "get_weather"'
    text = f'<tool_call>{{{before}"arguments": {arguments}{behind}}}</tool_call>'
    for cut in cuttings(text, [40, 50, 55, 60]):
        found, (end, *warnings) = read("hermes", cut)
        assert (found, end) == (meant, ev.ToolCallEnd(0, slips))
        assert [w.code for w in warnings if isinstance(w, ev.Notice)] == ["json_repaired"] * bool(slips)


def test_slips_of_what_is_no_call_are_not_told() -> None:
    text = f"<tool_call>{{'name': 'no_tool', 'arguments': {SLIPPED}}}</tool_call>" + call_text("hermes")
    arguments, after = read("hermes", [text])
    assert arguments == MEANT
    assert [e.code if isinstance(e, ev.Notice) else e for e in after] == ["unknown_tool", ev.ToolCallEnd(0)]


def test_each_slip_has_a_line_in_the_docs() -> None:
    page = (ROOT / "docs/liberties.md").read_text()
    assert all(f"| `{slip}` |" in page for slip in REPAIRS)
