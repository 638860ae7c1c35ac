"""Server-sent events: no cut matters, and what is written is read again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core import sse
from dragoman.core.errors import UpstreamError
from dragoman.core.sse import Decoder, ServerSentEvent

LINES = st.sampled_from(["data: a", "data:b", "data", "event: x", "id: 7", ":", ": note", "é", "", "", ""])
ENDS = st.sampled_from(["\n", "\r", "\r\n", "\r\n", ""])
STREAMS = st.lists(st.tuples(LINES, ENDS).map("".join), max_size=12).map(lambda lines: "".join(lines).encode())


def whole(stream: bytes) -> list[ServerSentEvent]:
    decoder = Decoder()
    return decoder.feed(stream) + decoder.close()


def in_pieces(stream: bytes, cuts: list[int]) -> list[ServerSentEvent]:
    decoder, events, start = Decoder(), [], 0
    for cut in [*sorted(cuts), len(stream)]:
        events += decoder.feed(stream[start:cut])
        start = cut
    return events + decoder.close()


CASES = [
    ("an event", "data: a\n\n", [("", "a")]),
    ("its name", "event: x\ndata: a\n\n", [("x", "a")]),
    ("a name is for one event", "event: x\ndata: a\n\ndata: b\n\n", [("x", "a"), ("", "b")]),
    ("several lines of data", "data: a\ndata: b\n\n", [("", "a\nb")]),
    ("no space", "data:a\n\n", [("", "a")]),
    ("only one space belongs to the frame", "data:  a\n\n", [("", " a")]),
    ("empty data", "data:\n\n", [("", "")]),
    ("a name without data", "event: x\n\ndata: a\n\n", [("", "a")]),
    ("comments", ": ping\n\ndata: a\n: more\n\n", [("", "a")]),
    ("id and retry", "id: 1\nretry: 5\ndata: a\n\n", [("", "a")]),
    ("CRLF", "data: a\r\n\r\n", [("", "a")]),
    ("CRLF within one event", "data: a\r\ndata: b\r\n\r\n", [("", "a\nb")]),
    ("CR", "data: a\r\rdata: b\r\r", [("", "a"), ("", "b")]),
    ("a byte order mark", "\ufeffdata: a\n\n", [("", "a")]),
    ("the last blank line missing", "data: a\n", [("", "a")]),
    ("the last line's end missing", "data: a", [("", "a")]),
    ("a line separator of Unicode is no line end", "data: a\u2028b\n\n", [("", "a\u2028b")]),
    ("nothing", "", []),
]


@pytest.mark.parametrize(("stream", "events"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_case(stream: str, events: list[tuple[str, str]]) -> None:
    expected = [ServerSentEvent(name, data.encode()) for name, data in events]
    body = stream.encode()
    assert whole(body) == expected
    assert in_pieces(body, list(range(len(body)))) == expected


@given(STREAMS, st.data())
def test_no_cut_matters(stream: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(stream))))
    assert in_pieces(stream, cuts) == whole(stream)


@given(
    st.lists(st.tuples(st.sampled_from(["", "message_start"]), st.text().filter(lambda t: not set(t) & set("\r\n"))))
)
def test_what_is_written_is_read_again(events: list[tuple[str, str]]) -> None:
    stream = b"".join(sse.encode(data.encode(), name) + sse.comment("ping") for name, data in events)
    assert whole(stream) == [ServerSentEvent(name, data.encode()) for name, data in events]


@pytest.mark.parametrize("line", [b"data: " + b"x" * 60, b"data: x\n" * 60], ids=["one line", "many lines"])
def test_an_event_has_a_limit(monkeypatch: pytest.MonkeyPatch, line: bytes) -> None:
    monkeypatch.setattr(sse, "EVENT_LIMIT_BYTES", 50)
    with pytest.raises(UpstreamError):
        in_pieces(line, list(range(0, len(line), 10)))


def test_many_events_are_no_long_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "EVENT_LIMIT_BYTES", 50)
    decoder = Decoder()
    assert sum(len(decoder.feed(b"data: 1234567890\n\n")) for _ in range(100)) == 100
