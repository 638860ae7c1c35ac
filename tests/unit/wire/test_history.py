"""Conversations that servers would reject are repaired."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core import messages as v
from dragoman.wire.history import NO_RESULT, repair_history
from support.paths import DATA

CONVERSATIONS = DATA / "conversations.txt"
CASES = [block.partition("\n") for block in re.split(r"^# ", CONVERSATIONS.read_text(), flags=re.M)[1:]]


def read(line: str) -> v.Message:
    role, _, rest = line.partition(" ")
    return v.Message(role, tuple(part(word) for word in re.findall(r'"[^"]*"|\S+', rest)))  # type: ignore[arg-type]


def part(word: str) -> v.Part:
    kind, _, id = word.partition(":")
    if kind == "call":
        return v.ToolCall(id, "f", "{}")
    if kind == "result":
        return v.ToolResult(id, (v.Text(f"of {id.partition('_')[0]}"),))
    return v.ToolResult(id, (v.Text(NO_RESULT),), is_error=True) if kind == "error" else v.Text(json.loads(word))


@pytest.mark.parametrize("text", [rest for _, _, rest in CASES], ids=[title for title, _, _ in CASES])
def test_conversation_case_is_repaired(text: str) -> None:
    given_lines, expected = (block.strip("\n").splitlines() for block in text.split("\n---\n"))
    messages = tuple(map(read, given_lines))
    mended, warnings = repair_history(messages)
    if expected == ["as it is"]:
        assert (mended, warnings) == (messages, ())
        return
    assert mended == tuple(map(read, expected[:-1]))
    assert [w.message for w in warnings] == [expected[-1].removeprefix("mended ")]


PARTS = st.lists(
    st.sampled_from(("call:a", "call:b", "result:a", "result:b", "result:c", '"x"')).map(part), max_size=3
).map(tuple)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[v.Message, ...]:
    messages = []
    for role in draw(st.lists(st.sampled_from(("user", "assistant", "tool")), max_size=6)):
        parts = draw(PARTS)
        unwanted = v.ToolResult if role == "assistant" else v.ToolCall
        kept = tuple(p for p in parts if not isinstance(p, unwanted))
        messages.append(v.Message(role, kept))  # type: ignore[arg-type]
    return tuple(messages)


@given(conversations())
def test_repair_is_idempotent_and_keeps_all_text(messages: tuple[v.Message, ...]) -> None:
    mended, warnings = repair_history(messages)
    assert repair_history(mended) == (mended, ())
    assert bool(warnings) == (mended != messages)
    before, after = (sorted(texts_of(m)) for m in (messages, mended))
    assert all(after.count(word) >= before.count(word) for word in set(before))


def texts_of(messages: tuple[v.Message, ...]) -> list[str]:
    """Returns all text, result text and tool names of the messages."""
    found = []
    for message in messages:
        for one in message.parts:
            match one:
                case v.Text(text):
                    found.append(text)
                case v.ToolResult(_, inner):
                    found += [p.text for p in inner if isinstance(p, v.Text)]
                case v.ToolCall(_, name):
                    found.append(name)
    return found


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ('{"a": "b"', {"a": "b"}),
        ('{"a": [1, {"b": 2', {"a": [1, {"b": 2}]}),
        ('{"a": "b', {"a": "b"}),
        ("{'a': True,}", {"a": True}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ("", {}),
        ("null", {}),
        ('{"a": tru', {"input": '{"a": tru'}),
        ("[1]", {"input": "[1]"}),
        ("rm -r x", {"input": "rm -r x"}),
    ],
)
def test_arguments_of_past_call_become_object(given: str, sent: object) -> None:
    call, result = v.ToolCall("c", "f", given), v.ToolResult("c", (v.Text("ok"),))
    (said, _), warnings = repair_history((v.Message("assistant", (call,)), v.Message("tool", (result,))))
    (part,) = said.parts
    assert isinstance(part, v.ToolCall)
    assert json.loads(part.arguments) == sent
    assert [warning.code for warning in warnings] == ["json_repaired"]
