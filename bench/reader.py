"""CPU time of parsing a model's text, in nanoseconds per character."""

import json
from collections.abc import Callable, Iterator
from typing import Final

from bench.figures import Figure
from bench.samples import TOOLS, arguments, deltas, prose
from bench.timing import Timing, compare
from dragoman import formats
from dragoman.core.events import AnyEvent, ToolCallEnd
from dragoman.core.messages import ToolCall
from dragoman.parsing.format import Format
from dragoman.parsing.reply_reader import ReplyReader

GOAL_NS: Final = 1500
GROWTH_GOAL: Final = 12
"""Ten times the text takes at most twelve times as long: the reader is linear."""
LOOP = "find + append"
LOADS = "json.loads"


def measure(quick: bool) -> Iterator[Figure]:
    """Yields figures of Hermes in detail, and two of each other format."""
    sizes, rounds = ((500, 5_000), 2) if quick else ((10_000, 100_000), 7)
    yield from _hermes(sizes, rounds)
    for name in formats.names():
        if name != "hermes":
            yield from _calls(formats.get(name), sizes, rounds, 4)


def _hermes(sizes: tuple[int, int], rounds: int) -> Iterator[Figure]:
    hermes = formats.get("hermes")
    yield from _calls(hermes, sizes, rounds, 4)
    yield from _calls(hermes, sizes, rounds, 16)
    large = sizes[1]
    call, text = call_text(hermes, large), prose(large)
    pieces = deltas(call, 4)
    timing = compare(reader_call(hermes, pieces), _minimal_loop(pieces), rounds, collect=True)
    yield _figure(f"hermes call, {kb(large)} by 4, gc on", timing, len(call), LOOP, GOAL_NS)
    timing = compare(reader_call(hermes, [call]), lambda: json.loads(call[11:-12]), rounds, calls=5)
    yield _figure(f"hermes call, {kb(large)} at once", timing, len(call), LOADS)
    for step in (4, 16):
        timing = compare(reader_call(hermes, deltas(text, step)), _minimal_loop(deltas(text, step)), rounds)
        yield _figure(f"text without a call, {kb(large)} by {step}", timing, len(text), LOOP, GOAL_NS)
    both = [
        compare(reader_call(hermes, pieces), _minimal_loop(pieces), rounds)
        for pieces in map(_white_space_pieces, sizes)
    ]
    yield _figure(f"long white space, {kb(large)} by 4", both[1], large, LOOP, GOAL_NS)
    yield _growth("long white space", both[0], both[1], sizes)


def _calls(format: Format, sizes: tuple[int, int], rounds: int, step: int) -> Iterator[Figure]:
    timings = []
    for size in sizes:
        call = call_text(format, size)
        pieces = deltas(call, step)
        assert any(isinstance(e, ToolCallEnd) for e in reader_call(format, pieces)()), (
            "the text must be parsed as a call"
        )
        timings.append(compare(reader_call(format, pieces), _minimal_loop(pieces), rounds))
        goal = GOAL_NS if step == 4 else None
        yield _figure(f"{format.name} call, {kb(size)} by {step}", timings[-1], len(call), LOOP, goal)
    yield _growth(f"{format.name} call by {step}", timings[0], timings[1], sizes)


def _growth(name: str, small: Timing, large: Timing, sizes: tuple[int, int]) -> Figure:
    return Figure(f"{name}, growth", large.best / small.best, f"× for {sizes[1] // sizes[0]} ×", goal=GROWTH_GOAL)


def _figure(name: str, timing: Timing, chars: int, reference: str, goal: float | None = None) -> Figure:
    return Figure(name, timing.median / chars, "ns/char", timing.best / chars, timing.ratio, reference, goal)


def call_text(format: Format, size: int) -> str:
    """Returns a completion with one call in this format, with `size` characters of code."""
    opening, closing = format.section
    return opening + format.write_call(ToolCall("call_0", "write_file", arguments(size))) + closing


def _white_space_pieces(size: int) -> list[str]:
    return deltas("Wait." + " \n" * (size // 2) + "Done.", 4)


def kb(size: int) -> str:
    """Returns the size as figures name it."""
    return f"{size / 1000:g} KB"


def reader_call(format: Format, pieces: list[str]) -> Callable[[], list[AnyEvent]]:
    """Returns a function that parses these pieces of a completion."""

    def read() -> list[AnyEvent]:
        reader = ReplyReader(format, TOOLS, new_id=lambda: "x" * 24)
        last: list[AnyEvent] = []
        for piece in pieces:
            last = reader.feed(piece) or last
        return last + reader.close()

    return read


def _minimal_loop(pieces: list[str]) -> Callable[[], int]:
    """The minimum work for a delta: search for a tag and append."""

    def loop() -> int:
        out: list[str] = []
        tags = 0
        for piece in pieces:
            if piece.find("<") >= 0:
                tags += 1
            out.append(piece)
        return tags

    return loop
