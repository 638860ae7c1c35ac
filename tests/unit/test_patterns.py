"""Every regular expression of the package takes time linear in the text that it is given, whatever the text repeats.

A pattern is tried in the ways in which its module uses it: a search of a whole text is another matter than a match at
one place of it.
"""

import gc
import importlib
import pkgutil
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import dragoman
from dragoman import formats
from support.paths import ROOT
from support.sampling import sample

PACKAGE = ROOT / "src/dragoman"
SKIPPED = ("__main__", "llama_worker", "render_worker", "reaper_worker")
"""Modules that are run, not imported."""
PIECES = (
    *"a \n\t\\\"'{}[]()<>`,.:=_0e-#|%&/;~*A\x00é一",
    *(
        "\r\n",
        "a ",
        " \n",
        "\n\n ",
        "a\n ",
        "</",
        "```",
        "a=",
        "a.b",
        "a-",
        "1.",
        "<|",
        "{%",
        "{{",
        "//",
        "http://",
        "data:",
    ),
    *("\\u", '{"', '": ', "function", "to=", "<think>", "[^", "(?", "2020-01-01"),
)
SIZE = 500
FREE_S = 0.0005
"""What takes less says nothing."""
MOST = 9
"""Times as long, for four times the text."""
LIMIT_S = 20
WHOLE_TEXT = ("search", "finditer", "findall", "sub", "subn", "split")
BOUNDED = {
    "parsing.untagged.trailing_json._HEAD": "of HEAD_CHARS characters",
}
"""Patterns that are given no more than so many characters."""


def modules() -> list[str]:
    found = [module.name for module in pkgutil.walk_packages(dragoman.__path__, "dragoman.")]
    return [name for name in found if name.rpartition(".")[2] not in SKIPPED]


def inside(value: object) -> Iterator[re.Pattern[Any]]:
    """The patterns in a value of a module, bound methods of them too."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(getattr(value, "__self__", None), re.Pattern):
        yield value.__self__  # type: ignore[attr-defined]
    elif isinstance(value, dict):
        for each in value.values():
            yield from inside(each)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from inside(each)


def uses(source: str, name: str) -> tuple[str, ...]:
    """How a module uses a pattern of this name."""
    found = set(re.findall(rf"\b{re.escape(name)}(?:\[\w+\])?\.(\w+)", source))
    return ("finditer",) if found & {*WHOLE_TEXT} else ("match", "fullmatch")


def patterns() -> list[tuple[str, re.Pattern[Any], tuple[str, ...]]]:
    for name in formats.names():
        formats.get(name)
    found: dict[re.Pattern[Any], tuple[str, re.Pattern[Any], tuple[str, ...]]] = {}
    for module in modules():
        loaded = importlib.import_module(module)
        source = Path(loaded.__file__ or "").read_text()
        for name, value in vars(loaded).items():
            for each in inside(value):
                found.setdefault(each, (f"{module.removeprefix('dragoman.')}.{name}", each, uses(source, name)))
    return list(found.values())


def spent(pattern: re.Pattern[Any], how: str, text: str) -> float:
    """Seconds of CPU time."""
    data = text.encode() if isinstance(pattern.pattern, bytes) else text
    began = time.process_time()
    if how == "finditer":
        for _ in pattern.finditer(data):
            pass
    else:
        getattr(pattern, how)(data)
    return time.process_time() - began


def grows(pattern: re.Pattern[Any], how: str, piece: str) -> float:
    """How many times as long four times the text takes; 0 where the time is too short to tell."""
    for _ in range(4):  # what is slow by chance is not slow four times
        less = spent(pattern, how, piece * SIZE)
        if less < FREE_S:
            return 0.0
        factor = spent(pattern, how, piece * SIZE * 4) / less
        if factor <= MOST:
            break
    return factor


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs an alarm to end a pattern that takes for ever")
def test_every_pattern_is_linear() -> None:
    def too_long(_: int, __: FrameType | None) -> None:
        raise TimeoutError

    was = signal.signal(signal.SIGALRM, too_long)
    gc.disable()
    slow = []
    try:
        for name, pattern, hows in patterns():
            for how, piece in ((how, piece) for how in hows for piece in sample(PIECES, 12, name)):
                signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
                try:
                    factor = grows(pattern, how, piece)
                except TimeoutError:
                    factor = float("inf")
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                if factor > MOST and name not in BOUNDED:
                    slow.append((name, how, piece, round(factor)))
                    break
    finally:
        gc.enable()
        signal.signal(signal.SIGALRM, was)
    assert not slow, "\n".join(map(str, slow))
