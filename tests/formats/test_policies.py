"""The policies of docs/deviations.md, each over all formats that it can apply to."""

import itertools
from collections.abc import Iterator

import pytest

from dragoman import formats
from dragoman.core import events as ev
from dragoman.core.messages import ToolCall
from dragoman.parsing.format import Format
from dragoman.parsing.reader_options import ReaderOptions
from dragoman.parsing.reply_reader import ReplyReader
from support.format_cases import TOOLS, shown
from support.sampling import sample

NAMES = [name for name in formats.names() if name != "auto"]
CALL = ToolCall("call00001", "search", '{"query": "news"}')
OTHER = ToolCall("call00002", "set_alarm", '{"hour": 7}')
BARE = ("llama3_json", "pythonic", "xlam")
"""Formats whose calls have no opening marker, so a call is read only at the start of a reply."""
WITH_HEADERS = [name for name in NAMES if formats.get(name).markup is None]
"""Formats in which a call has its own header, which ends the message before."""
each_reasoning = pytest.mark.parametrize(
    ("name", "opener"),
    [(name, opener) for name in NAMES if name not in BARE for opener in formats.get(name).reasoning_tags],
)


def read(name: str, text: str, reason: str = "stop", tail: str = "", cuts: bool = True) -> list[str]:
    """Returns the events of the text without warnings, and asserts that cuts do not change them."""
    whole = [line for line in shown(_events(name, [text], reason, tail)) if not line.startswith("warning")]
    for pieces in (list(text), [text[i : i + 7] for i in range(0, len(text), 7)]) if cuts else ():
        assert [e for e in shown(_events(name, pieces, reason, tail)) if not e.startswith("warning")] == whole
    return whole


def _events(name: str, pieces: list[str], reason: str, tail: str) -> Iterator[ev.AnyEvent]:
    ids = itertools.count()
    one = ReplyReader(
        formats.get(name), TOOLS, new_id=lambda: str(next(ids)), options=ReaderOptions(prompt_suffix=tail)
    )
    for piece in pieces:
        yield from one.feed(piece)
    yield from one.close("length" if reason == "length" else "stop")


def calls(lines: list[str]) -> list[str]:
    return [line.partition(" {")[0] for line in lines if line.startswith(("call", "incomplete"))]


def text_of(lines: list[str]) -> str:
    return "".join(line.removeprefix("text ").strip('"') for line in lines if line.startswith("text"))


@each_reasoning
def test_calls_in_unclosed_reasoning_are_calls(name: str, opener: str) -> None:
    written = formats.get(name).write_calls([CALL, OTHER])
    for text, tail in ((f"{opener}Look first.\n{written}", ""), (f"\nLook first.\n{written}", opener)):
        lines = read(name, text, tail=tail)
        assert calls(lines) == ["call search", "call set_alarm"], lines
        assert lines[0].startswith('reasoning "Look first.')
        assert not text_of(lines).strip()


@each_reasoning
def test_calls_in_closed_reasoning_are_reasoning(name: str, opener: str) -> None:
    format = formats.get(name)
    draft = format.write_calls([CALL])
    closer = format.reasoning_tags[opener]
    lines = read(name, f"{opener}I could write {draft} or not.\n{closer}\n\nHello.")
    assert calls(lines) == []
    assert lines[0].startswith('reasoning "I could write')
    assert "news" in lines[0]
    assert text_of(lines).strip() == "Hello."
    # The call after the reasoning is emitted, with the first index and id.
    lines = read(name, f"{opener}I could write {draft}\n{closer}\n{format.write_calls([OTHER])}")
    assert calls(lines) == ["call set_alarm"], lines


@each_reasoning
def test_calls_in_truncated_reasoning_are_not_emitted(name: str, opener: str) -> None:
    """The missing part of the reply could have closed the reasoning."""
    assert not [
        line
        for line in read(name, f"{opener}Hm. {formats.get(name).write_calls([CALL])}", "length")
        if line.startswith("call")
    ]


@each_reasoning
def test_reasoning_closed_after_its_calls_keeps_calls(name: str, opener: str) -> None:
    format = formats.get(name)
    lines = read(name, f"{opener}Look first.\n{format.write_calls([CALL])}\n{format.reasoning_tags[opener]}\n")
    assert calls(lines) == ["call search"], lines


@pytest.mark.parametrize("name", [n for n in WITH_HEADERS if formats.get(n).reasoning_wrapper[0]])
def test_header_ends_reasoning(name: str) -> None:
    format = formats.get(name)
    text = f"{format.reasoning_wrapper[0]}Look first.{_header(format)}{format.write_calls([CALL])}"
    lines = read(name, text)
    assert calls(lines) == ["call search"], lines
    assert lines[0] == 'reasoning "Look first."'


def _header(format: Format) -> str:
    """Returns the text required between an open message and a call that has only the rest of its header."""
    return (
        "" if format.write_calls([CALL]).startswith(("<|message_model|>", "<|tool_calls|>")) else "<|start|>assistant"
    )


ARGUMENTS = '{"a": 7, "b": true, "c": "007", "d": "x"}'
TAGGED = [name for name in NAMES if formats.get(name).arguments == "tagged"]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "cwm"])  # all up to its closer is the argument
def test_call_without_closer_is_kept_if_arguments_are_complete(name: str) -> None:
    """Only if the model stopped by itself; after a token limit, only JSON shows that nothing is missing."""
    format = formats.get(name)
    text = format.write_calls([CALL])
    end = text.rindex("news") + len("news")
    started = sample(range(end), 10, name)
    ends = {at: read(name, text[:at], cuts=False) for at in (*started, *range(end, len(text) + 1))}
    whole = [at for at, lines in ends.items() if "call search" in calls(lines)]
    # No part of the marker at the end of the reply is left as text.
    assert {text_of(ends[at]).strip() for at in whole} == {""}, name
    assert whole[0] > end
    assert whole[0] < len(text) or set(text[end:]) <= {*'"}])'}
    assert read(name, text[: whole[0]]) == ['call search {"query": "news"}']
    if name in TAGGED:
        assert calls(read(name, text[: whole[0]], "length")) == ["incomplete search"]


@pytest.mark.parametrize("name", [name for name in TAGGED if name != "cwm"])
def test_call_without_parameters_is_kept_without_closer(name: str) -> None:
    """If the tool requires none, the model stopped by itself, and the end of the tool's name is marked."""
    text = formats.get(name).write_calls([ToolCall("call00001", "ping", "{}")])
    whole = next(at for at in range(len(text) + 1) if read(name, text[:at], cuts=False) == ["call ping {}"])
    assert whole < len(text) or name.startswith(("glm", "iquest", "longcat", "solar_open2"))


@pytest.mark.parametrize("name", NAMES)
def test_unknown_tool_does_not_drop_other_calls(name: str) -> None:
    format = formats.get(name)
    ghost = ToolCall("call00003", "img_gen", '{"prompt": "cat"}')
    if name in ("llama3_json", "pythonic"):
        return  # their calls have no markers: text that begins with an unknown name is an answer
    lines = read(name, format.write_calls([ghost, CALL, OTHER]))
    assert calls(lines) == ["call search", "call set_alarm"], lines
    assert "img_gen" in text_of(lines)
    assert calls(read(name, format.write_calls([CALL, ghost]))) == ["call search"]


@pytest.mark.parametrize("name", TAGGED)
def test_scalars_without_schema_are_read_as_json(name: str) -> None:
    """Ids and versions such as 007 and 1.2.3 are not JSON, and stay strings."""
    written = formats.get(name).write_calls([ToolCall("call00001", "ping", ARGUMENTS)])
    if "type=" in written or "string=" in written:
        return  # the tags contain the type
    assert read(name, written)[0] == f"call ping {ARGUMENTS}"


@each_reasoning
def test_empty_or_stray_reasoning_markers_are_dropped(name: str, opener: str) -> None:
    closer = formats.get(name).reasoning_tags[opener]
    if closer[0].isalpha():
        return  # a sentence, which may be the answer's own
    for stray in (closer, f"\n{closer}\n", f"{opener}{closer}", f"{closer}{opener}\n{closer}", f"{opener}\n\n{closer}"):
        lines = read(name, f"{opener}Look.{closer}{stray}Hello.")
        assert lines[0] == 'reasoning "Look."'
        assert text_of(lines) == "Hello.", stray
    assert read(name, f"{closer}Hello.") == ['text "Hello."']


@pytest.mark.parametrize(
    ("name", "opener"), [(n, o) for n in NAMES for o in formats.get(n).reasoning_tags if o.startswith(("<|", "<ifm|"))]
)
def test_control_tokens_open_and_close_reasoning_anywhere(name: str, opener: str) -> None:
    closer = formats.get(name).reasoning_tags[opener]
    lines = read(name, f"{opener}One.\n{closer}Hello{opener}\nTwo.{closer}")
    assert [line for line in lines if line.startswith("reasoning")] == ['reasoning "One."', 'reasoning "Two."']
    assert text_of(lines) == "Hello"
    assert text_of(read(name, f"Hello{opener}{closer} you{closer}")) == "Hello you"


@pytest.mark.parametrize("name", [name for name in NAMES if formats.get(name).markup and name not in BARE])
def test_empty_call_block_leaves_no_marker(name: str) -> None:
    format = formats.get(name)
    assert format.markup
    for opener in (*format.markup.calls, format.markup.section[0]):
        if opener and format.markup.closers and not opener.endswith((" ", "=", "[")):
            closer = next((c for c in format.markup.closers if c.strip("</>|") in opener), format.markup.closers[0])
            assert read(name, f"{opener}{closer}Content") == ['text "Content"']


@each_reasoning
def test_text_after_call_in_reasoning_decides_independent_of_cuts(name: str, opener: str) -> None:
    format = formats.get(name)
    closer = format.reasoning_tags[opener]
    one, other = format.write_calls([CALL]), format.write_calls([OTHER])
    lines = read(name, f"{opener}Look.\n{one} or not{closer}")
    assert calls(lines) == [], lines
    lines = read(name, f"{opener}Look.\n{one} then {other}{closer}")
    assert calls(lines) == ["call search", "call set_alarm"], lines


@pytest.mark.parametrize("name", NAMES)
def test_limit_within_quoted_string_emits_no_shorter_call(name: str) -> None:
    written = formats.get(name).write_calls([ToolCall("call00001", "search", '{"query": "x\\") y, \\"z\\"} b"}')])
    text = written.replace('\\"', '"')
    whole = [line for line in read(name, text) if line.startswith("call")]
    for at in sample(range(len(text)), 20, name):
        some = [line for line in read(name, text[:at], "length", cuts=False) if line.startswith("call")]
        assert some == whole[: len(some)], text[:at]
