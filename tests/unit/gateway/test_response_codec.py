"""Stored messages are read back as they were, with their unparsed JSON byte for byte."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core import messages as v
from dragoman.gateway.storage import response_codec

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
RAW = st.sampled_from([b'{"b" : 1.50, "a":[ ]}', b'"\\u00e9"', b"1e400", b"null", '"\u2028"'.encode()]).map(msgspec.Raw)
EXTRA = st.dictionaries(TEXTS, RAW, max_size=2)
SOURCES = st.builds(v.MediaSource, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS)
UNKNOWN = st.builds(v.UnknownPart, TEXTS, RAW, TEXTS, TEXTS)
RESULT_PARTS = st.one_of(
    st.builds(v.Text, TEXTS, EXTRA),
    st.builds(v.Image, SOURCES, EXTRA),
    st.builds(v.Document, SOURCES, TEXTS, EXTRA),
    st.builds(v.Audio, SOURCES, EXTRA),
    UNKNOWN,
)
PARTS = st.one_of(
    RESULT_PARTS,
    st.builds(v.Reasoning, TEXTS, TEXTS, TEXTS, EXTRA),
    st.builds(v.Refusal, TEXTS, EXTRA),
    st.builds(v.ToolCall, TEXTS, TEXTS, TEXTS, EXTRA),
    st.builds(v.ToolResult, TEXTS, st.lists(RESULT_PARTS, max_size=2).map(tuple), st.booleans(), EXTRA),
    st.builds(v.PreviousResponseRef, TEXTS, st.none() | st.integers(0, 9), TEXTS),
)
MESSAGES = st.builds(
    v.Message, st.sampled_from(["user", "assistant", "tool"]), st.lists(PARTS, max_size=3).map(tuple), EXTRA, TEXTS
)


@given(st.lists(MESSAGES, max_size=3).map(tuple), st.lists(st.none() | PARTS, max_size=3).map(tuple))
def test_messages_and_parts_survive_encoding(messages: tuple[v.Message, ...], parts: tuple[v.Part | None, ...]) -> None:
    assert response_codec.decode(response_codec.encode(messages, parts)) == (messages, parts)


@pytest.mark.parametrize(
    "written", [b"", b"{}", b"[[],[]", b'[[],[["Video",{}]]]', b'[[["user",[["Text",{}]],{},""]],[]]']
)
def test_foreign_encoding_is_rejected(written: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        response_codec.decode(written)
