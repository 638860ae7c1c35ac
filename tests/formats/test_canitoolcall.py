"""The neutral fixtures of canitoolcall, by that project's own checks, in every buffering of its own and in every cut.

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

OTHERWISE_STREAMED = {
    "llama/l4-truncated-missing-close-bracket": "the first call of a list has gone out long before the list is cut off",
}
"""Fixtures that come out otherwise with `buffering="off"`, and why; with "all" there are none."""
SPACED = {"gemma4/vllm-text-before-call": "keeps a blank before a call, as two others of the family want it"}
"""Fixtures whose content is the same but for white space at its ends."""
STRATEGIES = ("one", "special", "token", *(f"rand:{seed}:8" for seed in range(1, 6)), "char:0")
EVERY_CUT_CHARS = 400
"""Up to this length a text is cut at every place in `make test-all`; a longer one at every seventh."""
FIXTURES = {
    family: list(fixtures)
    for family, fixtures in groupby(sorted(load_fixtures(), key=attrgetter("family")), attrgetter("family"))
}
each_family = pytest.mark.parametrize("family", FIXTURES)


def joined(out: Iterable[ev.AnyEvent]) -> list[tuple[Any, ...]]:
    """Events with neighbouring deltas made one."""
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
def test_is_read_as_expected(family: str, buffering: ReaderBuffering, subtests: pytest.Subtests) -> None:
    def check(fixture: Fixture) -> None:
        cut = {
            name: pieces(fixture, ChunkStrategy.parse(name))
            for name in sample(STRATEGIES, 2, f"{fixture.id} {buffering}")
        }
        streams = {name: result(events(fixture, parts, buffering)) for name, parts in cut.items()}
        observation = Observation(result(events(fixture, [fixture.raw_output], buffering)), streams)
        rows = run_checks(fixture, families()[fixture.family], observation)
        good = (Status.PASS, Status.SOFT_PASS) if fixture.id in SPACED else (Status.PASS,)
        failed = [row for row in rows if row.status not in good]
        assert rows
        assert bool(failed) == (buffering == "off" and fixture.id in OTHERWISE_STREAMED), failed

    check_each(subtests, FIXTURES[family], check, attrgetter("id"))


@each_family
def test_no_cut_matters(family: str, subtests: pytest.Subtests) -> None:
    def check(fixture: Fixture) -> None:
        text = fixture.raw_output
        whole = joined(events(fixture, [text]))
        for at in positions(text, len(text)):
            if at % (1 if len(text) <= EVERY_CUT_CHARS else 7) == 0 or not exhaustive():
                assert joined(events(fixture, [text[:at], text[at:]])) == whole, f"cut at {at}"

    check_each(subtests, FIXTURES[family], check, attrgetter("id"))
