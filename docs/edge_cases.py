"""The page of edge cases, made of `edge_cases.toml`; a rule that nothing shows cannot get onto it."""

import re
import tomllib
from pathlib import Path

import msgspec

ROOT = Path(__file__).parent.parent
DATA = Path(__file__).parent / "edge_cases.toml"
NUMBERS = [f"E{n:02}" for n in range(1, 46)]
INTRO = """Where translation between APIs, and between text and calls, goes wrong in practice: 45 cases, what Dragoman
does about each, and what shows that it does: tests, or cases in files of cases, named by file and title.
`tests/meta/test_edge_cases.py` sees to it that each of them is there.

"""


class EdgeCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of them."""

    title: str
    rule: str
    proofs: tuple[str, ...]


class MissingProofError(Exception):
    """The page would say something that nothing shows."""


def read(text: str) -> dict[str, EdgeCase]:
    """By number; all numbers are there, and what each proof names exists.

    Raises: MissingProofError: which does not.
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
    """Whether there is such a test, `tests/test_x.py::test_y`, or such a case, `tests/data/x.txt: title`."""
    file, is_test, name = proof.partition("::")
    line = rf"^(?:async )?def {re.escape(name)}\("
    if not is_test:
        file, _, title = proof.partition(": ")
        line = rf"^# {re.escape(title)}$"
    path = ROOT / file
    return path.is_file() and re.search(line, path.read_text(), re.MULTILINE) is not None


def page(note: str) -> str:
    """The page; `note` stands below its title."""
    sections = []
    for number, case in read(DATA.read_text()).items():
        proofs = "\n".join(f"- `{proof}`" for proof in case.proofs)
        sections.append(f"## {number} {case.title}\n\n{case.rule.strip()}\n\n{proofs}\n")
    return f"# Edge cases\n\n{note}{INTRO}" + "\n".join(sections)
