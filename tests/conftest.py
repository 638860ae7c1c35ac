"""Shared by all tests."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from gateway import Gateway, running

settings.register_profile("default", deadline=None, max_examples=200, derandomize=True)
settings.register_profile("fuzz", deadline=None, max_examples=20_000)
settings.load_profile("default")


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One gateway for all tests that only ask it something."""
    with running(tmp_path_factory.mktemp("home")) as shared:
        yield shared
