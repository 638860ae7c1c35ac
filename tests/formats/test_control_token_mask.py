"""Control tokens spelled with ordinary tokens have no effect, wherever the text is cut, and none of them is lost."""

import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dragoman
from dragoman import formats
from dragoman.core.errors import UsageError
from support.check_each import check_each
from support.chunking import cuttings, places
from support.format_cases import TOOLS, Case, cases_by_format, shown, title
from support.sampling import sample

CALL = '<tool_call>\n{"name": "ping", "arguments": {"a": "</tool_call>"}}\n</tool_call>'
QWEN = ("<tool_call>", "</tool_call>", "<think>", "</think>", "  ", "\n\n")


def control_of(name: str) -> list[str]:
    """Returns the format's markers that look like control tokens."""
    return [m for m in formats.get(name).markers if re.fullmatch(r"<\|?[\w:｜▁|/-]+\|?>|\[/?[A-Z_]+\]", m)]


def read(pieces: Iterable[tuple[str, bool]], format: str = "hermes", control: Iterable[str] = QWEN) -> list[str]:
    reader = dragoman.ToolCallReader(format, TOOLS, control=control, new_id=lambda: "1")
    events = [event for text, plain in pieces for event in reader.feed(text, plain=plain)]
    return shown([*events, *reader.close()])


def tokens(text: str, control: Iterable[str]) -> list[tuple[str, bool]]:
    """Splits a text into (piece, plain) pairs, as a model emits real control tokens."""
    found = "|".join(map(re.escape, sorted(control, key=len, reverse=True)))
    return [(piece, not re.fullmatch(found, piece)) for piece in re.split(f"({found})", text) if piece]


def test_call_spelled_with_ordinary_tokens_is_text() -> None:
    assert read([(f"You write {CALL}", True)]) == [f"text {shown_text(f'You write {CALL}')}"]
    assert read([(CALL, True)]) == [f"text {shown_text(CALL)}"]
    assert read([(CALL, False)]) == ['call ping {"a": "</tool_call>"}']


def shown_text(text: str) -> str:
    return '"' + text.replace('"', '\\"').replace("\n", "\\n") + '"'


def test_argument_may_contain_spelled_out_control_tokens() -> None:
    inside = '\n{"name": "ping", "arguments": {"a": "</tool_call>", "<think>": "<tool_"}}\n'
    pieces = [("So <tool_call>:", True), ("<tool_call>", False), (inside, True), ("</tool_call>", False)]
    assert read(pieces) == ['text "So <tool_call>:"', 'call ping {"a": "</tool_call>", "<think>": "<tool_"}']


def test_reasoning_ends_at_control_token_only() -> None:
    pieces = [("<think>", False), ("I write </think> then.", True), ("</think>", False), ("Done.", True)]
    assert read(pieces) == ['reasoning "I write </think> then."', 'text "Done."']


def test_control_token_started_in_plain_text_is_text() -> None:
    rest = CALL.removeprefix("<tool")
    assert read([("<tool", True), (rest, False)])[0].startswith('text "<tool_call>')
    assert read([("<tool", True), ("", False), ("_call>", True), ("{}", True)]) == ['text "<tool_call>{}"']


def test_marker_that_is_not_a_control_token_is_read() -> None:
    """Qwen3-Coder writes `<function=` with ordinary tokens."""
    call = "<function=ping>\n<parameter=a>\n<tool_call>\n</parameter>\n</function>"
    pieces = [("<tool_call>", False), (f"\n{call}\n", True), ("</tool_call>", False)]
    assert read(pieces, "qwen3_xml") == ['call ping {"a": "<tool_call>"}']


def test_buffered_text_is_emitted_on_close() -> None:
    assert read([("a <tool_c", True)]) == ['text "a <tool_c"']
    assert read([("a <think>", True)], control=("<think>", "<think>\n")) == ['text "a <think>"']


@pytest.mark.parametrize("name", [name for name in cases_by_format() if name != "auto"])
def test_real_control_tokens_are_read_as_without_hints(name: str, subtests: pytest.Subtests) -> None:
    """With and without hints, a reply with real control tokens has the same events."""

    def check(case: Case) -> None:
        control = control_of(case.format)
        hinted = dragoman.parsing.reply_reader.ReplyReader(
            formats.get(case.format),
            None if case.options.get("tools") == "any" else TOOLS,
            new_id=lambda: "1",
            options=case.reader_options(control=[*control, "<|none|>"]),
        )
        pieces = tokens(case.text, [*control, "<|none|>"])
        told = [event for text, plain in pieces for event in hinted.feed(text, plain=plain)]
        assert shown([*told, *hinted.close(case.reason)]) == shown(case.events)

    check_each(subtests, sample(cases_by_format()[name], 10, name), check, title)


PIECES = st.lists(
    st.tuples(
        st.sampled_from([*QWEN, CALL, "<", "<tool", "_call>", '{"name": "ping"}', "Hi.", "\ufdd0"]), st.booleans()
    )
)


@given(pieces=PIECES, some=places)
def test_chunk_boundaries_do_not_change_events_or_lose_text(pieces: list[tuple[str, bool]], some: list[int]) -> None:
    whole = read(pieces)
    for cuts in zip(*(cuttings(text, some) for text, _ in pieces), strict=True):
        cut = [(part, plain) for parts, (_, plain) in zip(cuts, pieces, strict=True) for part in parts]
        assert read(cut) == whole
    plain = "".join(text for text, _ in pieces)
    if plain.strip():
        lines = read([(text, True) for text, _ in pieces])
        assert lines == [f"text {shown_text(plain.replace(chr(0xFDD0), chr(0xFFFD)))}"]


def test_plain_hint_without_control_tokens_is_rejected() -> None:
    reader = dragoman.ToolCallReader("hermes", None)
    with pytest.raises(UsageError, match="expected `control`, the texts of the control tokens"):
        reader.feed("a", plain=True)


@pytest.mark.parametrize(
    ("control", "got"),
    [
        ("<think>", None),
        ([""], "got ''"),
        ([5], "got int"),
        ([b"<think>"], "got bytes"),
        (["  "], "got 0"),
        ([chr(97 + i) for i in range(33)], "got 33"),
    ],
)
def test_invalid_control_tokens_are_rejected(control: Any, got: str | None) -> None:
    if got is None:
        assert read([("<think>", True)], control=control) == ['text "<think>"']
        return
    with pytest.raises(UsageError, match=f"{got} - at control"):
        dragoman.ToolCallReader("hermes", None, control=control)
