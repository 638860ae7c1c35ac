"""Prompt cache of a real llama.cpp server over 20 turns of a conversation that finds its tools among 200."""

from collections.abc import Iterator

import pytest
from bench import search_cache

from support.gateway import Gateway

pytestmark = [pytest.mark.model, pytest.mark.every]

MIN_SHARE = 0.95


@pytest.fixture(scope="module", params=search_cache.MODES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, str]]:
    """A gateway in front of the server, and the name of its model."""
    with search_cache.gateway(tmp_path_factory.mktemp("home"), request.param) as started:
        yield started


@pytest.mark.parametrize("api", search_cache.KINDS)
def test_prompt_cache_holds_while_tools_are_found(api: str, served: tuple[Gateway, str]) -> None:
    turns = search_cache.conversation(api, *served)
    assert search_cache.share(turns) >= MIN_SHARE, turns
