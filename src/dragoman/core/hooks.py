"""Error callbacks of the program that embeds Dragoman.

    def on_error(error: BaseException, exchange_id: str) -> None: ...

They are called when an exchange has failed, with its id. Exceptions in a hook are logged and do not change the
response.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

OnError: TypeAlias = Callable[[BaseException, str], object]
"""Receives the exception and the id of the exchange."""

log = logging.getLogger("dragoman.hooks")


def call_hooks(hooks: Iterable[OnError], error: BaseException, exchange_id: str) -> None:
    """Calls each hook; exceptions in hooks are logged, not raised."""
    for hook in hooks:
        try:
            hook(error, exchange_id)
        except Exception:
            log.exception("an on_error hook failed for %s", exchange_id)


@contextmanager
def report_exceptions(hooks: Iterable[OnError], exchange_id: str) -> Iterator[None]:
    """Calls the hooks with an exception raised in the block, then re-raises it."""
    try:
        yield
    except Exception as error:
        call_hooks(hooks, error, exchange_id)
        raise
