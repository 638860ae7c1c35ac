"""Where texts of the client's request are in what was sent: the last place, whole words, and at a linear cost."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from dragoman.console.exchange.lanes.sent_lane import BackwardSearch
from support import cpu_cost

TEXTS = st.text("ab ", max_size=60)


@given(TEXTS, st.text("ab ", min_size=13, max_size=20), st.integers(0, 60))
def test_long_text_is_found_where_it_ends_last(text: str, expected: str, end: int) -> None:
    whole = text + expected + text
    assert BackwardSearch(whole).find(expected, min(end, len(whole))) == whole.rfind(expected, 0, min(end, len(whole)))


def test_short_text_is_found_as_a_word_only() -> None:
    assert BackwardSearch("no Bash, bashful: Bash").find("Bash", 22) == 18
    assert BackwardSearch("Bash, Bashful").find("Bash", 13) == 0
    assert BackwardSearch("Bashful").find("Bash", 7) == -1
    assert BackwardSearch("a" * 1_000).find("a", 1_000) == -1


def test_text_that_nearly_repeats_costs_linear_time() -> None:
    def made(size: int) -> Callable[[], object]:
        searched, half = BackwardSearch("a" * size), "a" * (size // 30)
        return lambda: searched.find(f"{half}b{half}", size)

    assert cpu_cost.growth(made, 100_000, 1_000_000, most=3) < 3
