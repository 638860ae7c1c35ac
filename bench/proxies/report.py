"""Tables of the results: CPU time and memory of each contender, and Dragoman's CPU time relative to the others'."""

import json
import re
import statistics
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from bench.figures import Figure, machine
from bench.proxies import contenders
from bench.proxies.rounds import Cell, Results
from bench.proxies.scenarios import SCENARIOS, Scenario

BEGIN: Final = "<!-- Written by `make bench ARGS=--write`. -->"
END: Final = "<!-- End of the written part. -->"

_FRACTIONS: Final = (
    *((other, ours) for other, ours in ((contenders.LITELLM, own) for own in contenders.OURS[:2])),
    (contenders.LITELLM_TRANSLATED, contenders.TRANSLATED),
    (contenders.CCR, contenders.TRANSLATED),
    *((own, contenders.NGINX) for own in contenders.OURS),
    *((own, contenders.SMG) for own in contenders.OURS[:2]),  # it does not translate
)
"""Pairs of which the ratio first / second is printed."""
_SHORT: Final = {
    contenders.PASSTHROUGH: "passthrough",
    contenders.PARSED: "parsed",
    contenders.TRANSLATED: "translated",
    contenders.LITELLM_TRANSLATED: "LiteLLM, translated",
    contenders.CCR: "claude-code-router",
}


def median_us(results: Results, scenario: Scenario, contender: str) -> float | None:
    """Returns microseconds of CPU time of a request or delta; None: not measured."""
    values = results.cpu.get(Cell(scenario.name, contender), {}).values()
    return statistics.median(values) / 1000 if values else None


def ratio(results: Results, scenario: Scenario, above: str, below: str) -> float | None:
    """Returns the median of the ratios of the rounds in which both were measured; None: there are none.

    Args:
        results: CPU times by round.
        scenario: the kind of load.
        above: contender in the numerator.
        below: contender in the denominator.
    """
    first, second = (results.cpu.get(Cell(scenario.name, name), {}) for name in (above, below))
    ratios = [value / second[number] for number, value in first.items() if number in second]
    return statistics.median(ratios) if ratios else None


def figures(results: Results) -> Iterator[Figure]:
    """Yields CPU times with their ratio to nginx, and memory."""
    for scenario in SCENARIOS:
        for contender in contenders.CONTENDERS:
            values = results.cpu.get(Cell(scenario.name, contender.name), {}).values()
            if not values:
                continue
            name, reference = f"{scenario.title}: {contender.name}", contenders.NGINX
            value, best = statistics.median(values) / 1000, min(values) / 1000
            share = ratio(results, scenario, contender.name, reference)
            yield Figure(name, value, scenario.unit, best, share, reference if share else "")
    for contender_name, memory in results.memory.items():
        yield Figure(f"idle process: {contender_name}", memory.idle / 1e6, "MB")
        # No memory is added if it was free before.
        yield Figure(f"open stream: {contender_name}", max(memory.per_stream, 1) / 1000, "KB")


def markdown(results: Results, versions: Mapping[str, str]) -> str:
    """Returns both tables and a line that names the machine and the versions."""
    names = ", ".join(f"{name} {version}" for name, version in versions.items())
    heads = ["CPU time, µs", *(scenario.title for scenario in SCENARIOS), "memory, idle", "per open stream"]
    rows = [_contender_row(results, one.name) for one in contenders.CONTENDERS if one.name in results.memory]
    fractions = ["ratio of CPU times", *(scenario.title for scenario in SCENARIOS)]
    ratios = [row for pair in _FRACTIONS if any(row := _ratio_row(results, *pair))]
    return f"{machine()}; {names}.\n\n{_table(heads, rows)}\n\n{_table(fractions, ratios)}\n"


def _contender_row(results: Results, name: str) -> list[str]:
    memory = results.memory[name]
    cells = [_number(median_us(results, scenario, name)) for scenario in SCENARIOS]
    return [name, *cells, f"{memory.idle / 1e6:.0f} MB", f"{memory.per_stream / 1000:.0f} KB"]


def _ratio_row(results: Results, above: str, below: str) -> list[str]:
    ratios = [ratio(results, scenario, above, below) for scenario in SCENARIOS]
    if not any(ratios):
        return []
    return [f"{_SHORT.get(above, above)} / {_SHORT.get(below, below)}", *(_number(one) for one in ratios)]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 1 else f"{value:.3g}"


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(page: Path, text: str) -> None:
    """Replaces what is between the two marks in the page.

    Raises:
        ValueError: the page lacks a mark.
    """
    content = page.read_text()
    if BEGIN not in content or END not in content:
        raise ValueError(
            f"expected {BEGIN!r} and {END!r} in {page}, at least one is missing; add them around the tables"
        )
    before, _, rest = content.partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{text.strip()}\n\n{END}{rest.partition(END)[2]}")


def program_versions() -> dict[str, str]:
    """Returns the versions of the installed programs."""
    versions = {}
    if nginx := contenders.nginx_program():
        printed = subprocess.run([str(nginx), "-v"], capture_output=True, text=True, check=True).stderr
        versions["nginx"] = printed.strip().rpartition("/")[2]
    for title, package in (("LiteLLM", "litellm"), ("SMG", "smg")):
        names = [path.name for path in contenders.ENVIRONMENT.glob(f"lib/*/site-packages/{package}-*.dist-info")]
        if names and (found := re.search(r"-([\d.]+)\.dist-info", names[0])):
            versions[title] = found[1]
    package_file = contenders.ENVIRONMENT / "npm/node_modules/@musistudio/claude-code-router/package.json"
    if package_file.exists():
        versions["claude-code-router"] = json.loads(package_file.read_text())["version"]
    return versions
