"""Reads the metrics of a running gateway over HTTP, for `dragoman doctor`.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/ (2026-11); parsed by Prometheus' own parser.
"""

import time
from collections import Counter
from collections.abc import Iterable

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from dragoman.cli._common import gateway_key
from dragoman.cli.doctor.gateway_client import gateway_url, open_gateway
from dragoman.config.server import ServerConfig
from dragoman.core.errors import ConfigError
from dragoman.server.observe.call_outcomes import FAILED


class Calls(msgspec.Struct, frozen=True):
    """Outcomes of the tool calls of one model; see `call_outcomes`."""

    model: str
    calls: int
    valid: int
    """Valid as the model wrote them, at the first attempt."""
    repaired: int
    reasked: int
    failed: int
    unchecked: int

    @property
    def share(self) -> float | None:
        """Returns the share of valid calls among the validated ones, or None if there are none."""
        checked = self.calls - self.unchecked
        return self.valid / checked if checked else None


class MetricsSnapshot(msgspec.Struct, frozen=True):
    """The metrics of one gateway since its start."""

    version: str
    up_s: float
    requests: int
    failures: int
    in_flight: int
    not_ready: tuple[str, ...]
    """Names of the backends that are not ready."""
    models: tuple[Calls, ...]
    """The models with calls, most calls first."""


async def fetch_metrics(config: ServerConfig) -> MetricsSnapshot:
    """Returns the metrics of the gateway that runs with these settings.

    Raises:
        BackendUnavailableError: nothing listens there.
        ForeignError: another program does; no key was sent to it.
        ConfigError: the gateway has no metrics, or refuses access; the message says why.
    """
    async with open_gateway(gateway_url(config), gateway_key(config)) as gateway:
        status, body = await gateway.request("GET", "/metrics")
    if status != 200:
        raise ConfigError(f"the gateway at {gateway.url} {_refusal(status)}")
    return _summary(gateway.version, body.decode("utf-8", "replace"))


def _refusal(status: int) -> str:
    match status:
        case 401:
            return "takes other keys than server.api_keys; was it started with these settings? Or set DRAGOMAN_API_KEY"
        case 403:
            return "answers /metrics for keys with admin = true only: set another DRAGOMAN_API_KEY"
        case 404:
            return "has no /metrics: server.metrics is off there, or it is older than this"
        case _:
            return f"answered /metrics with status {status}"


def _summary(version: str, text: str) -> MetricsSnapshot:
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    began_s = _sum(samples, "dragoman_start_time_seconds")
    backend_samples = [sample for sample in samples if sample.name == "dragoman_backend_up"]
    return MetricsSnapshot(
        version=version,
        up_s=max(time.time() - began_s, 0),
        requests=_sum(samples, "dragoman_requests_total"),
        failures=_sum(samples, "dragoman_failures_total"),
        in_flight=_sum(samples, "dragoman_requests_in_flight"),
        not_ready=tuple(sample.labels["backend"] for sample in backend_samples if not sample.value),
        models=tuple(_by_model(samples)),
    )


def _sum(samples: Iterable[Sample], name: str) -> int:
    return round(sum(sample.value for sample in samples if sample.name == name))


def _by_model(samples: Iterable[Sample]) -> list[Calls]:
    outcomes_by_model: dict[str, Counter[str]] = {}
    for sample in samples:
        if sample.name == "dragoman_tool_calls_total":
            outcomes_by_model.setdefault(sample.labels["model"], Counter())[sample.labels["outcome"]] += round(
                sample.value
            )
    calls = [
        Calls(
            model=model,
            calls=outcomes.total(),
            valid=outcomes["valid"],
            repaired=outcomes["repaired"],
            reasked=outcomes["reasked"],
            failed=sum(outcomes[one] for one in FAILED),
            unchecked=outcomes["unchecked"],
        )
        for model, outcomes in outcomes_by_model.items()
    ]
    return sorted(calls, key=lambda one: (-one.calls, one.model))
