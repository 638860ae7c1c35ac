"""Ways to split a text into chunks, to test that results do not depend on chunking."""

from collections.abc import Iterator
from itertools import pairwise

from hypothesis import strategies as st


def pieces(text: str, places: list[int]) -> list[str]:
    """Splits the text at these positions, modulo its length."""
    edges = [0, *sorted(p % (len(text) + 1) for p in places), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


places = st.lists(st.integers(0, 200), max_size=6)


def cuttings(text: str, some: list[int]) -> Iterator[list[str]]:
    """Yields the text whole, per character, split at these positions, and with empty chunks between."""
    yield [text]
    yield list(text)
    yield pieces(text, some)
    yield [p for piece in pieces(text, some) for p in (piece, "")]
