"""One PostgreSQL server for all tests of shared state; each test has a database of its own."""

from collections.abc import Iterator

import pytest

from support import postgresql


@pytest.fixture(scope="session")
def database_server() -> Iterator[postgresql.Server]:
    if postgresql.programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    with postgresql.running() as server:
        yield server
