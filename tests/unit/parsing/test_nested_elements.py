"""Nested elements: the depth limit, and how strings in them are written."""

import pytest

from dragoman import formats
from dragoman.core.messages import ToolCall
from dragoman.parsing.shapes.nested.elements import DEPTH_LIMIT
from support.format_cases import Case, shown

MARK = "]<]minimax[>["


@pytest.mark.parametrize(("levels", "whole"), [(DEPTH_LIMIT, True), (DEPTH_LIMIT + 1, False), (5_000, False)])
def test_nesting_depth_is_limited(levels: int, whole: bool) -> None:
    nested = f"{MARK}<a>" * levels + "1" + f"{MARK}</a>" * levels
    case = Case("minimax_m3", "", f'{MARK}<invoke name="ping">{nested}{MARK}</invoke>', [])
    events = shown(case.read([case.text]))
    if whole:
        assert events == ["call ping " + '{"a": ' * levels + "1" + "}" * levels]
    else:
        assert events[0].startswith("incomplete ping")
        assert events[1] == "warning malformed_arguments"


def test_nested_strings_are_written_raw() -> None:
    """The vendor's template writes them raw at any depth; the schema distinguishes them from numbers."""
    call = formats.get("minimax_m3").write_call(ToolCall("", "f", '{"a": ["1", {"b": "null"}, 1]}'))
    items = [f"{MARK}<item>{inside}{MARK}</item>" for inside in ("1", f"{MARK}<b>null{MARK}</b>", "1")]
    assert f"{MARK}<a>{''.join(items)}{MARK}</a>" in call
