"""The thirty tasks, by domain."""

from typing import Final

from bench.accuracy.scenarios.cases import calendar, files, orders, stock, tickets
from bench.accuracy.scenarios.scenario import ToolScenario

SCENARIOS: Final[dict[str, ToolScenario]] = {
    scenario.name: scenario
    for scenario in (
        *orders.SCENARIOS,
        *stock.SCENARIOS,
        *tickets.SCENARIOS,
        *calendar.SCENARIOS,
        *files.SCENARIOS,
    )
}
"""By name."""
