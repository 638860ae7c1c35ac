"""Settings of shared state: URLs that are accepted, and errors without passwords."""

import pytest

from dragoman.core.errors import ConfigError
from dragoman.state.config import StateConfig, check_state


@pytest.mark.parametrize("url", ["redis://h", "rediss://u:p@h:1/0", "valkey://h:6379", "valkeys://h"])
def test_redis_urls(url: str) -> None:
    check_state(StateConfig(url=url))


@pytest.mark.parametrize("url", ["postgresql://u:p@h/db", "postgresql://u@/db?host=/run/postgresql"])
def test_database_urls(url: str) -> None:
    check_state(StateConfig(database_url=url))


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (StateConfig(url="http://:secret@h"), "got one of http - at state.url"),
        (StateConfig(url="redis:///0"), "got one without a host - at state.url"),
        (StateConfig(url="redis://h:secret/0"), "cannot be parsed.* - at state.url"),
        (StateConfig(url="redis://[secret/0"), "cannot be parsed.* - at state.url"),
        (StateConfig(database_url="h/secret"), "got one of no scheme - at state.database_url"),
        (StateConfig(database_url="postgresql:///secret"), "got one without a host - at state.database_url"),
        (StateConfig(database_url="mysql://u:secret@h/db"), "got one of mysql - at state.database_url"),
    ],
)
def test_wrong_urls_are_not_quoted(config: StateConfig, found: str) -> None:
    with pytest.raises(ConfigError, match=found) as caught:
        check_state(config)
    assert "secret" not in str(caught.value)
