"""Shared by all tests.

Every process of a run imports this module, the one that only distributes the tests too, so it imports little.
"""

import gc
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from hypothesis import settings

from support import lazy_imports, ran_pairs

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from support.gateway import Gateway

settings.register_profile("default", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("ci", deadline=None, max_examples=60, derandomize=True)
settings.register_profile("long", deadline=None, max_examples=2_000)
settings.register_profile("fuzz", deadline=None, max_examples=20_000)
settings.load_profile("default")
lazy_imports.defer("anthropic", "openai", "trustme")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="keep what real clients send (tests/data/clients)")
    parser.addoption(
        "--ran", action="store_true", help="write which programs ran in front of what (tests/data/ran.toml)"
    )
    parser.addoption(
        "--workers", type=int, default=1, help="run the tests marked `serve`, with gateways of several processes"
    )
    parser.addoption("--every", action="store_true", help="run the tests too that are left out for their time")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record") and hasattr(config, "workerinput"):
        raise pytest.UsageError("--record writes whole files, so it takes one process: -n 0")
    if config.getoption("--workers") > 1:
        from support.gateway import Defaults

        Defaults.workers = config.getoption("--workers")
    config.pluginmanager.register(ran_pairs.Plugin(config.getoption("--ran") and not hasattr(config, "workerinput")))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out files without a test for gateways of several processes: to import them takes longer than they run."""
    if config.getoption("--workers") == 1 or collection_path.suffix != ".py":
        return None
    return "pytest.mark.serve" not in collection_path.read_text(encoding="utf-8") or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left = [item for item in items if not _is_selected(config, item)]
    if left:
        items[:] = [item for item in items if _is_selected(config, item)]
        config.hook.pytest_deselected(items=left)


def _is_selected(config: pytest.Config, item: pytest.Item) -> bool:
    """Whether the test runs with these options."""
    if item.get_closest_marker("every") and not config.getoption("--every"):
        return False
    return config.getoption("--workers") == 1 or item.get_closest_marker("serve") is not None


def pytest_collection() -> None:
    """Collects no garbage while tests are collected: almost all that is made stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Collects garbage more rarely, and not what collection has made: that stays until the end."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(scope="session")
def keep(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Keeps what a client sent, where that is asked for."""
    if not request.config.getoption("--record"):
        return lambda *_, **__: None
    from support import client_recordings

    return client_recordings.keep


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Gateway"]:
    """One gateway for all tests that only ask it something, in a new process and with the model's own context."""
    from support.gateway import running

    settings = {"embedded.context_window": 8192}
    with running(tmp_path_factory.mktemp("home"), settings=settings, new_process=True) as shared:
        yield shared


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator["Browser"]:
    """One browser for all tests of a process; these use the event loop of the session."""
    from support.browser import pages

    if pages.command() is None:
        pytest.skip("there is no chromium on PATH; install it: make chromium")
    async with pages.chromium() as shared:
        yield shared
