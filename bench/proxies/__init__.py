"""CPU time and memory of Dragoman next to nginx, LiteLLM, SMG, claude-code-router and bare stacks.

All run between the same upstream server and load client (`load.c`), on a core of their own. CPU time is that of the
proxy's processes. Ratios are medians of the rounds' ratios, so that noise affects both values alike.
"""

from collections.abc import Iterator

from bench.figures import Figure


def measure(quick: bool) -> Iterator[Figure]:
    """Yields the figures of all installed contenders."""
    from bench.proxies import contenders, report, rounds  # Linux only

    yield from report.figures(rounds.measure(contenders.installed(), 1 if quick else 5, is_quick=quick))
