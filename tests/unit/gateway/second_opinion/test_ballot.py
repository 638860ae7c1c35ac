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
        ([(), (), A], 2, 1),  # a call wins over texts
        ([(), (), None], 0, 2),  # text only
    ],
)
def test_calls_of_most_samples_are_used(keys: list[tuple[str, ...] | None], winner: int, votes: int) -> None:
    election = elect(keys, len(keys))
    assert (election.winner, election.votes, election.made) == (winner, votes, len(keys))
    code = "samples_compared" if votes > 1 else "samples_disagreed"
    notice = election.notice("9 tokens")
    assert (notice.code, notice.detail) == (code, f"{votes} of {len(keys)}")
    assert notice.message.endswith("; 9 tokens")


def test_vote_is_certain_once_more_than_half_agree() -> None:
    assert [elect([A, A], 2).is_certain(most) for most in (2, 3, 4, 5)] == [True, True, False, False]
    assert not elect([(), ()], 2).is_certain(3)  # the third may have a call


@pytest.mark.parametrize(
    ("keys", "made", "message"),
    [
        ([A], 3, "of 3 samples one was valid, and is used; 2 failed; 9 tokens"),
        ([A, A], 3, "2 of 3 samples made the calls that are used; 1 failed; 9 tokens"),
        ([(), ()], 2, "2 of 2 samples are text, and none made a valid call; 9 tokens"),
        ([(), A, B], 3, "of 3 samples no two made the same calls, the first with a valid one is used; 9 tokens"),
        ([None], 2, "of 2 samples none was valid; 1 failed; 9 tokens"),
    ],
)
def test_warning_counts_all_samples(keys: list[tuple[str, ...] | None], made: int, message: str) -> None:
    assert elect(keys, made).notice("9 tokens").message == message
