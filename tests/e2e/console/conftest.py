"""A gateway with its console, and a browser, for all tests of this folder; they use the event loop of the session."""

from collections.abc import AsyncIterator

import pytest_asyncio

from support.scripted_gateway import ScriptedGateway, scripted_gateway


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def console() -> AsyncIterator[ScriptedGateway]:
    """A gateway without API keys; each test switches captures on or off before it uses them."""
    async with scripted_gateway() as gateway:
        yield gateway
