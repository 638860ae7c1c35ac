"""What an open page of the console costs: CPU time of the gateway, and the browser's times and memory.

    python -m bench.console [--rounds N] [--seconds S]

50 requests per second reach a gateway without the console, one with it whose page is closed, and the same one while
its list of exchanges is open in chromium, in turn. Client and upstream server are other processes. The CPU time is
that of the gateway's process, user and system; of all rounds, the lower quartile is compared, as other programs only
add to it.
Then the list is filled with 10,000 rows. Needs `make chromium` and `make console`; `--no-page` measures without them.
"""

import argparse
import asyncio
import contextlib
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import psutil
from fuzz.served import Gateway, running

from bench.client import Connection
from support.browser.pages import Tab, chromium, tab
from support.http_client import http_client
from support.sample_records import fill, sample_records

PER_SECOND: Final = 50
DELTAS: Final = 40
PAUSE_S: Final = 0.01
"""Time between two deltas of the upstream server."""
ROWS: Final = 10_000
ROWS_OF_A_FETCH: Final = 200
MAX_RATIO: Final = 1.05
MAX_TASK_MS: Final = 100.0
MAX_MEMORY_MB: Final = 300.0
MAX_ROW_S: Final = 0.2
OBSERVE: Final = """
globalThis.longTasks = [];
new PerformanceObserver(list => longTasks.push(...list.getEntries().map(entry => entry.duration)))
  .observe({type: "longtask", buffered: true});
globalThis.rowTimes = new Map();
const note = row => { if (!rowTimes.has(row.dataset.id)) rowTimes.set(row.dataset.id, Date.now() / 1000); };
addEventListener("DOMContentLoaded", () => new MutationObserver(changes => {
  for (const change of changes) for (const node of change.addedNodes)
    if (node.dataset?.testid === "row") note(node);
    else node.querySelectorAll?.("[data-testid=row]").forEach(note);
}).observe(document.body, {subtree: true, childList: true}));
"""
"""Notes when each row appears, and tasks of more than 50 ms."""


class Round(NamedTuple):
    """CPU time of the gateway for a request, in ms, under equal load."""

    disabled: float
    closed: float
    open: float


@dataclass
class Page:
    """What the page did."""

    row_s: list[float] = field(default_factory=list)
    """From the beginning of each request until its row appeared."""
    tasks_ms: list[float] = field(default_factory=list)
    """Tasks of more than 50 ms."""
    scroll_tasks_ms: list[float] = field(default_factory=list)
    missing: int = 0
    """Rows that did not appear."""
    rows: int = 0
    memory: dict[str, float] = field(default_factory=dict)
    """MB with all rows: of the heap of the scripts, and of the process of the page."""


def _body(tools: bool) -> bytes:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    body: dict[str, Any] = {"model": "parse", "stream": True, "messages": [{"role": "user", "content": "word " * 200}]}
    return json.dumps(
        body | ({"tools": [{"type": "function", "function": {"name": "f0", "parameters": schema}}]} if tools else {})
    ).encode()


async def _load(port: int, seconds: float, per_second: float = PER_SECOND) -> list[float]:
    """Sends requests at equal intervals; returns when each began, in seconds since 1970."""
    loop, idle, starts, tasks = asyncio.get_running_loop(), list[Connection](), list[float](), set[asyncio.Task[None]]()

    async def request(number: int) -> None:
        connection = idle.pop() if idle else Connection(port)
        starts.append(time.time())
        await connection.request("/v1/chat/completions", _body(number % 2 == 0))
        idle.append(connection)

    start = loop.time()
    for number in range(round(seconds * per_second)):
        await asyncio.sleep(start + number / per_second - loop.time())
        tasks.add(asyncio.create_task(request(number)))
    await asyncio.gather(*tasks)
    for connection in idle:
        await connection.close()
    return starts


async def _cpu_ms(gateway: Gateway, seconds: float) -> float:
    """Returns the CPU time of the gateway for a request."""
    before = gateway.cpu_s()
    count = len(await _load(gateway.port, seconds))
    return (gateway.cpu_s() - before) * 1000 / count


async def _compare(disabled: Gateway, enabled: Gateway, page: Tab | None, rounds: int, seconds: float) -> list[Round]:
    async def measure(name: str) -> float:
        if name == "disabled":
            return await _cpu_ms(disabled, seconds)
        if name == "open" and page is not None:
            await page.open()
            await page.page.get_by_text("live").wait_for()
        found = await _cpu_ms(enabled, seconds)
        if name == "open" and page is not None:
            await page.page.goto("about:blank")
        return found

    results, rng = list[Round](), random.Random(rounds)
    for number in range(-1, rounds):  # the first one is not counted
        names = list(Round._fields)
        rng.shuffle(names)
        result = Round(**{name: await measure(name) for name in names})
        if number >= 0:
            results.append(result)
            print(f"round {number + 1}: {', '.join(f'{name} {ms:.3f} ms' for name, ms in result._asdict().items())}")
    return results


async def _measure_rows(page: Tab, gateway: Gateway, seconds: float, results: Page) -> None:
    """Measures under load how late rows appear, and the tasks of the page."""
    await page.open()
    await page.page.get_by_text("live").wait_for()
    load = asyncio.create_task(_load(gateway.port, seconds, PER_SECOND - 10))
    starts: dict[str, float] = {}

    async def client() -> None:
        async with http_client(page.url) as http:
            while not load.done():
                before = time.time()
                async with http.stream("POST", "/v1/chat/completions", content=_body(True)) as response:
                    starts[response.headers["x-request-id"]] = before
                    await response.aread()

    await asyncio.gather(*(client() for _ in range(5)))
    await load
    await page.page.wait_for_timeout(500)
    times = dict(await page.page.evaluate("() => [...rowTimes]"))
    results.row_s = [times[id] - at for id, at in starts.items() if id in times]
    results.missing = len(starts) - len(results.row_s)
    results.tasks_ms += await page.page.evaluate("() => longTasks.splice(0)")


async def _fill(page: Tab, results: Page) -> None:
    """Loads all recorded rows into the open page, scrolls, and measures its memory and its tasks."""
    grid, count = page.page.locator("[role=grid]"), 0
    while results.rows < ROWS and count < 2 * ROWS // ROWS_OF_A_FETCH:
        await grid.press("End")
        await page.page.wait_for_timeout(50)
        results.rows, count = int(await grid.get_attribute("aria-rowcount") or 0) - 1, count + 1
    results.scroll_tasks_ms = await page.page.evaluate("() => longTasks.splice(0)")
    await page.page.mouse.move(400, 400)
    for _ in range(100):
        await page.page.mouse.wheel(0, -2000)
    results.scroll_tasks_ms += await page.page.evaluate("() => longTasks.splice(0)")
    session = await page.devtools()
    await session.send("HeapProfiler.collectGarbage")
    heap = await session.send("Runtime.getHeapUsage")
    results.memory = {"heap": heap["usedSize"] / 2**20, "process": max(_renderers_mb())}


def _renderers_mb() -> Iterator[float]:
    """Memory of each process of the browser that shows a page: its own, and its share of what several use."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "--type=renderer" in process.cmdline():
                yield process.memory_full_info().pss / 2**20


def _quiet(times: Iterable[float]) -> float:
    """Returns the lower quartile: other programs of the machine only add to a time."""
    return statistics.quantiles(times, n=4)[0]


def _report(rounds: Sequence[Round], page: Page | None) -> bool:
    """Prints the results; returns whether all limits are kept."""
    disabled, closed, opened = (_quiet(getattr(each, name) for each in rounds) for name in Round._fields)
    print(f"CPU time of a request: {disabled:.3f} ms without the console")
    print(f"page closed: {closed:.3f} ms, {100 * (closed / disabled - 1):+.1f} %")
    if page is None:
        return True
    print(f"page open:   {opened:.3f} ms, {100 * (opened / closed - 1):+.1f} % of a closed page")
    hundredths = statistics.quantiles(page.row_s, n=100)
    print(
        f"row appears after {hundredths[49] * 1000:.0f} ms (median), {hundredths[94] * 1000:.0f} ms (95 %), "
        f"{max(page.row_s) * 1000:.0f} ms (maximum) of {len(page.row_s)}; {page.missing} were not seen"
    )
    longest = max(page.tasks_ms, default=0.0)
    print(
        f"{len(page.tasks_ms)} tasks of more than 50 ms under load, the longest {longest:.0f} ms; "
        f"scrolling: {len(page.scroll_tasks_ms)}, {max(page.scroll_tasks_ms, default=0.0):.0f} ms"
    )
    print(
        f"{page.rows} rows: {page.memory['heap']:.0f} MB of heap, {page.memory['process']:.0f} MB of the page's process"
    )
    return (
        opened / closed <= MAX_RATIO
        and hundredths[94] <= MAX_ROW_S
        and longest < MAX_TASK_MS
        and page.memory["process"] <= MAX_MEMORY_MB
    )


async def _run(rounds: int, seconds: float, has_page: bool) -> bool:
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory(prefix='console-'))}/records.sqlite"
        fill(url, sample_records(ROWS))
        own = f'[records]\nurl = "{url}"\nkeep_days = 36500\n'
        disabled = stack.enter_context(running(PAUSE_S, DELTAS, more="[console]\nenabled = false\n"))
        enabled = stack.enter_context(running(PAUSE_S, DELTAS, more=own))
        if not has_page:
            return _report(await _compare(disabled, enabled, None, rounds, seconds), None)
        results = Page()
        async with chromium(is_isolated=False) as browser, tab(browser, f"http://127.0.0.1:{enabled.port}") as page:
            await page.page.add_init_script(OBSERVE)
            found = await _compare(disabled, enabled, page, rounds, seconds)
            await _measure_rows(page, enabled, max(seconds, 10.0), results)
            await _fill(page, results)
        return _report(found, results)


def main() -> int:
    """Measures as the arguments tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8, help="at least 2")
    parser.add_argument("--seconds", type=float, default=10.0, help="of load for each figure of a round")
    parser.add_argument("--no-page", action="store_true", help="compares only a closed page with no console")
    args = parser.parse_args()
    return 0 if asyncio.run(_run(args.rounds, args.seconds, not args.no_page)) else 1


if __name__ == "__main__":
    sys.exit(main())
