"""Settings of named API keys."""

import math

import pytest

from dragoman.config.keys import KeyConfig, PreviousSecret, check_key, expiry_time
from dragoman.core.errors import ConfigError

DIGEST = "ab" * 32


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("alice", KeyConfig(), "expected exactly one of secret, secret_env and sha256, got none - at keys.alice"),
        (
            "alice",
            KeyConfig(secret="long enough", sha256=DIGEST),
            "expected exactly one of secret, secret_env and sha256, got secret and sha256 - at keys.alice",
        ),
        (
            "a b",
            KeyConfig(sha256=DIGEST),
            "expected a name of at most 64 letters, digits, '-' and '_' that starts with a letter or a digit, "
            "got 'a b' - at keys",
        ),
        (
            "alice",
            KeyConfig(secret="short"),
            "expected a secret of at least 6 characters without blanks around it, got another; "
            "`dragoman keys create alice` generates one - at keys.alice.secret",
        ),
        ("alice", KeyConfig(sha256="abc"), "expected 64 hexadecimal digits, got 3 characters - at keys.alice.sha256"),
        (
            "alice",
            KeyConfig(secret_env="ABSENT"),
            "expected a value in the variable ABSENT, got none - at keys.alice.secret_env",
        ),
        (
            "alice",
            KeyConfig(sha256=DIGEST, previous=(PreviousSecret(DIGEST, "soon"),)),
            "expected a date such as 2027-01-31 or a time such as 2027-01-31T18:00:00Z, got 'soon' - "
            "at keys.alice.previous[0].expires",
        ),
        (
            "alice",
            KeyConfig(sha256=DIGEST, models=("",)),
            'expected patterns such as "qwen*", got an empty one - at keys.alice.models',
        ),
        (
            "alice",
            KeyConfig(sha256=DIGEST, budget_usd_per_day=math.inf),
            "expected a finite number, got inf - at keys.alice.budget_usd_per_day",
        ),
    ],
)
def test_wrong_keys_are_rejected_with_their_place(name: str, config: KeyConfig, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_key(name, config, {})
    assert str(error.value) == message


def test_each_way_to_store_a_secret_is_accepted() -> None:
    for config in (KeyConfig(secret="long enough"), KeyConfig(secret_env="KEY"), KeyConfig(sha256=DIGEST.upper())):
        check_key("alice", config, {"KEY": "long enough"})


def test_a_date_includes_its_day_and_a_time_without_zone_is_utc() -> None:
    assert expiry_time("2027-01-31", "") == expiry_time("2027-02-01T00:00:00Z", "")
    assert expiry_time("2027-02-01T01:00:00", "") == expiry_time("2027-02-01T02:00:00+01:00", "")
    assert expiry_time("", "") == math.inf
