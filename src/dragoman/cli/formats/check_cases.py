"""`dragoman formats test`: reads each case of a file whole, per character, cut and truncated at many positions."""

import json
from collections.abc import Iterable, Sequence
from difflib import ndiff
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import Final, NamedTuple

from dragoman import plugins
from dragoman.api.case_file import FormatCase, load_cases, show_events
from dragoman.cli.formats.find import KnownFormat, find_format
from dragoman.core.collect import collect
from dragoman.core.errors import ConfigError
from dragoman.core.events import AnyEvent, Finish, Start
from dragoman.core.messages import ToolCall
from dragoman.parsing.format import Format

MAX_CUTS: Final = 100
"""Positions at which a text is cut; of a longer text, evenly distributed ones are used."""
ROUND_TRIPS: Final[Sequence[tuple[str, Sequence[tuple[str, object]]]]] = (
    ("one call", [("get_weather", {"city": "Paris"})]),
    ("no arguments", [("ping", {})]),
    ("two calls", [("get_weather", {"city": "Paris"}), ("ping", {})]),
    ("types", [("set_alarm", {"hour": 7, "volume": 0.5, "repeat": True, "note": None, "days": [1, "a"], "at": {}})]),
    ("unicode and line breaks", [("write_file", {"text": 'Zürich ☕\n"quoted"\t\\'})]),
)


class CaseFailure(NamedTuple):
    """A case that was not read as expected."""

    title: str
    how: str
    """How it was read, such as `cut at 12`."""
    expected: Sequence[str]
    got: Sequence[str]

    def __str__(self) -> str:
        """Returns the lines that differ, `-` expected and `+` got."""
        lines = [line for line in ndiff(self.expected, self.got) if not line.startswith("?")]
        return f"FAILED {self.title} ({self.how}; - expected, + got)\n{indent(chr(10).join(lines), '    ')}"


def find_cases(file: Path, config: Path | None) -> tuple[KnownFormat, list[FormatCase]]:
    """Returns the format and the cases of a case file, or of the module of a format.

    The cases of `mine.py` are in `mine.txt` next to it, or in `tests/data/formats` of the repository. The format of
    `mine.txt` is that of `mine.py` next to it, or else the format with this name.

    Args:
        file: The path of either.
        config: The settings file; None: the default one.

    Raises:
        ConfigError: One of the two does not exist or is invalid.
    """
    if file.suffix == ".py":
        places = [file.with_suffix(".txt"), *(up / "tests/data/formats" / f"{file.stem}.txt" for up in _above(file))]
        cases = next((place for place in places if place.is_file()), None)
        if cases is None:
            raise ConfigError(f"{file} has no cases: expected them in {places[0]}")
        found = find_format(str(file))
    elif not file.is_file():
        raise ConfigError(f"cannot read {file}: there is no such file; `dragoman formats new NAME` writes one")
    else:
        cases, module = file, file.with_suffix(".py")
        found = find_format(str(module) if module.is_file() else file.stem, config)
    return found, load_cases(cases, found.format)


def _above(file: Path) -> Sequence[Path]:
    return file.resolve().parents


def check_cases(format: Format, cases: Iterable[FormatCase]) -> list[CaseFailure]:
    """Returns the cases that are not read as expected, and the calls that are not read as they were written."""
    checks = [
        *((case.title, partial(_check_case, case)) for case in cases),
        *((f"round trip: {title}", partial(_check_round_trip, format, title, calls)) for title, calls in ROUND_TRIPS),
    ]
    failures: list[CaseFailure] = []
    for title, check in checks:
        try:
            failures += filter(None, [check()])
        except Exception as error:  # noqa: BLE001 a format may be the code of another program
            failures.append(CaseFailure(title, "the format failed", (), [plugins.describe_failure(error)]))
    return failures


def _check_case(case: FormatCase) -> CaseFailure | None:
    """Returns the first way of reading the case that gives other events than expected; None: all are right."""
    ids, text = case.expects_ids, case.text
    positions = _positions(len(text))
    ways = [
        ("whole", [text]),
        ("per character", [*text]),
        *((f"cut at {at}", [text[:at], text[at:]]) for at in positions),
    ]
    for how, pieces in ways:
        got = show_events(case.read(pieces), ids=ids)
        if got != case.expected:
            return CaseFailure(case.title, how, case.expected, got)
    complete = _calls(case.read([text], "stop"))
    for at in positions:
        calls = _calls(case.read([text[:at]], "length"))
        if calls != complete[: len(calls)]:
            return CaseFailure(case.title, f"truncated at {at}", complete[: len(calls)], calls)
    return None


def _calls(events: Sequence[AnyEvent]) -> list[str]:
    return [line for line in show_events(events) if line.startswith("call ")]


def _check_round_trip(format: Format, title: str, calls: Sequence[tuple[str, object]]) -> CaseFailure | None:
    """Returns what the format reads of these calls, if it is not what it wrote."""
    made = [
        ToolCall(f"call{number:05}", name, json.dumps(arguments, ensure_ascii=False))
        for number, (name, arguments) in enumerate(calls)
    ]
    text = format.write_calls(made)
    events = FormatCase(format, title, text, []).read([text])
    parts = collect([Start("", "", 0), *events, Finish("stop")]).parts
    if [(part.name, json.loads(part.arguments)) for part in parts if isinstance(part, ToolCall)] == list(calls):
        return None
    expected = [f"call {call.name} {call.arguments}" for call in made]
    return CaseFailure(f"round trip: {title}", "written, then read", expected, show_events(events))


def _positions(length: int) -> list[int]:
    step = max(1, -(-length // MAX_CUTS))
    return list(range(0, length + 1, step))
