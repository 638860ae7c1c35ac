"""Opaque text in blocks, and assistant messages split into calls and results."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core import messages as v
from dragoman.redaction.opaque_text import opaque, read_opaque
from dragoman.vendor_tools.codec import TurnBuilder, string_argument


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_opaque_text_is_read_back(text: str) -> None:
    assert read_opaque(opaque(text)) == text
    assert opaque(text).isascii()


@pytest.mark.parametrize(
    "value", ["", "EuUCClkIBhgCKkA=", "dragoman.text.1.%%%", "dragoman.text.1.abc", opaque("é")[:-5]]
)
def test_other_text_is_not_read(value: str) -> None:
    assert read_opaque(value) is None


def test_turn_is_split_after_results() -> None:
    message = v.Message("assistant", ())
    turn = TurnBuilder(message)
    parts: list[v.Part] = [v.Text("a"), v.ToolCall("1", "web_search", "{}"), v.ToolCall("2", "web_search", "{}")]
    for part in parts:
        turn.add(part)
    turn.add_result("1", "one", is_error=False)
    turn.add_result("2", "two", is_error=True)
    turn.add(v.Text("b"))
    first, results, last = turn.messages()
    assert first == v.Message("assistant", tuple(parts))
    assert results.role == "tool"
    assert results.parts == (
        v.ToolResult("1", (v.Text("one"),)),
        v.ToolResult("2", (v.Text("two"),), is_error=True),
    )
    assert last == v.Message("assistant", (v.Text("b"),))


@pytest.mark.parametrize(("arguments", "value"), [('{"query": "x"}', "x"), ('{"query": 1}', ""), ("{}", "")])
def test_string_argument(arguments: str, value: str) -> None:
    assert string_argument(arguments, "query") == value
