"""Feedback to the model about a call stays short for names of any length."""

import pytest

from dragoman.core.messages import ToolChoice
from dragoman.guard import feedback
from dragoman.guard.validation.violations import MAX_VALUE_CHARS

LONG = "x" * 1_000_000


@pytest.mark.parametrize(
    "told",
    [
        feedback.unknown_tool(LONG, ["ping"]),
        feedback.unreadable_call(LONG),
        feedback.invalid_arguments(LONG, ()),
        feedback.repeated_call(LONG, 3, ToolChoice()),
        feedback.replacement_text(LONG, "no tool"),
    ],
    ids=["unknown", "unread", "invalid", "looping", "instead"],
)
def test_long_name_is_truncated(told: str) -> None:
    assert "x" * (MAX_VALUE_CHARS // 2) in told
    assert "…" in told
    assert len(told) < 400


@pytest.mark.parametrize(
    ("offered", "listed"),
    [
        ([], "The tools are: . Answer"),
        (["ping", "get_news"], "The tools are: ping, get_news."),
        (["a"] * feedback.MAX_NAMES, f"{', '.join(['a'] * feedback.MAX_NAMES)}."),
        (["a"] * (feedback.MAX_NAMES + 1), f"{', '.join(['a'] * feedback.MAX_NAMES)}, …."),
        (["ping", LONG, "get_news"], "The tools are: ping, …."),
        ([LONG], "The tools are: …."),
        (["y" * 64] * 40, f"{', '.join(['y' * 64] * (feedback.MAX_NAMES_CHARS // 64))}, …."),
    ],
)
def test_tool_list_is_truncated(offered: list[str], listed: str) -> None:
    told = feedback.unknown_tool("pong", offered)
    assert told.startswith("There is no tool pong. The tools are: ")
    assert listed in told
