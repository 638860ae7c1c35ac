"""Metrics of reloads of the configuration."""

import time
from typing import TYPE_CHECKING, Any

from dragoman.server.observe.process_metrics import ProcessFamilies
from dragoman.server.reload.report import RESULTS, ReloadResult

if TYPE_CHECKING:
    from dragoman.server.observe.shared_metrics import SharedFamilies


class ReloadMetrics:
    """How often the configuration was reloaded, and when."""

    def __init__(self, make: "ProcessFamilies | SharedFamilies") -> None:
        self._reloads: Any = make.counter(
            "dragoman_config_reloads_total", "Reloads of the configuration, by their result.", ("result",)
        )
        for result in RESULTS:  # at 0: a series that does not exist yet has no rate
            self._reloads.labels(result)
        self._reloaded_at: Any = make.gauge(
            "dragoman_config_reloaded_timestamp_seconds",
            "When the configuration was last reloaded, in seconds since 1970; 0: not since the start.",
            "latest",
        )

    def count(self, result: ReloadResult) -> None:
        """Counts a reload."""
        self._reloads.labels(result).inc()
        if result != "rejected":
            self._reloaded_at.set(time.time())
