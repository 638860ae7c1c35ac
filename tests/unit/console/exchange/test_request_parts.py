"""Requests as parts: nothing of a body is lost, and a difference is named where it breaks prompt caches."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.console.exchange.lanes.request_diff import first_difference, request_blocks
from dragoman.console.exchange.lanes.request_parts import MAX_DEPTH, ParsedRequest, parse_request
from dragoman.console.exchange.views import MAX_BLOCKS, MAX_SEGMENT_CHARS, lane, segments
from support import cpu_cost
from support.recorded_requests import RECORDED

SYSTEM = {"role": "system", "content": "You are terse. Today is Thursday."}
USER = {"role": "user", "content": "How is it in Mallorca?"}
ANSWER = {"role": "assistant", "content": "Sunny."}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}


def parsed(**fields: Any) -> ParsedRequest:
    found = parse_request(json.dumps({"model": "m", "tools": [TOOL], "messages": [SYSTEM, USER], **fields}).encode())
    assert found is not None
    return found


def leaves(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for name, each in value.items():
                if name not in ("type", "role"):  # titles and kinds have these
                    yield from leaves(each)
        case list():
            for each in value:
                yield from leaves(each)
        case _:
            pass


def is_in(leaf: str, text: str) -> bool:
    return leaf in text or json.dumps(leaf, ensure_ascii=False)[1:-1] in text


def test_requests_of_real_clients_are_complete_and_same_as_themselves() -> None:
    for name, sent in RECORDED.items():
        request = parse_request(sent.body)
        assert request is not None, name
        text = "".join(part.title + part.text + "".join(s.text for s in part.segments) for part in request.all)
        for leaf in leaves(json.loads(sent.body)):
            assert is_in(leaf, text) or is_in(leaf[:60], text), name
        compared = request_blocks(request, parse_request(sent.body))
        assert compared.cache_note == "", name
        assert {block.change for block in compared.blocks} == {"same"}, name


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)
PART = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image", "function", "?"])},
    optional={name: JSON for name in ("text", "name", "input", "content", "thinking", "function", "arguments", "id")},
)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "role": JSON,
        "content": JSON | st.lists(PART, max_size=3),
        "tool_calls": JSON | st.lists(PART, max_size=2),
    },
)


@given(
    st.dictionaries(st.sampled_from(["messages", "input", "tools", "system", "model"]), JSON | st.lists(MESSAGE | PART))
)
def test_any_body_is_whole(fields: dict[str, Any]) -> None:
    request = parse_request(json.dumps(fields).encode())
    if request is None:  # half a surrogate pair: the body is shown as it is
        return
    text = "".join(part.title + "".join(s.text for s in part.segments) for part in request.all)
    for leaf in leaves(fields):
        assert is_in(leaf, text), leaf
    request_blocks(request, request)


@pytest.mark.parametrize("calls", [5, True, 0, "call", {"id": "call_1"}, [5, ["x"]]])
def test_calls_of_another_type_are_shown(calls: Any) -> None:
    request = parsed(messages=[{**ANSWER, "tool_calls": calls}])
    [block] = [block for block in request_blocks(request).blocks if block.link == "message:0"]
    text = "".join(segment.text for segment in block.segments)
    assert text.startswith("Sunny.")
    for leaf in leaves(calls):
        assert leaf in text
    assert ("tool_calls" in text) is not isinstance(calls, list)


@pytest.mark.parametrize("place", ["messages", "tools", "extra"])
def test_request_of_great_depth_is_not_parsed(place: str) -> None:
    nested: Any = "x"
    for _ in range(MAX_DEPTH // 2):
        nested = [{"": nested}]
    request = parsed(**{place: nested[0][""]})
    request_blocks(request, request)
    body = json.dumps({place: [nested]}).encode()
    assert parse_request(body) is None
    for count in (500, 900, 100_000):
        assert parse_request(b'{"extra": %b}' % (b"[" * count + b"]" * count)) is None


def test_addition_at_the_end_keeps_the_cache() -> None:
    compared = request_blocks(parsed(messages=[SYSTEM, USER, ANSWER, USER]), parsed())
    assert compared.cache_note == ""
    assert [block.change for block in compared.blocks] == ["same", "same", "same", "same", "added", "added"]


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"model": "n"}, "the model changed from m to n"),
        ({"tools": [TOOL, {"name": "Bash"}]}, "the tools changed: Bash was added"),
        ({"tools": []}, "the tools changed: get_weather was removed"),
        (
            {"tools": [{**TOOL, "strict": True}]},
            "the tools changed: the definition of get_weather differs at character",
        ),
        (
            {"messages": [{**SYSTEM, "content": "You are terse. Today is Friday."}, USER]},
            "the system prompt changed at",
        ),
        ({"messages": [SYSTEM]}, "message user 1 was removed"),
        (
            {"messages": [SYSTEM, {**USER, "content": "How is it in Menorca?"}]},
            "message user 1 changed at character 14",
        ),
        ({"messages": [SYSTEM, ANSWER, USER]}, "message assistant 1 was inserted before others"),
    ],
)
def test_what_broke_the_cache_is_named(change: dict[str, Any], note: str) -> None:
    compared = request_blocks(parsed(**change), parsed())
    assert compared.cache_note.startswith(note)
    assert compared.cache_note.endswith("prompt caches lose everything after that")
    assert {"added", "changed", "removed"} & {block.change for block in compared.blocks}


def test_order_of_tools_breaks_the_cache() -> None:
    bash = {"name": "Bash"}
    note = request_blocks(parsed(tools=[bash, TOOL]), parsed(tools=[TOOL, bash])).cache_note
    assert note.startswith("the tools changed their order: Bash is at another place")


def test_marks_of_caches_may_move() -> None:
    marked = {**USER, "content": [{"type": "text", "text": USER["content"], "cache_control": {"type": "ephemeral"}}]}
    compared = request_blocks(parsed(messages=[SYSTEM, USER, ANSWER]), parsed(messages=[SYSTEM, marked]))
    assert compared.cache_note == ""


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("Today is 2026-11-26.", "Today is 2026-11-27.", "a date or time, '2026-11-26.' became '2026-11-27.'"),
        ("at 10:59 sharp", "at 11:00 sharp", "a date or time, '10:59 sharp' became '11:00 sharp'"),
        ("id req_0123456789abcdef", "id req_0123456789abcdee", "an id, 'req_0123456789abcdef' became"),
        ("a word", "a wort", "at character 5: 'word' became 'wort'"),
        ("short", "shorter", "at character 5: 'short' became 'shorter'"),
    ],
)
def test_first_difference_names_what_changed(old: str, new: str, what: str) -> None:
    assert what in first_difference(old, new)


def test_long_texts_and_lanes_are_shortened_visibly() -> None:
    first, gap, last = segments("a" * MAX_SEGMENT_CHARS + "b" * 10, "text", "message:0")
    assert len(first.text + last.text) == MAX_SEGMENT_CHARS
    assert last.text.endswith("b")
    assert gap.notes[0].message == "10 characters are left out here"
    messages = [{"role": "user", "content": f"message {n}"} for n in range(3 * MAX_BLOCKS)]
    blocks = request_blocks(parsed(messages=messages)).blocks
    assert len(blocks) == MAX_BLOCKS + 1
    assert len(lane("client", "", "", blocks).blocks) == MAX_BLOCKS + 1
    assert blocks[-1].title == f"user {3 * MAX_BLOCKS - 1}"
    assert f"{2 * MAX_BLOCKS + 2:,} parts" in blocks[MAX_BLOCKS // 2].segments[0].notes[0].message


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("abcd", "abxcd", "same same added same same"),
        ("abcd", "acd", "same removed same same"),
        ("abcd", "axcyd", "same changed same added same"),
        ("abcd", "dabc", "added same same same removed"),
        ("aaab", "aab", "same same removed same"),
        ("abab", "xabab", "added same same same same"),
    ],
)
def test_messages_are_aligned(old: str, new: str, changes: str) -> None:
    one, other = (parsed(messages=[{"role": "user", "content": each} for each in text]) for text in (old, new))
    blocks = request_blocks(other, one).blocks
    assert " ".join(block.change for block in blocks if "user" in block.title) == changes


@pytest.mark.parametrize("other", ["every second message", "all in reverse", "all the same"])
def test_cost_of_comparison_is_linear(other: str) -> None:
    def made(size: int) -> Callable[[], object]:
        numbers = {
            "every second message": [n if n % 2 else -n for n in range(1, size)],
            "all in reverse": [*reversed(range(size))],
            "all the same": [size] * size,
        }[other]
        old = [{"role": "user", "content": f"{n}"} for n in range(size)]
        new = [{"role": "user", "content": f"{n}"} for n in numbers]
        return lambda: request_blocks(parsed(messages=new), parsed(messages=old))

    assert cpu_cost.growth(made, 1_000, 4_000, most=2.5) <= 2.5
