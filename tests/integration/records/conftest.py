"""New databases for records."""

from collections.abc import Callable, Iterator

import pytest

from support import postgresql


@pytest.fixture(scope="session")
def new_postgresql_url() -> Iterator[Callable[[], str]]:
    if postgresql.programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    with postgresql.running() as server:
        yield server.new_database


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a new database, for all tests of a module."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('records')}/records.sqlite"
    url: str = request.getfixturevalue("new_postgresql_url")()
    return url
