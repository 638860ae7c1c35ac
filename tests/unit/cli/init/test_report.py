"""Texts of `dragoman init`: wrapped lines, and notes."""

import pytest

from dragoman.backends.http.config import HttpConfig
from dragoman.cli.init.choices import list_choices
from dragoman.cli.init.machine import FoundServer, Machine
from dragoman.cli.init.report import NextStep, format_steps, found_lines, notes, wrap


@pytest.mark.parametrize(
    ("line", "wrapped"),
    [
        ("  models    one, two, three", "  models    one,\n            two,\n            three"),
        ("  # one two three four five", "  # one two three\n  # four five"),
        ("# one two three four five", "# one two three\n# four five"),
        ("one two three four five", "one two three four\nfive"),
        ("   1  name  a b c d e f g h", "   1  name  a b c d\n      e f g h"),
    ],
)
def test_lines_are_wrapped_in_their_last_column(line: str, wrapped: str) -> None:
    assert wrap(line, 19) == wrapped
    assert wrap(line, None) == line


def test_steps_are_in_two_columns_where_they_fit() -> None:
    steps = [NextStep("dragoman run claude", "start it"), NextStep("dragoman serve", "serve")]
    assert [*format_steps(steps, 80)] == ["  dragoman run claude  start it", "  dragoman serve       serve"]
    assert [*format_steps(steps[:1], 20)] == ["  dragoman run claude", "      start it"]


def test_many_models_of_a_server_are_shortened() -> None:
    server = FoundServer("vllm", "vLLM", HttpConfig(url="http://127.0.0.1:8000/v1"), tuple("abcdef"))
    assert (
        found_lines(Machine((server,)))[1] == "  model servers  vLLM at http://127.0.0.1:8000/v1: a, b, c, d and 2 more"
    )


def test_notes_name_a_larger_model_if_the_chosen_one_is_too_small() -> None:
    machine = Machine()
    small = next(choice for choice in list_choices(machine) if choice.name == "smollm2-135m")
    assert notes(machine, small) == [
        "smollm2-135m is too small for agents; for them: dragoman init --force --model qwen2.5-coder-1.5b"
    ]
    assert notes(machine, list_choices(machine)[0]) == []
