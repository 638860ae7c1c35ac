"""Callbacks of the program around Dragoman.

    def on_error(error: BaseException, exchange_id: str) -> None: ...

They are called where an exchange has failed, with its id. What they raise is logged, and changes no answer.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

OnError: TypeAlias = Callable[[BaseException, str], object]
"""Gets the exception and the id of the exchange."""

log = logging.getLogger("dragoman.hooks")


def call(hooks: Iterable[OnError], error: BaseException, exchange_id: str) -> None:
    """Call each hook; none can raise."""
    for hook in hooks:
        try:
            hook(error, exchange_id)
        except Exception:
            log.exception("an on_error hook failed for %s", exchange_id)


@contextmanager
def watching(hooks: Iterable[OnError], exchange_id: str) -> Iterator[None]:
    """Calls the hooks with an exception of the block, which goes on."""
    try:
        yield
    except Exception as error:
        call(hooks, error, exchange_id)
        raise
