"""The pieces of a model's text, in every format: joined they are the text, and each call has its name and arguments."""

import json
import random
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import formats
from dragoman.api.case_file import TOOLS, load_cases
from dragoman.console.exchange.lanes.argument_repairs import argument_segments
from dragoman.console.exchange.lanes.model_lane import _of_spans
from dragoman.server.capture.explanation import explain_text
from dragoman.server.capture.replay_backend import ReadSettings
from support import cpu_cost
from support.paths import DATA

FORMATS = [name for name in formats.names() if (DATA / "formats" / f"{name}.txt").exists()]


@pytest.mark.parametrize("most", [3, pytest.param(10_000, marks=pytest.mark.every)])
def test_pieces_of_each_format_are_the_text(most: int) -> None:
    calls = named = 0
    for name in FORMATS:
        cases = [
            case
            for case in load_cases(DATA / "formats" / f"{name}.txt", formats.get(name))
            if case.options.get("tools") != "any"
        ]
        for case in cases[:most]:
            options = case.reader_options()
            read = ReadSettings(case.call_format, TOOLS, options.prompt_suffix, options.lenient)
            explained = explain_text(1, 1, case.text, read, is_cut=case.reason == "length")
            pieces = list(_of_spans(explained.spans, explained.reader))
            assert "".join(piece.text for piece in pieces) == case.text, (name, case.title)
            calls += sum(span.kind == "call" for span in explained.spans)
            named += sum(piece.kind == "name" for piece in pieces)
    assert calls > len(FORMATS)
    assert named >= calls - 1  # one text has a call whose name another call wrote


@pytest.mark.parametrize(
    ("raw", "arguments", "repaired"),
    [
        ("{'a': 1}", '{"a": 1}', ["'", "'"]),
        ('{"a": True}', '{"a": true}', ["T"]),
        ('{"a": 1,}', '{"a": 1}', [","]),
        ('{"a": 1}', '{"a": 1}', []),
        (' {"a": 1}\n', '{"a": 1}', []),
        ("<a>1</a>", '{"a": 1}', []),
        ('{path: "x"}', '{"path": "x"}', ["", ""]),
        ('{"a": 1', '{"a": 1}', [""]),
        ("{'a': 'é', b: None}", '{"a": "é", "b": null}', ["'", "'", "'", "'", "b", "None"]),
    ],
)
def test_repaired_parts_of_arguments_are_marked(raw: str, arguments: str, repaired: list[str]) -> None:
    found = argument_segments(raw, arguments, "call:0", [])
    assert "".join(segment.text for segment in found) == raw
    assert [segment.text for segment in found if segment.kind == "repair"] == repaired


@pytest.mark.parametrize("shape", ["quotes", "alternating", "different", "random"])
def test_cost_of_repairs_is_linear(shape: str) -> None:
    def made(size: int) -> Callable[[], object]:
        names = [f"x{n}" for n in range(size // 6)]
        bits = random.Random(size)
        old, new = {
            "quotes": (str(names), json.dumps(names)),
            "alternating": ("ab" * (size // 2), "ac" * (size // 2)),
            "different": ("a" * size, "b" * size),
            "random": ("".join(bits.choices("ab", k=size)), "".join(bits.choices("ab", k=size))),
        }[shape]
        return partial(argument_segments, f"[{old}]", f"[{new}]", "call:0", [])

    assert cpu_cost.growth(made, 900, 3_600, most=2.5) <= 2.5


@given(st.text("ab{}\"',: ", max_size=60), st.text("ab{}\"',: ", max_size=60))
def test_repaired_arguments_are_whole(raw: str, arguments: str) -> None:
    found = argument_segments(f"{{{raw}", f"{{{arguments}", "call:0", [])
    assert "".join(segment.text for segment in found) == f"{{{raw}"
