"""Closes several things at once, each of them even if another cannot be closed."""

import asyncio
from collections.abc import Awaitable, Callable


async def close_all(*closers: Callable[[], Awaitable[None]]) -> None:
    """Calls all of these, and waits for them.

    Raises:
        ExceptionGroup: What some of them raised, after all have ended.
    """
    ended = await asyncio.gather(*(close() for close in closers), return_exceptions=True)
    if errors := [each for each in ended if each is not None]:
        raise BaseExceptionGroup("not everything could be closed", errors)
