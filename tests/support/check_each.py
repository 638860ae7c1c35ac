"""Many cases in one test: each failing case is reported as a subtest with its name; a passing case costs nothing."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")


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
        except Exception:
            with subtests.test(name(item)):
                raise
