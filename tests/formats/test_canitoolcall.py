"""The neutral fixtures of canitoolcall, checked by that project's own checks, with each of its chunkings and every cut.

Each fixture is one completion and the result that an engine should parse from it. An incomplete call does not count, as
for a client that honours `ToolCallIncomplete`. The fixtures contain token ids but no tokenizer, so a
pattern approximates the tokens.
"""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import Any

import pytest
from canitoolcall.checks import run_checks
from canitoolcall.chunking import ChunkStrategy
from canitoolcall.fixtures import Fixture, load_fixtures
from canitoolcall.results import Observation, Status

from dragoman.core import events as ev
from dragoman.parsing.reader_options import ReaderBuffering
from support.canitoolcall_suite import events, families, pieces, result
from support.check_each import check_each
from support.sampling import exhaustive, positions, sample

STREAMED_DIFFERENTLY = {
    "llama/l4-truncated-missing-close-bracket": "the first call of a list is already sent when the list is cut off",
}
"""Fixtures with a different result for `buffering="off"`, and the reason; with "all" there are none."""
WHITESPACE_ONLY = {"gemma4/vllm-text-before-call": "keeps a blank before a call, as two others of the family want it"}
"""Fixtures whose content differs only in leading or trailing white space."""
STRATEGIES = ("one", "special", "token", *(f"rand:{seed}:8" for seed in range(1, 6)), "char:0")
LONG_CHARS = 200
"""In `make test-all`, a longer text is cut at an eighth of the positions."""
FIXTURES = {
    family: list(fixtures)
    for family, fixtures in groupby(sorted(load_fixtures(), key=attrgetter("family")), attrgetter("family"))
}
each_family = pytest.mark.parametrize("family", FIXTURES)


def joined(out: Iterable[ev.AnyEvent]) -> list[tuple[Any, ...]]:
    """Returns the events as tuples, with adjacent deltas joined."""
    lines: list[tuple[Any, ...]] = []
    for event in out:
        kind, rest = type(event), tuple(getattr(event, name) for name in event.__struct_fields__)
        if kind in (ev.TextDelta, ev.ReasoningDelta) and lines and lines[-1][0] is kind:
            lines[-1] = (kind, lines[-1][1] + rest[0], *rest[1:])
        elif kind is ev.ToolCallDelta and lines[-1][:2] == (kind, rest[0]):
            lines[-1] = (kind, rest[0], lines[-1][2] + rest[1])
        else:
            lines.append((kind, *rest))
    return lines


@each_family
@pytest.mark.parametrize("buffering", ["off", "all"])
def test_fixture_passes_suite_checks(family: str, buffering: ReaderBuffering, subtests: pytest.Subtests) -> None:
    def check(fixture: Fixture) -> None:
        cut = {
            name: pieces(fixture, ChunkStrategy.parse(name))
            for name in sample(STRATEGIES, 2, f"{fixture.id} {buffering}")
        }
        streams = {name: result(events(fixture, parts, buffering)) for name, parts in cut.items()}
        observation = Observation(result(events(fixture, [fixture.raw_output], buffering)), streams)
        rows = run_checks(fixture, families()[fixture.family], observation)
        good = (Status.PASS, Status.SOFT_PASS) if fixture.id in WHITESPACE_ONLY else (Status.PASS,)
        failed = [row for row in rows if row.status not in good]
        assert rows
        assert bool(failed) == (buffering == "off" and fixture.id in STREAMED_DIFFERENTLY), failed

    check_each(subtests, FIXTURES[family], check, attrgetter("id"))


@each_family
def test_chunk_boundaries_do_not_change_events(family: str, subtests: pytest.Subtests) -> None:
    def check(fixture: Fixture) -> None:
        text = fixture.raw_output
        whole = joined(events(fixture, [text]))
        step = 8 if exhaustive() and len(text) > LONG_CHARS else 1
        for at in positions(text, len(text))[::step]:
            assert joined(events(fixture, [text[:at], text[at:]])) == whole, f"cut at {at}"

    check_each(subtests, FIXTURES[family], check, attrgetter("id"))
