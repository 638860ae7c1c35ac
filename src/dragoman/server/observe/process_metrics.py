"""Metrics of a gateway with one process, in the memory of prometheus-client."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

if TYPE_CHECKING:
    from dragoman.server.observe.shared_metrics import Merge


class ProcessFamilies:
    """The metrics of a gateway with one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def counter(self, name: str, documentation: str, labels: Sequence[str]) -> Counter:
        """Returns a new counter."""
        return Counter(name, documentation, labels, registry=self._registry)

    def gauge(self, name: str, documentation: str, merge: "Merge") -> Gauge:
        """Returns a new gauge without labels."""
        return Gauge(name, documentation, registry=self._registry)

    def labelled_gauge(self, name: str, documentation: str, labels: Sequence[str], merge: "Merge") -> Gauge:
        """Returns a new gauge.

        Args:
            name: The name of the metric.
            documentation: What it means.
            labels: The names of its labels.
            merge: What is returned for several processes; not used here.
        """
        return Gauge(name, documentation, labels, registry=self._registry)

    def histogram(self, name: str, documentation: str, labels: Sequence[str], buckets: Sequence[float]) -> Histogram:
        """Returns a new histogram.

        Args:
            name: The name of the metric.
            documentation: What it means.
            labels: The names of its labels.
            buckets: The upper bounds, without infinity.
        """
        return Histogram(name, documentation, labels, registry=self._registry, buckets=buckets)
