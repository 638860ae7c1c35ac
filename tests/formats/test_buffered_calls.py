"""`buffering="all"` emits the same events as "off", but complete calls only."""

from typing import Literal

import pytest

from dragoman import formats
from dragoman.core import events as ev
from dragoman.parsing.reader_options import ReaderOptions
from dragoman.parsing.reply_reader import ReplyReader
from support.check_each import check_each
from support.format_cases import Case, cases_by_format, shown, title
from support.sampling import exhaustive


def read(case: Case, size: int) -> list[ev.AnyEvent]:
    reader = case.reader(buffering="all")
    pieces = [case.text[at : at + size] for at in range(0, len(case.text), size)]
    return [*(e for piece in pieces for e in reader.feed(piece)), *reader.close(case.reason)]


@pytest.mark.parametrize("name", cases_by_format())
def test_buffering_all_emits_only_complete_calls(name: str, subtests: pytest.Subtests) -> None:
    def check(case: Case) -> None:
        streamed = shown(case.events, ids=True, late=True)
        for size in (1, 7, 10_000) if exhaustive() else (7,):
            check_delivery(case, read(case, size), streamed)

    check_each(subtests, cases_by_format()[name], check, title)


def check_delivery(case: Case, events: list[ev.AnyEvent], streamed: list[str]) -> None:
    dropped = [e for e in events if isinstance(e, ev.Notice) and e.code == "incomplete_call"]
    dropped_in_lists = sum("the list" in e.message for e in dropped)
    whole = [line for line in joined(streamed) if line.startswith("call ")]
    left = whole[len(whole) - dropped_in_lists :]
    assert joined(shown(events, ids=True)) == [line for line in joined(streamed) if line not in left]
    assert len(dropped) - dropped_in_lists == sum(line.startswith("incomplete") for line in streamed)
    assert not dropped_in_lists or (case.reason == "length" and "[" in case.text)
    starts = [e.index for e in events if isinstance(e, ev.ToolCallStart)]
    assert starts == list(range(len(starts)))


def joined(lines: list[str]) -> list[str]:
    """Drops warnings and incomplete calls, and joins adjacent text lines."""
    out: list[str] = []
    for line in lines:
        if line.startswith(("warning", "incomplete")):
            continue
        if out and line.startswith("text ") and out[-1].startswith("text "):
            out[-1] = out[-1][:-1] + line[len('text "') :]
        else:
            out.append(line)
    return out


def test_buffered_call_is_emitted_when_complete() -> None:
    reader = ReplyReader(formats.get("hermes"), None, new_id=lambda: "1", options=ReaderOptions(buffering="all"))
    assert reader.feed('<tool_call>{"name": "f", "arguments": {"a": 1') == []
    assert reader.feed("}}") == [
        ev.ToolCallStart(0, "call_1", "f"),
        ev.ToolCallDelta(0, '{"a": 1}'),
        ev.ToolCallEnd(0),
    ]


FIRST, SECOND = '{"name": "f", "arguments": {}}', '{"name": "g", "arguments": {"a": '
LISTS = {"mistral_v3": "[TOOL_CALLS] [", "hermes": "<tool_call>[", "nemotron_v2": "<TOOLCALL>[", "auto": "<tool_call>["}


@pytest.mark.parametrize("name", LISTS)
def test_truncated_call_list_emits_no_calls(name: str) -> None:
    text = f"{LISTS[name]}{FIRST}, {SECOND}"
    events = buffered(name, text, "length")
    assert not [e for e in events if isinstance(e, ev.ToolCallStart)]
    assert {(e.code, e.raw) for e in events if isinstance(e, ev.Notice)} >= {("incomplete_call", "{}")}
    assert [e.name for e in buffered(name, text + "1}}]", "length") if isinstance(e, ev.ToolCallStart)] == ["f", "g"]


def test_buffered_call_list_is_emitted_at_its_end() -> None:
    reader = ReplyReader(formats.get("pythonic"), None, new_id=lambda: "1", options=ReaderOptions(buffering="all"))
    assert reader.feed("[f(a=1), g(") == []
    assert [type(e) for e in reader.feed(")]")] == [ev.ToolCallStart, ev.ToolCallDelta, ev.ToolCallEnd] * 2


def buffered(name: str, text: str, reason: Literal["stop", "length"]) -> list[ev.AnyEvent]:
    reader = ReplyReader(formats.get(name), None, new_id=lambda: "1", options=ReaderOptions(buffering="all"))
    return [*reader.feed(text), *reader.close(reason)]


def test_truncated_call_list_opened_by_prompt_emits_no_calls() -> None:
    reader = ReplyReader(
        formats.get("mistral_v3"),
        None,
        new_id=lambda: "1",
        options=ReaderOptions(prompt_suffix=LISTS["mistral_v3"], buffering="all"),
    )
    events = [*reader.feed(f"{FIRST}, {SECOND}"), *reader.close("length")]
    assert not [e for e in events if isinstance(e, ev.ToolCallStart)]
