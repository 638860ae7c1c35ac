"""Elementary parsers of the scanner: what each reads, for any cut of the text."""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.text.json_stream import NUMBER_LIMIT_CHARS
from dragoman.text.scanner import (
    CUT_OFF,
    SPACE,
    STRING_LIMIT_CHARS,
    FastPath,
    Follows,
    Markers,
    Parser,
    Scanner,
    markers,
)
from support.chunking import cuttings, pieces, places

Emit = Callable[[str], None]
Run = Callable[[Scanner, Emit], Parser[Any]]


class Read(NamedTuple):
    """The outcome of one elementary parser."""

    result: Any
    emitted: str
    taken: int
    gap: str
    kept: str
    mended: tuple[str, ...]


def read(run: Run, cut: list[str], stopped: bool = True, after_feed: Callable[[Scanner], None] | None = None) -> Read:
    """Runs a parser like the reader does: feeds each piece, then the end of the text."""
    s, said = Scanner(), list[str]()
    s.start_capture(">")
    leaf = run(s, said.append)
    rest = list(cut)
    result: Any = None
    plain: FastPath | None = None
    waiting = ""
    try:
        while rest:
            piece = rest.pop(0)
            piece, waiting = waiting + piece, ""
            stop = plain.find_stop(piece) if plain else None
            at = len(piece) if plain and not stop else plain.deferrable_from(piece, stop) if plain and stop else -1
            if at >= 0 and plain:
                waiting = piece[at:]
                s.skip(piece[:at])
                if at:
                    plain.emit(piece[:at])
            else:
                s.feed(piece)
                plain = next(leaf)
            if after_feed:
                after_feed(s)
        s.feed(waiting)
        s.closed, s.stopped_by_model = True, stopped
        next(leaf)
        raise AssertionError("the parser waits for more text after the end")
    except StopIteration as end:
        result = end.value
    text = "".join(cut)
    assert s.buf[s.pos :] + "".join(rest) == text[s.offset :], "lost text that the parser did not consume"
    assert "" not in said, "emitted an empty piece"
    return Read(result, "".join(said), s.offset, s.skipped_space, s.captured(), tuple(s.repairs))


def read_with_cuts(run: Run, text: str, some: list[int], stopped: bool = True) -> Read:
    """Asserts the same outcome for any cut, and that `kept` is exactly the consumed text."""
    whole = read(run, [text], stopped)
    for cut in cuttings(text, some):
        assert read(run, cut, stopped) == whole, cut
    assert whole.kept == ">" + text[: whole.taken]
    return whole


marker_sets = st.lists(st.text("ab<", min_size=1, max_size=4), min_size=1, max_size=4, unique=True)
texts = st.text("ab< \n", max_size=24)


def pattern(wanted: list[str]) -> re.Pattern[str]:
    """Returns a pattern that matches the leftmost, then the longest marker."""
    return re.compile("|".join(re.escape(m) for m in sorted(wanted, key=len, reverse=True)))


@given(marker_sets, texts, places, st.booleans())
def test_until_stops_at_first_marker(wanted: list[str], text: str, some: list[int], said: bool) -> None:
    got = read_with_cuts(lambda s, emit: s.until(Markers(*wanted), emit, said), text, some)
    found = pattern(wanted).search(text)
    before = text[: found.start()] if found else text
    words = before.rstrip(SPACE)
    if not found and (said or words):
        words = before
    assert got[:3] == (found[0] if found else "", words, found.end() if found else len(text))
    assert got.gap == before[len(words) :]


@given(marker_sets, texts, places)
def test_verbatim_until_keeps_white_space(wanted: list[str], text: str, some: list[int]) -> None:
    got = read_with_cuts(lambda s, emit: s.verbatim_until(Markers(*wanted), emit), text, some)
    found = pattern(wanted).search(text)
    before, marker = (text[: found.start()], found[0]) if found else (text, "")
    assert got[:3] == (marker, before, len(before) + len(marker))


runs = st.tuples(st.text("ab<", min_size=1, max_size=3)) | st.tuples(
    st.text("ab<", min_size=1, max_size=2), st.text("a", max_size=1)
)
follows = st.lists(runs | st.just(("",)), min_size=1, max_size=3).map(tuple)
closings = st.dictionaries(st.text("ab<", min_size=1, max_size=4), follows, min_size=1, max_size=4)


@given(closings, texts, places)
def test_raw_until_stops_at_closer_with_valid_follow(closers: dict[str, Follows], text: str, some: list[int]) -> None:
    got = read_with_cuts(lambda s, emit: s.raw_until(closers, emit), text, some)
    for found in pattern(list(closers)).finditer(text):
        runs = (r"\s*".join(["", *(re.escape(each) or r"\Z" for each in run)]) for run in closers[found[0]])
        if any(re.match(run, text[found.end() :]) for run in runs):
            assert got[:3] == (found[0], text[: found.start()], found.end())
            return
    assert got[:3] == ("", text, len(text))


def test_closer_before_endless_white_space_is_part_of_value() -> None:
    text = "a>" + " " * 300 + "<b>"
    assert read(lambda s, emit: s.raw_until({">": (("<b>",),)}, emit), [text])[:2] == ("", text)


@given(marker_sets, st.text(SPACE, max_size=3), texts, places, st.booleans())
def test_literal_matches_longest_alternative(
    alts: list[str], gap: str, text: str, some: list[int], after_space: bool
) -> None:
    text = gap + text
    got = read_with_cuts(lambda s, _: s.literal(*alts, after_space=after_space), text, some)
    rest = text.lstrip(SPACE) if after_space else text
    found = max((a for a in alts if rest.startswith(a)), key=len, default="")
    assert got.result == found
    assert got.taken == (len(text) - len(rest) + len(found) if found else 0)


@given(texts, st.integers(1, 4), places, st.booleans())
def test_peek_consumes_nothing(text: str, count: int, some: list[int], after_space: bool) -> None:
    got = read_with_cuts(lambda s, _: s.peek(count, after_space=after_space), text, some)
    assert got.result == (text.lstrip(SPACE) if after_space else text)[:count]
    assert got.taken == 0


@given(texts, places)
def test_skip_space_consumes_leading_space(text: str, some: list[int]) -> None:
    got = read_with_cuts(lambda s, _: s.skip_space(), text, some)
    assert got.taken == len(text) - len(text.lstrip(SPACE))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
tails = st.sampled_from(["", "}", " x", "</tool_call>", "\n{"])


@given(json_values, st.booleans(), tails, places)
def test_json_value_is_read_to_its_end(value: object, ascii_only: bool, tail: str, some: list[int]) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    got = read_with_cuts(lambda s, emit: s.json_value(emit), text + tail, some)
    assert got[:3] == ("", text, len(text))


@given(json_values, st.integers(0, 40), st.text('{}[]":,\\ux0', max_size=3), places, st.booleans())
def test_invalid_json_value_is_read_same_for_any_cut(
    value: object, at: int, junk: str, some: list[int], stopped: bool
) -> None:
    text = json.dumps(value)
    at = at % (len(text) + 1)
    text = text[:at] + junk + text[at + 1 :]
    got = read_with_cuts(lambda s, emit: s.json_value(emit), text, some, stopped)
    if got.result == CUT_OFF:
        assert got.taken == len(text)
    elif not got.mended:
        assert got.emitted == text[: got.taken] or r"\ufffd" in got.emitted


def test_number_at_end_of_text_is_complete_only_at_top_level() -> None:
    assert read(lambda s, emit: s.json_value(emit), ["12"])[:3] == ("", "12", 2)
    assert read(lambda s, emit: s.json_value(emit), ["[12"])[:3] == (CUT_OFF, "[", 3)


@given(st.text(max_size=10), st.booleans(), tails, places, st.integers(1, 14))
def test_json_string_is_read_up_to_limit(value: str, ascii_only: bool, tail: str, some: list[int], limit: int) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    got = read_with_cuts(lambda s, _: s.json_string(limit), text + tail, some)
    assert got.result == (value if len(text) <= limit else None)
    assert got.taken <= limit
    if got.result is not None:
        assert got.taken == len(text)


@given(st.text('"\\u0dx\n', max_size=12), places, st.booleans())
def test_invalid_json_string_is_read_same_for_any_cut(text: str, some: list[int], stopped: bool) -> None:
    got = read_with_cuts(lambda s, _: s.json_string(8), text, some, stopped)
    if not text.startswith('"'):
        assert (got.result, got.taken) == (None, 0)


def test_json_string_has_default_limit() -> None:
    text = '"' + "a" * STRING_LIMIT_CHARS + '"'
    assert read(lambda s, _: s.json_string(), [text]).result is None
    assert read(lambda s, _: s.json_string(), [text[2:-1] + '"']).result is None
    assert read(lambda s, _: s.json_string(), ['"' + text[3:]]).result == "a" * (STRING_LIMIT_CHARS - 2)


def test_json_string_copies_no_more_than_its_limit() -> None:
    """Also with much buffered text before and after the string."""
    copied = []

    class Watched(str):
        def __getitem__(self, place: Any) -> str:
            found = super().__getitem__(place)
            copied.append(len(found))
            return found

    s = Scanner()
    s.feed(Watched('"key"' * 20_000))
    s.pos = 50_000
    with pytest.raises(StopIteration, match="key"):
        next(s.json_string())
    assert sum(copied) <= STRING_LIMIT_CHARS + 1


def test_lone_surrogate_becomes_replacement_character() -> None:
    """No API can send a lone surrogate, because UTF-8 cannot encode it."""
    assert read(lambda s, _: s.json_string(), [r'"a\ud83db"']).result == "a\ufffdb"
    assert read(lambda s, _: s.json_string(), [r'"\ud83d\ude00"']).result == "😀"


PARSERS: dict[str, Callable[[Scanner, Emit], Parser[Any]]] = {
    "until": lambda s, emit: s.until(markers("<a>", "<ab"), emit),
    "verbatim": lambda s, emit: s.verbatim_until(markers("a", "bb"), emit),
    "raw": lambda s, emit: s.raw_until({"<a>": (("<",), ("b", "")), "b": (('"a',),)}, emit),
    "literal": lambda s, _: s.literal("<a", "<ab", "{"),
    "after space": lambda s, _: s.literal(":", '"', after_space=True),
    "peek": lambda s, _: s.peek(2, after_space=True),
    "space": lambda s, _: s.skip_space(),
    "run": lambda s, emit: s.run(" `", emit),
    "value": lambda s, emit: s.json_value(emit),
    "string": lambda s, _: s.json_string(5),
}


@given(st.lists(st.sampled_from(sorted(PARSERS)), max_size=6), st.text('ab<>{}:," \n\\1`', max_size=30), places)
def test_combined_parsers_are_independent_of_cuts(names: list[str], text: str, some: list[int]) -> None:
    def run(s: Scanner, emit: Emit) -> Parser[list[Any]]:
        results = []
        for name in names:
            emit(f"|{name}:")
            results.append(((yield from PARSERS[name](s, emit)), s.offset, s.skipped_space))
        return results

    read_with_cuts(run, text, some)


@given(st.text('ab<>{}:," \n\\1', max_size=40), places)
def test_loop_over_parsers_makes_progress(text: str, some: list[int]) -> None:
    """Every parser consumes, waits or gives up, so a loop that stops on "nothing found" always ends."""

    def run(s: Scanner, emit: Emit) -> Parser[int]:
        turns = 0
        while (yield from s.until(markers("<", "{"), emit)):
            turns += 1
            before = s.offset
            yield from s.json_value(emit)
            found = yield from s.literal("a", "ab", after_space=True)
            assert s.offset >= before + len(found)
            assert turns <= len(text)
        assert s.offset == len(text)
        return turns

    read_with_cuts(run, text, some)


@given(marker_sets, texts)
def test_until_buffers_only_marker_prefix_and_white_space(wanted: list[str], text: str) -> None:
    def check(s: Scanner) -> None:
        held = s.buf[s.pos :].lstrip(SPACE)
        assert not held or any(m.startswith(held) and m != held for m in wanted)

    read(lambda s, emit: s.until(Markers(*wanted), emit), list(text), after_feed=check)


@given(marker_sets, texts)
def test_verbatim_until_buffers_only_marker_prefix(wanted: list[str], text: str) -> None:
    def check(s: Scanner) -> None:
        held = s.buf[s.pos :]
        assert not held or any(m.startswith(held) and m != held for m in wanted)

    read(lambda s, emit: s.verbatim_until(Markers(*wanted), emit), list(text), after_feed=check)


@given(marker_sets, marker_sets, texts)
def test_raw_until_buffers_only_closer_space_and_marker_prefix(
    closers: list[str], follow: list[str], text: str
) -> None:
    def is_begun(held: str, wanted: list[str]) -> bool:
        return not held or any(m.startswith(held) and m != held for m in wanted)

    def check(s: Scanner) -> None:
        held = s.buf[s.pos :]
        after_closer = [held.removeprefix(closer).lstrip(SPACE) for closer in closers if held.startswith(closer)]
        assert is_begun(held.lstrip(SPACE), closers) or any(is_begun(rest, follow) for rest in after_closer)

    wanted = dict.fromkeys(closers, tuple((m,) for m in follow))
    read(lambda s, emit: s.raw_until(wanted, emit), list(text), after_feed=check)


@given(json_values, st.booleans())
def test_json_value_buffers_only_incomplete_escape_or_word(value: object, ascii_only: bool) -> None:
    def check(s: Scanner) -> None:
        held = s.buf[s.pos :]
        assert len(held) <= NUMBER_LIMIT_CHARS
        assert re.fullmatch(r"(\\u[0-9a-f]{4})?\\(u[0-9a-f]{0,3})?|\\ud[89ab][0-9a-f]{2}|[-+.0-9a-zA-Z]*", held)

    read(lambda s, emit: s.json_value(emit), list(json.dumps(value, ensure_ascii=ascii_only)), after_feed=check)


@given(texts, st.text("ab< ", max_size=3), texts, places)
def test_capture_starts_where_start_capture_is_called(first: str, before: str, then: str, some: list[int]) -> None:
    def run(s: Scanner, emit: Emit) -> Parser[tuple[str, str, str]]:
        yield from s.verbatim_until(markers("|"), emit)
        s.start_capture(before)
        at_once = s.captured()
        yield from s.until(markers("|"), emit)
        return at_once, s.captured(), s.skipped_space

    text = f"{first}|{then}|rest"
    whole = read(run, [text])
    assert whole.result[:2] == (before, f"{before}{then}|")
    for cut in cuttings(text, some):
        assert read(run, cut) == whole


def test_stop_capture_ends_capture() -> None:
    s = Scanner()
    s.feed("abc")
    s.start_capture()
    s.pos = 2
    s.stop_capture()
    s.feed("d")
    s.start_capture()
    s.pos += 1
    assert s.captured() == "c"


def test_truncated_is_set_only_at_end_after_limit() -> None:
    s = Scanner()
    s.feed("ab")
    s.closed, s.stopped_by_model = True, False
    assert not s.truncated
    s.pos = 2
    assert s.truncated
    s.stopped_by_model = True
    assert not s.truncated


@pytest.mark.parametrize("text", ["<a", "<ab", "<abc"])
def test_longest_marker_wins_for_any_order(text: str) -> None:
    for order in (("<a", "<ab", "<abc"), ("<abc", "<ab", "<a")):
        assert read(lambda s, emit, order=order: s.until(Markers(*order), emit), pieces(text, [1, 2])).result == text  # type: ignore[misc]
