"""What a check reports: a place, what is wrong there, and what to write instead."""

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Finding:
    """One violation of a rule."""

    path: str
    line: int
    found: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: found {self.found}: {self.instead}"
