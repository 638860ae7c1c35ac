"""Which of several second responses is used."""

import pytest

from dragoman.gateway.second_opinion.ballot import elect

A, B, C = ("get_weather", "{}"), ("ping", "{}"), ("ping", "[]")


@pytest.mark.parametrize(
    ("keys", "winner", "votes"),
    [
        ([A, B, B], 1, 2),
        ([None, A, B, B, A], 1, 2),  # equally many: the earliest
        ([B, A, A, B], 0, 2),
        ([A, B, C], 0, 1),
        ([None, None, C], 2, 1),
        ([None, None], 0, 0),
        ([(), (), A], 0, 2),  # text only
    ],
)
def test_calls_of_most_samples_are_used(keys: list[tuple[str, ...] | None], winner: int, votes: int) -> None:
    election = elect(keys)
    assert (election.winner, election.votes, election.samples) == (winner, votes, len(keys))
    code = "samples_compared" if votes > 1 else "samples_disagreed"
    notice = election.notice("9 tokens")
    assert (notice.code, notice.detail) == (code, f"{votes} of {len(keys)}")
    assert notice.message.endswith("; 9 tokens")


def test_vote_is_certain_once_more_than_half_agree() -> None:
    assert [elect([A, A]).is_certain(most) for most in (2, 3, 4, 5)] == [True, True, False, False]
