"""The case files of the built-in formats; `dragoman formats test` reads the same notation."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from dragoman import formats
from dragoman.api import case_file
from dragoman.api.case_file import FormatCase, load_cases
from dragoman.core import events as ev
from support.paths import DATA

TOOLS = list(case_file.TOOLS)


class Case(FormatCase):
    """A case of the built-in format with this name."""

    def __init__(self, format: str, title: str, text: str, expected: list[str], options: dict[str, str] | None = None):
        super().__init__(formats.get(format), title, text, expected, options or {})
        self.format = format

    def changed(self, **changes: Any) -> "Case":
        fields = ("format", "title", "text", "expected", "options")
        return Case(**{name: changes.get(name, getattr(self, name)) for name in fields})


def load(path: Path) -> list[Case]:
    cases = load_cases(path, formats.get(path.stem))
    return [Case(path.stem, case.title, case.text, case.expected, case.options) for case in cases]


@cache
def cases_by_format() -> dict[str, list[Case]]:
    return {path.stem: load(path) for path in sorted((DATA / "formats").glob("*.txt"))}


def all_cases() -> list[Case]:
    return [case for cases in cases_by_format().values() for case in cases]


def title(case: Case) -> str:
    return case.title


def shown(events: Iterable[ev.AnyEvent], ids: bool = False, late: bool = False) -> list[str]:
    return case_file.show_events(events, ids=ids, late=late)
