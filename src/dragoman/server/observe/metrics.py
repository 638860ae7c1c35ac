"""Prometheus metrics at /metrics: requests, durations, tokens, and outcomes of tool calls by model and tool.

Everything is counted at the end of a request, from its record, so that deltas cost nothing. Names of models and tools
come from clients, so both are bounded: models that are served, the first `_PAIRS` pairs of model and tool, and `other`
for all the rest.

Source: https://prometheus.io/docs/practices/naming/, https://prometheus.io/docs/practices/instrumentation/ (2026-11).
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Info, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric

from dragoman import __version__
from dragoman.core.errors import BackendUnavailableError, UnknownModelError
from dragoman.core.messages import Request
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.vendor_tools.tool_runs import ToolRunRecord
from dragoman.records.writer import RecordWriter
from dragoman.server.base_exchange import Route
from dragoman.server.observe.access_log import NAME_LIMIT_CHARS, AccessRecord
from dragoman.server.observe.backend_gauges import BackendGauges
from dragoman.server.observe.call_outcomes import OUTCOMES
from dragoman.server.observe.exchange_record import DroppedRecords
from dragoman.server.observe.process_metrics import ProcessFamilies
from dragoman.server.reload.metrics import ReloadMetrics

if TYPE_CHECKING:
    from dragoman.server.observe.shared_metrics import SharedFamilies

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
OTHER: Final = "other"
"""Label for models that are not served, and for tools and models beyond the bounds."""
_MODELS: Final = 200
_LABELS: Final = 1000
_PAIRS: Final = 500
"""Maximum number of pairs of model and tool: ten models with an agent that has fifty tools."""
_BUCKETS_S: Final = (0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 30, 60, 120, 300, 600)
"""From the first token of a cloud model to a local model that reads a long prompt for minutes."""

_CONVERSION_BUCKETS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)
_PUBLISH_INTERVAL_S: Final = 1.0
"""Time between two messages to other processes which backends are ready."""


class Metrics:
    """The metrics of one application, in a registry of its own; with `shared_dir` also those of the other processes."""

    def __init__(self, gateway: Gateway, shared_dir: Path | None = None, records: RecordWriter | None = None) -> None:
        self._models: set[str] = set()
        self._labels: dict[tuple[str, str], str] = {}
        """Labels by the model names of requests: finding one is slow if a backend has hundreds of models."""
        self._pairs: set[tuple[str, str]] = set()
        self._children: dict[tuple[Any, tuple[str, ...]], Any] = {}
        """Series by family and labels, whose number is bounded."""
        self.registry = r = _Registry(auto_describe=False)
        self._publishes_state = False
        """Whether a timer publishes which backends are ready, for the other processes."""
        self._is_shared = shared_dir is not None
        Info("dragoman_build", "Which version runs.", registry=r).info({"version": __version__})
        make = _families(r, shared_dir)
        make.gauge(
            "dragoman_start_time_seconds", "When the gateway was started, in seconds since 1970.", "earliest"
        ).set_to_current_time()
        self._backends = BackendGauges(make)
        self._in_flight = make.gauge("dragoman_requests_in_flight", "Requests that are being answered.", "running_sum")
        self._in_flight.set(0)
        labels = ("dialect", "model", "status")
        self._requests = make.counter(
            "dragoman_requests_total", "Requests for an answer, over by now.", (*labels, "upstream")
        )
        self._counts = make.counter("dragoman_token_counts_total", "Requests for a number of tokens.", labels)
        self._failures = make.counter(
            "dragoman_failures_total",
            "Requests that ended in an error, by its name in docs/errors.md; also streams that broke off after a 200.",
            ("dialect", "model", "error", "upstream"),
        )
        self._seconds = make.histogram(
            "dragoman_answer_duration_seconds",
            "Time from a request to the last byte of its answer, of those that began.",
            ("model",),
            _BUCKETS_S,
        )
        self._first_seconds = make.histogram(
            "dragoman_first_byte_seconds",
            "Time from a request to the first event of its answer, of those that are streamed.",
            ("model",),
            _BUCKETS_S,
        )
        self._conversion = make.histogram(
            "dragoman_conversion_seconds",
            "Time spent on reading and writing the JSON of both APIs, by answer, without waiting for anything.",
            ("model",),
            _CONVERSION_BUCKETS_S,
        )
        self._overhead = make.histogram(
            "dragoman_overhead_seconds",
            "Time from a request to the first event of its answer, without waiting for the servers.",
            ("model",),
            _CONVERSION_BUCKETS_S,
        )
        self._define_counts(make)
        self.reloads = ReloadMetrics(make)
        self._dropped_records = DroppedRecords(make, records) if records is not None else None
        self.follow(gateway)

    def follow(self, gateway: Gateway) -> None:
        """Reports on this gateway from now on, and no longer on the previous one."""
        self._gateway = gateway
        self._labels.clear()
        gateway.on_tool_run = self._count_tool_run

    def _define_counts(self, make: "ProcessFamilies | SharedFamilies") -> None:
        """Defines what is counted of each response."""
        self._repeats = {
            "retry": make.counter("dragoman_retries_total", "Requests sent to a server again.", ("upstream",)),
            "failover": make.counter(
                "dragoman_failovers_total", "Failures after which another server was asked.", ("upstream",)
            ),
            "reask": make.counter(
                "dragoman_reasks_total", "Responses after which the model was re-asked.", ("upstream",)
            ),
        }
        self._placements = make.counter(
            "dragoman_placements_total",
            "Requests of rules with the balance `prefix`, by why their upstream was chosen.",
            ("upstream", "reason"),
        )
        self._key_requests = make.counter("dragoman_key_requests_total", "Requests by API key.", ("key", "status"))
        self._key_tokens = make.counter("dragoman_key_tokens_total", "Tokens by API key.", ("key", "kind"))
        self._cached = make.counter(
            "dragoman_cached_input_tokens_total", "Tokens of prompts that servers read from a cache.", ("model",)
        )
        self._cost = make.counter("dragoman_cost_usd_total", "Cost in US dollars, where it is known.", ("model",))
        self._input = make.counter(
            "dragoman_input_tokens_total", "Tokens of prompts, those from a cache too.", ("model",)
        )
        self._output = make.counter("dragoman_output_tokens_total", "Tokens that models wrote.", ("model",))
        self._passed_through = make.counter(
            "dragoman_passthrough_responses_total",
            "Responses that were passed through without being parsed; of streamed ones no calls are counted.",
            ("model",),
        )
        self._calls = make.counter(
            "dragoman_tool_calls_total", "Tool calls, by what became of them.", ("model", "tool", "outcome")
        )
        self._steps = make.counter(
            "dragoman_tool_call_repairs_total",
            "What was set right in tool calls, by the names of the steps; a call may have several.",
            ("model", "tool", "step"),
        )
        self._tool_runs = make.counter(
            "dragoman_tool_runs_total", "Runs of vendor tools by the gateway, by their result.", ("kind", "outcome")
        )
        self._tool_run_seconds = make.histogram(
            "dragoman_tool_run_duration_seconds", "Time of a run of a vendor tool.", ("kind",), _BUCKETS_S
        )
        self._warnings = make.counter(
            "dragoman_warnings_total", "Warnings, by their codes in docs/warnings.md.", ("model", "code")
        )

    async def text(self) -> bytes:
        """Returns the metrics of all processes as text, of the type `CONTENT_TYPE`."""
        self._set_up()
        # At the maximum number of series this takes 0.2 s, which must not block the streams.
        return await asyncio.to_thread(generate_latest, self.registry)

    def _set_up(self) -> None:
        self._backends.set(self._gateway.health())
        if self._dropped_records is not None:
            self._dropped_records.update()

    def _publish_state(self) -> None:
        """Publishes every second, from now on, which backends are ready."""
        self._set_up()
        asyncio.get_running_loop().call_later(_PUBLISH_INTERVAL_S, self._publish_state)

    def begin(self) -> None:
        """A request begins."""
        self._in_flight.inc()
        if self._is_shared and not self._publishes_state:
            self._publishes_state = True
            self._publish_state()

    def finish(self, route: Route, record: AccessRecord, gateway: Gateway | None = None) -> None:
        """Counts a finished request.

        Args:
            route: its path.
            record: what is recorded of it.
            gateway: the gateway that answered it; None: the current one.
        """
        self._in_flight.dec()
        dialect, model = route.label, self._model(record, gateway or self._gateway)
        upstream = record.attempts.upstream  # a name of the settings, so their number is bounded
        if route.counting:
            self._child(self._counts, dialect, model, str(record.status)).inc()
        else:
            self._child(self._requests, dialect, model, str(record.status), upstream).inc()
        if record.error:
            self._failures.labels(dialect, model, record.error.partition(":")[0], upstream).inc()
        for repeated, kind in record.attempts.repeats:
            self._child(self._repeats[kind], repeated).inc()
        if record.attempts.placement:
            self._child(self._placements, upstream, record.attempts.placement).inc()
        if record.client.key:
            self._child(self._key_requests, record.client.key, str(record.status)).inc()
            self._child(self._key_tokens, record.client.key, "input").inc(record.usage.input_tokens)
            self._child(self._key_tokens, record.client.key, "output").inc(record.usage.output_tokens)
        for code in record.warnings:
            self._warnings.labels(model, code).inc()
        if record.first_s is not None:
            self._answered(model, record, record.first_s)

    def _count_tool_run(self, run: ToolRunRecord) -> None:
        self._child(self._tool_runs, run.kind, run.outcome).inc()
        self._child(self._tool_run_seconds, run.kind).observe(run.seconds)

    def _answered(self, model: str, record: AccessRecord, first_s: float) -> None:
        self._child(self._seconds, model).observe(record.seconds)
        if record.request and record.request.stream:
            self._child(self._first_seconds, model).observe(first_s)
        if not record.is_passthrough:
            self._child(self._conversion, model).observe(record.spent.seconds)
        if (overhead_s := record.overhead_s) is not None:
            self._child(self._overhead, model).observe(overhead_s)
        self._child(self._input, model).inc(record.usage.input_tokens)
        self._child(self._output, model).inc(record.usage.output_tokens)
        if record.usage.cached_input_tokens:
            self._child(self._cached, model).inc(record.usage.cached_input_tokens)
        if record.usage.cost_usd:
            self._child(self._cost, model).inc(record.usage.cost_usd)
        if record.is_passthrough:
            self._child(self._passed_through, model).inc()
        for (tool, outcome), count in record.tally.outcomes.items():
            self._calls.labels(model, self._tool(model, tool), outcome).inc(count)
        for (tool, step), count in record.tally.steps.items():
            self._steps.labels(model, self._tool(model, tool), step).inc(count)

    def _child(self, family: Any, *labels: str) -> Any:
        """Returns the series of the family with these labels; looking it up there takes ten times as long."""
        key = (family, labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = family.labels(*labels)
        return child

    def _model(self, record: AccessRecord, gateway: Gateway) -> str:
        """Returns the model's own name for any alias; the alias itself if it stands for several models."""
        if (request := record.request) is None:
            return OTHER
        labels = (request.dialect, request.model)
        if (known := self._labels.get(labels)) is not None:
            return known
        name = _planned(request, gateway)
        # A backend may accept names that it does not list: one that it answered for is a model.
        if name is None or not (record.first_s is not None or _is_listed(name, gateway)):
            return OTHER
        if name not in self._models and len(self._models) >= _MODELS:
            return OTHER
        self._models.add(name)
        if len(self._labels) < _LABELS and gateway is self._gateway:
            self._labels[labels] = name
        return name

    def _tool(self, model: str, tool: str) -> str:
        pair = (model, tool)
        if pair in self._pairs:
            return tool
        if len(self._pairs) >= _PAIRS:
            return OTHER
        self._pairs.add(pair)
        for outcome in OUTCOMES:  # at 0: a series that does not exist yet has no rate
            self._calls.labels(model, tool, outcome)
        return tool


def _is_listed(name: str, gateway: Gateway) -> bool:
    return any(model.id[:NAME_LIMIT_CHARS] == name for model in gateway.models())


def _planned(request: Request, gateway: Gateway) -> str | None:
    """Returns the model that answers this request, or its alias if that stands for several."""
    try:
        own = {planned.model for _, planned in gateway.routes(request)}
    except (UnknownModelError, BackendUnavailableError):
        return None
    return (own.pop() if len(own) == 1 else request.model)[:NAME_LIMIT_CHARS]


def _families(registry: CollectorRegistry, shared_dir: Path | None) -> "ProcessFamilies | SharedFamilies":
    if shared_dir is None:
        return ProcessFamilies(registry)
    from dragoman.server.observe.shared_metrics import SharedFamilies

    families = SharedFamilies(shared_dir / "metrics")
    registry.register(families)
    return families


class _Registry(CollectorRegistry):
    """Without the `_created` series, which would double the number of series."""

    def collect(self) -> Iterator[Metric]:
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
