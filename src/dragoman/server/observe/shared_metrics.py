"""Metrics that all processes of a gateway count together: each of them returns the sums.

Each process counts in a file of its own, which it maps, so a count costs about as much as in memory, and remains if the
process is killed. A new process continues the file of an ended one, so a counter never goes down, nothing is counted
twice, and there are not more files than processes at one time.

The multiprocess mode of prometheus-client also counts in files, but an environment variable must switch it on before it
is imported, it has no `Info`, and the files of ended processes add up. To ask the other processes by sockets would lose
the counts of a killed one; to write the whole registry at the end of each request would take over a millisecond.
"""

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final, Literal, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from dragoman.server.observe.value_file import Key, Row, ValueFile, read_rows
from dragoman.shared_files import claim_seat, is_locked

Merge: TypeAlias = Literal["sum", "running_sum", "running_min", "running_max", "earliest", "latest"]
"""How the values of several processes become one: the sum of all, also of ended ones; the sum, the lowest or the
highest value of the running ones; the lowest or highest value of all."""

_OPERATIONS: Final[Mapping[Merge, Callable[[Iterable[float]], float]]] = {
    "sum": sum, "running_sum": sum, "running_min": min, "running_max": max, "earliest": min, "latest": max
}  # fmt: skip


class SharedSeries:
    """One counter, gauge or histogram, with the methods of prometheus-client's classes."""

    __slots__ = ("_bounds", "_file", "_offset")

    def __init__(self, file: ValueFile, offset: int, bounds: Sequence[float]) -> None:
        self._file, self._offset, self._bounds = file, offset, bounds

    def inc(self, amount: float = 1) -> None:
        """Adds to the value."""
        self._file.add(self._offset, amount)

    def dec(self, amount: float = 1) -> None:
        """Subtracts from the value."""
        self._file.add(self._offset, -amount)

    def set(self, value: float) -> None:
        """Sets the value."""
        self._file.set(self._offset, value)

    def set_to_current_time(self) -> None:
        """Sets the value to the seconds since 1970, unless an ended process, which this one replaces, has done so."""
        self._file.set(self._offset, self._file.get(self._offset) or time.time())

    def observe(self, amount: float) -> None:
        """Adds a value to a histogram."""
        self._file.add(self._offset + 8 * bisect_left(self._bounds, amount), 1)
        self._file.add(self._offset + 8 * len(self._bounds), amount)


class SharedFamily:
    """The series of one metric; as prometheus-client's classes, `labels` returns one of them."""

    def __init__(self, families: "SharedFamilies", name: str, merge: Merge, bounds: Sequence[float] = ()) -> None:
        self.merge, self.bounds = merge, bounds
        self._families, self._name = families, name
        self._series: dict[tuple[str, ...], SharedSeries] = {}

    def labels(self, *values: str) -> SharedSeries:
        """Returns the series with these values of the labels."""
        if (series := self._series.get(values)) is None:
            # A histogram has a number for each bucket and one for the sum.
            offset = self._families.offset((self._name, *values), len(self.bounds) + 1)
            series = self._series[values] = SharedSeries(self._families.file, offset, self.bounds)
        return series

    def remove(self, *values: str) -> None:
        """Removes the series with these values of the labels, as far as this process has set it."""
        if (series := self._series.pop(values, None)) is not None:
            series.set(math.nan)

    def counts(self, value: float, *, is_running: bool) -> bool:
        """Returns whether a value of a process is part of the metric; the others were cleared or are not set yet."""
        if self.merge == "earliest":
            return value > 0
        return not math.isnan(value) and (is_running or not self.merge.startswith("running"))

    def merged(self, values: Sequence[float], more: Sequence[float]) -> tuple[float, ...]:
        """Returns the values of two processes as those of one."""
        return tuple(map(_OPERATIONS[self.merge], zip(values, more, strict=True)))


class SharedFamilies(Collector):
    """All metrics of a gateway, as one of its processes sees them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder, self._seat = folder, claim_seat(folder / "seats")
        self.file = ValueFile(self._path(self._seat))
        self._offsets = {row.key: row.offset for row in self.file.rows()}
        self._families: dict[str, SharedFamily] = {}
        self._metrics: dict[str, Callable[[], Metric]] = {}

    def counter(self, name: str, documentation: str, labels: Sequence[str]) -> SharedFamily:
        """Returns a new counter."""
        self._metrics[name] = lambda: CounterMetricFamily(name, documentation, labels=labels)
        return self._add(name, SharedFamily(self, name, "sum"))

    def gauge(self, name: str, documentation: str, merge: Merge) -> SharedSeries:
        """Returns a new gauge without labels."""
        return self.labelled_gauge(name, documentation, (), merge).labels()

    def labelled_gauge(self, name: str, documentation: str, labels: Sequence[str], merge: Merge) -> SharedFamily:
        """Returns a new gauge.

        Args:
            name: The name of the metric.
            documentation: What it means.
            labels: The names of its labels.
            merge: What is returned for several processes.
        """
        self._metrics[name] = lambda: GaugeMetricFamily(name, documentation, labels=labels)
        if merge.startswith("running"):
            self._clear(name)
        return self._add(name, SharedFamily(self, name, merge))

    def histogram(self, name: str, documentation: str, labels: Sequence[str], buckets: Sequence[float]) -> SharedFamily:
        """Returns a new histogram.

        Args:
            name: The name of the metric.
            documentation: What it means.
            labels: The names of its labels.
            buckets: The upper bounds, without infinity.
        """
        self._metrics[name] = lambda: HistogramMetricFamily(name, documentation, labels=labels)
        return self._add(name, SharedFamily(self, name, "sum", (*buckets, math.inf)))

    def offset(self, key: Key, count: int) -> int:
        """Returns where the values of this series are, which is created if it is missing."""
        if (offset := self._offsets.get(key)) is None:
            offset = self._offsets[key] = self.file.append(key, count)
        return offset

    def collect(self) -> Iterator[Metric]:
        """Yields the merged metrics of all processes."""
        merged: dict[Key, tuple[float, ...]] = {}
        for row in self._rows():
            values = merged.get(row.key)
            merged[row.key] = self._families[row.key[0]].merged(values, row.values) if values else row.values
        metrics = {name: make() for name, make in self._metrics.items()}
        for (name, *labels), values in merged.items():
            _add_sample(metrics[name], labels, values, self._families[name].bounds)
        yield from metrics.values()

    def _rows(self) -> Iterator[Row]:
        """Yields the series of all processes that count."""
        for path in sorted(self._folder.glob("*.values")):
            is_own = path == self._path(self._seat)
            is_running = is_own or is_locked(self._folder / "seats" / path.stem)
            for row in self.file.rows() if is_own else read_rows(path):
                family = self._families.get(row.key[0])
                if family is not None and family.counts(row.values[0], is_running=is_running):
                    yield row

    def _add(self, name: str, family: SharedFamily) -> SharedFamily:
        self._families[name] = family
        return family

    def _clear(self, name: str) -> None:
        """Clears what an ended process has left of a gauge; a series that is not a number is not returned."""
        for key, offset in self._offsets.items():
            if key[0] == name:
                self.file.set(offset, math.nan)

    def _path(self, seat: int) -> Path:
        return self._folder / f"{seat}.values"


def _add_sample(metric: Metric, labels: Sequence[str], values: Sequence[float], bounds: Sequence[float]) -> None:
    match metric:
        case HistogramMetricFamily():
            *counts, total = values
            buckets = zip(map(floatToGoString, bounds), accumulate(counts), strict=True)
            metric.add_metric(labels, list(buckets), total)
        case CounterMetricFamily() | GaugeMetricFamily():
            metric.add_metric(labels, values[0])
