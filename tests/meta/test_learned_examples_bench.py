"""The recorded answers with learned examples have the results that docs/accuracy.md states."""

from bench.learned_examples.__main__ import is_right, load_cases, load_recording

from dragoman.core.messages import ToolCall
from support.paths import ROOT


def test_page_states_the_recorded_results() -> None:
    expected = {prompt.ask: (case.name, prompt.arguments) for case in load_cases() for prompt in case.prompts}
    right = {0: 0, 1: 0, 3: 0}
    for each in load_recording():
        calls = [ToolCall("call_1", name, arguments) for name, arguments in each.calls]
        assert is_right(calls, *expected[each.ask]) == each.is_right
        right[each.examples] += each.is_right
    assert len(expected) == 20
    page = " ".join((ROOT / "docs" / "accuracy.md").read_text().split())
    assert f"{right[0]} of 20 calls are right without, {right[1]} with one and {right[3]} with three examples" in page
