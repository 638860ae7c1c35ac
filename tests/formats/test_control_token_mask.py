"""Control tokens that are spelled out: none of them means anything, wherever the text is cut, and none is lost."""

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
    """What looks like a control token among a format's markers."""
    return [m for m in formats.get(name).markers if re.fullmatch(r"<\|?[\w:｜▁|/-]+\|?>|\[/?[A-Z_]+\]", m)]


def read(pieces: Iterable[tuple[str, bool]], format: str = "hermes", control: Iterable[str] = QWEN) -> list[str]:
    reader = dragoman.ToolCallReader(format, TOOLS, control=control, new_id=lambda: "1")
    events = [event for text, plain in pieces for event in reader.feed(text, plain=plain)]
    return shown([*events, *reader.close()])


def tokens(text: str, control: Iterable[str]) -> list[tuple[str, bool]]:
    """A text as a model writes it that means its control tokens."""
    found = "|".join(map(re.escape, sorted(control, key=len, reverse=True)))
    return [(piece, not re.fullmatch(found, piece)) for piece in re.split(f"({found})", text) if piece]


def test_a_call_that_is_spelled_out_is_text() -> None:
    assert read([(f"You write {CALL}", True)]) == [f"text {shown_text(f'You write {CALL}')}"]
    assert read([(CALL, True)]) == [f"text {shown_text(CALL)}"]
    assert read([(CALL, False)]) == ['call ping {"a": "</tool_call>"}']


def shown_text(text: str) -> str:
    return '"' + text.replace('"', '\\"').replace("\n", "\\n") + '"'


def test_a_call_that_is_meant_may_spell_them() -> None:
    inside = '\n{"name": "ping", "arguments": {"a": "</tool_call>", "<think>": "<tool_"}}\n'
    pieces = [("So <tool_call>:", True), ("<tool_call>", False), (inside, True), ("</tool_call>", False)]
    assert read(pieces) == ['text "So <tool_call>:"', 'call ping {"a": "</tool_call>", "<think>": "<tool_"}']


def test_thoughts_end_where_they_are_meant_to() -> None:
    pieces = [("<think>", False), ("I write </think> then.", True), ("</think>", False), ("Done.", True)]
    assert read(pieces) == ['reasoning "I write </think> then."', 'text "Done."']


def test_one_that_begins_in_plain_text_is_none() -> None:
    rest = CALL.removeprefix("<tool")
    assert read([("<tool", True), (rest, False)])[0].startswith('text "<tool_call>')
    assert read([("<tool", True), ("", False), ("_call>", True), ("{}", True)]) == ['text "<tool_call>{}"']


def test_a_marker_that_is_no_token_counts() -> None:
    """Qwen3-Coder writes `<function=` with ordinary tokens."""
    call = "<function=ping>\n<parameter=a>\n<tool_call>\n</parameter>\n</function>"
    pieces = [("<tool_call>", False), (f"\n{call}\n", True), ("</tool_call>", False)]
    assert read(pieces, "qwen3_xml") == ['call ping {"a": "<tool_call>"}']


def test_what_is_held_back_comes_at_the_end() -> None:
    assert read([("a <tool_c", True)]) == ['text "a <tool_c"']
    assert read([("a <think>", True)], control=("<think>", "<think>\n")) == ['text "a <think>"']


@pytest.mark.parametrize("name", [name for name in cases_by_format() if name != "auto"])
def test_control_tokens_that_are_meant_read_as_ever(name: str, subtests: pytest.Subtests) -> None:
    """Told apart or not, a reply whose control tokens are such says the same."""

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
def test_no_cut_matters_and_nothing_is_lost(pieces: list[tuple[str, bool]], some: list[int]) -> None:
    whole = read(pieces)
    for cuts in zip(*(cuttings(text, some) for text, _ in pieces), strict=True):
        cut = [(part, plain) for parts, (_, plain) in zip(cuts, pieces, strict=True) for part in parts]
        assert read(cut) == whole
    plain = "".join(text for text, _ in pieces)
    if plain.strip():
        lines = read([(text, True) for text, _ in pieces])
        assert lines == [f"text {shown_text(plain.replace(chr(0xFDD0), chr(0xFFFD)))}"]


def test_without_control_tokens_there_is_no_hint() -> None:
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
def test_slips_are_told(control: Any, got: str | None) -> None:
    if got is None:
        assert read([("<think>", True)], control=control) == ['text "<think>"']
        return
    with pytest.raises(UsageError, match=f"{got} - at control"):
        dragoman.ToolCallReader("hermes", None, control=control)
