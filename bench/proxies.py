"""CPU time of Dragoman beside nginx as a plain proxy and LiteLLM's: the same client, the same server behind, by turns.

CPU time is that of the proxy's processes, so neither the client nor the server behind counts. A ratio is of one round,
and what is told is the median of the rounds' ratios: what disturbs the machine disturbs all.
"""

import asyncio
import random
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final, NamedTuple

from bench.client import Server, serving
from bench.contenders import cpu_ns, found, proxy
from bench.figures import Figure
from bench.samples import small_body
from dragoman import dialects

_CHAT, _MESSAGES = "openai_chat", "anthropic_messages"


class Way(NamedTuple):
    """How a request takes its way."""

    proxy: str
    said: str
    """For the table."""
    front: str
    """The API of the client."""
    prefix: str
    """Before the name of the model, by which the proxy knows what stands behind."""
    unread: bool = False


OURS: Final = (
    Way(_CHAT, "Dragoman, unread", _CHAT, "", unread=True),
    Way(_CHAT, "Dragoman, unread, another name", _CHAT, "openai_chat/", unread=True),
    Way(_MESSAGES, "Dragoman, unread, Messages", _MESSAGES, "", unread=True),
    Way("Dragoman", "Dragoman, read", _CHAT, "openai_chat/"),
    Way("Dragoman", "Dragoman, Chat Completions → Messages", _CHAT, "anthropic_messages/"),
    Way("Dragoman", "Dragoman, Messages → Chat Completions", _MESSAGES, "openai_chat/"),
)
_OTHERS: Final = (
    Way("nginx", "nginx", _CHAT, ""),
    Way("LiteLLM", "LiteLLM", _CHAT, ""),
    Way("LiteLLM", "LiteLLM, Chat Completions → Messages", _CHAT, "claude/"),
)
_BESIDE: Final = {"Dragoman, Chat Completions → Messages": "LiteLLM, Chat Completions → Messages"}
"""What of LiteLLM's stands beside what; otherwise its way without translation."""


class Task(NamedTuple):
    """What is asked for."""

    said: str
    model: str
    stream: bool
    deltas: int
    times: int
    """By each round; a tenth of it of LiteLLM."""
    goal: float
    """How many times Dragoman's CPU time LiteLLM's is to be."""
    at_once: int = 4


TASKS: Final = (
    Task("whole reply", "alone", False, 16, 400, 75),
    Task("a delta alone", "alone", True, 300, 20, 55),
    Task("8 deltas at once", "burst", True, 300, 20, 115),
)
_PACED: Final = Task("200 streams of 50 deltas a second", "paced", True, 50, 200, 0, at_once=200)
_OF_NGINX: Final = 2.5
"""How many times nginx's CPU time that may take."""


def measure(quick: bool) -> Iterator[Figure]:
    """Each task by all that are here."""
    here = found()
    with ExitStack() as stack:
        behind = stack.enter_context(serving("floor"))
        proxies = {name: stack.enter_context(proxy(name, behind.port)) for name in here}
        ways = [way for way in (*OURS, *_OTHERS) if way.proxy in here]
        for task in TASKS:
            small = task._replace(times=2, deltas=min(task.deltas, 16))
            yield from asyncio.run(_task(small if quick else task, ways, proxies, 1 if quick else 7))
        few = [way for way in ways if way.proxy != "LiteLLM"]  # which would take minutes for one round
        paced = _PACED._replace(times=2, deltas=2, at_once=2) if quick else _PACED
        yield from asyncio.run(_task(paced, few, proxies, 1 if quick else 5))


async def _task(task: Task, ways: list[Way], proxies: dict[str, Server], rounds: int) -> list[Figure]:
    spent: dict[str, list[float]] = {way.said: [] for way in ways}
    for way in ways:
        await ask(task, way, proxies[way.proxy], 2)
    for number in range(rounds):
        for way in random.Random(number).sample(ways, len(ways)):
            server = proxies[way.proxy]
            times = max(2, task.times // 10) if way.proxy == "LiteLLM" else task.times
            before = cpu_ns(server.pid)
            await ask(task, way, server, times)
            spent[way.said].append((cpu_ns(server.pid) - before) / times)
    return [figure for way in ways for figure in _figures(task, way, spent)]


async def ask(task: Task, way: Way, server: Server, times: int) -> None:
    """Do it so many times."""
    body = small_body(way.front, way.prefix + task.model, stream=task.stream, max_tokens=task.deltas)
    await server.load(dialects.get(way.front).path, body, times, min(task.at_once, times))


def _figures(task: Task, way: Way, spent: dict[str, list[float]]) -> Iterator[Figure]:
    """The cost itself beside nginx, and Dragoman's beside LiteLLM, whose goal is that many times less."""
    per, unit = (task.deltas, "µs/delta") if task.stream else (1, "µs")
    mine = spent[way.said]
    value, best = statistics.median(mine) / per / 1000, min(mine) / per / 1000

    def ratio(other: str) -> float:
        return statistics.median(a / b for a, b in zip(mine, spent[other], strict=True))

    floor = "nginx" if "nginx" in spent and way.proxy != "nginx" else ""
    share = ratio(floor) if floor else None
    goal = _OF_NGINX * value / share if share and not task.goal else None
    yield Figure(f"{task.said}: {way.said}", value, unit, best, share, floor, goal)
    other = _BESIDE.get(way.said, "LiteLLM")
    if way in OURS and other in spent and task.goal:
        share = ratio(other)
        yield Figure(
            f"{task.said}: {way.said}, beside LiteLLM", value, unit, best, share, other, value / share / task.goal
        )
