"""Every regular expression of the package takes linear time, for any repeated text.

A pattern is tested with the methods that its module uses: a search of a whole text costs more than a match at one
position.
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
"""Modules that run as scripts and are not imported."""
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
"""Shorter times are too small to compare."""
MOST = 9
"""Times as long, for four times the text."""
LIMIT_S = 20
WHOLE_TEXT = ("search", "finditer", "findall", "sub", "subn", "split")
BOUNDED = {
    "parsing.untagged.trailing_json._HEAD": "of HEAD_CHARS characters",
}
"""Patterns that only get text of a limited length."""


def modules() -> list[str]:
    found = [module.name for module in pkgutil.walk_packages(dragoman.__path__, "dragoman.")]
    return [name for name in found if name.rpartition(".")[2] not in SKIPPED]


def patterns_in(value: object) -> Iterator[re.Pattern[Any]]:
    """Yields the patterns in a value of a module, also those of bound methods."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(getattr(value, "__self__", None), re.Pattern):
        yield value.__self__  # type: ignore[attr-defined]
    elif isinstance(value, dict):
        for each in value.values():
            yield from patterns_in(each)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from patterns_in(each)


def uses(source: str, name: str) -> tuple[str, ...]:
    """Returns the methods that a module calls on a pattern of this name."""
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
            for each in patterns_in(value):
                found.setdefault(each, (f"{module.removeprefix('dragoman.')}.{name}", each, uses(source, name)))
    return list(found.values())


def cpu_time_s(pattern: re.Pattern[Any], how: str, text: str) -> float:
    """Returns the CPU time in seconds."""
    data = text.encode() if isinstance(pattern.pattern, bytes) else text
    began = time.process_time()
    if how == "finditer":
        for _ in pattern.finditer(data):
            pass
    else:
        getattr(pattern, how)(data)
    return time.process_time() - began


def growth(pattern: re.Pattern[Any], how: str, piece: str) -> float:
    """How many times as long four times the text takes; 0 where the time is too short to tell."""
    for _ in range(4):  # what is slow by chance is not slow four times
        less = cpu_time_s(pattern, how, piece * SIZE)
        if less < FREE_S:
            return 0.0
        factor = cpu_time_s(pattern, how, piece * SIZE * 4) / less
        if factor <= MOST:
            break
    return factor


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs setitimer to interrupt a pattern that does not end")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray, when it is imported
def test_every_regex_is_linear() -> None:
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
                    factor = growth(pattern, how, piece)
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
