"""The thirty tasks, by domain."""

from typing import Final

from bench.accuracy.scenarios.cases import calendar, files, orders, stock, tickets
from bench.accuracy.scenarios.scenario import Scenario

SCENARIOS: Final[dict[str, Scenario]] = {
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
