"""Writes the page of edge cases from `edge_cases.toml`; each rule on it names a test or test case that exists."""

import re
import tomllib
from pathlib import Path

import msgspec

ROOT = Path(__file__).parent.parent
DATA = Path(__file__).parent / "edge_cases.toml"
NUMBERS = [f"E{n:02}" for n in range(1, 46)]
INTRO = """What Dragoman does in 45 edge cases of translation between APIs, and between text and tool calls. Each entry
lists the tests that verify it: test functions, or cases in data files (file: title).

"""


class EdgeCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One edge case: its title, what Dragoman does, and the tests that verify it."""

    title: str
    rule: str
    proofs: tuple[str, ...]


class MissingProofError(Exception):
    """A rule has no proof, or its proof does not exist."""


def read(text: str) -> dict[str, EdgeCase]:
    """Returns the edge cases by number.

    Raises:
        MissingProofError: if a number or a proof is missing.
    """
    cases = msgspec.convert(tomllib.loads(text), dict[str, EdgeCase])
    if list(cases) != NUMBERS:
        odd = sorted(set(NUMBERS) ^ set(cases)) or ["their order"]
        raise MissingProofError(
            f"expected {NUMBERS[0]} to {NUMBERS[-1]}, each once and in order; look at {', '.join(odd)}"
        )
    for number, case in cases.items():
        if not (case.title and case.rule and case.proofs):
            raise MissingProofError(f"{number} lacks a title, a rule or a proof")
        for proof in case.proofs:
            if not exists(proof):
                raise MissingProofError(f"{number}: there is no {proof}")
    return cases


def exists(proof: str) -> bool:
    """Returns whether a test `tests/test_x.py::test_y` or a case `tests/data/x.txt: title` exists."""
    file, is_test, name = proof.partition("::")
    line = rf"^(?:async )?def {re.escape(name)}\("
    if not is_test:
        file, _, title = proof.partition(": ")
        line = rf"^# {re.escape(title)}$"
    path = ROOT / file
    return path.is_file() and re.search(line, path.read_text(), re.MULTILINE) is not None


def page(note: str) -> str:
    """Returns the page as Markdown, with `note` below its title."""
    sections = []
    for number, case in read(DATA.read_text()).items():
        proofs = "\n".join(f"- `{proof}`" for proof in case.proofs)
        sections.append(f"## {number} {case.title}\n\n{case.rule.strip()}\n\n{proofs}\n")
    return f"# Edge cases\n\n{note}{INTRO}" + "\n".join(sections)
