"""Ways to cut a text into pieces, for the rule that no cut may matter."""

from collections.abc import Iterator
from itertools import pairwise

from hypothesis import strategies as st


def pieces(text: str, places: list[int]) -> list[str]:
    """The text cut at these places; a place is taken modulo the length."""
    edges = [0, *sorted(p % (len(text) + 1) for p in places), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


places = st.lists(st.integers(0, 200), max_size=6)


def cuttings(text: str, some: list[int]) -> Iterator[list[str]]:
    """Whole, per character, at these places, and with empty pieces between."""
    yield [text]
    yield list(text)
    yield pieces(text, some)
    yield [p for piece in pieces(text, some) for p in (piece, "")]
