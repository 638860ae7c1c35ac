"""Many cases in one test: each failing case is reported as a subtest with its name; a passing case costs nothing."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

import pytest

T = TypeVar("T")

FAILURES: Final = (Exception, pytest.fail.Exception)
"""What a failing check raises; the error of `pytest.fail` and `pytest.raises` is not an `Exception`."""


def check_each(
    subtests: pytest.Subtests, items: Iterable[T], check: Callable[[T], None], name: Callable[[T], str] = str
) -> None:
    """Calls `check` with every item and reports each failure under `name(item)`.

    Raises:
        AssertionError: There was no item.
    """
    __tracebackhide__ = True
    cases = list(items)
    assert cases, "expected cases, got none"
    for item in cases:
        try:
            check(item)
        except FAILURES:
            with subtests.test(name(item)):
                raise


async def check_each_async(
    subtests: pytest.Subtests, items: Iterable[T], check: Callable[[T], Awaitable[None]], name: Callable[[T], str] = str
) -> None:
    """Like `check_each`, with a check that is awaited.

    Raises:
        AssertionError: There was no item.
    """
    __tracebackhide__ = True
    cases = list(items)
    assert cases, "expected cases, got none"
    for item in cases:
        try:
            await check(item)
        except FAILURES:
            with subtests.test(name(item)):
                raise
