"""Metrics of the state of backends, set when they are read: ready, running and waiting requests, circuit breakers."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dragoman.server.observe.process_metrics import ProcessFamilies

if TYPE_CHECKING:
    from dragoman.server.observe.shared_metrics import SharedFamilies


class BackendGauges:
    """The gauges of all backends, by their names."""

    def __init__(self, make: "ProcessFamilies | SharedFamilies") -> None:
        label = ("backend",)
        self._names: set[str] = set()
        """Names of the backends that have values."""
        self._up: Any = make.labelled_gauge(
            "dragoman_backend_up", "Whether a backend can answer: 1, else 0.", label, "running_min"
        )
        self._active: Any = make.labelled_gauge(
            "dragoman_backend_active_requests", "Requests that a backend answers now.", label, "running_max"
        )
        self._waiting: Any = make.labelled_gauge(
            "dragoman_backend_waiting_requests", "Requests that wait for a slot of a backend.", label, "running_max"
        )
        self._breaker: Any = make.labelled_gauge(
            "dragoman_backend_breaker_open",
            "Whether a failing server gets no requests, or one to try it: 1, else 0.",
            label,
            "running_max",
        )

    def set(self, states: Sequence[Mapping[str, object]]) -> None:
        """Sets the gauges.

        Args:
            states: The facts about each backend for /health; two backends may have the same name.
        """
        ready: dict[str, bool] = {}
        for state in states:
            name = str(state.get("backend", ""))
            ready[name] = ready.get(name, True) and bool(state["ready"])
            for family, key in ((self._active, "active"), (self._waiting, "waiting")):
                if isinstance(count := state.get(key), int):
                    family.labels(name).set(count)
            if breaker := state.get("breaker"):
                self._breaker.labels(name).set(breaker != "closed")
        for name, is_ready in ready.items():
            self._up.labels(name).set(is_ready)
        for name in self._names - ready.keys():
            for family in (self._up, self._active, self._waiting, self._breaker):
                with suppress(KeyError):  # not all backends have all values
                    family.remove(name)
        self._names = set(ready)
