"""Passthrough responses, compared with the same responses parsed and written again; without HTTP."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman import dialects
from dragoman.backends.http.passthrough import HttpPassthrough
from dragoman.backends.http.upstream_response import ObservedResponse, ResponseBody
from dragoman.core import events as ev
from dragoman.core import messages as v
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import collect
from dragoman.core.errors import DragomanError
from dragoman.wire.dialect import Dialect
from dragoman.wire.passthrough import StreamRewriter, replace_model_name
from support.chunking import places
from support.dialect_cases import ANSWERS, CASES, STREAMS, Case, each, stream
from support.dialect_cases import whole as whole_body
from support.upstream_bodies import body as upstream_body

FEWER_EXAMPLES = settings.default.max_examples // 5
TURN = ExchangeContext("1", 7, lambda: "x" * 24)


@dataclass
class PassthroughResult:
    """The bytes for the client, and the events that were read from them."""

    pieces: list[bytes]
    told: list[ev.AnyEvent]

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)


def request(dialect: Dialect, *, streams: bool = True, usage: bool = True) -> v.Request:
    return v.Request("m", (), stream=streams, stream_usage=usage, dialect=dialect.name)


def pass_through(dialect: Dialect, parts: Sequence[bytes], asked: v.Request, name: str = "m") -> PassthroughResult:
    """The result of the passthrough for a response that arrives in these parts."""

    async def pieces() -> AsyncGenerator[bytes, None]:
        for part in parts:
            yield part

    async def post(body: bytes) -> ResponseBody:
        return ObservedResponse(pieces(), {})

    async def run() -> PassthroughResult:
        assert dialect.passthrough is not None
        relay = HttpPassthrough(dialect, dialect.passthrough, asked, b'{"model":"m"}', name, TURN, post, _unchanged)
        return PassthroughResult([piece async for piece in relay.stream()], list(relay.drain_events()))

    return asyncio.run(run())


def _unchanged(error: DragomanError) -> DragomanError:
    return error


def read(dialect: Dialect, data: bytes, asked: v.Request) -> list[ev.AnyEvent]:
    reader = dialect.reader(asked, TURN)
    return [*reader.feed(data), *reader.close()]


def cut(data: bytes, at: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in at), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


# Compared with parsed events

KNOWN = [c for c in ANSWERS if not c.kind.endswith("bytes")]


def is_well_formed(case: Case) -> bool:
    """Returns whether a response conforms to its API: no warnings, and a proper end."""
    data, passing = upstream_body(case), case.api.passthrough
    events = read(case.api, data, request(case.api))
    if passing is None or any(isinstance(e, ev.Notice | ev.Failure) for e in events):
        return False
    splice = StreamRewriter(passing)
    splice.feed(data)
    splice.close()
    return splice.finished


WELL_FORMED = [c for c in KNOWN if is_well_formed(c)]


def test_cases_have_well_formed_responses_of_each_api() -> None:
    assert {case.dialect for case in WELL_FORMED} == set(dialects.names())
    assert len(WELL_FORMED) > len(KNOWN) / 4


def last_usage(events: Sequence[ev.AnyEvent]) -> list[v.Usage]:
    return [e.usage for e in events if isinstance(e, ev.UsageUpdate)][-1:]


@each(WELL_FORMED)
def test_well_formed_response_is_forwarded_byte_by_byte(case: Case) -> None:
    data, asked = upstream_body(case), request(case.api)
    slow = read(case.api, data, asked)
    for parts in ([data], [data[i : i + 1] for i in range(len(data))]):
        fast = pass_through(case.api, parts, asked)
        assert fast.data == data
        assert all(piece.endswith(b"\n\n") for piece in fast.pieces if piece)
        assert last_usage(fast.told) == last_usage(slow)
        assert isinstance(fast.told[0], ev.Start)
        assert fast.told[-1] == slow[-1] or "finish" in case.title


@each(STREAMS)
def test_stream_of_gateway_is_forwarded_with_end_and_usage(case: Case) -> None:
    data, asked = stream(case), request(case.api)
    failed = "failure" in case.text
    events = read(case.api, data, asked)
    if isinstance(events[0], ev.Failure):
        with pytest.raises(DragomanError, match=events[0].error.message):
            pass_through(case.api, [data], asked)
        return
    fast = pass_through(case.api, [data], asked)
    assert fast.data == data
    assert isinstance(fast.told[-1], ev.Failure if failed else ev.Finish)
    assert last_usage(fast.told) == last_usage(events)


GOOD = [c for c in STREAMS if "failure" not in c.text]


@each(GOOD)
@settings(max_examples=FEWER_EXAMPLES)
@given(at=places)
def test_chunking_and_model_name_do_not_change_forwarded_stream(case: Case, at: list[int]) -> None:
    data, asked = stream(case), request(case.api)
    parts = cut(data, at)
    assert pass_through(case.api, parts, asked).data == data
    renamed = pass_through(case.api, parts, asked, "a/ü")
    assert renamed.data == pass_through(case.api, [data], asked, "a/ü").data
    assert read(case.api, renamed.data, asked) == read(case.api, data, asked)
    assert {json.loads(name) for name in models(renamed.data)} == {"a/ü"}


@pytest.mark.parametrize("size", [1, 3, 10_000])
@pytest.mark.parametrize("line", [b"\r", b"\r\n"])
def test_cr_and_crlf_line_ends_are_accepted(line: bytes, size: int) -> None:
    """A line end may be split between chunks, and a complete event is not buffered until the next one."""
    events = [b'event: e%d\ndata: {"n": "a\\r\\n"}\n\n' % n for n in range(3)]
    data = b"".join(events).replace(b"\n", line)
    passing = dialects.get("openai_chat").passthrough
    assert passing is not None
    splice = StreamRewriter(passing)
    out = b"".join(splice.feed(data[at : at + size]) for at in range(0, len(data), size))
    assert out.replace(line, b"\n") == b"".join(events)


def models(data: bytes) -> set[str]:
    """The model names in a stream, if its API has them."""
    lines = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]
    inner = [line.get("message") or line.get("response") or line for line in lines]
    return {json.dumps(one["model"]) for one in inner if isinstance(one, dict) and "model" in one}


@each(GOOD)
@settings(max_examples=FEWER_EXAMPLES)
@given(at=places, where=st.integers(0, 10_000))
def test_truncated_stream_ends_with_error(case: Case, at: list[int], where: int) -> None:
    """A stream may be truncated anywhere, except after its last event."""
    data, asked = stream(case), request(case.api)
    part = data[: where % len(data)]
    try:
        fast = pass_through(case.api, cut(part, at), asked)
    except DragomanError:
        assert b"\n\n" not in part
        return
    whole_events = part[: part.rfind(b"\n\n") + 2] if b"\n\n" in part else b""
    assert fast.data.startswith(whole_events)
    assert all(json.loads(line[6:]) for line in fast.data.splitlines() if line[:7] == b"data: {")
    assert fast.data.endswith(b"\n\n")
    slow = read(case.api, fast.data, asked)
    assert type(slow[-1]) is type(fast.told[-1])
    assert type(fast.told[-1]) in {type(read(case.api, came, asked)[-1]) for came in (part, whole_events)}


def test_unrequested_usage_is_removed() -> None:
    chat = dialects.get("openai_chat")
    events: list[ev.AnyEvent] = [
        ev.Start("1", "m", 7),
        ev.TextDelta('"choices":[] "usage":{'),
        ev.UsageUpdate(v.Usage(3, 1)),
        ev.Finish("stop"),
    ]
    data, without = (b"".join(map(chat.writer(request(chat, usage=usage)).feed, events)) for usage in (True, False))
    fast = pass_through(chat, [data], request(chat, usage=False))
    assert fast.data.replace(b',"usage":null', b"") == without
    assert last_usage(fast.told) == [v.Usage(3, 1)]


def test_only_ends_of_long_chunk_are_parsed() -> None:
    for dialect in map(dialects.get, dialects.names()):
        assert dialect.passthrough is not None
        events = [ev.Start("1", "m", 7, 5), *[ev.TextDelta("words ")] * 500, ev.UsageUpdate(v.Usage(5, 9))]
        writer = dialect.writer(request(dialect))
        data = b"".join(map(writer.feed, [*events, ev.Finish("stop")]))
        splice = StreamRewriter(dialect.passthrough)
        assert splice.feed(data) == data
        assert sum(map(len, splice.boundary_events())) < len(data) / 4
        assert last_usage(read(dialect, b"".join(splice.boundary_events()), request(dialect))) == [v.Usage(5, 9)]


def test_replace_model_name_changes_nothing_else() -> None:
    data = b'{"id": "1",  "x": 1.50, "big": 9223372036854775808123, "model": "m", "tools": [{"model": "m"}]}'
    assert (
        replace_model_name(data, "n")
        == b'{"id":"1","x":1.50,"big":9223372036854775808123,"model":"n","tools":[{"model": "m"}]}'
    )
    assert (
        replace_model_name(b'{"type": "x", "message": {"model": "m"}}', "n", "message")
        == b'{"type":"x","message":{"model":"n"}}'
    )
    for other in (b'{"delta": {"model": "m"}}', b'{"model": ', b"[1]"):
        assert replace_model_name(other, "n", "message") == other


# Whole replies


@each([c for c in CASES if c.kind.startswith("whole") and "custom" not in c.kind])
def test_complete_response_is_forwarded_verbatim(case: Case) -> None:
    data, asked = whole_body(case), request(case.api, streams=False)
    fast = pass_through(case.api, [data[:7], data[7:]], asked)
    assert fast.data == data
    assert fast.told == read(case.api, data, asked)
    other = pass_through(case.api, [data], asked, "other")
    assert json.loads(other.data) == {**json.loads(data), "model": "other"}


@each(GOOD)
def test_unrequested_stream_is_collected(case: Case) -> None:
    data, asked = stream(case), request(case.api, streams=False)
    fast = pass_through(case.api, [data], asked)
    assert json.loads(fast.data) == json.loads(
        case.api.write_reply(collect(read(case.api, data, asked), case.dialect), asked)
    )


@each([c for c in CASES if c.kind.startswith("whole") and "custom" not in c.kind])
def test_complete_response_to_stream_request_is_streamed(case: Case) -> None:
    data, asked = whole_body(case), request(case.api)
    fast = pass_through(case.api, [data], asked)
    assert type(read(case.api, fast.data, asked)[-1]) is ev.Finish
