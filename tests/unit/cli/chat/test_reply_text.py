"""Text of a model for a terminal: wrapping, colours, and chunks of any size."""

import re

import pytest

from dragoman.cli.chat.reply_text import Palette, ReplyText

PLAIN, COLOURS = Palette(on=False), Palette(on=True)
MARKDOWN = """# Plan

Use `git rebase` and **not** `merge`, 2**3 times.

- a first point that is long enough to be wrapped
1. a second one

```python
def a_function_with_a_long_line(first, second, third):
```
"""


def shown(text: str, columns: int = 80, palette: Palette = PLAIN, style: str = "") -> str:
    reply = ReplyText(columns, palette, style)
    return reply.feed(text) + reply.close()


def test_long_line_is_wrapped_between_words() -> None:
    assert shown("one two three four five six", 21) == "one two three four\nfive six"


def test_list_item_is_wrapped_with_indentation() -> None:
    assert shown("- one two three four five", 21) == "- one two three four\n  five"
    assert shown("12. one two three four five", 21) == "12. one two three\n    four five"


def test_fenced_code_is_not_wrapped() -> None:
    code = "```\nx = one + two + three + four + five\n```\n"
    assert shown(code, 21) == code


def test_wide_characters_count_twice() -> None:
    assert shown("日本語日本語日本語日本語", 21) == "日本語日本語日本語日\n本語"


def test_text_without_colours_is_unchanged() -> None:
    assert shown(MARKDOWN, 100) == MARKDOWN


def test_markdown_is_coloured_and_keeps_its_characters() -> None:
    text = shown(MARKDOWN, 100, COLOURS)
    assert re.sub(r"\x1b\[[\d;]*m", "", text) == MARKDOWN
    for part in ("\x1b[1m#\x1b[0m \x1b[1mPlan\x1b[0m", "\x1b[36mgit\x1b[0m \x1b[36mrebase\x1b[0m", "\x1b[1mnot\x1b[0m"):
        assert part in text
    assert "\x1b[2m```python\x1b[0m" in text
    assert "\x1b[36mdef\x1b[0m" in text


def test_style_of_whole_text_replaces_markdown() -> None:
    assert shown("**so**", palette=COLOURS, style="2") == "\x1b[2m**so**\x1b[0m"


@pytest.mark.parametrize("size", [1, 2, 7])
def test_chunks_do_not_change_the_text(size: int) -> None:
    reply = ReplyText(40, COLOURS)
    pieces = [MARKDOWN[at : at + size] for at in range(0, len(MARKDOWN), size)]
    assert "".join(map(reply.feed, pieces)) + reply.close() == shown(MARKDOWN, 40, COLOURS)


def test_control_characters_are_escaped_and_tabs_are_blanks() -> None:
    assert shown("a\tb\x1b[31m\r\nc") == "a    b\\x1b[31m\nc"
