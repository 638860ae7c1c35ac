"""Reads the metrics of a running gateway over HTTP, for `dragoman doctor`.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/ (2026-11); parsed by Prometheus' own parser.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from dragoman.backends.http.client.errors import HttpError
from dragoman.backends.http.client.http_client import HttpClient
from dragoman.config import ServerConfig
from dragoman.core.errors import BackendUnavailableError, ConfigError
from dragoman.server.observe.call_outcomes import FAILED

_TIMEOUT_S: Final = 5.0
_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""A gateway that listens on all addresses is reached on this machine's own."""
_ROOT_LIMIT_BYTES: Final = 4096
_METRICS_LIMIT_BYTES: Final = 64 * 1024 * 1024


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


class ForeignError(ConfigError):
    """The program that responds is not a gateway."""


class _Root(msgspec.Struct):
    name: str = ""
    version: str = ""


def gateway_url(config: ServerConfig) -> str:
    """Returns the URL of a gateway with these settings on this machine."""
    host = _ANY_ADDRESS.get(config.host, config.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{config.port}"


async def fetch_metrics(config: ServerConfig) -> MetricsSnapshot:
    """Returns the metrics of the gateway that runs with these settings.

    Raises:
        BackendUnavailableError: nothing listens there.
        ForeignError: another program does; no key was sent to it.
        ConfigError: the gateway has no metrics, or refuses access; the message says why.
    """
    where = gateway_url(config)
    client = HttpClient(where)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            root = _read((await _get(client, "/", {}, _ROOT_LIMIT_BYTES))[1])
            if root is None:  # before a key is sent
                raise ForeignError(f"what answers at {where} is not a gateway; server.port chooses another port")
            key = {"authorization": f"Bearer {config.api_keys[0]}"} if config.api_keys else {}
            status, body = await _get(client, "/metrics", key, _METRICS_LIMIT_BYTES)
    except (HttpError, TimeoutError) as error:
        raise BackendUnavailableError(f"no gateway answers at {where}") from error
    finally:
        await client.close()
    if status != 200:
        raise ConfigError(f"the gateway at {where} {_refusal(status)}")
    return _summary(root.version, body.decode("utf-8", "replace"))


async def _get(client: HttpClient, path: str, headers: Mapping[str, str], max_bytes: int) -> tuple[int, bytes]:
    response = await client.send("GET", path, headers=headers, timeout_s=_TIMEOUT_S)
    try:
        return response.status, await response.read_body(max_bytes)
    finally:
        response.close()


def _read(body: bytes) -> _Root | None:
    try:
        root = msgspec.json.decode(body, type=_Root)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return root if root.name == "dragoman" else None


def _refusal(status: int) -> str:
    match status:
        case 401:
            return "takes other keys than server.api_keys; was it started with these settings?"
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
