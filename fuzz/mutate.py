"""Every mutation gives a text or body near to a good one: random bytes find little, good ones damaged find much."""

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import AnyStr, TypeVar

T = TypeVar("T")


def damaged(good: AnyStr, words: Sequence[AnyStr], chance: random.Random) -> AnyStr:
    """The text with one to four slices taken out, doubled, moved, or replaced by a word of its own kind."""
    text = good
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randint(0, len(text))
        to = min(len(text), at + chance.choice((0, 1, 1, 2, 5, 20, 100)))
        piece, word = text[at:to], chance.choice(words)
        match chance.randrange(6):
            case 0:
                text = text[:at] + text[to:]
            case 1:
                text = text[:to] + piece * chance.choice((1, 2, 30)) + text[to:]
            case 2:
                there = chance.randint(0, len(text))
                text = text[:there] + piece + text[there:]
            case 3:
                text = text[:at]
            case _:
                text = text[:at] + word * chance.choice((1, 1, 1, 2, 40)) + text[to:]
    return text


def spliced(one: AnyStr, other: AnyStr, chance: random.Random) -> AnyStr:
    """The beginning of one and the end of the other."""
    return one[: chance.randint(0, len(one))] + other[chance.randint(0, len(other)) :]


def smallest(bad: AnyStr, fails: Callable[[AnyStr], bool]) -> AnyStr:
    """What is left of a failing input when nothing more can be taken out of it."""
    size = max(1, len(bad) // 2)
    while True:
        at, shorter = 0, False
        while at < len(bad):
            less = bad[:at] + bad[at + size :]
            if fails(less):
                bad, shorter = less, True
            else:
                at += size
        if not shorter and size == 1:
            return bad
        size = size if shorter else max(1, size // 2)


def run(doc: str, attempt: Callable[[random.Random], str]) -> int:
    """Attempts until the time is over or one fails, in which case `attempt` gives what to print; the exit status."""
    parser = argparse.ArgumentParser(description=doc.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, help="repeat a run; default: a new one")
    args = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if args.seed is None else args.seed
    chance, began, count = random.Random(seed), time.monotonic(), 0
    while (spent := time.monotonic() - began) < args.seconds:
        failure = attempt(chance)
        count += 1
        if failure:
            print(f"failed after {count} executions, seed {seed}:\n\n{failure}")
            return 1
    print(f"{count} executions, {count / spent:.0f} a second, seed {seed}: nothing found", file=sys.stderr)
    return 0
